//! One user floods an API server with creates and lists while another reads and writes a lease: what the other notices of it.
//!
//! Both are users without privileges of their own among the API server's levels; the administrator acts as them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::connect;
use crate::figures::percentile;

const NAMESPACE: &str = "podtool-flood";
/// Connections of the user who floods, each with one request at a time.
const CONNECTIONS: usize = 64;
/// How often the other user reads and writes its lease.
const EVERY: Duration = Duration::from_millis(50);
const FLOODER: &str = "podtool:flooder";
const OTHER: &str = "podtool:other";

/// Measures and prints: the lease alone, then beside the flood, for as long each.
///
/// # Errors
/// If the API server cannot be reached, or refuses what the other user asks for.
pub(crate) async fn measure(kubeconfig: &Path, time: Duration) -> anyhow::Result<()> {
    prepare(&connect::client(kubeconfig).await?).await?;
    let other = connect::client_as(kubeconfig, OTHER).await?;
    println!(
        "{:<28} {:>9} {:>9} {:>9}",
        "get and update of a lease", "p50 ms", "p99 ms", "most ms"
    );
    print("alone", &lease(&other, "alone", time).await?);
    let flood = Flood::begin(kubeconfig).await?;
    let beside = lease(&other, "beside", time).await;
    let [answered, refused] = flood.end().await;
    print("beside a flood", &beside?);
    println!(
        "{:<28} {answered:>9} answered, {refused} told to come back",
        "the flood"
    );
    Ok(())
}

async fn prepare(admin: &Client) -> anyhow::Result<()> {
    create(admin, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await?;
    let subject = |user: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user});
    let binding = json!({
        "metadata": {"name": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [subject(FLOODER), subject(OTHER)],
    });
    create(
        admin,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &binding,
    )
    .await?;
    Ok(())
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(object)?)?;
    client
        .request(request)
        .await
        .with_context(|| format!("creating in {path}"))
}

/// Reads and writes a lease of its own for the given time; gives what each request took.
async fn lease(client: &Client, name: &str, time: Duration) -> anyhow::Result<Vec<Duration>> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    create(client, &leases, &json!({"metadata": {"name": name}, "spec": {}})).await?;
    let path = format!("{leases}/{name}");
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        ticks.tick().await;
        let sent = Instant::now();
        let mut lease: Value = client.request(Request::get(&path).body(Vec::new())?).await?;
        times.push(sent.elapsed());
        lease["spec"]["holderIdentity"] = json!(times.len().to_string());
        let request = Request::put(&path).header("content-type", "application/json");
        let sent = Instant::now();
        let _: Value = client.request(request.body(serde_json::to_vec(&lease)?)?).await?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

fn print(when: &str, times: &[Duration]) {
    let [p50, p99, most] = [50.0, 99.0, 100.0].map(|percent| percentile(times, percent).as_secs_f64() * 1000.0);
    println!("{when:<28} {p50:>9.1} {p99:>9.1} {most:>9.1}");
}

/// The user who floods, until it is ended.
struct Flood {
    is_over: Arc<AtomicBool>,
    /// Requests answered, and refused.
    counts: Arc<[AtomicUsize; 2]>,
    tasks: tokio::task::JoinSet<()>,
}

impl Flood {
    async fn begin(kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut flood = Self {
            is_over: Arc::default(),
            counts: Arc::default(),
            tasks: tokio::task::JoinSet::new(),
        };
        for number in 0..CONNECTIONS {
            // Each has a pool of its own, so that each has a connection.
            let client = connect::client_as(kubeconfig, FLOODER).await?;
            let (is_over, counts) = (Arc::clone(&flood.is_over), Arc::clone(&flood.counts));
            flood.tasks.spawn(async move {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let is_refused = ask(&client, &format!("f{number}-{round}"), round % 2 == 0)
                        .await
                        .is_err();
                    counts[usize::from(is_refused)].fetch_add(1, Ordering::Relaxed);
                    round += 1;
                }
            });
        }
        Ok(flood)
    }

    async fn end(mut self) -> [usize; 2] {
        self.is_over.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        [0, 1].map(|index: usize| self.counts[index].load(Ordering::Relaxed))
    }
}

/// One request of the flood.
async fn ask(client: &Client, name: &str, is_create: bool) -> anyhow::Result<()> {
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    if is_create {
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(1_000)}});
        create(client, &maps, &map).await?;
    } else {
        client.request_text(Request::get(&maps).body(Vec::new())?).await?;
    }
    Ok(())
}
