//! §2.5: how the lists of built-in types merge. The rows are data (`data/merge-keys.tsv`, upstream's published facts); here is that they
//! fit the types, that none is missing where it is easily seen, and those that people's patches rest on, by hand.

use std::collections::BTreeSet;

use crate::resource::Registry;
use crate::schema::{ListType, Merge, Schema, Shape, Type, TypeId};

fn schema() -> &'static Schema {
    Registry::built_in().types().get()
}

/// All types that objects of built-in kinds are made of.
fn types() -> Vec<&'static Type> {
    let mut found = BTreeSet::new();
    let mut left: Vec<TypeId> = Registry::built_in()
        .kinds()
        .filter_map(|kind| kind.schema().1)
        .collect();
    let mut types = Vec::new();
    while let Some(id) = left.pop() {
        let known = schema().get(id);
        if !found.insert(&known.definition) {
            continue;
        }
        types.push(known);
        for field in &known.fields {
            let mut shape = &field.shape;
            while let Shape::List(inner) | Shape::Map(inner) = shape {
                shape = inner;
            }
            if let Shape::Object(id) = shape {
                left.push(*id);
            }
        }
    }
    types
}

fn items(shape: &Shape) -> Option<&'static Type> {
    match shape {
        Shape::List(items) => match &**items {
            Shape::Object(id) => Some(schema().get(*id)),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn every_rule_fits_the_type_it_is_for() {
    let mut rules = 0;
    for (known, field) in types()
        .into_iter()
        .flat_map(|known| known.fields.iter().map(move |field| (known, field)))
    {
        let Some(merge) = &field.merge else { continue };
        rules += 1;
        let place = format!("{}.{}", known.definition, field.name);
        let is_list = matches!(field.shape, Shape::List(_));
        assert!(merge.list_type.is_none() || is_list, "{place}");
        assert!(!merge.patch_merge || is_list, "{place}");
        assert_eq!(
            merge.list_type == Some(ListType::Map),
            !merge.list_map_keys.is_empty(),
            "{place}"
        );
        let keys = merge.list_map_keys.iter().chain([&merge.patch_merge_key]);
        for key in keys.filter(|key| !key.is_empty()) {
            assert!(
                items(&field.shape).is_some_and(|item| item.field(key).is_some()),
                "{place}: no {key}"
            );
        }
        // Objects are told apart by a key, scalars are the key themselves.
        if merge.patch_merge {
            assert_eq!(
                merge.patch_merge_key.is_empty(),
                items(&field.shape).is_none(),
                "{place}"
            );
        }
    }
    assert!(rules > 200, "{rules}");
}

#[test]
fn conditions_are_known_by_their_type() {
    let mut others = BTreeSet::new();
    for known in types() {
        let Some(field) = known.field("conditions") else {
            continue;
        };
        let has_types = items(&field.shape).is_some_and(|item| item.field("type").is_some());
        let keys = field.merge.as_ref().map(|merge| merge.list_map_keys.join(","));
        if has_types && keys.as_deref() != Some("type") {
            others.insert(known.go_name());
        }
    }
    // Upstream keeps them whole.
    assert_eq!(others, BTreeSet::from(["JobStatus"]));
}

#[test]
fn the_lists_people_patch_merge_by_these_keys() {
    // Type, field, list type with its keys, strategy of patches with its key.
    for row in "
        core.v1.PodSpec containers map:name merge:name
        core.v1.PodSpec initContainers map:name merge:name
        core.v1.PodSpec ephemeralContainers map:name merge:name
        core.v1.PodSpec volumes map:name merge,retainKeys:name
        core.v1.PodSpec imagePullSecrets map:name merge:name
        core.v1.PodSpec hostAliases map:ip merge:ip
        core.v1.PodSpec topologySpreadConstraints map:topologyKey,whenUnsatisfiable merge:topologyKey
        core.v1.PodSpec resourceClaims map:name merge,retainKeys:name
        core.v1.PodSpec schedulingGates map:name merge:name
        core.v1.PodSpec tolerations atomic -
        core.v1.Container env map:name merge:name
        core.v1.Container envFrom atomic -
        core.v1.Container ports map:containerPort,protocol merge:containerPort
        core.v1.Container volumeMounts map:mountPath merge:mountPath
        core.v1.Container volumeDevices map:devicePath merge:devicePath
        core.v1.Container args atomic -
        core.v1.Container command atomic -
        core.v1.PodStatus conditions map:type merge:type
        core.v1.PodStatus podIPs map:ip merge:ip
        core.v1.PodStatus containerStatuses atomic -
        core.v1.NodeSpec podCIDRs set merge
        core.v1.NodeSpec taints atomic -
        core.v1.NodeStatus addresses map:type merge:type
        core.v1.NodeStatus conditions map:type merge:type
        core.v1.ServiceSpec ports map:port,protocol merge:port
        core.v1.ServiceAccount secrets map:name merge:name
        core.v1.ServiceAccount imagePullSecrets atomic -
        core.v1.PersistentVolumeClaimStatus conditions map:type merge:type
        apps.v1.DeploymentStatus conditions map:type merge:type
        apps.v1.DeploymentSpec strategy - retainKeys
        batch.v1.JobStatus conditions atomic merge:type
        autoscaling.v2.HorizontalPodAutoscalerSpec metrics atomic -
        networking.v1.IngressSpec rules atomic -
        discovery.v1.EndpointSlice endpoints atomic -
        apimachinery.pkg.apis.meta.v1.ObjectMeta finalizers set merge
        apimachinery.pkg.apis.meta.v1.ObjectMeta ownerReferences map:uid merge:uid
        apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus conditions map:type -
        apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec versions atomic -
        apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps x-kubernetes-validations map:rule merge:rule
    "
    .lines()
    .map(str::trim)
    .filter(|row| !row.is_empty())
    {
        let [definition, field, list, patch] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let package = if definition.starts_with("api") && definition.contains(".pkg.") {
            ""
        } else {
            "api."
        };
        let id = schema()
            .type_of(&format!("io.k8s.{package}{definition}"))
            .unwrap_or_else(|| panic!("{row}"));
        let field = schema().get(id).field(field).unwrap_or_else(|| panic!("{row}"));
        let merge = field.merge.as_deref().cloned().unwrap_or_default();
        assert_eq!(shown(&merge), (list.to_owned(), patch.to_owned()), "{row}");
    }
}

/// Lists nothing is said about are atomic.
fn shown(merge: &Merge) -> (String, String) {
    let list = match merge.list_type {
        Some(ListType::Map) => format!("map:{}", merge.list_map_keys.join(",")),
        Some(ListType::Set) => "set".to_owned(),
        Some(ListType::Atomic) => "atomic".to_owned(),
        None => "-".to_owned(),
    };
    let strategies = [
        (merge.patch_merge, "merge"),
        (merge.patch_replace, "replace"),
        (merge.retain_keys, "retainKeys"),
    ];
    let strategies: Vec<&str> = strategies.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    let key = match merge.patch_merge_key.as_str() {
        "" => String::new(),
        key => format!(":{key}"),
    };
    let patch = match strategies.is_empty() {
        true => "-".to_owned(),
        false => format!("{}{key}", strategies.join(",")),
    };
    (list, patch)
}
