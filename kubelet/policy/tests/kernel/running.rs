//! The whole loop, from an API server's objects to packets.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use netlink::cidr::Cidr;
use policy::facts::PodId;
use policy::gate::{Gate, Late};
use policy::last::Last;
use policy::settings::{Notice, Settings};
use policy::{Sources, remove, run, run_by_the_last};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::fixture::{Bridging, NODE, Node};

/// For what must come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node's enforcement.
struct Running {
    api: Api,
    node: Node,
    gate: Gate,
    notices: Arc<Mutex<Vec<Notice>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(node: Node, api: Api) -> Self {
        let settings = settings(&node);
        Self::start_with(node, api, settings)
    }

    fn start_with(node: Node, api: Api, settings: Settings) -> Self {
        let (gate, stop, notices) = (Gate::new(), CancellationToken::new(), Arc::default());
        let (for_pods, for_namespaces) = (api.clone(), api.clone());
        let sources = Sources {
            policies: api.policies(),
            pods: Box::new(move || for_pods.pods()),
            namespaces: Box::new(move || for_namespaces.namespaces()),
        };
        let told: Arc<Mutex<Vec<Notice>>> = Arc::clone(&notices);
        let observer = Arc::new(move |notice: &Notice| told.lock().unwrap().push(notice.clone()));
        let (gate_there, stop_there) = (gate.clone(), stop.clone());
        let task = tokio::spawn(async move {
            run(sources, settings, gate_there, observer, stop_there).await.unwrap();
        });
        Self {
            api,
            node,
            gate,
            notices,
            stop,
            task,
        }
    }

    fn rules(&self) -> String {
        self.node.namespace.run("nft", &["list", "ruleset"])
    }

