//! What nodes may do, and that the answers follow the objects.

use super::*;
use crate::store::value::testing::as_stored;
use crate::store::window::Window;
use crate::store::{Expect, Revision, Store, memory::Memory};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

struct World {
    store: Arc<dyn Store>,
    reader: Reader,
    _window: Window,
    nodes: Nodes,
    revisions: Mutex<BTreeMap<String, Revision>>,
}

impl World {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let window = Window::open(Arc::clone(&store)).await.unwrap();
        let role = crate::bootstrap::policy::node_role();
        Self {
            reader: Reader::new(&window),
            nodes: Nodes::new(crate::apiserver::authz::rule::rules_of(&role)),
            _window: window,
            store,
            revisions: Mutex::default(),
        }
    }

    async fn put(&self, key: &str, object: Value) {
        let bytes = as_stored(key, &object);
        let known = self.revisions.lock().unwrap().get(key).copied();
        let expected = known.map_or(Expect::Absent, Expect::At);
        let revision = self.store.put(key, bytes, expected).await.unwrap();
        self.revisions.lock().unwrap().insert(key.to_owned(), revision);
        self.reader.refresh().await.unwrap();
    }

    async fn pod(&self, name: &str, node: &str, spec: Value) {
        let mut pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        pod["spec"]["nodeName"] = json!(node);
        self.put(&format!("/registry/pods/ns/{name}"), pod).await;
    }

    /// `verb group/resource/subresource namespace/name selector`, asked by node n1; `-` for nothing.
    fn ask(&self, question: &str) -> Result<(), String> {
        let mut words = question.split(' ').map(|word| if word == "-" { "" } else { word });
        let mut next = || words.next().unwrap_or_default();
        let (verb, resource, object, selector) = (next(), next(), next(), next());
        let mut resource = resource.split('/');
        let (namespace, name) = object.split_once('/').unwrap_or_default();
        let mut part = || resource.next().unwrap_or_default().to_owned();
        let info = RequestInfo {
            is_resource: true,
            verb: verb.to_owned(),
            group: part(),
            resource: part(),
            subresource: part(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: selector.to_owned(),
            ..RequestInfo::default()
        };
        let user = User::named("system:node:n1", &["system:nodes"]);
        let decision = self.nodes.authorize(&user, &info, &self.reader);
        if decision.allowed { Ok(()) } else { Err(decision.reason) }
    }

    fn check(&self, table: &[(&str, Option<&str>)]) {
        for (question, refusal) in table {
            let found = self.ask(question).err();
            assert_eq!(found.is_some(), refusal.is_some(), "{question}: {found:?}");
            let (found, part) = (found.unwrap_or_default(), refusal.unwrap_or_default());
            assert!(found.contains(part), "{question}: {found}");
        }
    }
}

