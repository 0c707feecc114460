//! The properties of a schema, by name. Pure.
//!
//! A definition is read once and kept for as long as it is served, beside a thousand others: the properties lie side by side, in as much
//! memory as they take. (The nodes of a tree have room for eleven each, and are half empty.)

use super::Structural;

/// Properties, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Properties(Box<[(Box<str>, Structural)]>);

impl Properties {
    /// The named one.
    pub(super) fn get(&self, name: &str) -> Option<&Structural> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0.get(at).map(|(_, property)| property)
    }

    pub(super) fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Structural)> {
        self.0.iter().map(|(name, property)| (&**name, property))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Structural)> {
        self.0.iter_mut().map(|(name, property)| (&**name, property))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Structural> {
        self.0.iter().map(|(_, property)| property)
    }
}

/// Of several of one name the last counts.
impl FromIterator<(Box<str>, Structural)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Structural)>>(all: I) -> Self {
        let mut all: Vec<(Box<str>, Structural)> = all.into_iter().collect();
        // Of equal names the later one first, which is the one that stays.
        all.reverse();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.dedup_by(|(later, _), (kept, _)| later == kept);
        Self(all.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_by_name() {
        let nullable = |nullable| Structural {
            nullable,
            ..Structural::default()
        };
        let names = ["b", "a", "", "c", "a"];
        let all: Properties = names
            .iter()
            .enumerate()
            .map(|(at, name)| (Box::from(*name), nullable(at == 4)))
            .collect();
        assert_eq!(
            all.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["", "a", "b", "c"]
        );
        assert!(all.get("a").is_some_and(|property| property.nullable));
        assert!(all.contains_key("") && !all.contains_key("aa") && !all.is_empty());
        assert!(Properties::default().is_empty());
    }
}
