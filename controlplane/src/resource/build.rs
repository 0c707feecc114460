//! How the built-in kinds are written down: from a type of k8s-openapi, then what differs. Also the request bodies that are
//! kinds of no resource. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Status};
use k8s_openapi::{ListableResource, Resource};
use schemars::{JsonSchema, SchemaGenerator};

use super::conversion::{Conversion, Converter};
use super::custom::Defined;
use super::{Kind, KindStrategy, Name, Plain, STANDARD_VERBS, Strategy, Subresource, api_version, columns};
use crate::schema::{AddSchema, Definitions, SchemaTable};

fn definition_of<T: JsonSchema>() -> Name {
    T::schema_name()
}

fn add_schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

/// A body that is a kind of no resource.
pub(super) struct Body {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) definition: fn() -> Name,
    pub(super) add_schema: AddSchema,
    /// As [`super::registry::BodyType::also`].
    pub(super) also: &'static [&'static str],
}

const fn body<T: Resource + JsonSchema>() -> Body {
    Body {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        definition: definition_of::<T>,
        add_schema: add_schema_of::<T>,
        also: &[],
    }
}

/// A type of the machinery, which core's version stands for.
const fn meta_body<T: JsonSchema>(kind: &'static str) -> Body {
    Body {
        group: "",
        version: "v1",
        kind,
        definition: definition_of::<T>,
        add_schema: add_schema_of::<T>,
        also: &[],
    }
}

pub(super) static BODIES: &[Body] = &[
    Body {
        also: &["policy/v1beta1"],
        ..body::<k8s_openapi::api::policy::v1::Eviction>()
    },
    body::<k8s_openapi::api::autoscaling::v1::Scale>(),
    body::<k8s_openapi::api::authentication::v1::TokenRequest>(),
    meta_body::<DeleteOptions>("DeleteOptions"),
    meta_body::<ObjectMeta>("ObjectMeta"),
    meta_body::<Status>("Status"),
];

/// The table of the types of all rows and bodies.
pub(super) fn table(rows: &'static [Row]) -> SchemaTable {
    let all = rows.iter().map(|row| row.add_schema);
    SchemaTable::of(all.chain(BODIES.iter().map(|body| body.add_schema)))
}

/// A subresource of a built-in kind: see [`Subresource`].
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
}

type MakeConverter = fn() -> Arc<dyn Converter>;

/// A built-in kind as the table has it: see [`Kind`].
pub(super) struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [Part],
    storage_prefix: &'static str,
    create_on_update: bool,
    unconditional_update: bool,
    returns_object_on_delete: bool,
    default_propagation_orphan: bool,
    definition: fn() -> Name,
    add_schema: AddSchema,
    strategy: &'static dyn Strategy,
    /// Group, version and kind of the stored form, and how it is made.
    conversion: Option<([&'static str; 3], MakeConverter)>,
}

fn names(names: &[&'static str]) -> Box<[Name]> {
    names.iter().copied().map(Name::Borrowed).collect()
}

impl Row {
    /// The kind, whose types stand in `types`; what it is stored as is among `known`.
    pub(super) fn kind(&self, types: &Arc<SchemaTable>, known: &[Arc<Kind>]) -> Kind {
        let conversion = self.conversion.and_then(|([group, version, kind], converter)| {
            let is_storage =
                |known: &&Arc<Kind>| known.group == group && known.version == version && known.kind == kind;
            let storage = Arc::clone(known.iter().find(is_storage)?);
            Some(Conversion {
                storage,
                converter: converter(),
            })
        });
        let part = |part: &Part| Subresource {
            name: part.name,
            verbs: part.verbs,
            group: part.group.into(),
            version: part.version.into(),
            kind: part.kind.into(),
        };
        Kind {
            group: self.group.into(),
            version: self.version.into(),
            api_version: match self.group {
                "" => self.version.into(),
                group => api_version(group, self.version).into(),
            },
            kind: self.kind.into(),
            list_kind: self.list_kind.into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: names(self.short_names),
            categories: names(self.categories),
            namespaced: self.namespaced,
            verbs: self.verbs,
            subresources: self.subresources.iter().map(part).collect(),
            storage_prefix: self.storage_prefix.into(),
            create_on_update: self.create_on_update,
            unconditional_update: self.unconditional_update,
            returns_object_on_delete: self.returns_object_on_delete,
            default_propagation_orphan: self.default_propagation_orphan,
            definition: (self.definition)(),
            types: Arc::clone(types),
            published: Definitions::BuiltIn(self.add_schema),
            printer: columns::built_in(self.group, self.kind),
            strategy: KindStrategy::BuiltIn(self.strategy),
            structural: None,
            defined: Defined::default(),
            deprecation: None,
            conversion,
        }
    }

    /// How its types are published.
    pub(super) fn published(&self) -> AddSchema {
        self.add_schema
    }

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
            conversion: None,
        }
    }

    /// A stored, namespaced kind.
    pub(super) const fn namespaced<T: ListableResource + JsonSchema>(singular: &'static str) -> Self {
        let mut row = Self::bare::<T>(T::URL_PATH_SEGMENT, singular);
        row.list_kind = T::LIST_KIND;
        row.storage_prefix = T::URL_PATH_SEGMENT;
        row
    }

    /// A stored kind at cluster scope.
    pub(super) const fn cluster<T: ListableResource + JsonSchema>(singular: &'static str) -> Self {
        let mut row = Self::namespaced::<T>(singular);
        row.namespaced = false;
        row
    }

    /// A kind that is only created and never stored.
    pub(super) const fn review<T: Resource + JsonSchema>(singular: &'static str, namespaced: bool) -> Self {
        let mut row = Self::bare::<T>(T::URL_PATH_SEGMENT, singular);
        row.namespaced = namespaced;
        row.verbs = &["create"];
        row
    }

    pub(super) const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    pub(super) const fn category(mut self, names: &'static [&'static str]) -> Self {
        self.categories = names;
        self
    }

    pub(super) const fn sub(mut self, subresources: &'static [Part]) -> Self {
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

    pub(super) const fn stored_as(mut self, storage: [&'static str; 3], converter: MakeConverter) -> Self {
        self.conversion = Some((storage, converter));
        self
    }

    pub(super) const fn strategy(mut self, strategy: &'static dyn Strategy) -> Self {
        self.strategy = strategy;
        self
    }
}
