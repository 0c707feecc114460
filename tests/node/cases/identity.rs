//! The node's own identity: how it joined, and what its credentials are not good for.

use anyhow::ensure;

use crate::cluster::{Cluster, NODE};
use crate::command::{fail, succeed};

/// `hack/up` joined the node by a bootstrap token: its certificate is the cluster's, and the token is nowhere in its kubeconfig.
pub(crate) fn joined_by_token(cluster: &Cluster) -> anyhow::Result<()> {
    let requests = cluster.get(
        &["csr"],
        "{range .items[*]}{.spec.username} {.spec.signerName} {.status.conditions[*].type} {.status.certificate}{\"\\n\"}{end}",
    )?;
    let joined = requests.lines().any(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.first().is_some_and(|user| user.starts_with("system:bootstrap:"))
            && words.get(1) == Some(&"kubernetes.io/kube-apiserver-client-kubelet")
            && words.get(2) == Some(&"Approved")
            && words.get(3).is_some_and(|certificate| !certificate.is_empty())
    });
    ensure!(
        joined,
        "no approved and signed request of a bootstrap token: {requests}"
    );
    let kubeconfig = std::fs::read_to_string(cluster.path("kubelet/kubeconfig"))?;
    ensure!(kubeconfig.contains("kubelet-client-current.pem"), "{kubeconfig}");
    ensure!(!kubeconfig.contains("token"), "{kubeconfig}");
    Ok(())
}

/// With the kubelet's own credentials: its node yes; other nodes, Secrets and labels no.
pub(crate) fn confined_to_its_node(cluster: &Cluster) -> anyhow::Result<()> {
    let kubeconfig = cluster.path("kubelet/kubeconfig").display().to_string();
    let as_node = |arguments: &[&str]| {
        let mut all = vec!["--kubeconfig", kubeconfig.as_str()];
        all.extend(arguments);
        cluster.kubectl_command(&all)
    };
    succeed(as_node(&["get", "node", NODE]), None)?;
    let selector = format!("--field-selector=spec.nodeName={NODE}");
    succeed(as_node(&["get", "pods", "-A", &selector]), None)?;
    // All pods it may list here, for the network policies: see hack/node/network.yaml.
    for (arguments, part) in [
        (&["get", "nodes"][..], "only its own Node object"),
        (&["get", "node", "another"], "only its own Node object"),
        (
            &["get", "secrets", "-A"],
            "can only read namespaced object of this type",
        ),
        (
            &["get", "secret", "x", "-n", "kube-system"],
            "no relationship found between node",
        ),
        (
            &["label", "node", NODE, "node-restriction.kubernetes.io/x=y"],
            "is not allowed to modify labels",
        ),
        (
            &["taint", "node", NODE, "k=v:NoSchedule"],
            "is not allowed to modify taints",
        ),
        (&["delete", "node", NODE], "cannot delete resource"),
    ] {
        let said = fail(as_node(arguments), None)?;
        ensure!(said.contains(part), "kubectl {} says: {said}", arguments.join(" "));
    }
    Ok(())
}
