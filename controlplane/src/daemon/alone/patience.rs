//! A client that an API server may turn away for a while: it asks again when it was told to.
//!
//! Upstream's servers do so where too many ask at once (API priority and fairness), and count on clients that come back: client-go's do, up to
//! ten times, after 429 and 5xx with a `Retry-After`. Nothing of such a request was done, so any may be repeated. How long that may take
//! is bounded by the deadlines of those who ask.

use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use std::time::Duration;
use tokio::time::sleep;

/// How often a request is repeated (client-go's `maxRetries`).
const AGAIN: usize = 10;
/// The longest pause: whoever asks for more is asked earlier.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long to wait before asking again, if that is what the answer says.
fn pause<B>(reply: &Response<B>) -> Option<Duration> {
    let status = reply.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = reply.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// The client that comes back.
pub(super) fn patient(client: kube::Client) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let mut repeated = 0;
            loop {
                let request = Request::from_parts(parts.clone(), Body::from(body.to_vec()));
                let reply = client.send(request).await?;
                match pause(&reply).filter(|_| repeated < AGAIN) {
                    Some(pause) => sleep(pause).await,
                    None => return Ok::<_, kube::Error>(reply),
                }
                repeated += 1;
            }
        }
    });
    kube::Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;

    /// What comes of a request to a server that answers so the first times, how often it was asked, and how long it took.
    async fn ask(answers: &[(u16, Option<&'static str>)]) -> (u16, usize, Duration) {
        let (mut left, asked) = (answers.to_vec(), Arc::new(Mutex::new(Vec::new())));
        left.reverse();
        let told = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, after) = left.pop().unwrap_or((200, None));
            let told = Arc::clone(&told);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                told.lock()
                    .unwrap()
                    .push((parts.method, parts.uri.path().to_owned(), body));
                let reply = Response::builder().status(code);
                let reply = after
                    .into_iter()
                    .fold(reply, |reply, after| reply.header(RETRY_AFTER, after));
                reply.body(Body::from(b"Too many requests, please try again later.\n".to_vec()))
            }
        });
        let (client, began) = (patient(kube::Client::new(service, "default")), Instant::now());
        let request = Request::post("/api/v1/events")
            .body(Body::from(b"{}".to_vec()))
            .unwrap();
        let reply = client.send(request).await.unwrap();
        let asked = asked.lock().unwrap();
        for (method, path, body) in &*asked {
            assert_eq!(
                (method.as_str(), path.as_str(), &body[..]),
                ("POST", "/api/v1/events", &b"{}"[..])
            );
        }
        (reply.status().as_u16(), asked.len(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_come_back_does() {
        let seconds = Duration::from_secs;
        let soon = (429, Some("1"));
        for (answers, expected) in [
            (vec![], (200, 1, seconds(0))),
            (vec![soon, (503, Some("2")), soon], (200, 4, seconds(4))),
            // Nobody said when: whoever asks decides.
            (vec![(429, None)], (429, 1, seconds(0))),
            (vec![(503, None)], (503, 1, seconds(0))),
            (vec![(429, Some("soon"))], (429, 1, seconds(0))),
            (vec![(409, Some("1"))], (409, 1, seconds(0))),
            (vec![(429, Some("86400"))], (200, 2, PAUSE_MAX)),
            (vec![soon; 50], (429, AGAIN + 1, seconds(10))),
        ] {
            let (code, asked, took) = ask(&answers).await;
            // Timers are of whole milliseconds.
            let took = Duration::from_secs(took.as_secs());
            assert_eq!((code, asked, took), expected, "{answers:?}");
        }
    }
}
