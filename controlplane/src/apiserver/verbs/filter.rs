//! Which objects of a collection a request wants: label and field selectors (control-plane contract §2.8).

use super::object;
use crate::apiserver::reply;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::resource::field::text;
use crate::store::window::{Interest, Selectable, Stored};
use proto::api::selector::{FieldRequirement, FieldSelector, Selector, SelectorError};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Both selectors of a request.
pub(in crate::apiserver) struct Filter {
    kind: Arc<Kind>,
    labels: Selector,
    fields: FieldSelector,
}

impl Filter {
    /// Parses and checks the request's selectors.
    pub(in crate::apiserver) fn parse(kind: &Arc<Kind>, info: &RequestInfo) -> Result<Self, ApiError> {
        let labels = Selector::parse(&info.label_selector).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let mut fields = FieldSelector::parse(&info.field_selector).map_err(|error| {
            ApiError::bad_request(match error {
                SelectorError::Field(part) => {
                    format!("invalid selector: '{}'; can't understand '{part}'", info.field_selector)
                }
                other => other.to_string(),
            })
        })?;
        // The name of a path such as `/watch/namespaces/a/pods/x`.
        if !info.name.is_empty() && fields.required(NAME).is_none() {
            fields.requirements.push(FieldRequirement {
                field: NAME.to_owned(),
                value: info.name.clone(),
                equal: true,
            });
        }
        for term in &mut fields.requirements {
            if kind.plural == "pods" && term.field == "spec.host" {
                term.field = "spec.nodeName".to_owned();
            }
            let stored = kind.conversion.as_ref();
            if let Some(label) = stored.and_then(|stored| stored.converter.field_label(&term.field)) {
                term.field = label.to_owned();
            } else if !is_known(kind, &term.field) {
                return Err(unknown(kind, &term.field));
            }
        }
        Ok(Self {
            kind: Arc::clone(kind),
            labels,
            fields,
        })
    }

    /// Whether every object matches.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.requirements.is_empty()
    }

    /// The one name that can match, if the selector says so.
    pub(super) fn single_name(&self) -> Option<&str> {
        self.fields.required(NAME)
    }

    /// Whether the object matches.
    pub(in crate::apiserver) fn matches(&self, stored: &Stored) -> bool {
        if !self.may_match(stored) {
            return false;
        }
        if self.asks_for_names_alone() {
            return true;
        }
        let selectable = self.selectable(stored);
        self.labels.matches_by(|key| selectable.label(key)) && self.fields.matches(|field| selectable.field(field))
    }

    /// Whether the object's key allows it to match. What else selectors ask has to be read, and is kept: who follows the objects of one name
    /// would have that done for all objects of the resource.
    fn may_match(&self, stored: &Stored) -> bool {
        self.fields.requirements.iter().all(|term| match term.field.as_str() {
            NAME => (stored.name() == term.value) == term.equal,
            NAMESPACE if self.kind.namespaced => (stored.namespace() == term.value) == term.equal,
            _ => true,
        })
    }

    /// Whether keys tell all that is asked for.
    fn asks_for_names_alone(&self) -> bool {
        let is_in_key = |field: &str| field == NAME || (field == NAMESPACE && self.kind.namespaced);
        self.labels.is_everything() && self.fields.requirements.iter().all(|term| is_in_key(&term.field))
    }

    /// What selectors can ask of the object.
    pub(in crate::apiserver) fn selectable(&self, stored: &Stored) -> Arc<Selectable> {
        // Names alone are the same in every form.
        let form = self.kind.defined.selects_as;
        stored.selectable(form, |stored| self.read(stored))
    }

    /// The narrowest thing that all objects of the collection have in common which match: one object, one value of a field that
    /// tells most objects apart, one namespace, one value of another field. `collection` is the prefix of their keys, `all` that of the whole resource.
    pub(super) fn interest(&self, collection: &str, all: &str) -> Option<Interest> {
        let is_closed = !self.kind.namespaced || collection != all;
        if let (Some(name), true) = (self.single_name(), is_closed) {
            return Some(Interest::Key(format!("{collection}{name}").into()));
        }
        // Fields of a kind that came in are its form's, and interests outlive forms.
        let is_lasting = !self.kind.defined.has_selectable();
        let required = self.fields.requirements.iter().filter(|term| is_lasting && term.equal);
        let mut required = required.filter(|term| term.field != NAMESPACE);
        let selective = required.clone().find(|term| is_selective(&self.kind, term));
        if selective.is_none() && collection != all {
            return Some(Interest::Prefix(collection.into()));
        }
        let term = selective.or_else(|| required.next())?;
        let kind = Arc::clone(&self.kind);
        Some(Interest::Field {
            field: term.field.as_str().into(),
            value: term.value.as_str().into(),
            read: Arc::new(move |value| read(&kind, value)),
        })
    }

    fn read(&self, stored: &Stored) -> Selectable {
        if !self.kind.defined.has_selectable() {
            let tree = stored.tree();
            return Selectable::of(&tree, borrowed(read(&self.kind, &tree)));
        }
        let shown = reply::whole(stored, stored.revision, &self.kind);
        let fields = self.kind.defined.selectable(&shown);
        Selectable::of(&shown, fields.into_iter().chain(borrowed(names(&shown))))
    }
}

