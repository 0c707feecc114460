//! metrics.k8s.io, of kubelets that say whatever a test wants.

use super::*;
use crate::apiserver::usage::{self, Usage, scraper};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// How much each running pod uses, and has used so far. Whole numbers, so that every rate is exact whenever it is taken.
struct Load {
    /// In milliseconds since the epoch.
    since_ms: i64,
    used_nanos: i64,
    millicores: i64,
    memory: u64,
}

/// The kubelets of all nodes: every running pod of theirs uses the same.
pub(super) struct Kubelets {
    clock: Arc<dyn Clock>,
    usage: OnceLock<Arc<Usage>>,
    server: OnceLock<ApiServer>,
    load: Mutex<Load>,
    /// How often each was asked.
    asked: Mutex<BTreeMap<String, usize>>,
    /// What some say instead.
    pages: Mutex<BTreeMap<String, Result<String, String>>>,
}

impl Kubelets {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let load = Load {
            since_ms: clock.now().as_millisecond(),
            used_nanos: 1_000_000_000,
            millicores: 10,
            memory: 1 << 20,
        };
        Self {
            clock,
            usage: OnceLock::new(),
            server: OnceLock::new(),
            load: Mutex::new(load),
            asked: Mutex::default(),
            pages: Mutex::default(),
        }
    }

    /// What reads them.
    pub(super) fn served(self: &Arc<Self>) -> Arc<Usage> {
        let own = Arc::clone(self);
        let usage = self.usage.get_or_init(|| {
            Arc::new(Usage::new(Arc::new(move |node, _| {
                let page = own.page(&node);
                Box::pin(async move { page })
            })))
        });
        Arc::clone(usage)
    }

    pub(super) fn serve(self: &Arc<Self>, server: &ApiServer, shutdown: &CancellationToken) {
        let _ = self.server.set(server.clone());
        usage::publish(server);
        tokio::spawn(scraper::run(server.clone(), self.served(), shutdown.clone()));
    }

    /// From now on each pod uses so much.
    pub(super) fn use_cpu(&self, millicores: i64) {
        let now_ms = self.clock.now().as_millisecond();
        let mut load = self.load.lock().unwrap();
        load.used_nanos = load.used(now_ms);
        (load.since_ms, load.millicores) = (now_ms, millicores);
    }

    fn say(&self, node: &str, page: Result<String, String>) {
        self.pages.lock().unwrap().insert(node.to_owned(), page);
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().values().sum()
    }

    fn page(&self, node: &str) -> Result<Bytes, String> {
        *self.asked.lock().unwrap().entry(node.to_owned()).or_default() += 1;
        if let Some(page) = self.pages.lock().unwrap().get(node) {
            return page.clone().map(Bytes::from);
        }
        let ms = self.clock.now().as_millisecond();
        let load = self.load.lock().unwrap();
        let (used, memory) = (load.used(ms), load.memory);
        let used = format!("{}.{:09}", used / 1_000_000_000, used % 1_000_000_000);
        let mut page =
            format!("node_cpu_usage_seconds_total {used} {ms}\nnode_memory_working_set_bytes {memory} {ms}\n");
        let pods = self.server.get().unwrap().reader().list("", "pods", "");
        for pod in pods.iter().filter(|pod| pod["spec"]["nodeName"] == *node) {
            let text = |key: &str| pod["metadata"][key].as_str().unwrap();
            let labels = format!(
                "{{container=\"c\",namespace=\"{}\",pod=\"{}\"}}",
                text("namespace"),
                text("name")
            );
            page.push_str(&format!(
                "container_cpu_usage_seconds_total{labels} {used} {ms}\ncontainer_memory_working_set_bytes{labels} {memory} {ms}\n"
            ));
        }
        Ok(Bytes::from(page))
    }
}

impl Load {
    /// CPU time in nanoseconds: a thousandth of a core is a thousand of them in a millisecond.
    fn used(&self, now_ms: i64) -> i64 {
        self.used_nanos + (now_ms - self.since_ms) * self.millicores * 1000
    }
}

const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";

/// Two nodes, a deployment `web` of two pods that run.
async fn world() -> World {
    let world = World::start(2).await;
    world.deploy("web", 2, "nginx").await;
    world
        .until("/apis/apps/v1/namespaces/default/deployments/web", |web| {
            web["status"]["readyReplicas"] == 2
        })
        .await;
    world
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_read_has_an_answer() {
    let world = world().await;
    let nodes = world.get(NODES).await.unwrap();
    assert_eq!(nodes["kind"], "NodeMetricsList");
    assert_eq!(names(&nodes), ["n0", "n1"]);
    let node = &nodes["items"][0];
    assert_eq!(node["usage"], json!({"cpu": "10m", "memory": "1Mi"}));
    assert_eq!(node["window"], "5s");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n0");
    let pods = world.get(PODS).await.unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 2);
    let containers = json!([{"name": "c", "usage": {"cpu": "10m", "memory": "1Mi"}}]);
    assert_eq!(pods["items"][0]["containers"], containers);
    let name = names(&pods)[1];
    let one = world.get(&format!("{PODS}/{name}")).await.unwrap();
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&json!("PodMetrics"), &json!(name))
    );
    assert_eq!(one["metadata"]["labels"]["app"], "web");
    for absent in [format!("{PODS}/none"), format!("{NODES}/none")] {
        let refused = world.call("GET", &absent, None).await;
        assert!(
            matches!(refused, Err(kube::Error::Api(status)) if status.code == 404),
            "{absent}"
        );
    }
    let refused = world.call("DELETE", &format!("{NODES}/n0"), None).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 405));
}

