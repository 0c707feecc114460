//! Which kinds there are, as a value: one immutable snapshot, and how another follows from it. Pure.
//!
//! A snapshot shares with the one before it all that has not changed, down to single versions of groups: whoever keeps something
//! made from a [`Version`] may keep it for as long as that value is the same one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::build::{self, BODIES};
use super::{Kind, KindStrategy, Name, api_version, kinds};
use crate::schema::{Definitions, SchemaTable};

/// The kinds of one version of a group, sorted by plural.
#[derive(Debug)]
pub struct Version {
    /// Such as `v1`.
    pub name: Name,
    /// The kinds.
    pub kinds: Vec<Arc<Kind>>,
}

/// A group and its versions, the preferred one first.
#[derive(Debug)]
pub struct Group {
    /// Empty for core.
    pub name: Name,
    /// The versions.
    pub versions: Vec<Arc<Version>>,
}

impl Group {
    fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }
}

/// What a request body is read as.
#[derive(Clone)]
pub struct BodyType {
    /// `v1`, or `group/version`.
    pub api_version: Name,
    /// The kind.
    pub kind: Name,
    /// As [`Kind::definition`].
    pub definition: Name,
    /// As [`Kind::types`].
    pub types: Arc<SchemaTable>,
    /// As the type is published.
    pub published: Definitions,
    /// Other versions with the same shape, which bodies may name.
    pub also: &'static [&'static str],
}

/// All kinds of one moment.
pub struct Registry {
    /// In discovery order: built-in groups by descending priority, core first, then the others by name.
    groups: Vec<Arc<Group>>,
    by_name: HashMap<Name, usize>,
    /// How many of the groups are built in.
    built_in: usize,
    /// The types of built-in kinds and bodies.
    types: Arc<SchemaTable>,
}

impl Registry {
    /// The built-in kinds: what every server begins with. A constant, made when it is first asked for.
    pub fn built_in() -> &'static Arc<Self> {
        static BUILT_IN: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(Registry::of_built_ins()));
        &BUILT_IN
    }

    fn of_built_ins() -> Self {
        let types = Arc::new(build::table(kinds::KINDS));
        let mut groups: Vec<Group> = Vec::new();
        let mut known: Vec<Arc<Kind>> = Vec::new();
        for row in kinds::KINDS {
            let kind = Arc::new(row.kind(&types, &known));
            known.push(Arc::clone(&kind));
            let at = groups.iter().position(|group| group.name == kind.group);
            let group = match at {
                Some(at) => &mut groups[at],
                None => {
                    groups.push(Group {
                        name: kind.group.clone(),
                        versions: Vec::new(),
                    });
                    groups.last_mut().expect("pushed the line before")
                }
            };
            let versions = std::mem::take(&mut group.versions);
            group.versions = with_kind(versions, kind);
        }
        let built_in = groups.len();
        Self::indexed(groups.into_iter().map(Arc::new).collect(), built_in, types)
    }

    fn indexed(groups: Vec<Arc<Group>>, built_in: usize, types: Arc<SchemaTable>) -> Self {
        let names = groups.iter().map(|group| group.name.clone());
        Self {
            by_name: names.enumerate().map(|(at, name)| (name, at)).collect(),
            groups,
            built_in,
            types,
        }
    }

    /// Whether a resource is built in: nothing that comes in takes its place.
    pub fn is_built_in(&self, group: &str, plural: &str) -> bool {
        let versions = self.group(group).into_iter().flat_map(|group| &group.versions);
        let mut kinds = versions.flat_map(|version| &version.kinds);
        kinds.any(|kind| kind.plural == plural && matches!(kind.strategy, KindStrategy::BuiltIn(_)))
    }

    /// The snapshot in which a resource is served as these kinds, one for each version; as none, it is gone. A built-in
    /// resource stays what it is.
    #[must_use]
    pub fn with_resource(&self, group: &str, plural: &str, kinds: &[Arc<Kind>]) -> Self {
        let mut groups = self.groups.clone();
        if self.is_built_in(group, plural) {
            return Self::indexed(groups, self.built_in, Arc::clone(&self.types));
        }
        let at = self.by_name.get(group).copied();
        let mut versions = match at {
            Some(at) => without(&groups[at].versions, plural),
            None => Vec::new(),
        };
        for kind in kinds {
            versions = with_kind(versions, Arc::clone(kind));
        }
        let at = at.unwrap_or_else(|| {
            let defined = &groups[self.built_in..];
            self.built_in + defined.partition_point(|other| *other.name < *group)
        });
        let is_new = !self.by_name.contains_key(group);
        let changed = (!versions.is_empty()).then(|| {
            Arc::new(Group {
                name: group.to_owned().into(),
                versions,
            })
        });
        match (changed, is_new) {
            (Some(changed), true) => groups.insert(at, changed),
            (Some(changed), false) => groups[at] = changed,
            (None, true) => {}
            (None, false) => {
                groups.remove(at);
            }
        }
        Self::indexed(groups, self.built_in, Arc::clone(&self.types))
    }

    /// The groups in discovery order.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// The named group; core is empty.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.by_name.get(name).map(|&at| &self.groups[at])
    }

    /// The named version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<Version>> {
        self.group(group)?.version(version)
    }

    /// All versions of all groups, in discovery order.
    pub fn versions(&self) -> impl Iterator<Item = (&Arc<Group>, &Arc<Version>)> {
        let all = self.groups.iter();
        all.flat_map(|group| group.versions.iter().map(move |version| (group, version)))
    }

    /// Every kind in discovery order: groups by descending priority, core first; versions by descending priority; plurals
    /// in alphabetical order.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.versions().flat_map(|(_, version)| &version.kinds)
    }

    /// The kind behind a group, version and plural.
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let kinds = &self.version(group, version)?.kinds;
        let at = kinds.binary_search_by(|kind| (*kind.plural).cmp(plural)).ok()?;
        kinds.get(at)
    }

    /// The kind of a group, version and kind name.
    pub fn by_gvk(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let kinds = &self.version(group, version)?.kinds;
        kinds.iter().find(|known| known.kind == kind)
    }

    /// What a body of this group, version and kind is read as: a kind of a resource, or one that only subresources take.
    pub fn body(&self, group: &str, version: &str, kind: &str) -> Option<BodyType> {
        if let Some(kind) = self.by_gvk(group, version, kind) {
            return Some(BodyType {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
                definition: kind.definition.clone(),
                types: Arc::clone(&kind.types),
                published: kind.published.clone(),
                also: &[],
            });
        }
        let mut bodies = BODIES.iter();
        let body = bodies.find(|body| (body.group, body.version, body.kind) == (group, version, kind))?;
        Some(BodyType {
            api_version: api_version(group, version).into(),
            kind: body.kind.into(),
            definition: (body.definition)(),
            types: Arc::clone(&self.types),
            published: Definitions::BuiltIn(body.add_schema),
            also: body.also,
        })
    }

    /// The table of built-in types.
    pub(crate) fn types(&self) -> &Arc<SchemaTable> {
        &self.types
    }
}

