//! Places of commands that run to their end, checkpoints nobody waits for, and tokens that many show at once.

use super::*;
use crate::runtime::RuntimeError;
use crate::runtime::fake::Mishap;
use crate::server::router::Target;
use crate::server::{checkpoint, stream};
use http::HeaderMap;
use std::pin::pin;
use tokio::task::JoinSet;
use tonic::Code;

fn target(container: &str) -> Target {
    Target {
        namespace: "shop".into(),
        pod: "web".into(),
        uid: None,
        container: container.into(),
    }
}

fn post(path: &str) -> hyper::Request<Empty<bytes::Bytes>> {
    let request = hyper::Request::post(path)
        .header("host", "node-a")
        .header("authorization", "Bearer good");
    request.body(Empty::new()).expect("request")
}

#[tokio::test]
async fn a_command_that_runs_to_its_end_has_a_place_among_the_streams() {
    let bench = bench().await;
    let (server, query) = (&bench.server, Query::parse("cmd=ls"));
    let (request, target) = (hyper::Request::new(()), target("main"));
    bench.runtime.next("ExecSync", Mishap::Hang);
    {
        let mut running = pin!(stream::run(server, &target, &query, &request));
        assert!(futures::poll!(&mut running).is_pending());
        assert_eq!(server.streams.available_permits(), STREAMS_MAX - 1);
    }
    assert_eq!(server.streams.available_permits(), STREAMS_MAX);
    let taken: Vec<_> = std::iter::repeat_with(|| server.of_pods.take("u-1".into()))
        .take_while(Option::is_some)
        .collect();
    let (code, text) = bench.send(false, post("/run/shop/web/main?cmd=ls")).await;
    assert_eq!((taken.len(), code), (STREAMS_OF_POD_MAX, 429), "{text}");
    let calls = bench.runtime.calls();
    assert_eq!(
        calls.iter().filter(|call| call.starts_with("ExecSync")).count(),
        1,
        "{calls:?}"
    );
}

#[tokio::test]
async fn what_is_asked_is_judged_before_whom_it_is_asked_of() {
    let bench = bench().await;
    for path in ["/exec/shop/none/main?command=ls", "/attach/shop/none/main"] {
        assert_eq!(bench.send(false, post(path)).await.0, 400, "{path}");
    }
    for (path, code) in [("tailLines=x", 400), ("tailLines=-1", 422), ("stream=Stdout", 422)] {
        let path = format!("/containerLogs/shop/none/main?{path}");
        assert_eq!(bench.get(Some("good"), &path).await.0, code, "{path}");
    }
}

#[tokio::test]
async fn a_checkpoint_nobody_waits_for_ends_as_any_other() {
    let bench = bench().await;
    let failed = Mishap::Fail(RuntimeError::new("CheckpointContainer", Code::Unknown, "half done"));
    bench.runtime.next("CheckpointContainer", Mishap::Hang);
    bench.runtime.next("CheckpointContainer", failed);
    let directory = bench.dir.path().join("checkpoints");
    let archives = || std::fs::read_dir(&directory).map_or(0, Iterator::count);
    let server = bench.server.clone();
    let asked = tokio::spawn(async move {
        let query = Query::parse("");
        checkpoint::checkpoint(&server, &target("main"), &query).await
    });
    while archives() == 0 {
        tokio::task::yield_now().await;
    }
    asked.abort();
    assert!(asked.await.expect_err("given up").is_cancelled());
    let (code, text) = bench.send(false, post("/checkpoint/shop/web/main")).await;
    assert_eq!(code, 429, "the turn is not free yet: {text}");
    // The runtime's deadline passes at once where nothing else happens.
    tokio::time::pause();
    let turn = bench.server.checkpoints.one().acquire_owned().await.expect("free");
    tokio::time::resume();
    drop(turn);
    assert_eq!(archives(), 0);
}

/// An API server that answers no review until it is told to, and counts them.
fn slow_api(open: watch::Receiver<bool>, asked: watch::Sender<usize>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut open, asked) = (open.clone(), asked.clone());
        async move {
            let body = request.into_body().collect().await.map_err(std::io::Error::other)?;
            asked.send_modify(|asked| *asked += 1);
            let _ = open.wait_for(|open| *open).await;
            let mut answer: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
            answer["status"] = json!({"authenticated": false});
            let body = Full::new(bytes::Bytes::from(answer.to_string()));
            Ok::<_, std::io::Error>(http::Response::new(body))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn strangers_tokens_are_asked_about_a_few_at_a_time_and_equal_ones_once() {
    let (open, is_open) = watch::channel(false);
    let (asked, mut seen) = watch::channel(0);
    let auth = Arc::new(Auth::new(&settings(), Some(slow_api(is_open, asked)), "node-a"));
    let show = |address: &str, token: String| {
        let (auth, address) = (auth.clone(), address.parse().expect("an address"));
        async move {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer {token}").parse().expect("a value"));
            let certificate = None;
            auth.authenticate(&Peer { address, certificate }, Timestamp::now(), &headers)
                .await
        }
    };
    let mut requests = JoinSet::new();
    for number in 0..600 {
        requests.spawn(show("192.0.2.1:1", format!("stranger-{number}")));
    }
    for _ in 0..600 - 32 {
        let refused = requests.join_next().await.expect("one").expect("no panic");
        let why = refused.expect_err("told at once");
        assert!(matches!(*why, ReviewError::TooMany("TokenReview")), "{why}");
    }
    seen.wait_for(|asked| *asked == 8).await.expect("asked");
    assert_eq!(requests.len(), 32);
    for _ in 0..20 {
        requests.spawn(show("192.0.2.2:1", "the same".into()));
    }
    while auth.waiting() < 33 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*seen.borrow(), 8, "the others wait");
    open.send_replace(true);
    while let Some(answer) = requests.join_next().await {
        assert_eq!(answer.expect("no panic").expect("answered"), None);
    }
    assert_eq!(*seen.borrow(), 33, "one for those that are equal");
}

#[test]
fn who_comes_when_too_many_are_asked_about_is_told_to_come_again() {
    let answer = too_many(&ReviewError::TooMany("TokenReview"));
    let wait = answer.headers()["retry-after"].as_bytes();
    assert_eq!((answer.status().as_u16(), wait), (429, &b"1"[..]));
}
