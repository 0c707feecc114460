//! Which other objects a pod, or a volume, refers to: what its node may read on its behalf. Pure.

use crate::resource::field::{at, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// What is referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Referent {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A ServiceAccount.
    ServiceAccount,
    /// A ResourceClaim.
    ResourceClaim,
    /// A ClusterTrustBundle (at cluster scope).
    TrustBundle,
}

/// Everything the pod refers to, by kind and name; all but trust bundles lie in the pod's namespace.
pub(crate) fn of_pod(pod: &Value) -> BTreeSet<(Referent, String)> {
    let mut found = Found::default();
    let spec = at(pod, &["spec"]);
    found.add(Referent::ServiceAccount, text(spec, &["serviceAccountName"]));
    for secret in list(spec, &["imagePullSecrets"]) {
        found.add(Referent::Secret, text(secret, &["name"]));
    }
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        list(spec, &[kind])
            .iter()
            .for_each(|container| found.container(container));
    }
    for volume in list(spec, &["volumes"]) {
        found.volume(volume, text(pod, &["metadata", "name"]));
    }
    found.resource_claims(pod);
    found.0
}

#[derive(Default)]
struct Found(BTreeSet<(Referent, String)>);

impl Found {
    fn add(&mut self, referent: Referent, name: &str) {
        if !name.is_empty() {
            self.0.insert((referent, name.to_owned()));
        }
    }

    fn container(&mut self, container: &Value) {
        for source in list(container, &["envFrom"]) {
            self.add(Referent::Secret, text(source, &["secretRef", "name"]));
            self.add(Referent::ConfigMap, text(source, &["configMapRef", "name"]));
        }
        for variable in list(container, &["env"]) {
            self.add(Referent::Secret, text(variable, &["valueFrom", "secretKeyRef", "name"]));
            self.add(
                Referent::ConfigMap,
                text(variable, &["valueFrom", "configMapKeyRef", "name"]),
            );
        }
    }

    fn volume(&mut self, volume: &Value, pod: &str) {
        self.add(Referent::Secret, text(volume, &["secret", "secretName"]));
        self.add(Referent::Secret, text(volume, &["azureFile", "secretName"]));
        self.add(Referent::Secret, text(volume, &["csi", "nodePublishSecretRef", "name"]));
        for kind in ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            self.add(Referent::Secret, text(volume, &[kind, "secretRef", "name"]));
        }
        self.add(Referent::ConfigMap, text(volume, &["configMap", "name"]));
        self.add(Referent::Claim, text(volume, &["persistentVolumeClaim", "claimName"]));
        if at(volume, &["ephemeral"]).is_object() {
            self.add(Referent::Claim, &format!("{pod}-{}", text(volume, &["name"])));
        }
        for source in list(volume, &["projected", "sources"]) {
            self.add(Referent::Secret, text(source, &["secret", "name"]));
            self.add(Referent::ConfigMap, text(source, &["configMap", "name"]));
            let bundle = at(source, &["clusterTrustBundle"]);
            if bundle.is_object() {
                // One that is chosen by signer and labels has no name, and is referred to all the same.
                let name = text(bundle, &["name"]);
                self.add(Referent::TrustBundle, if name.is_empty() { "*" } else { name });
            }
        }
    }

    fn resource_claims(&mut self, pod: &Value) {
        let made = list(pod, &["status", "resourceClaimStatuses"]);
        for claim in list(pod, &["spec", "resourceClaims"]) {
            self.add(Referent::ResourceClaim, text(claim, &["resourceClaimName"]));
            let made = made.iter().find(|status| status["name"] == claim["name"]);
            self.add(
                Referent::ResourceClaim,
                made.map_or("", |status| text(status, &["resourceClaimName"])),
            );
        }
        let extended = &["status", "extendedResourceClaimStatus", "resourceClaimName"];
        self.add(Referent::ResourceClaim, text(pod, extended));
    }
}

