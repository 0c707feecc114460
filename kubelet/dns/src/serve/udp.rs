//! Questions by UDP.

use super::{Came, QUESTION_BYTES, Server, Sink};
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, RxqOvfl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// How many questions are answered before others get a turn. The first of them brings what the kernel dropped.
const BATCH: usize = 64;

/// Listens at an address. `waiting` is what the kernel may hold of questions that wait, in bytes.
pub(crate) async fn bind(address: SocketAddr, waiting: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).await?;
    // Beyond the system's limit where we may, up to it elsewhere.
    if setsockopt(&socket, RcvBufForce, &waiting).is_err() {
        let _ = setsockopt(&socket, RcvBuf, &waiting);
    }
    setsockopt(&socket, RxqOvfl, &1)?;
    Ok(socket)
}

/// Answers what comes to a socket.
pub(crate) async fn serve(server: Rc<Server>, socket: Rc<UdpSocket>) {
    let mut buffer = vec![0; QUESTION_BYTES];
    let mut out = Vec::with_capacity(usize::from(server.datagram_bytes));
    let mut dropped = 0;
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!(%error, "DNS socket");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut is_empty = false;
        for number in 0..BATCH {
            let received = match number {
                0 => receive(&socket, &mut buffer, &mut dropped).map(|(came, overflowed)| {
                    if overflowed {
                        server.fair.borrow_mut().overflow();
                    }
                    came
                }),
                _ => socket.try_recv_from(&mut buffer),
            };
            let (length, peer) = match received {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_empty = true;
                    break;
                }
                // What became of an answer sent before, such as that nobody was there any more.
                Err(_) => continue,
            };
            let came = Came {
                message: &buffer[..length],
                peer,
                tcp: false,
            };
            if server.handle(&came, &mut out, || Sink::Datagram(socket.clone(), peer)) {
                let _ = socket.try_send_to(&out, peer);
            }
        }
        // Who has read everything waits for more, and others get their turn by that: to yield before it would be one more look at all sockets.
        if !is_empty {
            tokio::task::yield_now().await;
        }
    }
}

/// A question's bytes and who asks, and whether the kernel dropped any since the last time; `dropped` is how many in all.
fn receive(socket: &UdpSocket, buffer: &mut [u8], dropped: &mut u32) -> io::Result<((usize, SocketAddr), bool)> {
    let before = *dropped;
    let came = socket.try_io(Interest::READABLE, || {
        let mut parts = [IoSliceMut::new(buffer)];
        let mut room = nix::cmsg_space!(u32);
        let flags = MsgFlags::empty();
        let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        for said in message.cmsgs()? {
            if let ControlMessageOwned::RxqOvfl(count) = said {
                *dropped = count;
            }
        }
        let peer = message.address.as_ref().and_then(peer_of);
        Ok((message.bytes, peer.ok_or(io::ErrorKind::InvalidData)?))
    })?;
    Ok((came, *dropped != before))
}

fn peer_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_drops_is_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            for any in ["127.0.0.1:0", "[::1]:0"] {
                let socket = bind(any.parse().unwrap(), 4096).await.unwrap();
                let client = std::net::UdpSocket::bind(any).unwrap();
                client.connect(socket.local_addr().unwrap()).unwrap();
                let (mut buffer, mut dropped) = ([0; 64], 0);
                let mut next = async || {
                    socket.readable().await.unwrap();
                    receive(&socket, &mut buffer, &mut dropped)
                };
                client.send(b"one").unwrap();
                let one = ((3, client.local_addr().unwrap()), false);
                assert_eq!(next().await.unwrap(), one, "nothing was dropped");
                // More than it has room for.
                (0..200).for_each(|_| drop(client.send(&[0; 64])));
                while next().await.is_ok_and(|(_, overflowed)| !overflowed) {}
                // What was queued before the first was dropped says nothing of it; what comes now does.
                client.send(b"two").unwrap();
                let overflowed = next().await.unwrap().1;
                client.send(b"three").unwrap();
                let again = next().await.unwrap().1;
                assert!(overflowed && !again, "{any}: {overflowed} {again}");
            }
        });
    }
}