const UNRELATED: Option<&str> = Some("no relationship found between node 'n1' and this object");

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_its_pods_refer_to_and_nothing_else() {
    let world = World::new().await;
    let secret = json!({"serviceAccountName": "sa", "volumes": [{"secret": {"secretName": "own"}}]});
    world.pod("a", "n1", secret).await;
    world
        .pod(
            "b",
            "n2",
            json!({"serviceAccountName": "other", "volumes": [{"secret": {"secretName": "foreign"}}]}),
        )
        .await;
    world.check(&[
        ("get /secrets ns/own", None),
        ("watch /secrets ns/own metadata.name=own", None),
        ("get /secrets other/own", UNRELATED),
        ("get /secrets ns/foreign", UNRELATED),
        ("get /configmaps ns/own", UNRELATED),
        ("list /secrets ns/", Some("No Object name found")),
        ("list /secrets -", Some("can only read namespaced object of this type")),
        ("update /secrets ns/own", Some("can only read resources of this type")),
        ("create /serviceaccounts/token ns/sa", None),
        ("create /serviceaccounts/token ns/other", UNRELATED),
        ("get /serviceaccounts ns/sa", None),
        ("get /serviceaccounts ns/other", UNRELATED),
        ("list /serviceaccounts ns/", Some("can only create tokens")),
        (
            "watch /serviceaccounts ns/sa metadata.name=sa",
            Some("can only create tokens"),
        ),
        ("get /pods ns/a", None),
        ("get /pods ns/b", UNRELATED),
        ("list /pods - spec.nodeName=n1", None),
        (
            "watch /pods - spec.nodeName=n2",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "list /pods ns/",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("watch /pods ns/a metadata.name=a", None),
        ("update /pods/status ns/b", None),
        ("update /pods ns/a", Some("")),
        ("create /pods/exec ns/a", Some("")),
    ]);
}

#[tokio::test(start_paused = true)]
async fn answers_follow_pods_as_they_come_move_and_go() {
    let world = World::new().await;
    let spec = json!({"volumes": [{"secret": {"secretName": "s"}}]});
    world.check(&[("get /secrets ns/s", UNRELATED)]);
    world.pod("a", "", spec.clone()).await;
    world.check(&[("get /secrets ns/s", UNRELATED)]);
    world.pod("a", "n1", spec.clone()).await;
    world.pod("b", "n1", spec.clone()).await;
    world.check(&[("get /secrets ns/s", None)]);
    world.pod("a", "n1", json!({})).await;
    world.check(&[("get /secrets ns/s", None)]);
    let revision = world.revisions.lock().unwrap()["/registry/pods/ns/b"];
    world.store.delete("/registry/pods/ns/b", revision).await.unwrap();
    world.reader.refresh().await.unwrap();
    world.check(&[("get /secrets ns/s", UNRELATED)]);
    let emptied = world.revisions.lock().unwrap()["/registry/pods/ns/a"];
    world.store.delete("/registry/pods/ns/a", emptied).await.unwrap();
    world.reader.refresh().await.unwrap();
    let mut mirror = json!({"metadata": {"name": "m", "namespace": "ns",
        "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": spec});
    mirror["spec"]["nodeName"] = json!("n1");
    world.put("/registry/pods/ns/m", mirror).await;
    world.check(&[("get /secrets ns/s", UNRELATED)]);
    let graph = world.nodes.graph.lock().unwrap();
    assert!(graph.is_empty(), "nothing is kept of pods that went");
}

#[tokio::test(start_paused = true)]
async fn claims_lead_to_volumes_and_volumes_to_their_secrets() {
    let world = World::new().await;
    let claim = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]});
    world.pod("a", "n1", claim).await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"namespace": "ns", "name": "c"},
        "csi": {"nodeStageSecretRef": {"namespace": "storage", "name": "key"}}}});
    world.put("/registry/persistentvolumes/v", volume).await;
    let foreign = json!({"metadata": {"name": "w"}, "spec": {"claimRef": {"namespace": "ns", "name": "d"}}});
    world.put("/registry/persistentvolumes/w", foreign).await;
    world
        .put(
            "/registry/volumeattachments/x",
            json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}}),
        )
        .await;
    world.check(&[
        ("get /persistentvolumeclaims ns/c", None),
        (
            "list /persistentvolumeclaims ns/c",
            Some("can only get individual resources of this type"),
        ),
        ("update /persistentvolumeclaims/status ns/c", None),
        ("update /persistentvolumeclaims/status ns/d", UNRELATED),
        ("get /persistentvolumes /v", None),
        ("get /persistentvolumes /w", UNRELATED),
        ("get /persistentvolumes /none", UNRELATED),
        ("get /secrets storage/key", None),
        ("get storage.k8s.io/volumeattachments /x", None),
        ("get storage.k8s.io/volumeattachments /y", UNRELATED),
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_itself_only() {
    let world = World::new().await;
    world.check(&[
        ("get /nodes /n1", None),
        ("watch /nodes /n1 metadata.name=n1", None),
        (
            "get /nodes /n2",
            Some("node 'n1' cannot read 'n2', only its own Node object"),
        ),
        (
            "list /nodes -",
            Some("node 'n1' cannot read all nodes, only its own Node object"),
        ),
        ("patch /nodes/status /n1", None),
        ("delete /nodes /n1", Some("")),
        ("update coordination.k8s.io/leases kube-node-lease/n1", None),
        (
            "update coordination.k8s.io/leases kube-node-lease/n2",
            Some("same name as the requesting node"),
        ),
        (
            "get coordination.k8s.io/leases kube-system/n1",
            Some("\"kube-node-lease\""),
        ),
        (
            "list coordination.k8s.io/leases kube-node-lease/",
            Some("can only get, create"),
        ),
        ("patch storage.k8s.io/csinodes /n1", None),
        ("patch storage.k8s.io/csinodes /n2", Some("same name")),
        ("list resource.k8s.io/resourceslices - spec.nodeName=n1", None),
        (
            "list resource.k8s.io/resourceslices -",
            Some("spec.nodeName field selector"),
        ),
        ("list /services -", None),
        ("create certificates.k8s.io/certificatesigningrequests -", None),
        ("list /namespaces -", Some("")),
    ]);
    let unknown = User::named("system:node:", &["system:nodes"]);
    let decision = world.nodes.authorize(&unknown, &RequestInfo::default(), &world.reader);
    assert!(decision.reason.starts_with("unknown node"), "{decision:?}");
    let outsider = User::named("system:node:n1", &[]);
    assert_eq!(node_of(&outsider), None);
}
