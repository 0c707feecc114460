//! Questions of controllers to servers that are not ours: aggregated APIs answer them, so what is read of an answer is bounded.

use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::client::{Body, Client};
use kube::core::Status;
use serde::de::DeserializeOwned;

/// The longest message of a refusal, in bytes.
const MESSAGE_BYTES: usize = 4096;

/// Asks, and reads an answer of `most` bytes at most.
///
/// # Errors
/// As [`Client::request`]'s; an answer that is longer is one, too.
pub(super) async fn ask<T: DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
    most: usize,
) -> Result<T, kube::Error> {
    let reply = client.send(request.map(Body::from)).await?;
    let code = reply.status();
    let read = Limited::new(reply.into_body(), most).collect().await;
    let read = read.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
        true => kube::Error::Service(format!("the answer is longer than {most} bytes").into()),
        false => kube::Error::Service(error),
    })?;
    let bytes = read.to_bytes();
    if code.is_client_error() || code.is_server_error() {
        return Err(kube::Error::Api(Box::new(refusal(code.as_u16(), &bytes))));
    }
    serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)
}

/// A refusal as it says itself; who sends no status is quoted.
fn refusal(code: u16, body: &[u8]) -> Status {
    let read = serde_json::from_slice::<Status>(body);
    let mut status = read.unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "Failed to parse error data").with_code(code)
    });
    let end = status.message.floor_char_boundary(MESSAGE_BYTES);
    status.message.truncate(end);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use serde_json::{Value, json};

    async fn answer(code: u16, body: &str) -> Result<Value, kube::Error> {
        let body = body.to_owned().into_bytes();
        let service = tower::service_fn(move |_: Request<Body>| {
            let reply = Response::builder().status(code).body(Body::from(body.clone()));
            async move { reply }
        });
        let client = Client::new(service, "default");
        ask(&client, Request::new(Vec::new()), 10_000).await
    }

    #[tokio::test]
    async fn answers_are_read_up_to_a_length() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        assert!(answer(200, &text(10_000)).await.is_ok());
        for code in [200, 500] {
            let error = answer(code, &text(10_001)).await.unwrap_err().to_string();
            assert!(error.contains("the answer is longer than 10000 bytes"), "{error}");
        }
        assert!(matches!(answer(200, "{").await, Err(kube::Error::SerdeError(_))));
    }

    #[tokio::test]
    async fn refusals_are_told_in_their_own_words_and_not_for_ever() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "not you"});
        let long = format!("x{}", "é".repeat(4000));
        for (code, body, told, reason) in [
            (403, status.to_string(), "not you", "Forbidden"),
            (
                502,
                " bad gateway\n".to_owned(),
                "bad gateway",
                "Failed to parse error data",
            ),
            (502, long.clone(), &long[..4095], "Failed to parse error data"),
        ] {
            match answer(code, &body).await {
                Err(kube::Error::Api(status)) => {
                    assert_eq!((status.code, &*status.message, &*status.reason), (code, told, reason));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
