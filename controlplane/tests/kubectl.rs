//! Real kubectl against the real daemon, on a loopback port and in a temporary data directory.

#[path = "support/cluster.rs"]
mod cluster;

use cluster::{Cluster, run_to_failure};
use std::io::Write;

#[test]
fn a_fresh_cluster_answers_kubectl() {
    let cluster = Cluster::start(&[]);
    let namespaces = cluster.kubectl(&["get", "ns", "-o", "name"]);
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert!(namespaces.contains(&format!("namespace/{name}\n")), "{namespaces}");
    }
    assert!(cluster.kubectl(&["version"]).contains("Server Version: v1.36."));
    let resources = cluster.kubectl(&["api-resources"]);
    for line in ["deployments", "pods", "roles", "leases"] {
        assert!(resources.contains(line), "{resources}");
    }
    assert_eq!(cluster.kubectl(&["auth", "can-i", "delete", "nodes"]), "yes\n");
    assert!(cluster.kubectl(&["auth", "whoami"]).contains("kubernetes-admin"));
    assert!(
        cluster
            .kubectl(&["get", "--raw", "/readyz?verbose"])
            .ends_with("readyz check passed\n")
    );
    let services = cluster.kubectl(&["get", "svc"]);
    assert!(
        services.contains("kubernetes") && services.contains("10.96.0.1"),
        "{services}"
    );
}

#[test]
fn objects_are_made_changed_and_deleted() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl(&["create", "configmap", "c", "--from-literal=a=b"]);
    assert_eq!(cluster.kubectl(&["get", "cm", "c", "-o", "jsonpath={.data.a}"]), "b");
    let manifest =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  key: {value}\n");
    let apply = |value: &str| cluster.kubectl_with(&["apply", "-f", "-"], &manifest(value));
    assert_eq!(apply("one"), "configmap/m created\n");
    assert_eq!(apply("one"), "configmap/m unchanged\n");
    assert_eq!(apply("two"), "configmap/m configured\n");
    assert_eq!(
        cluster.kubectl(&["get", "cm", "m", "-o", "jsonpath={.data.key}"]),
        "two"
    );
    assert_eq!(cluster.kubectl(&["label", "cm", "m", "x=y"]), "configmap/m labeled\n");
    assert_eq!(
        cluster.kubectl(&["get", "cm", "-l", "x=y", "-o", "name"]),
        "configmap/m\n"
    );
    let listed = cluster.kubectl(&["get", "cm"]);
    assert!(listed.starts_with("NAME") && listed.contains("DATA"), "{listed}");
    assert_eq!(
        cluster.kubectl(&["delete", "cm", "c", "m"]),
        "configmap \"c\" deleted\nconfigmap \"m\" deleted\n"
    );
    let error = cluster.kubectl_fails(&["get", "cm", "m"], "");
    assert!(error.contains("configmaps \"m\" not found"), "{error}");
}

#[test]
fn manifests_with_mistakes_are_refused_by_name() {
    let cluster = Cluster::start(&[]);
    let unknown = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndatum:\n  a: b\n";
    let error = cluster.kubectl_fails(&["create", "-f", "-"], unknown);
    assert!(error.contains("unknown field \"datum\""), "{error}");
    let invalid = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: UPPER\nspec:\n  containers: []\n";
    let error = cluster.kubectl_fails(&["create", "-f", "-"], invalid);
    assert!(
        error.contains("is invalid") && error.contains("spec.containers"),
        "{error}"
    );
    let stranger = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata:\n  name: m\n";
    for stranger in [stranger, &stranger.replace("stable.example.com/v1", "v1")] {
        let error = cluster.kubectl_fails(&["apply", "-f", "-"], stranger);
        assert!(error.contains("no matches for kind \"CronTab\""), "{error}");
    }
    let broken = "apiVersion: v1\nkind: [\n";
    assert!(cluster.kubectl_fails(&["create", "-f", "-"], broken).contains("error"));
}

#[test]
fn rights_are_what_bindings_say() {
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    writeln!(tokens, "alices-token,alice,1,\"dev\"").unwrap();
    let cluster = Cluster::start(&["--token-auth-file", tokens.path().to_str().unwrap()]);
    let alice = ["--token", "alices-token"];
    let error = cluster.as_token(&alice, &["get", "pods"]).unwrap_err();
    let text = "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert!(error.contains(text), "{error}");
    cluster.kubectl(&["create", "rolebinding", "b", "--clusterrole=view", "--group=dev"]);
    assert!(cluster.as_token(&alice, &["get", "pods"]).is_ok());
    let error = cluster.as_token(&alice, &["get", "secrets"]).unwrap_err();
    assert!(error.contains("cannot list resource \"secrets\""), "{error}");
    assert!(
        cluster
            .as_token(&["--token", "wrong"], &["get", "pods"])
            .unwrap_err()
            .contains("Unauthorized")
    );
    let can = cluster.kubectl(&["auth", "can-i", "list", "pods", "--as=bob", "--as-group=dev"]);
    assert_eq!(can, "yes\n");
    assert!(
        cluster
            .kubectl(&["auth", "can-i", "--list", "--as=bob", "--as-group=dev"])
            .contains("deployments.apps")
    );
}

