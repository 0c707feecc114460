//! §2.3, §2.4 and §2.8: what differs between kinds when they are written, deleted and selected.

use std::collections::BTreeMap;

use super::{plurals, stored, words};
use crate::resource::Registry;

#[test]
fn updates_create_and_overwrite_for_the_kinds_the_contract_names() {
    assert_eq!(
        plurals(|kind| kind.create_on_update),
        words(
            "services endpoints events limitranges leases runtimeclasses roles clusterroles rolebindings \
             clusterrolebindings"
        ),
        "a PUT of what is not there creates it"
    );
    assert_eq!(
        plurals(|kind| !kind.unconditional_update),
        words(
            "leases poddisruptionbudgets customresourcedefinitions mutatingwebhookconfigurations \
             validatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings \
             mutatingadmissionpolicies mutatingadmissionpolicybindings csidrivers csinodes csistoragecapacities \
             volumeattachments runtimeclasses"
        ),
        "resourceVersion must be specified for an update"
    );
}

#[test]
fn deletions_answer_and_propagate_as_the_contract_says() {
    assert_eq!(
        plurals(|kind| kind.returns_object_on_delete),
        words(
            "pods services serviceaccounts namespaces persistentvolumeclaims persistentvolumes podtemplates resourcequotas \
             storageclasses csidrivers csinodes volumeattachments volumeattributesclasses deviceclasses resourceclaims \
             resourceclaimtemplates resourceslices"
        )
    );
    assert_eq!(
        plurals(|kind| kind.default_propagation_orphan),
        words("replicationcontrollers jobs")
    );
}

/// §2.8, without `metadata.name` and `metadata.namespace`; `spec.host` of pods is an alias.
#[test]
fn field_selectors_are_those_of_the_contract() {
    let of_event = "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
                    involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
                    reportingComponent source type";
    let expected: BTreeMap<&str, _> = [
        (
            "pods",
            "spec.nodeName spec.host spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase \
             status.podIP status.podIPs status.nominatedNodeName",
        ),
        ("events", of_event),
        ("nodes", "spec.unschedulable"),
        ("replicationcontrollers", "status.replicas"),
        ("namespaces", "status.phase"),
        ("secrets", "type"),
        ("services", "spec.clusterIP spec.type"),
        ("jobs", "status.successful"),
        ("certificatesigningrequests", "spec.signerName"),
        ("resourceslices", "spec.nodeName spec.driver"),
    ]
    .into_iter()
    .map(|(plural, fields)| (plural, words(fields)))
    .collect();
    let found: BTreeMap<&str, _> = stored()
        .filter(|kind| !kind.strategy.field_labels().is_empty())
        .map(|kind| (&*kind.plural, words(&kind.strategy.field_labels().join(" "))))
        .collect();
    assert_eq!(found, expected);
    let newer = Registry::built_in()
        .by_gvk("events.k8s.io", "v1", "Event")
        .expect("built in");
    let converter = &newer.conversion.as_ref().expect("stored as core's").converter;
    for (field, stored) in [
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reason", "reason"),
        ("reportingController", "reportingComponent"),
        ("type", "type"),
    ] {
        assert_eq!(converter.field_label(field), Some(stored), "{field}");
    }
    for field in ["source", "involvedObject.kind", "reportingComponent"] {
        assert_eq!(converter.field_label(field), None, "{field}");
    }
}
