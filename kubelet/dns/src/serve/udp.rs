//! Questions by UDP.

use super::{Came, QUESTION_BYTES, Server, Sink};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UdpSocket;

/// How many questions are answered before others get a turn.
const BATCH: usize = 64;

/// What the kernel may hold of questions that wait, in bytes: a thread that gets no processor for some milliseconds loses none.
/// (Linux' 208 KiB are less than 300 questions.)
const WAITING_BYTES: usize = 4 << 20;

/// Listens at an address.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).await?;
    // Beyond the system's limit where we may, up to it elsewhere.
    if setsockopt(&socket, RcvBufForce, &WAITING_BYTES).is_err() {
        let _ = setsockopt(&socket, RcvBuf, &WAITING_BYTES);
    }
    Ok(socket)
}

/// Answers what comes to a socket.
pub(crate) async fn serve(server: Rc<Server>, socket: Rc<UdpSocket>) {
    let mut buffer = vec![0; QUESTION_BYTES];
    let mut out = Vec::with_capacity(usize::from(server.datagram_bytes));
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!(%error, "DNS socket");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for _ in 0..BATCH {
            let (length, peer) = match socket.try_recv_from(&mut buffer) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
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
        tokio::task::yield_now().await;
    }
}
