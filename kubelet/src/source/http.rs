//! Static pods of a URL: a Pod or a PodList, asked for every `httpCheckFrequency`.
//!
//! What was last understood stays desired while the URL does not answer, or answers something else.

use super::manifest::{self, Place};
use super::merge::Origin;
use super::{Delivered, MANIFEST_BYTES_MAX};
use ::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use bytes::Bytes;
use client::Clock;
use client::connect::{self, AskError};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The deadline of one request (kubelet contract §3).
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the request cannot be made")]
    Request(#[from] ::http::Error),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("read the body")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("context deadline exceeded")]
    Deadline,
}

/// Asks a URL for static pods.
pub(super) struct HttpSource {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) every: Duration,
    pub(super) node: String,
    pub(super) clock: Arc<dyn Clock>,
}

impl HttpSource {
    /// Delivers until shut down, from the first answer on.
    pub(super) async fn run(self, pods: watch::Sender<Delivered>, shutdown: CancellationToken) {
        let mut last: Option<Bytes> = None;
        let mut failures = 0_u32;
        loop {
            let fetched = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                fetched = tokio::time::timeout(DEADLINE, self.fetch()) => fetched.unwrap_or(Err(FetchError::Deadline)),
            };
            match fetched {
                Ok(body) if last.as_ref() == Some(&body) => failures = 0,
                Ok(body) => {
                    failures = 0;
                    self.take(&body, &pods);
                    last = Some(body);
                }
                Err(error) => {
                    failures += 1;
                    // Once in a while: a URL that is down for a day is one problem, not thousands.
                    if failures.is_power_of_two() {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(url = self.url, failures, error, "static pod URL not read");
                    }
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.every) => {}
            }
        }
    }

    fn take(&self, body: &Bytes, pods: &watch::Sender<Delivered>) {
        if body.is_empty() {
            tracing::error!(url = self.url, "zero-length data received from the static pod URL");
            pods.send_replace(Some(Vec::new()));
            return;
        }
        let place = Place {
            origin: Origin::Http,
            source: &self.url,
            node: &self.node,
            now: self.clock.now(),
        };
        match manifest::pods(body, place) {
            Ok(listed) => {
                pods.send_replace(Some(listed.into_iter().map(Arc::new).collect()));
            }
            Err(error) => tracing::error!(url = self.url, %error, "static pod URL gives no pods, what it gave stays"),
        }
    }

    async fn fetch(&self) -> Result<Bytes, FetchError> {
        let mut request = Request::get(&self.url)
            .header(header::USER_AGENT, format!("kubelet/{}", crate::config::VERSION))
            .body(Body::empty())?;
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name).map_err(::http::Error::from)?;
            let value = HeaderValue::try_from(value).map_err(::http::Error::from)?;
            request.headers_mut().append(name, value);
        }
        // A connection for each request: they are seldom, and a kept one would outlive a moved server.
        let answer = connect::ask(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MANIFEST_BYTES_MAX).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(FetchError::Body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::SystemClock;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that gives its answers one after another, then the last for ever; tells the requests.
    async fn serve(answers: Vec<(u16, &'static str)>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/pods", listener.local_addr().expect("address"));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        tokio::spawn(async move {
            let mut answers = answers.into_iter().peekable();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let count = socket.read(&mut request).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..count]).into_owned();
                seen.lock().expect("asked").push(text);
                let (code, body) = *answers.peek().expect("an answer");
                if answers.len() > 1 {
                    answers.next();
                }
                let head = format!(
                    "HTTP/1.1 {code} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        (url, asked)
    }

    #[tokio::test]
    async fn answers_are_taken_and_failures_change_nothing() {
        const ONE: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
        const TWO: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
        let answers = vec![
            (500, "x"),
            (200, ONE),
            (404, ""),
            (200, "{broken"),
            (200, TWO),
            (200, ""),
        ];
        let (url, asked) = serve(answers).await;
        let source = HttpSource {
            url,
            headers: vec![("x-one".into(), "1".into()), ("x-one".into(), "2".into())],
            every: Duration::from_millis(5),
            node: "n".into(),
            clock: Arc::new(SystemClock),
        };
        let (sender, mut pods) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(source.run(sender, stop.clone()));
        let mut names = Vec::new();
        let patience = Duration::from_secs(20);
        while names.last().map(String::as_str) != Some("") {
            tokio::time::timeout(patience, pods.changed())
                .await
                .expect("in time")
                .expect("runs");
            let delivered = pods.borrow_and_update().clone().expect("delivered");
            let name = delivered.first().and_then(|pod| pod.metadata.name.clone());
            names.push(name.unwrap_or_default());
        }
        assert_eq!(names, ["a-n", "b-n", ""]);
        let first = asked.lock().expect("asked")[0].clone();
        assert!(first.contains("x-one: 1") && first.contains("x-one: 2"), "{first}");
        stop.cancel();
        task.await.expect("ends");
    }
}
