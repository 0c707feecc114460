use super::call::{Caller, judge};
use super::message::{self, Filtered};
use super::*;
use crate::scheduler::config::SchedulerConfig;
use crate::scheduler::testing::pod;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn parse(extenders: &str) -> Result<SchedulerConfig, String> {
    SchedulerConfig::parse(&format!("{HEAD}extenders: {extenders}\n"))
}

#[test]
fn words_are_understood() {
    let text = "[{urlPrefix: 'https://x:1/a/', filterVerb: filter, prioritizeVerb: score, weight: 3, bindVerb: bind, preemptVerb: preempt, enableHTTPS: true,
        tlsConfig: {insecure: true, serverName: s}, httpTimeout: 250ms, nodeCacheCapable: true, ignorable: true,
        managedResources: [{name: example.com/gpu, ignoredByScheduler: true}, {name: example.com/disk}]}]";
    let config = parse(text).unwrap();
    let [extender] = config.extenders.as_slice() else {
        panic!("one extender")
    };
    assert_eq!(extender.url_prefix, "https://x:1/a");
    assert_eq!((extender.weight, extender.timeout), (3, Duration::from_millis(250)));
    assert_eq!(extender.preempt, "preempt");
    assert!(extender.knows_nodes && extender.ignorable && extender.tls.insecure);
    assert_eq!(config.profiles[0].args.fit.ignored, ["example.com/gpu"]);
    let plain = parse("[{urlPrefix: 'http://x', filterVerb: f}]")
        .unwrap()
        .extenders
        .remove(0);
    assert_eq!(
        (plain.timeout, plain.weight, plain.managed.len()),
        (Duration::from_secs(5), 0, 0)
    );
}