/// The Secrets of a PersistentVolume that its node needs, as `namespace/name`.
pub(crate) fn secrets_of_volume(volume: &Value) -> BTreeSet<String> {
    let spec = at(volume, &["spec"]);
    let home = text(spec, &["claimRef", "namespace"]);
    let mut found = BTreeSet::new();
    let mut add = |namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() { home } else { namespace };
        if !name.is_empty() && !namespace.is_empty() {
            found.insert(format!("{namespace}/{name}"));
        }
    };
    add(
        text(spec, &["azureFile", "secretNamespace"]),
        text(spec, &["azureFile", "secretName"]),
    );
    for (kind, reference) in [
        ("cephfs", "secretRef"),
        ("flexVolume", "secretRef"),
        ("rbd", "secretRef"),
        ("scaleIO", "secretRef"),
        ("iscsi", "secretRef"),
        ("storageos", "secretRef"),
        ("csi", "nodePublishSecretRef"),
        ("csi", "nodeStageSecretRef"),
        ("csi", "nodeExpandSecretRef"),
    ] {
        let reference = at(spec, &[kind, reference]);
        add(text(reference, &["namespace"]), text(reference, &["name"]));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Pod;
    use serde_json::json;

    #[test]
    fn every_place_a_pod_can_name_something_in_is_seen() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "own"}, {"name": "made", "resourceClaimTemplateName": "t"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s-env"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "c-env"}}}]}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s-from"}}]}],
            "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "c-from"}}]}],
            "volumes": [{"secret": {"secretName": "s-vol"}}, {"configMap": {"name": "c-vol"}}, {"name": "e", "ephemeral": {}},
                {"persistentVolumeClaim": {"claimName": "claim"}}, {"csi": {"nodePublishSecretRef": {"name": "s-csi"}}},
                {"iscsi": {"secretRef": {"name": "s-iscsi"}}},
                {"projected": {"sources": [{"secret": {"name": "s-pro"}}, {"configMap": {"name": "c-pro"}},
                    {"clusterTrustBundle": {"signerName": "x"}}]}}]},
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made"}]}});
        let of = |wanted: Referent| -> Vec<String> {
            let found = of_pod(&pod).into_iter().filter(|(referent, _)| *referent == wanted);
            found.map(|(_, name)| name).collect()
        };
        assert_eq!(
            of(Referent::Secret),
            ["pull", "s-csi", "s-env", "s-from", "s-iscsi", "s-pro", "s-vol"]
        );
        assert_eq!(of(Referent::ConfigMap), ["c-env", "c-from", "c-pro", "c-vol"]);
        assert_eq!(of(Referent::Claim), ["claim", "p-e"]);
        assert_eq!(of(Referent::ServiceAccount), ["sa"]);
        assert_eq!(of(Referent::ResourceClaim), ["own", "p-made"]);
        assert_eq!(of(Referent::TrustBundle), ["*"]);
    }

    #[test]
    fn a_typed_pod_names_the_secrets_that_its_tree_names() {
        let container = |name: &str| {
            json!({"name": "c", "env": [{"name": "e", "value": "x"},
                {"name": "f", "valueFrom": {"secretKeyRef": {"key": "k", "name": format!("env-{name}")}}}],
                "envFrom": [{"configMapRef": {"name": "no"}}, {"secretRef": {"name": format!("from-{name}")}}]})
        };
        let own = |name: &str| json!({"name": name});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "no", "imagePullSecrets": [own("pull")],
            "containers": [container("c")], "initContainers": [container("i")], "ephemeralContainers": [container("e")],
            "volumes": [{"name": "1", "secret": {"secretName": "s"}}, {"name": "2", "configMap": {"name": "no"}},
                {"name": "3", "azureFile": {"secretName": "azure", "shareName": "x"}},
                {"name": "4", "csi": {"driver": "x", "nodePublishSecretRef": own("csi")}},
                {"name": "5", "cephfs": {"monitors": [], "secretRef": own("cephfs")}},
                {"name": "6", "flexVolume": {"driver": "x", "secretRef": own("flex")}},
                {"name": "7", "rbd": {"image": "x", "monitors": [], "secretRef": own("rbd")}},
                {"name": "8", "scaleIO": {"gateway": "x", "system": "x", "secretRef": own("scale")}},
                {"name": "9", "iscsi": {"iqn": "x", "lun": 1, "targetPortal": "x", "secretRef": own("iscsi")}},
                {"name": "a", "storageos": {"secretRef": own("os")}}, {"name": "b", "emptyDir": {}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "no"}}, {"secret": {"name": "projected"}}]}}]}});
        let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
        let secrets: Vec<_> = of_pod(&pod)
            .into_iter()
            .filter(|(kind, _)| *kind == Referent::Secret)
            .collect();
        assert_eq!(secrets.len(), 17);
        for (_, name) in secrets {
            assert!(typed.names_secret(&name), "{name}");
        }
        for other in ["no", "x", "p", ""] {
            assert!(!typed.names_secret(other), "{other}");
        }
    }

    #[test]
    fn a_volumes_secrets_lie_where_it_says_or_with_its_claim() {
        let volume = json!({"spec": {"claimRef": {"namespace": "ns"}, "azureFile": {"secretName": "a"},
            "csi": {"nodeStageSecretRef": {"namespace": "other", "name": "b"},
                "controllerPublishSecretRef": {"namespace": "other", "name": "no"}}}});
        assert_eq!(
            secrets_of_volume(&volume).into_iter().collect::<Vec<_>>(),
            ["ns/a", "other/b"]
        );
    }
}
