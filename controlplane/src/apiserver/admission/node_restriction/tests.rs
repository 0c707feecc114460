//! What a node cannot do to draw workloads or secrets to itself; the cases of known attacks by their numbers.

use super::*;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use crate::resource::Registry;
use crate::store::value::testing::as_stored;
use crate::store::window::Window;
use crate::store::{Expect, Store, memory::Memory};
use serde_json::json;
use std::sync::Arc;

struct World {
    reader: Reader,
    _store: Arc<dyn Store>,
    _window: Window,
}

impl World {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let window = Window::open(Arc::clone(&store)).await.unwrap();
        for (key, object) in [
            ("minions/n1", json!({"metadata": {"name": "n1", "uid": "u1"}})),
            (
                "pods/ns/own",
                json!({"metadata": {"uid": "p1", "namespace": "ns", "name": "own"}, "spec": {"nodeName": "n1", "volumes": [
                    {"name": "own", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}},
                        {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}},
                    {"name": "inline", "csi": {"driver": "inline.example.com"}},
                    {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "template", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}}),
            ),
            (
                "pods/ns/bare",
                json!({"metadata": {"uid": "p3"}, "spec": {"nodeName": "n1"}}),
            ),
            (
                "pods/ns/lost",
                json!({"metadata": {"uid": "p4", "namespace": "ns"}, "spec": {"nodeName": "n1", "volumes": [
                    {"name": "claimed", "persistentVolumeClaim": {"claimName": "gone"}}]}}),
            ),
            ("persistentvolumeclaims/ns/c", json!({"spec": {"volumeName": "v"}})),
            (
                "persistentvolumeclaims/ns/own-template",
                json!({"spec": {"volumeName": "w"}}),
            ),
            (
                "persistentvolumes/v",
                json!({"spec": {"csi": {"driver": "claimed.example.com"}}}),
            ),
            (
                "persistentvolumes/w",
                json!({"spec": {"awsElasticBlockStore": {"volumeID": "x"}}}),
            ),
            (
                "csidrivers/inline.example.com",
                json!({"spec": {"tokenRequests": [{"audience": "of-inline"}]}}),
            ),
            (
                "csidrivers/claimed.example.com",
                json!({"spec": {"tokenRequests": [{"audience": "x"}, {"audience": "of-claim"}]}}),
            ),
            (
                "csidrivers/ebs.csi.aws.com",
                json!({"spec": {"tokenRequests": [{"audience": "of-migrated"}]}}),
            ),
            (
                "clusterroles/pulls",
                json!({"metadata": {"name": "pulls"}, "rules": [{"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""],
                    "resources": ["registry"], "resourceNames": ["sa"]}]}),
            ),
            (
                "clusterrolebindings/pulls",
                json!({"metadata": {"name": "pulls"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pulls"},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]}),
            ),
            (
                "pods/ns/foreign",
                json!({"metadata": {"uid": "p2"}, "spec": {"nodeName": "n2"}}),
            ),
        ] {
            let key = format!("/registry/{key}");
            let bytes = as_stored(&key, &object);
            store.put(&key, bytes, Expect::Absent).await.unwrap();
        }
        let reader = Reader::new(&window);
        reader.refresh().await.unwrap();
        Self {
            reader,
            _store: store,
            _window: window,
        }
    }

    /// What node n1 is told; empty if it may. `what` is `group/resource/subresource`.
    fn told(&self, operation: Operation, what: &str, object: &Value, old: Option<&Value>) -> String {
        let user = User::named("system:node:n1", &["system:nodes"]);
        let mut parts = what.split('/');
        let mut part = || parts.next().unwrap_or_default();
        let (group, resource, subresource) = (part(), part(), part());
        let kind = Registry::built_in().by_resource(group, "v1", resource).unwrap();
        let name = text(old.unwrap_or(object), &["metadata", "name"]).to_owned();
        let info = RequestInfo {
            is_resource: true,
            name: name.clone(),
            subresource: subresource.to_owned(),
            ..RequestInfo::default()
        };
        let namespace = text(object, &["metadata", "namespace"]);
        let attributes = Attributes {
            user: &user,
            info: &info,
            kind,
            operation,
            namespace: if namespace.is_empty() { "ns" } else { namespace },
            name: &name,
            dry_run: false,
        };
        let told = admit(&attributes, object, old, &self.reader, &Authz::default());
        told.err().map(|error| error.message).unwrap_or_default()
    }
}

fn node(metadata: Value) -> Value {
    let mut node = json!({"metadata": {"name": "n1"}, "spec": {}});
    node["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    node
}

fn mirror() -> Value {
    json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_node_labels_itself_only_as_kubelets_may() {
    let world = World::new().await;
    let plain = node(json!({}));
    let told = |labels: Value| {
        let labelled = node(json!({"labels": labels}));
        let created = world.told(Operation::Create, "/nodes", &labelled, None);
        let updated = world.told(Operation::Update, "/nodes", &labelled, Some(&plain));
        let removed = world.told(Operation::Update, "/nodes/status", &plain, Some(&labelled));
        assert!(created.is_empty() == updated.is_empty() && updated.is_empty() == removed.is_empty());
        (created, updated)
    };
    for fine in [
        "kubernetes.io/hostname",
        "own",
        "example.com/x",
        "kubelet.kubernetes.io/x",
        "a.node.kubernetes.io/x",
    ] {
        assert_eq!(told(json!({fine: "v"})).0, "", "{fine}");
    }
    for bad in [
        "node-restriction.kubernetes.io/x",
        "a.node-restriction.kubernetes.io/x",
        "kubernetes.io/role",
        "x.k8s.io/y",
    ] {
        let (created, updated) = told(json!({bad: "v"}));
        assert!(
            created.ends_with(&format!(
                "node \"n1\" is not allowed to set the following labels: {bad}"
            )),
            "{created}"
        );
        assert!(
            updated.ends_with(&format!("is not allowed to modify labels: {bad}")),
            "{updated}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cve_2025_5187_a_node_gives_itself_no_owner_and_takes_off_no_taint() {
    let world = World::new().await;
    let plain = node(json!({}));
    let owned = node(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "none", "uid": "x"}]}));
    let told = world.told(Operation::Update, "/nodes/status", &owned, Some(&plain));
    assert!(
        told.ends_with("node \"n1\" is not allowed to modify ownerReferences"),
        "{told}"
    );
    assert!(
        world
            .told(Operation::Create, "/nodes", &owned, None)
            .contains("ownerReferences")
    );
    let mut tainted = plain.clone();
    tainted["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    assert_eq!(world.told(Operation::Create, "/nodes", &tainted, None), "");
    let told = world.told(Operation::Update, "/nodes", &plain, Some(&tainted));
    assert!(told.ends_with("node \"n1\" is not allowed to modify taints"), "{told}");
    let mut other = plain.clone();
    other["metadata"]["name"] = json!("n2");
    let told = world.told(Operation::Update, "/nodes/status", &other, Some(&other));
    assert!(
        told.ends_with("node \"n1\" is not allowed to modify node \"n2\""),
        "{told}"
    );
}

type Change = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn cve_2025_4563_mirror_pods_refer_to_nothing() {
    let world = World::new().await;
    let told = |change: Change| {
        let mut pod = mirror();
        change(&mut pod);
        world.told(Operation::Create, "/pods", &pod, None)
    };
    assert_eq!(told(|_| ()), "");
    let table: [(Change, &str); 13] = [
        (
            |pod| pod["metadata"]["annotations"] = json!({}),
            "can only create mirror pods",
        ),
        (
            |pod| pod["spec"]["nodeName"] = json!("n2"),
            "spec.nodeName set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"] = json!([]),
            "an owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["name"] = json!("n2"),
            "an owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false),
            "a controller owner reference",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true),
            "must not set blockOwnerDeletion",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["uid"] = json!("u2"),
            "node n1 UID mismatch: expected u2 got u1",
        ),
        (
            |pod| pod["spec"]["serviceAccountName"] = json!("sa"),
            "a service account",
        ),
        (
            |pod| pod["spec"]["volumes"] = json!([{"secret": {"secretName": "s"}}]),
            "secrets",
        ),
        (
            |pod| pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "c"}}]),
            "configmaps",
        ),
        (
            |pod| pod["spec"]["volumes"] = json!([{"persistentVolumeClaim": {"claimName": "c"}}]),
            "persistentvolumeclaims",
        ),
        (
            |pod| pod["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "c"}]),
            "resourceclaims",
        ),
        (
            |pod| pod["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimTemplateName": "t"}]),
            "resourceclaims",
        ),
    ];
    for (change, part) in table {
        let found = told(change);
        assert!(found.contains(part), "{part} is not in {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_touches_its_own_pods_only() {
    let world = World::new().await;
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
    let (own, foreign) = (pod("own", "n1"), pod("foreign", "n2"));
    for (what, operation, text) in [
        (
            "/pods",
            Operation::Delete,
            "node \"n1\" can only delete pods with spec.nodeName set to itself",
        ),
        (
            "/pods/status",
            Operation::Update,
            "can only update pod status for pods with spec.nodeName set to itself",
        ),
        (
            "/pods/eviction",
            Operation::Create,
            "node n1 can only evict pods with spec.nodeName set to itself",
        ),
    ] {
        assert_eq!(world.told(operation, what, &own, Some(&own)), "");
        let told = world.told(operation, what, &foreign, Some(&foreign));
        assert!(told.ends_with(text), "{told}");
    }
    let mut labelled = own.clone();
    labelled["metadata"]["labels"] = json!({"app": "web"});
    let told = world.told(Operation::Update, "/pods/status", &labelled, Some(&own));
    assert!(
        told.ends_with("node \"n1\" cannot update labels through pod status"),
        "{told}"
    );
    let mut claimed = own.clone();
    claimed["status"] = json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]});
    assert!(
        world
            .told(Operation::Update, "/pods/status", &claimed, Some(&own))
            .contains("resource claim statues")
    );
    assert!(
        world
            .told(Operation::Update, "/pods", &own, Some(&own))
            .contains("unexpected operation \"UPDATE\"")
    );
    assert!(
        world
            .told(Operation::Create, "/pods/binding", &own, None)
            .contains("unexpected pod subresource")
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_are_for_pods_of_the_node() {
    let world = World::new().await;
    let told = |bound: Value| {
        let request = json!({"metadata": {"name": "sa"}, "spec": {"boundObjectRef": bound}});
        world.told(Operation::Create, "/serviceaccounts/token", &request, None)
    };
    let bound = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    assert_eq!(told(bound("own", "p1")), "");
    assert!(told(Value::Null).ends_with("node requested token not bound to a pod"));
    assert!(told(bound("own", "")).ends_with("without a uid"));
    assert!(told(bound("own", "p9")).contains("does not match the UID in record"));
    assert!(told(bound("foreign", "p2")).ends_with("bound to a pod scheduled on a different node"));
    assert_eq!(told(bound("none", "p1")), "pods \"none\" not found");
}

/// KEP-4412: a node that was taken over asks for tokens of its pods' accounts in others' names.
#[tokio::test(start_paused = true)]
async fn tokens_are_for_audiences_the_pod_asks_for_or_that_were_allowed() {
    let world = World::new().await;
    let told = |pod: (&str, &str), account: &str, audiences: Value| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.0, "uid": pod.1});
        let request = json!({"metadata": {"name": account}, "spec": {"boundObjectRef": bound, "audiences": audiences}});
        world.told(Operation::Create, "/serviceaccounts/token", &request, None)
    };
    let own = ("own", "p1");
    for audiences in [
        json!([]),
        Value::Null,
        json!(["vault"]),
        json!(["of-inline"]),
        json!(["of-claim"]),
        json!(["of-migrated"]),
        json!(["registry"]),
    ] {
        assert_eq!(told(own, "sa", audiences.clone()), "", "{audiences}");
    }
    let refused = |audience: &str| {
        format!(
            "audience \"{audience}\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
        )
    };
    for (pod, account, audience) in [
        (own, "sa", "other"),
        // Allowed for another account.
        (own, "sb", "registry"),
        // No token of the API server's own in its volumes either.
        (("bare", "p3"), "sa", ""),
        (("bare", "p3"), "sa", "vault"),
    ] {
        let audiences = if audience.is_empty() {
            json!([])
        } else {
            json!([audience])
        };
        let told = told(pod, account, audiences);
        assert!(told.ends_with(&refused(audience)), "{told}");
    }
    assert!(told(own, "sa", json!(["vault", "vault"])).ends_with("node may only request 0 or 1 audiences"));
    let lost = told(("lost", "p4"), "sa", json!(["registry"]));
    assert!(
        lost.ends_with("error validating audience \"registry\": persistentvolumeclaims \"gone\" not found"),
        "{lost}"
    );
}

