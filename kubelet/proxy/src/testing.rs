//! What several tests need.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks for a page: code and body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (head, body) = get_whole(address, path).await;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a status"), body)
}

/// Asks for a page: head and body.
pub(crate) async fn get_whole(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}
