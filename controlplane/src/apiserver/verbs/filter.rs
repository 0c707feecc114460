//! Which objects of a collection a request wants: label and field selectors (control-plane contract §2.8).

use super::object;
use crate::apiserver::reply;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::resource::field::text;
use crate::store::window::{Selectable, Stored};
use proto::api::selector::{FieldRequirement, FieldSelector, Selector};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Both selectors of a request.
pub(super) struct Filter {
    kind: Arc<Kind>,
    labels: Selector,
    fields: FieldSelector,
}

impl Filter {
    /// Parses and checks the request's selectors.
    pub(super) fn parse(kind: &Arc<Kind>, info: &RequestInfo) -> Result<Self, ApiError> {
        let labels = Selector::parse(&info.label_selector)
            .map_err(|error| ApiError::bad_request(format!("unable to parse labelSelector: {error}")))?;
        let mut fields = FieldSelector::parse(&info.field_selector)
            .map_err(|error| ApiError::bad_request(format!("unable to parse fieldSelector: {error}")))?;
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
    pub(super) fn matches(&self, stored: &Stored) -> bool {
        if self.is_everything() {
            return true;
        }
        let selectable = stored.selectable(self.kind.defined.form, |stored| self.read(stored));
        self.labels.matches(&selectable.labels) && self.fields.matches(|field| selectable.field(field))
    }

    fn read(&self, stored: &Stored) -> Selectable {
        if self.kind.defined.has_selectable() {
            let shown = reply::whole(stored, stored.revision, &self.kind);
            let fields = self.kind.defined.selectable(&shown);
            return Selectable::of(&shown, fields.into_iter().chain(names(&shown)));
        }
        let tree = stored.tree();
        let fields = self.kind.strategy.selectable_fields(&tree);
        let fields = fields.into_iter().map(|(name, text)| (Cow::Borrowed(name), text));
        Selectable::of(&tree, fields.chain(names(&tree)))
    }
}

/// What of every object selects.
fn names(value: &Value) -> [(Cow<'static, str>, String); 2] {
    [
        (Cow::Borrowed("metadata.name"), object::name(value).to_owned()),
        (
            Cow::Borrowed("metadata.namespace"),
            text(value, &["metadata", "namespace"]).to_owned(),
        ),
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