#[tokio::test(start_paused = true)]
async fn leases_csinodes_slices_claims_and_certificates_are_the_nodes_own() {
    let world = World::new().await;
    let named = |name: &str, namespace: &str| json!({"metadata": {"name": name, "namespace": namespace}});
    let create = |what: &str, object: &Value| world.told(Operation::Create, what, object, None);
    assert_eq!(
        create("coordination.k8s.io/leases", &named("n1", "kube-node-lease")),
        ""
    );
    assert!(create("coordination.k8s.io/leases", &named("n2", "kube-node-lease")).contains("same name"));
    assert!(create("coordination.k8s.io/leases", &named("n1", "kube-system")).contains("\"kube-node-lease\""));
    assert_eq!(create("storage.k8s.io/csinodes", &named("n1", "")), "");
    assert!(create("storage.k8s.io/csinodes", &named("n2", "")).contains("same name"));
    let slice = |node: &str| json!({"metadata": {"name": "s"}, "spec": {"nodeName": node}});
    assert_eq!(create("resource.k8s.io/resourceslices", &slice("n1")), "");
    assert!(create("resource.k8s.io/resourceslices", &slice("n2")).contains("spec.nodeName"));

    let old = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    let mut new = old.clone();
    new["status"]["capacity"] = json!({"storage": "2Gi"});
    let claim = "/persistentvolumeclaims";
    assert_eq!(
        world.told(Operation::Update, "/persistentvolumeclaims/status", &new, Some(&old)),
        ""
    );
    assert!(
        world
            .told(Operation::Update, claim, &new, Some(&old))
            .ends_with("may only update PVC status")
    );
    new["metadata"]["labels"] = json!({"x": "y"});
    let told = world.told(Operation::Update, "/persistentvolumeclaims/status", &new, Some(&old));
    assert!(
        told.contains("other than status.capacity and status.conditions"),
        "{told}"
    );

    let csr = |common_name: &str| {
        use base64::Engine;
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let pem = base64::engine::general_purpose::STANDARD.encode(pem);
        json!({"metadata": {"name": "r"}, "spec": {"signerName": "kubernetes.io/kubelet-serving", "request": pem}})
    };
    let what = "certificates.k8s.io/certificatesigningrequests";
    assert_eq!(create(what, &csr("system:node:n1")), "");
    assert!(create(what, &csr("system:node:n2")).ends_with("can only create a node CSR with CN=system:node:n1"));
}

#[tokio::test(start_paused = true)]
async fn others_pass_and_nodes_without_a_name_do_not() {
    let world = World::new().await;
    let kind = Registry::built_in().by_resource("", "v1", "nodes").unwrap();
    let told = |user: User| {
        let info = RequestInfo::default();
        let attributes = Attributes {
            user: &user,
            info: &info,
            kind,
            operation: Operation::Delete,
            namespace: "",
            name: "n2",
            dry_run: false,
        };
        admit(&attributes, &Value::Null, None, &world.reader, &Authz::default()).err()
    };
    assert!(told(User::named("alice", &[])).is_none());
    assert!(told(User::named("system:node:n2", &[])).is_none());
    let unnamed = told(User::named("system:node:", &["system:nodes"])).unwrap();
    assert!(
        unnamed
            .message
            .contains("could not determine node from user \"system:node:\"")
    );
}
