//! A kubelet's `/metrics/resource`, asked for by the API server itself, for metrics.k8s.io.

use super::target::{Target, kubelet_of};
use super::{KubeletProxy, tunnel};
use crate::apiserver::body;
use crate::apiserver::usage::Fetch;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;

/// Largest page that is read: a thousand containers take half of it.
const PAGE_BYTES: usize = 2 << 20;
const PATH: &str = "/metrics/resource";

impl KubeletProxy {
    /// Asks kubelets as the API server; who asks sets the deadline.
    pub fn usage_of_nodes(&self) -> Fetch {
        let tls = Arc::clone(&self.tls);
        Arc::new(move |name, node| {
            let tls = Arc::clone(&tls);
            Box::pin(async move {
                let target = kubelet_of(&name, &node, PATH.to_owned(), &tls);
                page(&target.map_err(|error| error.message)?).await
            })
        })
    }
}

async fn page(target: &Target) -> Result<Bytes, String> {
    let request = Request::builder().method(Method::GET).uri(target.path.as_str());
    let request = request.body(body::empty()).map_err(|error| error.to_string())?;
    let response = tunnel::send(target, request).await.map_err(|error| error.message)?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("request failed, status: \"{}\"", response.status()));
    }
    let content = Limited::new(response.into_body(), PAGE_BYTES).collect().await;
    let content = content.map_err(|error| format!("failed to read response body - {error}"))?;
    Ok(content.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What is made of these bytes, sent by whoever stands in a kubelet's place; `times` tells how often the last part comes.
    async fn answered(head: &str, part: &str, times: usize) -> Result<Bytes, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (head, part) = (head.to_owned(), part.to_owned());
        let kubelet = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            // Who has read enough hangs up.
            let _ = stream.write_all(head.as_bytes()).await;
            for _ in 0..times {
                if stream.write_all(part.as_bytes()).await.is_err() {
                    break;
                }
            }
            String::from_utf8(asked).unwrap()
        });
        let target = Target {
            host: "127.0.0.1".to_owned(),
            addresses: Vec::new(),
            port,
            path: PATH.to_owned(),
            tls: None,
        };
        let found = page(&target).await;
        let asked = kubelet.await.unwrap();
        assert!(asked.starts_with("GET /metrics/resource HTTP/1.1\r\n"), "{asked}");
        found
    }

    #[tokio::test]
    async fn a_page_is_read_whole() {
        let found = answered("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n", "a 1 2\n", 1).await;
        assert_eq!(found, Ok(Bytes::from("a 1 2\n")));
    }

    #[tokio::test]
    async fn what_is_too_long_cut_off_or_refused_is_an_error() {
        let kilobyte = "x".repeat(1 << 10);
        let chunk = format!("400\r\n{kilobyte}\r\n");
        for (head, part, times, error) in [
            (
                "HTTP/1.1 200 OK\r\n\r\n",
                &*kilobyte,
                3 << 10,
                "failed to read response body - ",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                &*chunk,
                3 << 10,
                "failed to read response body - ",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n",
                &*kilobyte,
                1,
                "failed to read response body - ",
            ),
            (
                "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
                "",
                0,
                "request failed, status: ",
            ),
            (
                "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
                "",
                0,
                "the backend attempted to redirect",
            ),
            ("", "", 0, "Internal error occurred: error dialing backend: "),
        ] {
            let found = answered(head, part, times).await.map(|page| page.len());
            assert!(
                found.as_ref().is_err_and(|why| why.starts_with(error)),
                "{head}: {found:?}"
            );
        }
    }
}
