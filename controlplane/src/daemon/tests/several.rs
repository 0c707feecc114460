//! Several control planes over one store, in one process: what each writes is the others' at once, one leads, and all that live are listed.

use super::*;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// A control plane of a machine of its own.
pub(super) struct Plane {
    daemon: Daemon,
    _dir: tempfile::TempDir,
}

impl Plane {
    async fn start(number: u8, store: &Arc<dyn Store>) -> Self {
        Self::start_with(number, store, &[]).await
    }

    /// With these flags, too.
    pub(super) async fn start_with(number: u8, store: &Arc<dyn Store>, more: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host {
            clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
            seed: u64::from(number),
            hostname: format!("host-{number}"),
            address: [192, 0, 2, number].into(),
            proc: "/proc".into(),
        };
        let words = [format!("--data-dir={}", dir.path().display())];
        let words = words.iter().chain(more).cloned();
        let config = Config::resolve(&flags::parse(words)).unwrap();
        Self {
            daemon: Daemon::embed(&config, host, Arc::clone(store)).await.unwrap(),
            _dir: dir,
        }
    }

    pub(super) fn client(&self) -> kube::Client {
        root(&self.daemon)
    }

    /// The addresses that Endpoints and EndpointSlice of the Service `kubernetes` say alike.
    async fn listed(&self) -> BTreeSet<String> {
        let endpoints: Api<Endpoints> = Api::default_namespaced(self.client());
        let slices: Api<EndpointSlice> = Api::default_namespaced(self.client());
        let endpoints = endpoints.get("kubernetes").await.unwrap();
        let of_endpoints = endpoints
            .subsets
            .iter()
            .flatten()
            .flat_map(|subset| subset.addresses.iter().flatten());
        let of_endpoints: BTreeSet<String> = of_endpoints.map(|address| address.ip.clone()).collect();
        let slice = slices.get("kubernetes").await.unwrap();
        let of_slice: BTreeSet<String> = slice
            .endpoints
            .into_iter()
            .flatten()
            .flat_map(|endpoint| endpoint.addresses)
            .collect();
        match of_slice == of_endpoints {
            true => of_slice,
            false => BTreeSet::new(),
        }
    }

    pub(super) async fn lists(&self, wanted: &[u8]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|number| format!("192.0.2.{number}")).collect();
        eventually("the list of API servers", || async { self.listed().await == wanted }).await;
    }

    /// On which host a part leads.
    async fn leader(&self, part: &str) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client(), "kube-system");
        let lease = leases.get_opt(part).await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        holder.split('_').next().unwrap_or_default().to_owned()
    }
}

const PARTS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

fn shared() -> Arc<dyn Store> {
    Arc::new(Memory::shared())
}

#[tokio::test(start_paused = true)]
async fn all_that_live_are_listed_and_who_ends_is_not_any_more() {
    let store = shared();
    let first = Plane::start(1, &store).await;
    first.lists(&[1]).await;
    let second = Plane::start(2, &store).await;
    let third = Plane::start(3, &store).await;
    first.lists(&[1, 2, 3]).await;
    // Long after any record would be over that nobody renews.
    tokio::time::sleep(Duration::from_secs(60)).await;
    first.lists(&[1, 2, 3]).await;
    let stopped = Instant::now();
    third.daemon.stop().await;
    first.lists(&[1, 2]).await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    let killed = Instant::now();
    drop(second);
    first.lists(&[1]).await;
    assert!(killed.elapsed() < Duration::from_secs(16), "{:?}", killed.elapsed());
    // The last one stays: who comes back knows no other address.
    let server = first.daemon.server().clone();
    first.daemon.stop().await;
    let endpoints = server.reader().get("", "endpoints", "default", "kubernetes").unwrap();
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], "192.0.2.1");
}

#[tokio::test(start_paused = true)]
async fn each_says_who_it_is() {
    let store = shared();
    let first = Plane::start(1, &store).await;
    let _second = Plane::start(2, &store).await;
    let leases: Api<Lease> = Api::namespaced(first.client(), "kube-system");
    let mine = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    eventually("two leases", || async {
        leases.list(&mine).await.unwrap().items.len() == 2
    })
    .await;
    let hosts = |leases: &[Lease]| -> BTreeSet<String> {
        let labels = leases.iter().filter_map(|lease| lease.metadata.labels.clone());
        labels
            .filter_map(|mut labels| labels.remove("kubernetes.io/hostname"))
            .collect()
    };
    let all = leases.list(&mine).await.unwrap().items;
    assert_eq!(hosts(&all), ["host-1", "host-2"].map(str::to_owned).into());
    let spec = all[0].spec.clone().unwrap();
    assert_eq!(spec.lease_duration_seconds, Some(3600));
    assert!(
        spec.holder_identity
            .unwrap()
            .starts_with(&all[0].metadata.name.clone().unwrap())
    );
}

/// Whether what the controllers and the scheduler do is done: a pod of the deployment is bound.
async fn deploys(plane: &Plane, name: &str) {
    let deployments: Api<Deployment> = Api::default_namespaced(plane.client());
    let made = json!({"metadata": {"name": name}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    let made = serde_json::from_value(made).unwrap();
    deployments.create(&PostParams::default(), &made).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let of = ListParams::default().labels(&format!("app={name}"));
    eventually("a bound pod", || async {
        let listed = pods.list(&of).await.unwrap().items;
        listed
            .iter()
            .any(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_follows_it() {
    let store = shared();
    let first = Plane::start(1, &store).await;
    ready_node(&first.daemon).await;
    for part in PARTS {
        eventually("a leader", || async { first.leader(part).await == "host-1" }).await;
    }
    let second = Plane::start(2, &store).await;
    // Made at one that does not lead.
    deploys(&second, "web").await;
    for part in PARTS {
        assert_eq!(second.leader(part).await, "host-1");
    }
    let killed = Instant::now();
    drop(first);
    for part in PARTS {
        eventually("the next leader", || async { second.leader(part).await == "host-2" }).await;
    }
    assert!(killed.elapsed() < Duration::from_secs(16), "{:?}", killed.elapsed());
    deploys(&second, "more").await;
    let third = Plane::start(3, &store).await;
    let stopped = Instant::now();
    second.daemon.stop().await;
    for part in PARTS {
        eventually("the last leader", || async { third.leader(part).await == "host-3" }).await;
    }
    assert!(stopped.elapsed() < Duration::from_secs(6), "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_written_at_one_is_read_changed_and_deleted_at_the_other() {
    let store = shared();
    let planes = [Plane::start(1, &store).await, Plane::start(2, &store).await];
    let maps = planes
        .each_ref()
        .map(|plane| Api::<ConfigMap>::default_namespaced(plane.client()));
    for number in 0..50 {
        let name = format!("m{number}");
        let (here, there) = (&maps[number % 2], &maps[(number + 1) % 2]);
        let made = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap();
        here.create(&PostParams::default(), &made).await.unwrap();
        let patch = Patch::Merge(json!({"data": {"a": "2"}}));
        there.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(here.get(&name).await.unwrap().data.unwrap()["a"], "2");
        let listed = there.list(&ListParams::default()).await.unwrap();
        assert!(listed.items.iter().any(|map| map.metadata.name.as_ref() == Some(&name)));
        there.delete(&name, &Default::default()).await.unwrap();
        assert_eq!(here.get_opt(&name).await.unwrap(), None);
    }
}
