//! What lies between a member and whoever connects to it: bytes that come late, and connections that are lost.
//!
//! A proxy of this process, for kernels without netem: what a lost packet does to TCP is bytes that come later, and at worst a connection that
//! is gone, and that is what is done here. Owns nothing but the bytes on their way.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a retransmission takes at least (Linux' `TCP_RTO_MIN`).
const AGAIN: Duration = Duration::from_millis(200);
/// Whoever is reached at all is reached in this time.
const CONNECTS: Duration = Duration::from_secs(3);
/// Bytes that are late together.
const TOGETHER: usize = 16 << 10;

/// How it is at present; fair at first.
#[derive(Debug, Default)]
pub struct Weather {
    /// The longest that bytes are late, in milliseconds.
    late_ms: AtomicU64,
    /// How many of a thousand are sent again, and how many of ten thousand take the connection with them.
    lost: AtomicU64,
}

impl Weather {
    /// From now on bytes are up to so late, and so many of a thousand are lost on their way.
    pub fn set(&self, late: Duration, lost: u64) {
        self.late_ms.store(late.as_millis() as u64, Ordering::SeqCst);
        self.lost.store(lost, Ordering::SeqCst);
    }

    /// How late the next bytes are; `None` if the connection is lost.
    fn next(&self, dice: &mut StdRng) -> Option<Duration> {
        let (late_ms, lost) = (self.late_ms.load(Ordering::SeqCst), self.lost.load(Ordering::SeqCst));
        if dice.random_range(0..10_000) < lost {
            return None;
        }
        let late = Duration::from_millis(dice.random_range(0..=late_ms));
        let is_lost = dice.random_range(0..1000) < lost;
        Some(if is_lost { late + AGAIN } else { late })
    }
}

/// Hands on what comes to an address, in this weather, for as long as this process runs.
///
/// # Errors
/// The address is not this machine's, or in use.
pub fn carry(from: SocketAddr, to: SocketAddr, weather: Arc<Weather>, seed: u64) -> std::io::Result<()> {
    let listener = std::net::TcpListener::bind(from)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    tokio::spawn(async move {
        let mut dice = StdRng::seed_from_u64(seed);
        while let Ok((near, _)) = listener.accept().await {
            let (weather, seeds) = (Arc::clone(&weather), [dice.random(), dice.random()]);
            tokio::spawn(async move {
                if let Ok(Ok(far)) = tokio::time::timeout(CONNECTS, TcpStream::connect(to)).await {
                    both(near, far, &weather, seeds).await;
                }
            });
        }
    });
    Ok(())
}

async fn both(mut near: TcpStream, mut far: TcpStream, weather: &Weather, seeds: [u64; 2]) {
    // Whoever has set it has set it for the whole way.
    let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
    let (near_in, near_out) = near.split();
    let (far_in, far_out) = far.split();
    // The end of one is the end of both.
    tokio::select! {
        biased;
        () = one(near_in, far_out, weather, seeds[0]) => {},
        () = one(far_in, near_out, weather, seeds[1]) => {},
    }
}

async fn one(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, weather: &Weather, seed: u64) {
    let (mut dice, mut bytes) = (StdRng::seed_from_u64(seed), vec![0; TOGETHER]);
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let Some(late) = weather.next(&mut dice) else { return };
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Asks for an echo so often, over one connection after the other; how often one was lost, and how long the rest took.
    async fn echoes(weather: &Arc<Weather>, count: usize) -> (usize, Duration) {
        let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = there.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = there.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = near.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = free.local_addr().unwrap();
        drop(free);
        carry(near, far, Arc::clone(weather), 7).unwrap();
        let (mut lost, mut stream) = (0, TcpStream::connect(near).await.unwrap());
        let begin = Instant::now();
        for _ in 0..count {
            let mut answer = [0; 4];
            let asked = stream.write_all(b"ping").await;
            if asked.is_err() || stream.read_exact(&mut answer).await.is_err() {
                lost += 1;
                stream = TcpStream::connect(near).await.unwrap();
            }
        }
        (lost, begin.elapsed())
    }

    #[tokio::test]
    async fn bytes_come_late_and_connections_are_lost_as_the_weather_is() {
        let weather = Arc::<Weather>::default();
        assert_eq!(echoes(&weather, 50).await.0, 0);
        weather.set(Duration::from_millis(20), 0);
        let (lost, took) = echoes(&weather, 20).await;
        assert!(lost == 0 && took >= Duration::from_millis(100), "{lost} {took:?}");
        weather.set(Duration::ZERO, 1000);
        assert!(echoes(&weather, 50).await.0 > 0);
    }
}