    /// Waits until the rule set in words is such.
    async fn until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let wait = async {
            while !holds(&self.rules()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        assert!(outcome.is_ok(), "{what}: {}", self.rules());
    }

    async fn end(self) -> Node {
        self.stop.cancel();
        self.task.await.unwrap();
        self.node
    }
}

fn settings(node: &Node) -> Settings {
    Settings {
        node_name: NODE.into(),
        pod_cidrs: ["10.77.0.0/24", "fd77::/64"]
            .map(|text| Cidr::parse(text).unwrap())
            .to_vec(),
        netns: Some(node.namespace.path()),
        look_period: Duration::from_millis(50),
        away_period: Duration::ZERO,
        ..Settings::default()
    }
}

fn object(node: &Node, at: usize) -> PodObject {
    let pod = &node.pods[at];
    pod.object(json!({"name": pod.name}), json!([]))
}

fn put_pods(api: &Api, node: &Node, which: &[usize]) {
    api.put(
        "namespaces",
        json!({"metadata": {"name": "default", "labels": {"own": "yes"}}}),
    );
    for at in which {
        api.put("pods", serde_json::to_value(object(node, *at)).unwrap());
    }
}

fn deny(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": "deny"},
        "spec": {"podSelector": {"matchLabels": {"name": name}}, "policyTypes": ["Ingress"]}})
}

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_there_without_policies_and_all_of_it_with_one() {
    let (mut node, api) = (Node::new(Bridging::Shown, &["a", "b"]), Api::default());
    node.kernel.remove().unwrap();
    put_pods(&api, &node, &[0, 1]);
    let running = Running::start(node, api);
    let minute = PATIENCE;
    running
        .gate
        .prepare(&object(&running.node, 0), &[], minute)
        .await
        .unwrap();
    assert_eq!(running.api.lists("pods"), 0);
    assert!(!running.rules().contains("skiff_policy"));
    let addr = running.node.pods[1].v4;
    let listener = running.node.pods[1].listen(addr, 80);
    blocking(|| running.node.pods[0].reaches(&listener));

    running.api.put("networkpolicies", deny("b"));
    running
        .until("the policy is in the kernel", |rules| rules.contains("jump c1"))
        .await;
    blocking(|| running.node.pods[0].misses(&listener));

    running.node.namespace.run("nft", &["flush", "ruleset"]);
    running.until("made anew", |rules| rules.contains("jump c1")).await;
    blocking(|| running.node.pods[0].misses(&listener));
    assert_eq!(*running.notices.lock().unwrap(), [Notice::Rebuilt]);

    running.api.delete("networkpolicies", "default", "deny");
    running.until("gone", |rules| !rules.contains("skiff_policy")).await;
    blocking(|| running.node.pods[0].reaches(&listener));
    assert_eq!(running.api.lists("pods"), 1);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_come_and_go_list_the_pods_once() {
    let (mut node, api) = (Node::new(Bridging::Shown, &["a", "b"]), Api::default());
    node.kernel.remove().unwrap();
    put_pods(&api, &node, &[0]);
    let keeping = Settings {
        keep_period: Duration::from_secs(3600),
        ..settings(&node)
    };
    let running = Running::start_with(node, api, keeping);
    for round in 0..3 {
        running.api.put("networkpolicies", deny("b"));
        running
            .until("the table is there", |rules| rules.contains("chain forward"))
            .await;
        if round == 1 {
            // What came while there was none is known.
            running
                .until("the pod that came meanwhile is in it", |rules| rules.contains("jump c"))
                .await;
        }
        running.api.delete("networkpolicies", "default", "deny");
        running.until("gone", |rules| !rules.contains("skiff_policy")).await;
        if round == 0 {
            put_pods(&running.api, &running.node, &[1]);
        }
    }
    assert_eq!((running.api.lists("pods"), running.api.lists("namespaces")), (1, 1));
    let node = running.end().await;

    // Without that it begins anew each time.
    let api = Api::default();
    put_pods(&api, &node, &[0, 1]);
    let letting_go = Settings {
        keep_period: Duration::ZERO,
        ..settings(&node)
    };
    let running = Running::start_with(node, api, letting_go);
    for round in 1..3 {
        running.api.put("networkpolicies", deny("b"));
        running
            .until("the policy is in the kernel", |rules| rules.contains("jump c"))
            .await;
        assert_eq!(running.api.lists("pods"), round);
        running.api.delete("networkpolicies", "default", "deny");
        running.until("gone", |rules| !rules.contains("skiff_policy")).await;
    }
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_api_server_what_was_known_last_counts() {
    let (mut node, api) = (Node::new(Bridging::Shown, &["a", "b", "c"]), Api::default());
    node.kernel.remove().unwrap();
    let path = std::env::temp_dir().join(format!("{}-policies", node.namespace.name));
    let kept = Settings {
        last: Some(path.clone()),
        ..settings(&node)
    };
    put_pods(&api, &node, &[0, 1]);
    let running = Running::start_with(node, api, kept.clone());
    let kept_as = async |has_policies: bool| {
        let ranges = kept.pod_cidrs.clone();
        let wanted = Some(Last { ranges, has_policies });
        while Last::read(&path) != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (none, some) = (kept_as(false), kept_as(true));
    tokio::time::timeout(PATIENCE, none).await.unwrap();
    let by_last = async |has_policies: bool| {
        let (gate, stop) = (Gate::new(), CancellationToken::new());
        let last = Last::read(&path).unwrap();
        assert_eq!(last.has_policies, has_policies);
        let task = tokio::spawn(run_by_the_last(last, kept.clone(), gate.clone(), stop.clone()));
        (gate, stop, task)
    };

    // None: pods are let in, without rules.
    let (gate, stop, task) = by_last(false).await;
    let pod = object(&running.node, 0);
    gate.prepare(&pod, &running.node.pods[0].addresses(), PATIENCE)
        .await
        .unwrap();
    assert!(!running.rules().contains("skiff_policy"));
    stop.cancel();
    task.await.unwrap();
    // What was known last counts no more.
    let at_once = gate
        .prepare(&pod, &running.node.pods[0].addresses(), Duration::ZERO)
        .await;
    assert_eq!(at_once, Err(Late::Open));

    running.api.put("networkpolicies", deny("b"));
    tokio::time::timeout(PATIENCE, some).await.unwrap();
    // A boot: what stood in the kernel is gone.
    let node = running.end().await;
    remove(&kept).await.unwrap();
    let (gate, stop, task) = by_last(true).await;
    let late = async {
        while gate
            .prepare(&pod, &node.pods[0].addresses(), Duration::from_millis(10))
            .await
            != Err(Late::Held)
        {}
    };
    tokio::time::timeout(PATIENCE, late).await.unwrap();
    let (held, listener) = (&node.pods[0], node.pods[1].listen(node.pods[1].v4, 80));
    blocking(|| held.misses(&listener));
    // Static pods, which may be what the API server needs, are not.
    for at in [1, 2] {
        let mut pod = object(&node, at);
        let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
        pod.metadata.annotations = Some([source].into());
        let _ = gate.prepare(&pod, &node.pods[at].addresses(), Duration::ZERO).await;
    }
    let known = async {
        let last = node.pods[2].v6.to_string();
        while !node.namespace.run("nft", &["list", "ruleset"]).contains(&last) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.unwrap();
    blocking(|| node.pods[2].reaches(&listener));
    blocking(|| held.misses(&listener));
    stop.cancel();
    task.await.unwrap();

    // A kubelet's restart: what stands stays as it is.
    let before = node.namespace.run("nft", &["list", "ruleset"]);
    let (gate, stop, task) = by_last(true).await;
    let late = async {
        while gate
            .prepare(&pod, &node.pods[0].addresses(), Duration::from_millis(10))
            .await
            != Err(Late::Held)
        {}
    };
    tokio::time::timeout(PATIENCE, late).await.unwrap();
    stop.cancel();
    task.await.unwrap();
    let after = node.namespace.run("nft", &["list", "ruleset"]);
    assert_eq!(before, after);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_api_server_pods_of_a_bridge_that_comes_later_are_held_back() {
    // After a boot there is no bridge until the first pod's; one without an address is nobody's.
    let mut node = Node::new(Bridging::Hidden, &["a", "b"]);
    node.kernel.remove().unwrap();
    node.namespace.ip(&["addr", "flush", "dev", "br0"]);
    let rules = || node.namespace.run("nft", &["list", "ruleset"]);
    let until = async |what: &str, holds: &dyn Fn(&str) -> bool| {
        let wait = async {
            while !holds(&rules()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        assert!(outcome.is_ok(), "{what}: {}", rules());
    };
    let (gate, stop) = (Gate::new(), CancellationToken::new());
    let last = Last {
        ranges: settings(&node).pod_cidrs,
        has_policies: true,
    };
    let task = tokio::spawn(run_by_the_last(last, settings(&node), gate.clone(), stop.clone()));
    until("the table is there", &|rules| rules.contains("chain forward")).await;
    assert!(!rules().contains("table bridge"), "nothing is hidden yet");
    node.namespace.ip(&["addr", "add", "10.77.0.1/24", "dev", "br0"]);
    node.namespace.ip(&["addr", "add", "fd77::1/64", "dev", "br0", "nodad"]);
    // Both ranges: a look may come between the two.
    let has_both = |rules: &str| {
        let (_, bridge) = rules.split_once("table bridge").unwrap_or_default();
        bridge.contains("10.77.0.0/24") && bridge.contains("fd77::/64")
    };
    let held = || {
        for addr in node.pods[1].addresses() {
            let listener = node.pods[1].listen(addr, 80);
            blocking(|| node.pods[0].misses(&listener));
        }
    };
    until("the bridge is seen", &has_both).await;
    held();
    // Somebody removes the rules.
    node.namespace.run("nft", &["flush", "ruleset"]);
    until("made anew", &|rules| rules.contains("table inet") && has_both(rules)).await;
    held();
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_held_back_until_the_gate_knows_it() {
    let (mut node, api) = (Node::new(Bridging::Hidden, &["a", "b"]), Api::default());
    node.kernel.remove().unwrap();
    put_pods(&api, &node, &[0]);
    api.put("networkpolicies", deny("nobody"));
    let running = Running::start(node, api);
    running
        .until("the table is there", |rules| rules.contains("chain forward"))
        .await;
    let (new, known) = (&running.node.pods[1], &running.node.pods[0]);
    for addr in new.addresses() {
        let listener = new.listen(addr, 80);
        blocking(|| known.misses(&listener));
    }
    let listener = known.listen(known.v4, 81);
    blocking(|| new.misses(&listener));
    let addresses: [IpAddr; 2] = new.addresses();
    running
        .gate
        .prepare(&object(&running.node, 1), &addresses, PATIENCE)
        .await
        .unwrap();
    blocking(|| new.reaches(&listener));
    for addr in addresses {
        let listener = new.listen(addr, 82);
        blocking(|| known.reaches(&listener));
    }
    running.gate.forget(&PodId::of(&object(&running.node, 1)));
    let address = addresses[0].to_string();
    running.until("forgotten", |rules| !rules.contains(&address)).await;
    blocking(|| new.misses(&listener));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_takes_over_what_stands() {
    let (node, api) = (Node::new(Bridging::Shown, &["a", "b"]), Api::default());
    put_pods(&api, &node, &[0, 1]);
    api.put("networkpolicies", deny("b"));
    let running = Running::start(node, api.clone());
    running
        .until("the policy is in the kernel", |rules| rules.contains("jump c1"))
        .await;
    let node = running.end().await;
    let addr = node.pods[1].v4;
    let listener = node.pods[1].listen(addr, 80);
    blocking(|| node.pods[0].misses(&listener));

    // An API server that does not know the policies yet: what stands stays, and new pods are held back by it.
    let stop = CancellationToken::new();
    let gate = Gate::new();
    let unsynced = kube::Client::new(
        tower::service_fn(|_| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        }),
        "default",
    );
    let sources = Sources {
        policies: client::Informer::spawn(kube::Api::all(unsynced), client::informer::Options::default()),
        pods: Box::new(|| panic!("no policy is known")),
        namespaces: Box::new(|| panic!("no policy is known")),
    };
    let (gate_there, stop_there, of_node) = (gate.clone(), stop.clone(), settings(&node));
    let task = tokio::spawn(async move {
        run(sources, of_node, gate_there, Arc::new(|_: &Notice| {}), stop_there)
            .await
            .unwrap();
    });
    let pod = object(&node, 0);
    let late = async {
        // Until it has looked at the kernel, it cannot tell.
        while gate.prepare(&pod, &[node.pods[0].v4], Duration::from_millis(10)).await != Err(Late::Held) {}
    };
    tokio::time::timeout(PATIENCE, late).await.unwrap();
    stop.cancel();
    task.await.unwrap();
    blocking(|| node.pods[0].misses(&listener));
    remove(&settings(&node)).await.unwrap();
    blocking(|| node.pods[0].reaches(&listener));
    remove(&settings(&node)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_enforced_is_told() {
    let (node, api) = (Node::new(Bridging::Shown, &["a"]), Api::default());
    put_pods(&api, &node, &[0]);
    api.put(
        "networkpolicies",
        json!({"metadata": {"namespace": "default", "name": "odd", "uid": "u"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}}),
    );
    let running = Running::start(node, api);
    running
        .until("the table is there", |rules| rules.contains("jump c1"))
        .await;
    let notices = running.notices.lock().unwrap().clone();
    let Notice::Flawed { policy, uid, text } = &notices[0] else {
        panic!("{notices:?}");
    };
    assert_eq!((policy.to_string().as_str(), uid.as_str()), ("default/odd", "u"));
    assert!(text.starts_with("spec.ingress[0].from[0]: "), "{text}");
    running.end().await;
}
