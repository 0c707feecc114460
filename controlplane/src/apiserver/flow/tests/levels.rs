//! Flow schemas and priority levels over the request path.

use super::*;
use crate::apiserver::flow::fairness;
use crate::apiserver::flow::level::Detail;
use flow_defaults::{LEVELS, SCHEMAS};
use http::HeaderMap;

fn uids(headers: &HeaderMap) -> (&str, &str) {
    let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    (
        text("x-kubernetes-pf-flowschema-uid"),
        text("x-kubernetes-pf-prioritylevel-uid"),
    )
}

/// A level of its own for everything of user `own`: all places are its, so that it has `shares` of `shares + 245`.
async fn own_level(server: &ApiServer, shares: u32, queuing: Value) {
    let response = match queuing.is_null() {
        true => json!({"type": "Reject"}),
        false => json!({"type": "Queue", "queuing": queuing}),
    };
    let spec = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": 0,
        "borrowingLimitPercent": 0, "limitResponse": response}});
    let level = json!({"metadata": {"name": "own", "uid": "own-level"}, "spec": spec});
    put(&**server.store(), LEVELS, &level).await;
    let rule = json!({"subjects": [{"kind": "Group", "group": {"name": "own"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]});
    let spec = json!({"priorityLevelConfiguration": {"name": "own"}, "matchingPrecedence": 50, "rules": [rule],
        "distinguisherMethod": {"type": "ByUser"}});
    let schema = json!({"metadata": {"name": "own", "uid": "own-schema"}, "spec": spec});
    put(&**server.store(), SCHEMAS, &schema).await;
    // Of 245 shares beside its own.
    let nominal = (600 * shares).div_ceil(245 + shares);
    until(server, |_| nominal_of(server, "own") == Some(nominal as usize)).await;
}

fn nominal_of(server: &ApiServer, name: &str) -> Option<usize> {
    let views = server.flow().fairness().views(Detail::Numbers);
    assert!(views.iter().all(|view| view.queues.is_empty()), "nobody asked for them");
    let found = views.iter().find(|view| *view.name == *name);
    found.map(|view| view.bounds.nominal)
}

async fn remove(server: &ApiServer, plural: &str, name: &str) {
    let key = format!("/registry/{plural}/{name}");
    let (_, found) = server.store().range(&key).await.unwrap();
    let revision = found.iter().find(|record| *record.key == *key).unwrap().modified;
    server.store().delete(&key, revision).await.unwrap();
}

/// Waits until the levels' dump says so.
async fn until(server: &ApiServer, is: impl Fn(&str) -> bool) {
    for _ in 0..3_000 {
        if is(&levels(server)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{}", levels(server));
}

fn dump(server: &ApiServer, what: &str, query: &str) -> String {
    let path = format!("/debug/api_priority_and_fairness/dump_{what}");
    server.flow().dump(&path, &Query::parse(query), server.now()).unwrap()
}

fn levels(server: &ApiServer) -> String {
    dump(server, "priority_levels", "")
}

/// Waiting and executing requests of a level.
fn of_level(server: &ApiServer, name: &str) -> (usize, usize) {
    let text = levels(server);
    let line = text.lines().find(|line| line.starts_with(&format!("{name},"))).unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    (cells[4].parse().unwrap(), cells[5].parse().unwrap())
}

/// What flow control counts.
fn metrics(server: &ApiServer) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    let own = registry.sub_registry_with_prefix("apiserver_flowcontrol");
    server.flow().register(own);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

/// A list nobody reads on: it keeps its place.
async fn list(server: ApiServer, user: String) -> Response<Body> {
    ask(&server, &user, "GET", MAPS, body::empty()).await
}

#[tokio::test(start_paused = true)]
async fn replies_say_which_schema_and_level_they_were_sorted_into() {
    let server = server().await;
    for (user, path, expected) in [
        ("jane/x", MAPS, ("global-default", "global-default")),
        ("jane/x", "/livez", ("probes", "exempt")),
        ("jane/x", "/no/such/path", ("global-default", "global-default")),
        ("root/system:masters", MAPS, ("exempt", "exempt")),
        (NODE, LEASES, ("system-node-high", "node-high")),
        ("jane/x", "/api/v1/namespaces/a/pods/p/log", ("", "")),
    ] {
        let response = ask(&server, user, "GET", path, body::empty()).await;
        assert_eq!(uids(response.headers()), expected, "{user} {path}");
    }
    own_level(&server, 5, Value::Null).await;
    let response = ask(&server, "me/own", "GET", MAPS, body::empty()).await;
    assert_eq!(uids(response.headers()), ("own-schema", "own-level"));
    let watch = ask(&server, "me/own", "GET", &format!("{MAPS}?watch=1"), body::empty()).await;
    assert_eq!(uids(watch.headers()), ("own-schema", "own-level"));
}

/// 600 * 5 / 250 places.
const OWN: usize = 12;

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_waits_and_who_goes_away_frees_his() {
    let server = server().await;
    fill(&server, 20).await;
    own_level(&server, 5, json!({"queues": 8, "handSize": 2, "queueLengthLimit": 3})).await;
    let mut served = Vec::new();
    for number in 0..OWN {
        served.push(list(server.clone(), format!("u{number}/own")).await);
    }
    assert_eq!(of_level(&server, "own"), (0, OWN));
    let mut waiting: Vec<_> = (0..7)
        .map(|_| tokio::spawn(list(server.clone(), "last/own".into())))
        .collect();
    until(&server, |_| of_level(&server, "own").0 == 6).await;
    let dumped = dump(&server, "requests", "includeRequestDetails=1");
    assert_eq!(dumped.lines().count(), 1 + 6, "{dumped}");
    assert!(
        dumped.contains("last, ") && dumped.contains("list, ") && dumped.contains(MAPS),
        "{dumped}"
    );
    let queues = dump(&server, "queues", "");
    let of_own = queues.lines().filter(|line| line.starts_with("own,"));
    assert_eq!(of_own.count(), 8, "{queues}");
    until(&server, |_| waiting.iter().any(|one| one.is_finished())).await;
    let refused = waiting.iter().position(|one| one.is_finished()).unwrap();
    assert_eq!(waiting.remove(refused).await.unwrap().status(), 429, "the seventh");
    for one in &waiting[..2] {
        one.abort();
    }
    until(&server, |_| of_level(&server, "own").0 == 4).await;
    served.clear();
    for one in waiting.split_off(2) {
        assert_eq!(one.await.unwrap().status(), 200);
    }
    for one in waiting {
        assert!(one.await.is_err(), "gone");
    }
    assert_eq!((of_level(&server, "own"), server.inflight()), ((0, 0), (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_level_that_is_deleted_serves_who_waits_in_it_and_ends() {
    let server = server().await;
    fill(&server, 20).await;
    own_level(&server, 5, json!({"queues": 8, "handSize": 2, "queueLengthLimit": 50})).await;
    let mut served = Vec::new();
    for number in 0..OWN {
        served.push(list(server.clone(), format!("u{number}/own")).await);
    }
    let waiting: Vec<_> = (0..10)
        .map(|_| tokio::spawn(list(server.clone(), "last/own".into())))
        .collect();
    until(&server, |_| of_level(&server, "own") == (10, OWN)).await;
    // Other places, other queues, and then neither.
    own_level(&server, 4, json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1})).await;
    remove(&server, LEVELS, "own").await;
    remove(&server, SCHEMAS, "own").await;
    let quiesces = |text: &str| {
        text.lines()
            .any(|line| line.starts_with("own,") && line.contains("true,"))
    };
    until(&server, quiesces).await;
    let response = ask(&server, "u0/own", "GET", MAPS, body::empty()).await;
    assert_eq!(
        uids(response.headers()).1,
        "global-default",
        "nobody comes to it any more"
    );
    drop(response);
    assert_eq!(of_level(&server, "own"), (10, OWN));
    served.clear();
    for one in waiting {
        assert_eq!(one.await.unwrap().status(), 200);
    }
    tokio::time::sleep(fairness::PERIOD).await;
    assert!(!levels(&server).contains("own,"), "{}", levels(&server));
    assert_eq!(server.inflight(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_or_finds_a_rejecting_level_full_comes_back_later_and_is_counted() {
    let server = server().await;
    fill(&server, 20).await;
    own_level(&server, 5, Value::Null).await;
    let mut served = Vec::new();
    for number in 0..OWN {
        served.push(list(server.clone(), format!("u{number}/own")).await);
    }
    let start = Instant::now();
    let refused = list(server.clone(), "last/own".into()).await;
    assert_eq!((refused.status().as_u16(), start.elapsed()), (429, Duration::ZERO));
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(uids(refused.headers()), ("own-schema", "own-level"));
    own_level(&server, 5, json!({"queues": 1, "handSize": 1, "queueLengthLimit": 5})).await;
    let late = loop {
        // The other configuration takes a moment to be followed.
        let start = Instant::now();
        let late = list(server.clone(), "last/own".into()).await;
        if start.elapsed() >= Duration::from_secs(15) {
            break late;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(late.status(), 429);
    let path = format!("{MAPS}?timeout=8s");
    let start = Instant::now();
    let short = ask(&server, "last/own", "GET", &path, body::empty()).await;
    assert_eq!(
        (short.status().as_u16(), start.elapsed().as_secs()),
        (429, 2),
        "a quarter of its time"
    );
    let text = metrics(&server);
    for line in [
        "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"own\",priority_level=\"own\",reason=\"time-out\"} 2",
        "apiserver_flowcontrol_current_executing_requests{flow_schema=\"own\",priority_level=\"own\"} 12",
        "apiserver_flowcontrol_current_executing_seats{flow_schema=\"own\",priority_level=\"own\"} 12",
        "apiserver_flowcontrol_current_inqueue_requests{flow_schema=\"own\",priority_level=\"own\"} 0",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"own\"} 12.0",
        "apiserver_flowcontrol_upper_limit_seats{priority_level=\"own\"} 12.0",
        "apiserver_flowcontrol_lower_limit_seats{priority_level=\"node-high\"} 72.0",
        "reason=\"concurrency-limit\"} ",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// Everybody else is idle: what they lend is used, and comes back when they want it.
#[tokio::test(start_paused = true)]
async fn a_level_borrows_what_others_do_not_use() {
    let server = server().await;
    fill(&server, 20).await;
    let mut waiting: Vec<_> = (0..200)
        .map(|number| tokio::spawn(list(server.clone(), format!("u{number}/x"))))
        .collect();
    until(&server, |_| of_level(&server, "global-default") == (151, 49)).await;
    until(&server, |_| of_level(&server, "global-default") == (0, 200)).await;
    // Another level changes everybody's bounds, and takes back nothing that is borrowed.
    own_level(&server, 5, Value::Null).await;
    let start = Instant::now();
    let response = list(server.clone(), "another/x".into()).await;
    assert_eq!((response.status().as_u16(), start.elapsed()), (200, Duration::ZERO));
    drop(response);
    while let Some(one) = waiting.pop() {
        assert_eq!(one.await.unwrap().status(), 200);
    }
}

/// A wide list takes the places of several requests.
#[tokio::test(start_paused = true)]
async fn lists_take_places_by_the_number_of_objects() {
    let server = server().await;
    fill(&server, 150).await;
    own_level(&server, 5, Value::Null).await;
    let seats = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains("current_executing_seats{flow_schema=\"own\""));
        line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let text = || metrics(&server);
    let whole = list(server.clone(), "a/own".into()).await;
    assert_eq!(seats(&text()), 2);
    let page = ask(&server, "b/own", "GET", &format!("{MAPS}?limit=50"), body::empty()).await;
    assert_eq!(seats(&text()), 3);
    drop((whole, page));
    assert_eq!(seats(&text()), 0);
}

/// Whoever may write them cannot have administrators limited, or anybody let past every limit.
#[tokio::test(start_paused = true)]
async fn mandatory_objects_are_obeyed_as_they_are_built_in() {
    let server = server().await;
    own_level(&server, 5, Value::Null).await;
    let of = |all: Vec<Value>, name: &str| all.into_iter().find(|one| one["metadata"]["name"] == name).unwrap();
    let mut exempt = of(flow_defaults::flow_schemas(), "exempt");
    exempt["metadata"]["uid"] = json!("changed-schema");
    exempt["spec"]["priorityLevelConfiguration"]["name"] = json!("own");
    put(&**server.store(), SCHEMAS, &exempt).await;
    let mut catch_all = of(flow_defaults::priority_levels(), "catch-all");
    catch_all["spec"]["limited"]["nominalConcurrencyShares"] = json!(0);
    put(&**server.store(), LEVELS, &catch_all).await;
    let mut exempt = of(flow_defaults::priority_levels(), "exempt");
    exempt["spec"]["exempt"]["nominalConcurrencyShares"] = json!(250);
    put(&**server.store(), LEVELS, &exempt).await;
    // The two numbers of the exempt level are obeyed: then the others have been read as well.
    until(&server, |_| nominal_of(&server, "exempt") == Some(300)).await;
    assert_eq!(nominal_of(&server, "catch-all"), Some(6), "600 * 5 / 500");
    let response = ask(&server, "root/system:masters", "GET", MAPS, body::empty()).await;
    assert_eq!(uids(response.headers()).0, "changed-schema");
    assert_eq!(
        (of_level(&server, "exempt"), of_level(&server, "own")),
        ((0, 1), (0, 0))
    );
}

/// Who was sorted into a level before it was deleted comes to that level, which others see until he has gone; nothing of it is
/// counted for ever.
#[tokio::test(start_paused = true)]
async fn a_level_and_what_is_counted_of_it_stay_as_long_as_somebody_is_on_his_way() {
    let server = server().await;
    own_level(&server, 5, Value::Null).await;
    let user = User::named("me", &["own"]);
    let info = RequestInfo {
        is_resource: true,
        verb: "list".into(),
        version: "v1".into(),
        resource: "configmaps".into(),
        namespace: "a".into(),
        ..RequestInfo::default()
    };
    let flow = server.flow().classify(&user, &info).unwrap();
    assert_eq!(&*flow.level.name, "own");
    drop(list(server.clone(), "me/own".into()).await);
    assert!(metrics(&server).contains("flow_schema=\"own\""));
    remove(&server, LEVELS, "own").await;
    remove(&server, SCHEMAS, "own").await;
    until(&server, |text| {
        text.lines()
            .any(|line| line.starts_with("own,") && line.contains("true,"))
    })
    .await;
    tokio::time::sleep(3 * fairness::PERIOD).await;
    assert!(nominal_of(&server, "own").is_some(), "he is on his way");
    let (query, ends_at) = (Query::parse(""), Instant::now() + Duration::from_secs(60));
    let seat = server
        .flow()
        .seat(flow, (&user, &info, &query), ends_at, || 1)
        .await
        .unwrap();
    assert_eq!(of_level(&server, "own"), (0, 1));
    tokio::time::sleep(fairness::PERIOD).await;
    assert!(metrics(&server).contains("current_executing_requests{flow_schema=\"own\",priority_level=\"own\"} 1"));
    drop(seat);
    tokio::time::sleep(2 * fairness::PERIOD).await;
    assert_eq!(nominal_of(&server, "own"), None);
    assert!(!metrics(&server).contains("\"own\""), "{}", metrics(&server));
}