/// Whether few objects have the value, wherever they are: those of a node, of a name. The pods of no node may be many.
fn is_selective(kind: &Kind, term: &FieldRequirement) -> bool {
    let field = match &*kind.plural {
        "pods" => "spec.nodeName",
        "services" => "spec.clusterIP",
        _ => NAME,
    };
    term.field == NAME || (kind.group.is_empty() && term.field == field && !term.value.is_empty())
}

/// What field selectors can ask of an object, unless its kind came in with fields of its own.
fn read(kind: &Kind, value: &Value) -> BTreeMap<&'static str, String> {
    let mut fields = kind.strategy.selectable_fields(value);
    fields.extend(names(value));
    fields
}

fn borrowed(
    fields: impl IntoIterator<Item = (&'static str, String)>,
) -> impl Iterator<Item = (Cow<'static, str>, String)> {
    fields.into_iter().map(|(name, text)| (Cow::Borrowed(name), text))
}

/// What of every object selects.
fn names(value: &Value) -> [(&'static str, String); 2] {
    let namespace = text(value, &["metadata", "namespace"]);
    [
        (NAME, object::name(value).to_owned()),
        (NAMESPACE, namespace.to_owned()),
    ]
}

fn is_known(kind: &Kind, field: &str) -> bool {
    if kind.structural.is_some() {
        return field == NAME || (field == NAMESPACE && kind.namespaced) || kind.defined.selects(field);
    }
    // These accept metadata.name and their own fields only.
    let without_namespace = matches!(
        &*kind.plural,
        "nodes" | "namespaces" | "certificatesigningrequests" | "resourceslices"
    );
    field == NAME
        || (field == NAMESPACE && !without_namespace)
        || (kind.conversion.is_none() && kind.strategy.field_labels().contains(&field))
}

fn unknown(kind: &Kind, field: &str) -> ApiError {
    ApiError::bad_request(match kind.strategy.field_labels() {
        [] if kind.structural.is_none() => {
            format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {field}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    /// An object of that key, whose text is not read: it would say something else.
    #[test]
    fn what_keys_tell_is_not_read_of_objects() {
        let matches = |plural: &str, key: &str, labels: &str, selector: &str| {
            let registry = Registry::built_in();
            let filter = Filter {
                kind: Arc::clone(registry.by_resource("", "v1", plural).unwrap()),
                labels: Selector::parse(labels).unwrap(),
                fields: FieldSelector::parse(selector).unwrap(),
            };
            let raw = br#"{"metadata":{"name":"other","namespace":"other","labels":{"a":"b"}}}"#;
            filter.matches(&Stored::new(key.into(), 7, 3, raw.as_slice().into()))
        };
        let map = "/registry/configmaps/space/map";
        for (labels, selector, expected) in [
            ("", "", true),
            ("", "metadata.name=map", true),
            ("", "metadata.name!=map", false),
            ("", "metadata.name=other", false),
            ("", "metadata.name!=other", true),
            ("", "metadata.namespace=space", true),
            ("", "metadata.namespace!=space,metadata.name=map", false),
            ("", "metadata.namespace=other", false),
            ("a=c", "metadata.name=map", false),
            ("a=b", "metadata.name=other", false),
        ] {
            assert_eq!(
                matches("configmaps", map, labels, selector),
                expected,
                "{labels} {selector}"
            );
        }
        // In no namespace, none is in the key.
        let volume = "/registry/persistentvolumes/space";
        for (selector, expected) in [("metadata.name=space", true), ("metadata.namespace=registry", false)] {
            assert_eq!(
                matches("persistentvolumes", volume, "", selector),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn the_narrowest_interest_is_chosen() {
        let interest = |group: &str, plural: &str, selector: &str, namespace: &str| {
            let registry = Registry::built_in();
            let filter = Filter {
                kind: Arc::clone(registry.by_resource(group, "v1", plural).unwrap()),
                labels: Selector::parse("").unwrap(),
                fields: FieldSelector::parse(selector).unwrap(),
            };
            match filter.interest(&format!("/r/{namespace}"), "/r/") {
                Some(Interest::Key(key)) => format!("key {key}"),
                Some(Interest::Prefix(prefix)) => format!("prefix {prefix}"),
                Some(Interest::Field { field, value, .. }) => format!("{field} {value}"),
                None => "all".to_owned(),
            }
        };
        for (plural, selector, namespace, expected) in [
            ("pods", "", "", "all"),
            ("pods", "", "a/", "prefix /r/a/"),
            ("pods", "metadata.name=x", "a/", "key /r/a/x"),
            ("pods", "metadata.name=x", "", "metadata.name x"),
            ("pods", "spec.nodeName=n", "a/", "spec.nodeName n"),
            ("pods", "status.phase=Running,spec.nodeName=n", "", "spec.nodeName n"),
            ("pods", "spec.nodeName=", "a/", "prefix /r/a/"),
            ("pods", "status.phase=Running", "a/", "prefix /r/a/"),
            ("pods", "status.phase=Running", "", "status.phase Running"),
            ("pods", "status.phase!=Running", "", "all"),
            ("events", "type=Warning", "a/", "prefix /r/a/"),
            ("secrets", "type=x", "a/", "prefix /r/a/"),
            ("nodes", "metadata.name=x", "", "key /r/x"),
        ] {
            assert_eq!(
                interest("", plural, selector, namespace),
                expected,
                "{plural} {selector}"
            );
        }
    }
}
