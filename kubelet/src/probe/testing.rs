//! A server with prepared answers, for tests of probes and of hooks.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers each connection with the next reply; tells what it was asked.
pub(crate) async fn serve(replies: Vec<&'static str>) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let task = tokio::spawn(async move {
        let mut asked = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let mut buffer = vec![0; 4096];
            let length = stream.read(&mut buffer).await.expect("read");
            asked.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            stream.write_all(reply.as_bytes()).await.expect("write");
        }
        asked
    });
    (port, task)
}
