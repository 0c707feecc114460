use super::super::{KindStrategy, Plain, columns};
use super::*;
use serde_json::Map;

/// A kind that came in, of any types.
pub(crate) fn defined(group: &str, version: &str, plural: &str) -> Arc<Kind> {
    let like = Registry::built_in().by_resource("", "v1", "configmaps").unwrap();
    let name = |text: &str| Name::Owned(text.to_owned());
    Arc::new(Kind {
        group: name(group),
        version: name(version),
        api_version: api_version(group, version).into(),
        kind: name(&plural.to_uppercase()),
        list_kind: name("List"),
        plural: name(plural),
        singular: name(""),
        short_names: Box::default(),
        categories: Box::default(),
        namespaced: true,
        verbs: like.verbs,
        subresources: Box::default(),
        storage_prefix: format!("{group}/{plural}").into(),
        create_on_update: false,
        unconditional_update: false,
        returns_object_on_delete: false,
        default_propagation_orphan: false,
        definition: like.definition.clone(),
        types: Arc::clone(&like.types),
        published: Definitions::Own(Arc::new(Map::new())),
        printer: columns::built_in("", "ServiceAccount"),
        strategy: KindStrategy::Defined(Arc::new(Plain)),
        structural: None,
        defined: Default::default(),
        deprecation: None,
        conversion: None,
    })
}

fn names(registry: &Registry) -> Vec<&str> {
    registry.groups().iter().map(|group| &*group.name).collect()
}

#[test]
fn a_successor_has_what_changed_and_shares_the_rest() {
    let before = Registry::built_in();
    let count = before.kinds().count();
    let first = defined("zoo.example", "v1", "lions");
    let one = before.with_resource("zoo.example", "lions", &[Arc::clone(&first)]);
    let both = [defined("zoo.example", "v1beta1", "lions"), first];
    let two = one.with_resource("zoo.example", "lions", &both);
    let two = two.with_resource("art.example", "frames", &[defined("art.example", "v1", "frames")]);
    assert_eq!(before.kinds().count(), count, "a snapshot stays what it was");
    assert_eq!(two.kinds().count(), count + 3);
    assert!(names(&two).ends_with(&["flowcontrol.apiserver.k8s.io", "art.example", "zoo.example"]));
    for group in before.groups() {
        assert!(Arc::ptr_eq(group, two.group(&group.name).unwrap()), "{}", group.name);
    }
    let version = |registry: &Registry| Arc::clone(registry.version("zoo.example", "v1").unwrap());
    let zoo: Vec<&str> = two
        .group("zoo.example")
        .unwrap()
        .versions
        .iter()
        .map(|v| &*v.name)
        .collect();
    assert_eq!(zoo, ["v1", "v1beta1"], "the preferred one first");
    assert_eq!(version(&two).kinds.len(), 1);
    assert!(two.by_resource("zoo.example", "v1", "lions").is_some());
    assert!(two.by_gvk("zoo.example", "v1beta1", "LIONS").is_some());
    let more = two.with_resource("zoo.example", "bears", &[defined("zoo.example", "v1", "bears")]);
    let plurals: Vec<String> = version(&more)
        .kinds
        .iter()
        .map(|kind| kind.plural.to_string())
        .collect();
    assert_eq!(plurals, ["bears", "lions"]);
    let less = more
        .with_resource("zoo.example", "bears", &[])
        .with_resource("zoo.example", "lions", &[]);
    assert!(names(&less).ends_with(&["flowcontrol.apiserver.k8s.io", "art.example"]));
    // Built-in resources stay, and with them their groups.
    let same = less.with_resource("apps", "deployments", &[defined("apps", "v9", "deployments")]);
    let same = same.with_resource("discovery.k8s.io", "endpointslices", &[]);
    assert!(same.version("apps", "v9").is_none() && same.by_resource("apps", "v1", "deployments").is_some());
    assert!(same.group("discovery.k8s.io").is_some());
    let beside = same.with_resource(
        "discovery.k8s.io",
        "lions",
        &[defined("discovery.k8s.io", "v1", "lions")],
    );
    assert_eq!(
        beside.with_resource("discovery.k8s.io", "lions", &[]).kinds().count(),
        count + 1
    );
    assert_eq!(less.with_resource("none.example", "x", &[]).kinds().count(), count + 1);
}

#[test]
fn bodies_are_found_whether_or_not_they_are_kinds_of_resources() {
    let registry = Registry::built_in();
    assert_eq!(
        &*registry.body("policy", "v1", "Eviction").unwrap().api_version,
        "policy/v1"
    );
    assert_eq!(
        &*registry.body("", "v1", "Pod").unwrap().definition,
        "io.k8s.api.core.v1.Pod"
    );
    assert!(registry.body("policy", "v1", "None").is_none());
}

#[test]
fn versions_are_preferred_as_upstream_does() {
    let mut found = vec![
        "foo10",
        "v1",
        "v12alpha1",
        "v2",
        "foo1",
        "v10",
        "v3beta1",
        "v11beta2",
        "v1alpha1",
        "v11alpha2",
        "v01",
    ];
    found.sort_by_key(|version| precedence(version));
    let expected = [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "v1alpha1",
        "foo1",
        "foo10",
        "v01",
    ];
    assert_eq!(found, expected);
}
