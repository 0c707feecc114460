//! §4: which kinds count their generations, and what raises one.

use serde_json::{Value, json};

use super::{plurals, words};
use crate::resource::Registry;

#[test]
fn the_kinds_of_the_contract_have_generations() {
    assert_eq!(
        plurals(|kind| kind.strategy.has_generation()),
        words(
            "deployments replicasets replicationcontrollers statefulsets daemonsets jobs cronjobs pods podtemplates \
             ingresses ingressclasses networkpolicies poddisruptionbudgets endpointslices priorityclasses \
             mutatingwebhookconfigurations validatingwebhookconfigurations validatingadmissionpolicies \
             validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings flowschemas \
             prioritylevelconfigurations resourceslices deviceclasses customresourcedefinitions"
        )
    );
}

/// What an update through the main endpoint has to change: `spec`, or what a kind has in its place.
#[test]
fn a_change_of_what_is_wanted_raises_the_generation_and_no_other_does() {
    let old = json!({"metadata": {"name": "x"}, "status": {"a": 1}});
    let changed = |pointer: &str| -> Value {
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"l": "1"});
        match pointer {
            "" => {}
            pointer => new[pointer] = json!({"changed": true}),
        }
        new
    };
    for kind in Registry::built_in()
        .kinds()
        .filter(|kind| kind.strategy.has_generation())
    {
        let own = match &*kind.kind {
            "PodTemplate" => "template",
            "EndpointSlice" => "endpoints",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => "webhooks",
            _ => "spec",
        };
        // PriorityClasses keep the one they begin with, as upstream.
        let counts = &*kind.kind != "PriorityClass";
        assert_eq!(
            kind.strategy.bumps_generation(&changed(own), &old),
            counts,
            "{kind:?}: {own}"
        );
        assert!(!kind.strategy.bumps_generation(&old, &old), "{kind:?}");
        // EndpointSlices count labels, too.
        let counts_labels = matches!(&*kind.kind, "EndpointSlice");
        assert_eq!(
            kind.strategy.bumps_generation(&changed(""), &old),
            counts_labels,
            "{kind:?}: labels"
        );
        let mut annotated = old.clone();
        annotated["metadata"]["annotations"] = json!({"a": "1"});
        let counts = kind.strategy.bumps_generation(&annotated, &old);
        assert_eq!(counts, &*kind.kind == "Deployment", "{kind:?}: annotations");
    }
}
