//! Who comes to own the fields that a request writes: its manager, and the tracking of its change ([`crate::managed_fields`]).

use super::Call;
use crate::apiserver::status::ApiError;
use crate::managed_fields::{self, Live, Scope, Typing, Writer};
use crate::store::window::Stored;
use http::header::USER_AGENT;
use jiff::Timestamp;
use serde_json::Value;

/// An object before a write, without its managedFields.
#[derive(Clone)]
pub(super) struct Old {
    /// With kind, apiVersion and resourceVersion.
    pub(super) object: Value,
    /// The managedFields as text.
    pub(super) owners: Option<Box<str>>,
}

impl Old {
    pub(super) fn live(&self) -> Live<'_> {
        Live {
            object: &self.object,
            owners: self.owners.as_deref(),
        }
    }
}

/// An object that a request made.
pub(super) struct New {
    pub(super) object: Value,
    pub(super) owners: Owners,
}

impl From<Value> for New {
    fn from(object: Value) -> Self {
        Self {
            object,
            owners: Owners::Track,
        }
    }
}

/// Who owns the fields of a new object.
#[derive(Clone)]
pub(super) enum Owners {
    /// What the request changes is its manager's; managedFields in the object are what it says of them.
    Track,
    /// The managedFields, as text.
    Settled(Option<String>),
}

/// Who writes, through which endpoint, when.
#[derive(Clone)]
pub(super) struct Author {
    manager: String,
    api_version: String,
    subresource: String,
    now: Timestamp,
}

impl Author {
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer {
            manager: &self.manager,
            api_version: &self.api_version,
            subresource: &self.subresource,
            now: self.now,
        }
    }
}

impl Call<'_> {
    /// Who writes objects of an API version here.
    pub(super) fn author(&self, api_version: &str) -> Author {
        let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        Author {
            manager: managed_fields::manager_name(self.query.text("fieldManager"), agent.unwrap_or("")),
            api_version: api_version.to_owned(),
            subresource: self.info.subresource.clone(),
            now: self.server.now(),
        }
    }

    /// Whether `fieldManager` is a name.
    ///
    /// # Errors
    /// 422, about the options of the named kind.
    pub(super) fn check_manager(&self, options: &str) -> Result<(), ApiError> {
        let errors = managed_fields::check_name(self.query.text("fieldManager"));
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid("meta.k8s.io", options, "", errors)),
        }
    }

    /// The object there is, in the form that was asked for.
    pub(super) fn old(&self, stored: &Stored) -> Old {
        let old = self.old_as_stored(stored);
        Old {
            object: self.kind.presented(old.object),
            ..old
        }
    }

    /// The object there is.
    pub(super) fn old_as_stored(&self, stored: &Stored) -> Old {
        let mut object = stored.tree();
        let kind = self.kind.storage();
        object["kind"] = Value::from(&*kind.kind);
        object["apiVersion"] = Value::from(&*kind.api_version);
        if let Some(schema) = &kind.structural {
            schema.refresh(&mut object);
        }
        Old {
            object,
            owners: stored.owners().map(Box::from),
        }
    }

    /// The managedFields that the new object (`old` is `None` for one that is not there yet) has after this request; they are taken off
    /// the object. Both are in the form that is stored; fields are named as the request names them.
    pub(super) fn owners_of(&self, new: &mut Value, old: Option<&Old>, owners: Owners) -> Option<String> {
        if let Owners::Settled(owners) = owners {
            return owners;
        }
        let typing = Typing::of_kind(&self.kind)?;
        let scope = Scope::of(&self.kind, &self.info.subresource);
        let author = self.author(&self.kind.api_version);
        let Some(conversion) = &self.kind.conversion else {
            return managed_fields::track(typing, scope, old.map(Old::live), new, &author.writer());
        };
        // Names go there and back again.
        let is_renamed = conversion.converter.renamed().is_some();
        let mut shown = match is_renamed {
            true => new.take(),
            false => new.clone(),
        };
        shown = self.kind.presented(shown);
        managed_fields::take(new);
        let old = old.map(|old| self.kind.presented(old.object.clone())).zip(old);
        let live = old.as_ref().map(|(object, old)| Live { object, ..old.live() });
        let owners = managed_fields::track(typing, scope, live, &mut shown, &author.writer());
        if is_renamed {
            *new = self.kind.stored(shown);
        }
        owners
    }
}
