//! Connections that ask for nothing, and many of one address.

use super::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether the server ends the connection within an hour, which passes at once where nothing happens.
async fn is_ended(mut connection: impl AsyncRead + Unpin) -> bool {
    tokio::time::pause();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(HOUR, connection.read_to_end(&mut rest)).await;
    tokio::time::resume();
    ended.is_ok()
}

#[tokio::test]
async fn who_asks_for_nothing_is_not_waited_for() {
    let bench = bench().await;
    let silent = TcpStream::connect(bench.read_only).await.expect("connect");
    assert!(is_ended(silent).await, "without TLS");
    assert!(is_ended(bench.greeted(false).await).await, "after the handshake");
    // HTTP/2 whose peer is there but answers no question whether it is.
    let mut preface = bench.greeted(false).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    preface.write_all(settings).await.expect("sent");
    assert!(is_ended(preface).await, "after the preface");
    let mut idle = TcpStream::connect(bench.read_only).await.expect("connect");
    let asked = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    idle.write_all(asked).await.expect("sent");
    idle.read_u8().await.expect("an answer");
    assert!(is_ended(idle).await, "between requests");
}

#[tokio::test]
async fn one_address_leaves_places_for_others() {
    let bench = bench().await;
    let connect = || async { TcpStream::connect(bench.read_only).await.expect("connect") };
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(connect().await);
    }
    let mut refused = connect().await;
    let read = refused.read(&mut [0]).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
    let mut other = socket.connect(bench.read_only).await.expect("connect");
    let asked = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    other.write_all(asked).await.expect("sent");
    other.read_u8().await.expect("an answer");
}
