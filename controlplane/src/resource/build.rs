//! How the table's entries are written down: from a type of k8s-openapi, then what differs. Also the request bodies that are
//! no kinds of the table. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use k8s_openapi::{ListableResource, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Kind, Plain, STANDARD_VERBS, Strategy, Subresource, registry};

fn definition_of<T: JsonSchema>() -> String {
    T::schema_name().into_owned()
}

fn add_schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

type AddSchema = fn(&mut SchemaGenerator) -> Schema;

/// Bodies that are not kinds of the table: group, version, kind, definition, schema.
type Body = (&'static str, &'static str, &'static str, fn() -> String, AddSchema);

const fn body<T: Resource + JsonSchema>() -> Body {
    (T::GROUP, T::VERSION, T::KIND, definition_of::<T>, add_schema_of::<T>)
}

static BODIES: &[Body] = &[
    body::<k8s_openapi::api::policy::v1::Eviction>(),
    body::<k8s_openapi::api::autoscaling::v1::Scale>(),
    body::<k8s_openapi::api::authentication::v1::TokenRequest>(),
    (
        "",
        "v1",
        "DeleteOptions",
        definition_of::<DeleteOptions>,
        add_schema_of::<DeleteOptions>,
    ),
];

fn body_of(group: &str, version: &str, kind: &str) -> Option<&'static Body> {
    BODIES
        .iter()
        .find(|body| (body.0, body.1, body.2) == (group, version, kind))
}

/// Adds the schema of a request body that is not a kind of the table.
pub(crate) fn body_schema(group: &str, version: &str, kind: &str) -> Option<AddSchema> {
    body_of(group, version, kind).map(|body| body.4)
}

/// The definition name of a request body: a kind of the table, or one that only subresources take.
pub(crate) fn body_definition(group: &str, version: &str, kind: &str) -> Option<String> {
    let known = registry().by_gvk(group, version, kind).map(|kind| kind.definition);
    known
        .or_else(|| body_of(group, version, kind).map(|body| body.3))
        .map(|name| name())
}

impl Kind {
    const fn bare<T: Resource + JsonSchema>(plural: &'static str, singular: &'static str) -> Self {
        Self {
            group: T::GROUP,
            version: T::VERSION,
            kind: T::KIND,
            list_kind: "",
            plural,
            singular,
            short_names: &[],
            categories: &[],
            namespaced: true,
            verbs: STANDARD_VERBS,
            subresources: &[],
            storage_prefix: "",
            create_on_update: false,
            unconditional_update: true,
            returns_object_on_delete: false,
            default_propagation_orphan: false,
            definition: definition_of::<T>,
            add_schema: add_schema_of::<T>,
            strategy: &Plain,
        }
    }

    /// A stored, namespaced kind.
    pub(super) const fn namespaced<T: ListableResource + JsonSchema>(singular: &'static str) -> Self {
        let mut kind = Self::bare::<T>(T::URL_PATH_SEGMENT, singular);
        kind.list_kind = T::LIST_KIND;
        kind.storage_prefix = T::URL_PATH_SEGMENT;
        kind
    }

    /// A stored kind at cluster scope.
    pub(super) const fn cluster<T: ListableResource + JsonSchema>(singular: &'static str) -> Self {
        let mut kind = Self::namespaced::<T>(singular);
        kind.namespaced = false;
        kind
    }

    /// A kind that is only created and never stored.
    pub(super) const fn review<T: Resource + JsonSchema>(singular: &'static str, namespaced: bool) -> Self {
        let mut kind = Self::bare::<T>(T::URL_PATH_SEGMENT, singular);
        kind.namespaced = namespaced;
        kind.verbs = &["create"];
        kind
    }

    pub(super) const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    pub(super) const fn category(mut self, names: &'static [&'static str]) -> Self {
        self.categories = names;
        self
    }

    pub(super) const fn sub(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    pub(super) const fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    pub(super) const fn stored_at(mut self, prefix: &'static str) -> Self {
        self.storage_prefix = prefix;
        self
    }

    pub(super) const fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    pub(super) const fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    pub(super) const fn returned_on_delete(mut self) -> Self {
        self.returns_object_on_delete = true;
        self
    }

    pub(super) const fn orphaning(mut self) -> Self {
        self.default_propagation_orphan = true;
        self
    }

    pub(super) const fn strategy(mut self, strategy: &'static dyn Strategy) -> Self {
        self.strategy = strategy;
        self
    }
}
