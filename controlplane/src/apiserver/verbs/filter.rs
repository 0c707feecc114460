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
        if !info.name.is_empty() && fields.required("metadata.name").is_none() {
            fields.requirements.push(FieldRequirement {
                field: "metadata.name".to_owned(),
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
        self.fields.required("metadata.name")
    }

    /// Whether the object matches.
    pub(in crate::apiserver) fn matches(&self, stored: &Stored) -> bool {
        if self.is_everything() {
            return true;
        }
        let selectable = self.selectable(stored);
        self.labels.matches_by(|key| selectable.label(key)) && self.fields.matches(|field| selectable.field(field))
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
        let mut required = required.filter(|term| term.field != "metadata.namespace");
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
        _ => "metadata.name",
    };
    term.field == "metadata.name" || (kind.group.is_empty() && term.field == field && !term.value.is_empty())
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
        ("metadata.name", object::name(value).to_owned()),
        ("metadata.namespace", namespace.to_owned()),
    ]
}

fn is_known(kind: &Kind, field: &str) -> bool {
    if kind.structural.is_some() {
        return field == "metadata.name"
            || (field == "metadata.namespace" && kind.namespaced)
            || kind.defined.selects(field);
    }
    // These accept metadata.name and their own fields only.
    let without_namespace = matches!(
        &*kind.plural,
        "nodes" | "namespaces" | "certificatesigningrequests" | "resourceslices"
    );
    field == "metadata.name"
        || (field == "metadata.namespace" && !without_namespace)
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
