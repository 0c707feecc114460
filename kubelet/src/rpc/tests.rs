use super::*;
use crate::device::socket;
use hyper_util::rt::TokioIo;
use proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::Code;
use tonic::transport::{Endpoint, Uri};

const SERVICE: &str = "test.Service";

/// A client of methods: `Double` doubles the length of a name as a status, `Hang` never answers, `Damaged` answers no message.
async fn client(answer_max: usize) -> Client {
    Client::new(channel().await, SERVICE, answer_max)
}

async fn channel() -> Channel {
    let methods: Methods = Arc::new(|path, request| {
        let answer = match path {
            "/test.Service/Double" => async move {
                let asked: HealthCheckRequest = decoded(request)?;
                let status = i32::try_from(asked.service.len() * 2).unwrap();
                Ok(HealthCheckResponse { status }.encode_to_vec())
            }
            .boxed(),
            "/test.Service/Large" => async { Ok(vec![0x0a; 1 << 20]) }.boxed(),
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
    endpoint.connect_with_connector(connector).await.unwrap()
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

#[tokio::test]
async fn answers_of_which_too_much_is_under_way_are_refused_and_what_is_read_is_not_held() {
    let budget = Budget::new(2 << 20);
    let client = Client::within(channel().await, budget.clone(), SERVICE, 4 << 20);
    let mut others = budget.share();
    // The last piece of it makes it whole: before that there is less of it.
    others.hold((1 << 20) + (64 << 10)).unwrap();
    let ask = |method| client.ask(method, Vec::new(), None);
    let Err(Failure::Status(status)) = ask("Large").await else {
        panic!("it is too large")
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(ask("Double").await.is_ok(), "what is small is read");
    others.hold(1 << 20).unwrap();
    assert_eq!(ask("Large").await.unwrap().len(), 1 << 20);
    drop(others);
    assert_eq!(budget.taken(), 0);
}

#[test]
fn messages_in_a_field_are_counted_without_being_decoded() {
    let bytes = |parts: &[&[u8]]| Bytes::from(parts.concat());
    let others: &[&[u8]] = &[
        &[0x08, 0x96, 0x01],
        &[0x12, 2, 7, 7],
        &[0x0d, 1, 2, 3, 4],
        &[0x0b, 0x0a, 1, 7, 0x0c],
    ];
    let of = |message: Bytes| repeated(&message, 1).map_err(|status| status.code());
    assert_eq!(of(bytes(others)), Ok((0, None)), "other fields and types");
    let found = [&[&[0x0a, 1, 5][..]], others, &[&[0x0a, 0]], &[&[0x0a, 2, 6, 6]]].concat();
    assert_eq!(of(bytes(&found)), Ok((3, Some(Bytes::from_static(&[5])))));
    for damaged in [
        &[0x0a][..],
        &[0x0a, 1],
        &[0x0a, 0x80],
        &[0xff],
        &[0x0b, 0x0a],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ] {
        assert_eq!(of(Bytes::copy_from_slice(damaged)), Err(Code::Internal), "{damaged:?}");
    }
}
