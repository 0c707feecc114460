//! The wire facts of every message, from `data/protobuf-fields.tsv`, where its JSON form differs, from
//! `data/protobuf-json-names.tsv`, and which zeros say nothing, from `data/protobuf-zero-is-absent.tsv`. Built once, at first use.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

/// The table: message, field, number, label, type.
const FIELDS: &str = include_str!("../../../data/protobuf-fields.tsv");
/// The fields whose JSON name is not their name in the first table: message, name there, JSON name.
const JSON_NAMES: &str = include_str!("../../../data/protobuf-json-names.tsv");
/// The fields whose zero means "not given": message, names in the first table.
const ZERO_IS_ABSENT: &str = include_str!("../../../data/protobuf-zero-is-absent.tsv");
/// What stands in place of a JSON name when the member's fields stand in its parent.
const INLINE: &str = "-inline-";

pub(super) const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";

/// What a field's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Bytes,
    Bool,
    Int,
    Double,
    Message(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    One,
    Many,
    /// A map from text to the form.
    Keyed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// The JSON name; of an inlined member, its name in the protobuf form.
    pub(super) name: &'static str,
    /// Whether JSON has the member's fields in the parent, and no name for the member itself.
    pub(super) is_inlined: bool,
    pub(super) label: Label,
    pub(super) form: Form,
    /// Whether JSON leaves the field out when it is 0, false or empty: Go always writes it. Other zeros are values.
    pub(super) zero_is_absent: bool,
}

/// The fields of each message by number.
pub(super) type Messages = HashMap<&'static str, BTreeMap<u32, Field>>;

pub(super) fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let json_names: HashMap<_, _> = json_names()
            .map(|[message, name, json]| ((message, name), json))
            .collect();
        let zeros = zeros();
        let mut messages: Messages = HashMap::new();
        for line in FIELDS.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&'static str> = line.split('\t').collect();
            if let [message, name, number, label, form] = columns.as_slice()
                && let Ok(number) = number.parse()
            {
                let inner = form
                    .strip_prefix("map<string, ")
                    .and_then(|rest| rest.strip_suffix('>'));
                let json_name = json_names.get(&(*message, *name)).copied().unwrap_or(name);
                let is_inlined = json_name == INLINE;
                let field = Field {
                    name: if is_inlined { name } else { json_name },
                    is_inlined,
                    label: match (*label, inner) {
                        (_, Some(_)) => Label::Keyed,
                        ("repeated", None) => Label::Many,
                        _ => Label::One,
                    },
                    form: form_of(message, inner.unwrap_or(form)),
                    zero_is_absent: zeros.contains(&(*message, *name)),
                };
                messages.entry(message).or_default().insert(number, field);
            }
        }
        // Messages without fields have no line of their own.
        let referred: Vec<&'static str> = messages
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|field| match field.form {
                Form::Message(name) => Some(name),
                _ => None,
            })
            .collect();
        for name in referred {
            messages.entry(name).or_default();
        }
        messages
    })
}

/// The rows of the second table. Messages that are one JSON value by themselves are read by [`super::special`].
pub(super) fn json_names() -> impl Iterator<Item = [&'static str; 3]> {
    let rows = JSON_NAMES.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok());
    rows.filter(|[message, ..]: &[&str; 3]| *message != "message")
}

/// The rows of the third table, as message and field.
fn zeros() -> HashSet<(&'static str, &'static str)> {
    let rows = ZERO_IS_ABSENT.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split_once('\t'));
    rows.flat_map(|(message, names)| names.split(',').map(move |name| (message, name)))
        .collect()
}

/// The form a type's name in the table stands for; names without a package are of the message's own.
fn form_of(message: &str, form: &'static str) -> Form {
    let form = form.trim_start_matches('.');
    match form {
        "string" => Form::Text,
        "bytes" => Form::Bytes,
        "bool" => Form::Bool,
        "int32" | "int64" => Form::Int,
        "double" => Form::Double,
        name if name.starts_with("k8s.io.") => Form::Message(name),
        name => {
            let package = message.rsplit_once('.').map_or("", |(package, _)| package);
            // Once per line of the table, at first use.
            Form::Message(Box::leak(format!("{package}.{name}").into_boxed_str()))
        }
    }
}

/// Messages of `meta.v1` that are sent under any group's version.
const ANYWHERE: [&str; 12] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
    "WatchEvent",
];
/// Those of its own group.
const PARTIAL: [&str; 2] = ["PartialObjectMetadata", "PartialObjectMetadataList"];

/// The package of a built-in group, which a custom resource's group is not, however it begins.
fn package_of(group: &str) -> Option<&'static str> {
    Some(match group {
        "" => "k8s.io.api.core",
        "admission.k8s.io" => "k8s.io.api.admission",
        "admissionregistration.k8s.io" => "k8s.io.api.admissionregistration",
        "apidiscovery.k8s.io" => "k8s.io.api.apidiscovery",
        "apiextensions.k8s.io" => "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions",
        "apiregistration.k8s.io" => "k8s.io.kube_aggregator.pkg.apis.apiregistration",
        "apps" => "k8s.io.api.apps",
        "authentication.k8s.io" => "k8s.io.api.authentication",
        "authorization.k8s.io" => "k8s.io.api.authorization",
        "autoscaling" => "k8s.io.api.autoscaling",
        "batch" => "k8s.io.api.batch",
        "certificates.k8s.io" => "k8s.io.api.certificates",
        "coordination.k8s.io" => "k8s.io.api.coordination",
        "discovery.k8s.io" => "k8s.io.api.discovery",
        "events.k8s.io" => "k8s.io.api.events",
        "flowcontrol.apiserver.k8s.io" => "k8s.io.api.flowcontrol",
        "networking.k8s.io" => "k8s.io.api.networking",
        "node.k8s.io" => "k8s.io.api.node",
        "policy" => "k8s.io.api.policy",
        "rbac.authorization.k8s.io" => "k8s.io.api.rbac",
        "resource.k8s.io" => "k8s.io.api.resource",
        "scheduling.k8s.io" => "k8s.io.api.scheduling",
        "storage.k8s.io" => "k8s.io.api.storage",
        _ => return None,
    })
}

/// The message of an apiVersion and kind.
pub(super) fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = match (api_version, kind) {
        // One shape under two names.
        ("policy/v1beta1", "Eviction") => ("policy", "v1"),
        _ => api_version.split_once('/').unwrap_or(("", api_version)),
    };
    let known = |name: String| messages().get_key_value(name.as_str()).map(|(name, _)| *name);
    let own = package_of(group).and_then(|package| known(format!("{package}.{version}.{kind}")));
    let travels = ANYWHERE.contains(&kind) || (group == "meta.k8s.io" && PARTIAL.contains(&kind));
    own.or_else(|| travels.then(|| known(format!("{META}.{kind}")))?)
}
