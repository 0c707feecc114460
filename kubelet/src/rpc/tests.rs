use super::*;
use crate::device::socket;
use hyper_util::rt::TokioIo;
use proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::Code;
use tonic::transport::{Endpoint, Uri};

const SERVICE: &str = "test.Service";

/// A client of methods: `Double` doubles the length of a name as a status, `Hang` never answers, `Damaged` answers no message.
async fn client(answer_max: usize) -> Client {
    let methods: Methods = Arc::new(|path, request| {
        let answer = match path {
            "/test.Service/Double" => async move {
                let asked: HealthCheckRequest = decoded(request)?;
                let status = i32::try_from(asked.service.len() * 2).unwrap();
                Ok(HealthCheckResponse { status }.encode_to_vec())
            }
            .boxed(),
            "/test.Service/Hang" => std::future::pending().boxed(),
            "/test.Service/Damaged" => async { Ok(vec![0xff; 9]) }.boxed(),
            "/test.Service/Refuse" => async { Err(Status::not_found("not here")) }.boxed(),
            _ => return None,
        };
        Some(answer)
    });
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(socket::converse(theirs, socket::handler(methods)));
    let mut ours = Some(TokioIo::new(ours));
    let connector = tower::service_fn(move |_: Uri| {
        let ours = ours.take().ok_or_else(|| std::io::Error::other("again"));
        async move { ours }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    Client::new(channel, SERVICE, answer_max)
}

fn name(length: usize) -> HealthCheckRequest {
    HealthCheckRequest {
        service: "x".repeat(length),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_has_its_answer_or_says_why_not() {
    let client = client(1 << 16).await;
    let minute = Some(Duration::from_secs(60));
    for length in [0, 1, 100_000] {
        let answer: HealthCheckResponse = client.call("Double", name(length), minute).await.unwrap();
        assert_eq!(usize::try_from(answer.status), Ok(length * 2));
    }
    for (method, code, message) in [
        ("Refuse", Code::NotFound, "not here"),
        ("Unknown", Code::Unimplemented, ""),
        ("Hang", Code::DeadlineExceeded, "context deadline exceeded"),
    ] {
        let failure = client.call::<HealthCheckResponse, _>(method, name(1), minute).await;
        let status = failure.unwrap_err().into_status();
        assert_eq!((status.code(), status.message()), (code, message), "{method}");
    }
    let failure = client.call::<HealthCheckResponse, _>("Damaged", name(1), minute).await;
    assert_eq!(failure.unwrap_err().into_status().code(), Code::Internal);
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_refused_and_the_next_is_read() {
    let client = client(4).await;
    let failure = client.call::<HealthCheckResponse, _>("Damaged", name(1), None).await;
    assert_eq!(failure.unwrap_err().into_status().code(), Code::OutOfRange);
    let answer: HealthCheckResponse = client.call("Double", name(1), None).await.unwrap();
    assert_eq!(answer.status, 2);
}
