//! The table against the kinds there are, the objects it is about, and README.

use super::*;
use crate::resource::Registry;
use serde_json::json;

/// What stands around the listing in README.
const BEGIN: &str = "<!-- without effect: begin -->\n";
const END: &str = "<!-- without effect: end -->\n";

fn told(group: &str, plural: &str, object: &Value) -> Vec<String> {
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    warnings(
        Registry::built_in()
            .by_resource(group, version, plural)
            .expect("a kind"),
        object,
    )
}

#[test]
fn every_row_is_about_a_kind_that_is_served() {
    for row in ROWS.iter().chain(pod::ROWS) {
        let (plural, group) = row.resource.split_once('.').unwrap_or((row.resource, ""));
        let found = Registry::built_in()
            .kinds()
            .any(|kind| kind.plural == plural && kind.group == group);
        assert!(found, "{}", row.resource);
        assert!(!row.effect.ends_with('.') && !row.effect.is_empty(), "{}", row.resource);
    }
}

#[test]
fn kinds_and_parts_are_told() {
    assert_eq!(
        told("networking.k8s.io", "ingresses", &json!({})),
        ["ingresses.networking.k8s.io: no controller of ours leads traffic by them (another one may)"]
    );
    assert_eq!(
        told("apps", "deployments", &json!({"spec": {"template": {"spec": {}}}})),
        [""; 0]
    );
    let labelled = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    assert_eq!(told("", "namespaces", &labelled).len(), 1);
    assert_eq!(
        told("", "namespaces", &json!({"metadata": {"labels": {"a": "b"}}})),
        [""; 0]
    );
    let service = |spec: Value| told("", "services", &json!({"metadata": {"name": "s"}, "spec": spec})).len();
    assert_eq!(service(json!({"type": "ClusterIP", "clusterIP": "10.96.0.9"})), 0);
    assert_eq!(service(json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9"})), 1);
    let secret = json!({"type": "kubernetes.io/service-account-token"});
    assert_eq!(
        (
            told("", "secrets", &secret).len(),
            told("", "secrets", &json!({"type": "Opaque"})).len()
        ),
        (1, 0)
    );
}

#[test]
fn each_field_of_a_pod_is_told_by_its_own_row_wherever_the_pod_is_described() {
    let cases = [
        json!({"resourceClaims": [{"name": "gpu"}]}),
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
        json!({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}),
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}]}),
        json!({"initContainers": [{"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}}]}),
    ];
    assert_eq!(cases.len(), pod::ROWS.len());
    for (row, spec) in pod::ROWS.iter().zip(cases) {
        let expected = format!("spec: {}: {}", row.part, row.effect);
        assert_eq!(told("", "pods", &json!({"spec": spec})), [expected]);
        let inner = json!({"spec": {"template": {"spec": spec}}});
        let expected = format!("spec.template.spec: {}: {}", row.part, row.effect);
        assert_eq!(told("apps", "deployments", &inner), [expected]);
    }
    let term = json!([{"topologyKey": "zone", "labelSelector": {}}]);
    let obeyed = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}], "hostUsers": false, "runtimeClassName": "kata", "schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"},
        "containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
    assert_eq!(told("", "pods", &json!({"spec": obeyed})), [""; 0]);
}

#[test]
fn readme_lists_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let (_, rest) = readme.split_once(BEGIN).expect("the beginning of the listing");
    let (found, _) = rest.split_once(END).expect("the end of the listing");
    let expected = listing();
    assert!(
        found == expected,
        "README.md must have between the two comments:\n{expected}"
    );
}