#[test]
fn mistakes_name_their_field() {
    let one = |words: &str| format!("[{{urlPrefix: 'http://x'}}, {{urlPrefix: 'http://y', {words}}}]");
    let table = [
        ("[{urlPrefix: 'ftp://x'}]".to_owned(), "extenders[0].urlPrefix"),
        ("[{}]".to_owned(), "extenders[0].urlPrefix"),
        ("[{urlPrefix: 'https://x'}]".to_owned(), "extenders[0].tlsConfig.caFile"),
        (one("nope: 1"), "nope"),
        (one("preemptVerb: 'p#q'"), "extenders[1].preemptVerb"),
        (one("filterVerb: 'a?b'"), "extenders[1].filterVerb"),
        (one("prioritizeVerb: p, weight: 0"), "extenders[1].weight"),
        (one("prioritizeVerb: p, weight: -1"), "extenders[1].weight"),
        (one("httpTimeout: soon"), "extenders[1].httpTimeout"),
        (one("httpTimeout: 11m"), "extenders[1].httpTimeout"),
        (one("enableHTTPS: true"), "extenders[1].enableHTTPS"),
        (
            one("tlsConfig: {insecure: true, caFile: f}"),
            "extenders[1].tlsConfig.insecure",
        ),
        (one("tlsConfig: {certFile: f}"), "extenders[1].tlsConfig.certFile"),
        (one("tlsConfig: {caData: '%'}"), "extenders[1].tlsConfig.caData"),
        (
            one("managedResources: [{name: cpu}]"),
            "extenders[1].managedResources[0].name",
        ),
        (
            one("managedResources: [{name: a.b/c}, {name: a.b/c}]"),
            "extenders[1].managedResources[1].name",
        ),
        (
            "[{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', bindVerb: b}]".to_owned(),
            "only one may implement bind",
        ),
    ];
    for (words, part) in table {
        let error = parse(&words).expect_err(&words);
        assert!(error.contains(part), "{words}: {error}");
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn answers_about_nodes() {
    let asked = names(&["a", "b", "c"]);
    let good = |nodes: &[&str], failed: &[(&str, &str)]| {
        Ok(Filtered {
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            failed: failed
                .iter()
                .map(|(name, why)| ((*name).to_owned(), (*why).to_owned()))
                .collect(),
        })
    };
    let table = [
        (
            json!({"NodeNames": ["a"], "FailedNodes": {"b": "no"}}),
            good(&["a"], &[("b", "no")]),
        ),
        (
            json!({"nodenames": ["a"], "failedNodes": {"b": "no"}, "error": ""}),
            good(&["a"], &[("b", "no")]),
        ),
        (
            json!({"Nodes": {"items": [{"metadata": {"name": "c"}}]}, "NodeNames": null, "FailedAndUnresolvableNodes": {"a": "x\ny"}}),
            good(&["c"], &[("a", "x y")]),
        ),
        (json!({}), good(&[], &[])),
    ];
    for (answer, expected) in table {
        assert_eq!(message::filtered(&answer, &asked), expected, "{answer}");
    }
    for bad in [
        json!([]),
        json!({"Error": "broken"}),
        json!({"Error": 1}),
        json!({"NodeNames": ["d"]}),
        json!({"NodeNames": [1]}),
        json!({"NodeNames": "a"}),
        json!({"Nodes": {"items": [{}]}}),
        json!({"NodeNames": ["a"], "FailedNodes": {"d": ""}}),
        json!({"NodeNames": ["a"], "FailedNodes": []}),
    ] {
        assert!(message::filtered(&bad, &asked).is_err(), "{bad}");
    }
}

#[test]
fn answers_about_scores_and_bindings() {
    let asked = names(&["a", "b"]);
    let scores = message::scores(&json!([{"Host": "a", "Score": 10}, {"host": "b", "score": 0}]), &asked);
    assert_eq!(scores, Ok(BTreeMap::from([("a".to_owned(), 10), ("b".to_owned(), 0)])));
    for bad in [
        json!({}),
        json!([{"Host": "c", "Score": 1}]),
        json!([{"Host": "a", "Score": 11}]),
        json!([{"Host": "a", "Score": -1}]),
        json!([{"Host": "a"}]),
        json!(["a"]),
    ] {
        assert!(message::scores(&bad, &asked).is_err(), "{bad}");
    }
    assert_eq!(message::bound(&json!({"Error": ""})), Ok(()));
    assert_eq!(message::bound(&Value::Null), Ok(()));
    assert_eq!(message::bound(&json!({"Error": "no"})), Err("no".to_owned()));
}

pub(in crate::scheduler) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that answers by path, one request a connection; a path of no answer stays silent.
pub(in crate::scheduler) async fn server(answers: Vec<(&'static str, u16, String)>) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prefix", listener.local_addr().unwrap());
    let asked = Asked::default();
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answers, noted) = (answers.clone(), noted.clone());
            tokio::spawn(async move {
                let mut text = Vec::new();
                let (mut head, mut length) = (String::new(), 0);
                while head.is_empty() || text.len() < length {
                    let mut part = [0; 65536];
                    let read = stream.read(&mut part).await.unwrap_or(0);
                    if read == 0 {
                        return;
                    }
                    text.extend_from_slice(&part[..read]);
                    if head.is_empty()
                        && let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n")
                    {
                        let body = text.split_off(end + 4);
                        head = String::from_utf8(std::mem::replace(&mut text, body))
                            .unwrap()
                            .to_lowercase();
                        let (_, rest) = head.split_once("content-length: ").unwrap();
                        length = rest.split_once("\r\n").unwrap().0.parse().unwrap();
                    }
                }
                let body = String::from_utf8(text).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                noted
                    .lock()
                    .unwrap()
                    .push((path.clone(), serde_json::from_str(&body).unwrap()));
                let Some((_, code, answer)) = answers.iter().find(|(known, _, _)| format!("/prefix/{known}") == path)
                else {
                    return std::future::pending::<()>().await;
                };
                let reply = format!(
                    "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                    answer.len()
                );
                // Who does not read all of it is what is tested.
                let _ = stream.write_all(reply.as_bytes()).await;
            });
        }
    });
    (url, asked)
}