/// The versions without a resource; a version without any is none.
fn without(versions: &[Arc<Version>], plural: &str) -> Vec<Arc<Version>> {
    let is_of = |version: &Version| version.kinds.iter().any(|kind| kind.plural == plural);
    versions
        .iter()
        .filter_map(|version| {
            if !is_of(version) {
                return Some(Arc::clone(version));
            }
            let others = version.kinds.iter().filter(|kind| kind.plural != plural);
            let kinds: Vec<Arc<Kind>> = others.map(Arc::clone).collect();
            (!kinds.is_empty()).then(|| {
                Arc::new(Version {
                    name: version.name.clone(),
                    kinds,
                })
            })
        })
        .collect()
}

/// The versions with one kind more.
fn with_kind(mut versions: Vec<Arc<Version>>, kind: Arc<Kind>) -> Vec<Arc<Version>> {
    let Some(at) = versions.iter().position(|version| version.name == kind.version) else {
        let new = Version {
            name: kind.version.clone(),
            kinds: vec![kind],
        };
        let at = versions.partition_point(|other| precedence(&other.name) <= precedence(&new.name));
        versions.insert(at, Arc::new(new));
        return versions;
    };
    let mut kinds = versions[at].kinds.clone();
    let place = kinds.partition_point(|other| other.plural < kind.plural);
    kinds.insert(place, kind);
    versions[at] = Arc::new(Version {
        name: versions[at].name.clone(),
        kinds,
    });
    versions
}

/// What versions are sorted by, as upstream prefers them: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then other names by the
/// alphabet.
fn precedence(version: &str) -> (u8, std::cmp::Reverse<u64>, std::cmp::Reverse<u64>, &str) {
    use std::cmp::Reverse;
    let other = (3, Reverse(0), Reverse(0), version);
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let (major, stage) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let Some(major) = number(major) else { return other };
    if stage.is_empty() {
        return (0, Reverse(major), Reverse(0), "");
    }
    for (rank, name) in [(1, "beta"), (2, "alpha")] {
        if let Some(minor) = stage.strip_prefix(name).and_then(number) {
            return (rank, Reverse(major), Reverse(minor), "");
        }
    }
    other
}

/// A number as versions have them: without a leading zero.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
pub(super) mod tests;
