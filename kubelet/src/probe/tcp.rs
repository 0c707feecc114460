//! The TCP check: a connection that opens, passes.

use super::Finding;
use super::check::authority;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// Opens and closes a connection.
pub async fn check(host: &str, port: u16, timeout: Duration) -> Finding {
    match dial(host, port, timeout).await {
        Ok(_) => Finding::Pass,
        Err(error) => Finding::Fail(dial_text(host, port, &error)),
    }
}

/// A connection that lingers one second at most when closed, so that a dead peer does not hold the port for minutes.
///
/// # Errors
/// What the kernel says, or `TimedOut` past the timeout.
pub(super) async fn dial(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let connect = TcpStream::connect((host, port));
    let stream = tokio::time::timeout(timeout, connect)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 1,
    };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger)?;
    Ok(stream)
}

/// The error, in the words users search for.
pub(super) fn dial_text(host: &str, port: u16, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {}: {why}", authority(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_open_port_passes_and_a_closed_one_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        assert_eq!(check("127.0.0.1", port, Duration::from_secs(5)).await, Finding::Pass);
        drop(listener);
        let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(
            check("127.0.0.1", port, Duration::from_secs(5)).await,
            Finding::Fail(text)
        );
    }
}