#[test]
fn service_accounts_get_tokens_that_work_until_they_are_gone() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl(&["create", "serviceaccount", "robot"]);
    let token = cluster.kubectl(&["create", "token", "robot"]);
    let robot = ["--token", token.trim()];
    let whoami = cluster.as_token(&robot, &["auth", "whoami"]).unwrap();
    assert!(whoami.contains("system:serviceaccount:default:robot"), "{whoami}");
    cluster.kubectl(&["delete", "serviceaccount", "robot"]);
    assert!(
        cluster
            .as_token(&robot, &["auth", "whoami"])
            .unwrap_err()
            .contains("Unauthorized")
    );
}

#[test]
fn a_killed_daemon_keeps_everything() {
    let mut cluster = Cluster::start(&[]);
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"]);
    let uid = cluster.kubectl(&["get", "cm", "kept", "-o", "jsonpath={.metadata.uid}"]);
    cluster.kill_and_restart();
    assert_eq!(
        cluster.kubectl(&["get", "cm", "kept", "-o", "jsonpath={.metadata.uid}"]),
        uid
    );
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let cluster = Cluster::start(&[]);
    let other = tempfile::tempdir().unwrap();
    let data_dir = |path: &std::path::Path| format!("--data-dir={}", path.display());
    let same_dir = run_to_failure(&[
        &data_dir(cluster.data_dir()),
        "--bind-address=127.0.0.1",
        "--secure-port=1",
    ]);
    assert!(same_dir.contains(cluster.data_dir().to_str().unwrap()), "{same_dir}");
    let port = format!("--secure-port={}", cluster.port());
    let same_port = run_to_failure(&[&data_dir(other.path()), "--bind-address=127.0.0.1", &port]);
    assert!(
        same_port.contains(&format!("127.0.0.1:{}", cluster.port())),
        "{same_port}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let no_dir = run_to_failure(&[&data_dir(file.path())]);
    assert!(no_dir.contains(file.path().to_str().unwrap()), "{no_dir}");
    let flags = run_to_failure(&["--no-such-flag=1", "--etcd-servers-overrides=http://127.0.0.1:2379"]);
    assert!(
        flags.contains("unknown flag: --no-such-flag") && flags.contains("--etcd-servers-overrides"),
        "{flags}"
    );
}

#[test]
fn typed_commands_speak_protobuf_and_leave_no_zeros_behind() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl(&[
        "create",
        "deployment",
        "web",
        "--image=nginx",
        "--replicas=2",
        "--port=80",
    ]);
    let fields = ["-o", "jsonpath={.spec.replicas} {.spec.template.spec.containers[0]}"];
    let shown = cluster.kubectl(&[&["get", "deployment", "web"][..], &fields].concat());
    let (replicas, container) = shown.split_once(' ').unwrap();
    assert_eq!(replicas, "2");
    let container: serde_json::Value = serde_json::from_str(container).unwrap();
    let expected = serde_json::json!({"name": "nginx", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
    assert_eq!(container, expected);
    cluster.kubectl(&["create", "secret", "generic", "s", "--from-literal=key=value"]);
    assert_eq!(
        cluster.kubectl(&["get", "secret", "s", "-o", "jsonpath={.data.key}"]),
        "dmFsdWU="
    );
    cluster.kubectl(&["expose", "deployment", "web", "--type=NodePort"]);
    let service = cluster.kubectl(&[
        "get",
        "svc",
        "web",
        "-o",
        "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}",
    ]);
    let (address, port) = service.split_once(' ').unwrap();
    assert!(
        address.starts_with("10.96.") && port.parse::<u16>().unwrap() >= 30_000,
        "{service}"
    );
    cluster.kubectl(&["create", "role", "r", "--verb=get", "--resource=pods"]);
    let rules = cluster.kubectl(&[
        "get",
        "role",
        "r",
        "-o",
        "jsonpath={.rules[0].apiGroups}{.rules[0].verbs}",
    ]);
    assert_eq!(rules, "[\"\"][\"get\"]");
    // Two bound replicas' worth of objects, then nothing: the garbage collector follows the owner.
    cluster.kubectl(&[
        "wait",
        "--for=jsonpath={.status.replicas}=2",
        "deployment/web",
        "--timeout=60s",
    ]);
    cluster.kubectl(&["delete", "deployment", "web"]);
    for kind in ["rs", "pod"] {
        cluster.kubectl(&["wait", "--for=delete", kind, "-l", "app=web", "--timeout=60s"]);
    }
    assert_eq!(cluster.kubectl(&["get", "rs,pods", "-l", "app=web", "-o", "name"]), "");
}

#[test]
fn a_kubelets_kubeconfig_gives_a_kubelets_rights() {
    let cluster = Cluster::start(&[]);
    let issued = cluster.kubeconfig_for("system:node:n1", "system:nodes");
    let path = issued.path().to_str().unwrap();
    let as_node = |words: &[&str]| cluster.as_token(&["--kubeconfig", path], words);
    assert!(as_node(&["auth", "whoami"]).unwrap().contains("system:node:n1"));
    for (question, may) in [
        // Its own node's pods alone, which this question cannot say.
        ("list pods", false),
        ("patch nodes", true),
        ("create serviceaccounts --subresource=token", false),
        ("create tokenreviews.authentication.k8s.io", true),
        ("update leases.coordination.k8s.io/n1 -n kube-node-lease", true),
        ("update leases.coordination.k8s.io/n2 -n kube-node-lease", false),
        ("get nodes/n1", true),
        ("get nodes/n2", false),
        ("delete namespaces", false),
        ("create deployments.apps", false),
        ("list clusterroles.rbac.authorization.k8s.io", false),
    ] {
        let words: Vec<&str> = ["auth", "can-i"].into_iter().chain(question.split(' ')).collect();
        let answer = as_node(&words);
        assert_eq!(answer.is_ok(), may, "{question}: {answer:?}");
    }
}

#[test]
fn a_watch_shows_what_happens_after_it_began() {
    let cluster = Cluster::start(&[]);
    let mut watch = cluster.kubectl_lines(&["get", "cm", "-w", "-o", "name", "--field-selector=metadata.name=seen"]);
    cluster.kubectl(&["create", "configmap", "unseen"]);
    cluster.kubectl(&["create", "configmap", "seen"]);
    assert_eq!(watch.next_line(), "configmap/seen");
    cluster.kubectl(&["label", "cm", "seen", "a=b"]);
    assert_eq!(watch.next_line(), "configmap/seen");
}

#[test]
fn the_service_kubernetes_survives_delete_all() {
    let mut cluster = Cluster::start(&["--advertise-address=192.0.2.7"]);
    let deleted = cluster.kubectl(&["delete", "all", "--all"]);
    assert!(deleted.contains("service \"kubernetes\" deleted"), "{deleted}");
    let is_back = |cluster: &Cluster| {
        let service = cluster.kubectl(&["get", "service", "kubernetes", "--ignore-not-found", "-o", "name"]);
        let slice = cluster.kubectl(&[
            "get",
            "endpointslice",
            "kubernetes",
            "-o",
            "jsonpath={.endpoints[0].addresses[0]}",
        ]);
        let endpoints = cluster.kubectl(&[
            "get",
            "endpoints",
            "kubernetes",
            "-o",
            "jsonpath={.subsets[0].addresses[0].ip}",
        ]);
        service == "service/kubernetes\n" && slice == "192.0.2.7" && endpoints == "192.0.2.7"
    };
    // Looked after every ten seconds.
    cluster.kubectl(&["wait", "--for=create", "--timeout=60s", "service/kubernetes"]);
    assert!(is_back(&cluster));
    cluster.kubectl(&["delete", "service,endpoints,endpointslices", "kubernetes"]);
    cluster.kill_and_restart();
    assert!(is_back(&cluster));
}

#[test]
fn edit_sends_what_the_editor_changed_and_nothing_else() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl(&["create", "configmap", "c", "--from-literal=colour=red"]);
    let edit = |editor: &str| cluster.kubectl_edit(editor, &["configmap", "c"]);
    let colour = || cluster.kubectl(&["get", "cm", "c", "-o", "jsonpath={.data.colour}"]);
    assert_eq!(edit("sed -i s/red/green/").unwrap(), "configmap/c edited\n");
    assert_eq!(colour(), "green");
    assert_eq!(edit("true").unwrap(), "Edit cancelled, no changes made.\n");
    let error = edit("sed -i -e s/green/blue/ -e s/^data:/datum:/").unwrap_err();
    assert!(error.contains("no valid changes were saved"), "{error}");
    assert_eq!(colour(), "green");
}