pub(in crate::scheduler) fn extender(url: &str, filter: &str, prioritize: &str) -> Extender {
    Extender {
        url_prefix: url.to_owned(),
        filter: filter.to_owned(),
        prioritize: prioritize.to_owned(),
        preempt: String::new(),
        bind: "bind".to_owned(),
        weight: 2,
        timeout: Duration::from_secs(60),
        knows_nodes: true,
        managed: Vec::new(),
        ignorable: false,
        tls: Tls::default(),
    }
}

async fn ask(extender: Extender) -> Result<call::Judged, String> {
    let callers = [Arc::new(Caller::new(extender).unwrap())];
    judge(&callers, &pod("p", json!({})), names(&["a", "b", "c"]), &|_| None).await
}

#[tokio::test]
async fn nodes_are_filtered_and_scored_over_http() {
    let filter = json!({"NodeNames": ["a", "b"], "FailedNodes": {"c": "too old"}}).to_string();
    let score = json!([{"Host": "a", "Score": 1}, {"Host": "b", "Score": 7}]).to_string();
    let answers = vec![
        ("filter", 200, filter),
        ("score", 200, score),
        ("bind", 200, "{}".to_owned()),
    ];
    let (url, asked) = server(answers).await;
    let judged = ask(extender(&url, "filter", "score")).await.unwrap();
    assert_eq!(judged.nodes, [("a".to_owned(), 20), ("b".to_owned(), 140)]);
    assert_eq!(judged.refused, ["too old"]);
    let caller = Caller::new(extender(&url, "", "")).unwrap();
    caller.bind(&pod("p", json!({})), "a").await.unwrap();
    let asked = asked.lock().unwrap();
    let paths: Vec<&str> = asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/prefix/filter", "/prefix/score", "/prefix/bind"]);
    assert_eq!(asked[0].1["NodeNames"], json!(["a", "b", "c"]));
    assert_eq!(asked[0].1["Pod"]["metadata"]["name"], "p");
    assert_eq!(asked[1].1["NodeNames"], json!(["a", "b"]));
    let expected = json!({"PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "a"});
    assert_eq!(asked[2].1, expected);
}

#[tokio::test]
async fn what_fails_is_told_and_skipped_only_where_that_is_allowed() {
    let long = format!("{{\"NodeNames\": [\"{}\"]}}", "x".repeat(3 << 20));
    let stranger = json!({"NodeNames": ["a", "stranger"]}).to_string();
    let answers = vec![
        ("broken", 500, "{}".to_owned()),
        ("text", 200, "hello".to_owned()),
        ("long", 200, long),
        ("stranger", 200, stranger),
    ];
    let (url, _) = server(answers).await;
    for (verb, part) in [
        ("broken", "answered 500"),
        ("text", "no JSON"),
        ("long", "cannot be read"),
        ("stranger", "\"stranger\" was not asked about"),
        ("silent", "no answer in time"),
    ] {
        let mut failing = extender(&url, verb, "");
        if verb == "silent" {
            failing.timeout = Duration::from_millis(50);
        }
        let error = ask(failing.clone()).await.unwrap_err();
        assert!(error.contains(part) && error.contains(&url), "{verb}: {error}");
        failing.ignorable = true;
        assert_eq!(ask(failing).await.unwrap().nodes.len(), 3, "{verb}");
    }
    let scoring = ask(extender(&url, "", "broken")).await.unwrap();
    assert!(
        scoring.nodes.iter().all(|(_, score)| *score == 0),
        "its wishes do not count"
    );
}

#[test]
fn an_extender_is_asked_about_pods_that_want_what_it_manages() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let mut managing = extender("http://127.0.0.1:1", "f", "");
    let plain = pod("p", json!({}));
    assert!(Caller::new(managing.clone()).unwrap().is_interested(&plain));
    managing.managed = vec![ManagedResource {
        name: "example.com/gpu".to_owned(),
        ignored: false,
    }];
    let caller = Caller::new(managing).unwrap();
    assert!(!caller.is_interested(&plain));
    let containers = json!([{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]);
    assert!(caller.is_interested(&pod("q", json!({"spec": {"containers": containers}}))));
}

mod preemption;