/// As an autoscaler asks: what it reads does not grow with labels.
#[tokio::test(start_paused = true)]
async fn readers_of_this_process_may_leave_labels_aside() {
    let world = world().await;
    let mut request = Request::get(PODS).body(Vec::new()).unwrap();
    request.extensions_mut().insert(crate::resource::usage::Unlabelled);
    let pods: Value = world.client.request(request).await.unwrap();
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        assert_eq!(pod["containers"][0]["usage"]["cpu"], "10m");
        assert!(pod["metadata"]["labels"].is_null(), "{pod:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_among_running_pods() {
    let world = world().await;
    world.deploy("other", 1, "nginx").await;
    let other = "/apis/apps/v1/namespaces/default/deployments/other";
    world.until(other, |other| other["status"]["readyReplicas"] == 1).await;
    let count = async |query: &str| {
        let list = world.get(&format!("{PODS}?{query}")).await.unwrap();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count("labelSelector=app%3Dweb").await, 2);
    assert_eq!(count("labelSelector=app%3Dother").await, 1);
    assert_eq!(count("labelSelector=app").await, 3);
    assert_eq!(count("fieldSelector=metadata.name%3Dnone").await, 0);
    let all = world.get("/apis/metrics.k8s.io/v1beta1/pods").await.unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 3);
    let wrong = world
        .call("GET", &format!("{PODS}?labelSelector=a%20b%20c"), None)
        .await;
    assert!(matches!(wrong, Err(kube::Error::Api(status)) if status.code == 400));
    // What has ended is no pod any more.
    let pods = world
        .get("/api/v1/namespaces/default/pods?labelSelector=app%3Dother")
        .await
        .unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{}/status", names(&pods)[0]);
    world.patch(&path, json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(count("labelSelector=app").await, 2);
}

#[tokio::test(start_paused = true)]
async fn tables_are_as_metrics_server_prints_them() {
    let world = world().await;
    let request = Request::get(NODES).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][0]["cells"], json!(["n0", "10m", "1Mi", "5s"]));
}

#[tokio::test(start_paused = true)]
async fn discovery_and_openapi_know_the_group() {
    let world = world().await;
    let resources = world.get("/apis/metrics.k8s.io/v1beta1").await.unwrap();
    let known = json!([
        {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
        {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]},
    ]);
    assert_eq!(resources["resources"], known);
    let document = world.get("/openapi/v3/apis/metrics.k8s.io/v1beta1").await.unwrap();
    let schemas = &document["components"]["schemas"];
    for name in [
        "NodeMetrics",
        "NodeMetricsList",
        "PodMetrics",
        "PodMetricsList",
        "ContainerMetrics",
    ] {
        assert!(
            schemas[format!("io.k8s.metrics.pkg.apis.metrics.v1beta1.{name}")].is_object(),
            "{name}"
        );
    }
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods";
    let verbs = document["paths"][path].as_object().unwrap();
    assert!(verbs.contains_key("get") && !verbs.contains_key("post"), "{verbs:?}");
}

/// Kubelets have nothing to do with a metric that nobody reads.
#[tokio::test(start_paused = true)]
async fn kubelets_are_asked_while_somebody_reads() {
    let world = world().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.usage.times_asked(), 0);
    world.get(NODES).await.unwrap();
    assert_eq!(world.usage.times_asked(), 4, "two nodes, two points");
    // Between two rounds: at 60 seconds there is one.
    tokio::time::sleep(Duration::from_secs(65)).await;
    let during = world.usage.times_asked();
    assert_eq!(during, 4 + 2 * 4, "every 15 seconds");
    world.usage.use_cpu(300);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let nodes = world.get(NODES).await.unwrap();
    assert_eq!(
        (&nodes["items"][0]["usage"]["cpu"], &nodes["items"][0]["window"]),
        (&json!("300m"), &json!("15s"))
    );
    tokio::time::sleep(Duration::from_secs(180)).await;
    let after = world.usage.times_asked();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.usage.times_asked(), after);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_left_out() {
    let world = world().await;
    let listed = async || {
        let nodes = world.get(NODES).await.unwrap();
        names(&nodes).join(" ")
    };
    assert_eq!(listed().await, "n0 n1");
    for page in [
        Err("connection refused".to_owned()),
        Ok("node_cpu_usage_seconds_total 1 17".to_owned()),
        Ok("node_cpu_usage_seconds_total one 17\n".to_owned()),
        Ok(String::new()),
    ] {
        world.usage.say("n1", page.clone());
        tokio::time::sleep(Duration::from_secs(16)).await;
        assert_eq!(listed().await, "n0", "{page:?}");
    }
    world.usage.pages.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(
        listed().await,
        "n0 n1",
        "the points before it fell silent are still good for a rate"
    );
}

/// A kubelet speaks of the pods that are bound to its node, whatever it says of others.
#[tokio::test(start_paused = true)]
async fn a_node_does_not_speak_for_pods_of_others() {
    let world = world().await;
    let pods = world.get("/api/v1/namespaces/default/pods").await.unwrap();
    let of_n0 = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pod| pod["spec"]["nodeName"] == "n0");
    let name = of_n0.expect("pods are spread")["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let labels = format!("{{container=\"c\",namespace=\"default\",pod=\"{name}\"}}");
    let start = world.clock.now().as_millisecond() - 12_000;
    // Fresh enough to have a rate at once, if anybody believed it.
    let (at, began) = (start + 12_000, start as f64 / 1e3);
    world.usage.say(
        "n1",
        Ok(format!(
            "container_cpu_usage_seconds_total{labels} 9000 {at}\ncontainer_memory_working_set_bytes{labels} 1 {at}\n\
             container_start_time_seconds{labels} {began}\n"
        )),
    );
    let one = world.get(&format!("{PODS}/{name}")).await.unwrap();
    assert_eq!(one["containers"][0]["usage"]["cpu"], "10m");
}
