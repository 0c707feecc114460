//! The rules of kinds through the registry, as requests meet them: an object that is fine, what is done to it, and what is told.

use serde_json::{Value, json};

use super::Registry;

mod admission;
mod device;
mod flow;
mod network;
mod storage;

/// What is done to an object: the value at a JSON pointer; null takes it away.
type Change = (&'static str, Value);

/// An object that nothing is wrong with.
struct Good {
    group: &'static str,
    plural: &'static str,
    object: Value,
}

impl Good {
    fn new(group: &'static str, plural: &'static str, name: &str, mut object: Value) -> Self {
        let kind = Registry::built_in()
            .by_resource(group, "v1", plural)
            .expect("a served kind");
        object["metadata"]["name"] = json!(name);
        if kind.namespaced {
            object["metadata"]["namespace"] = json!("default");
        }
        kind.strategy.default(&mut object);
        let good = Self { group, plural, object };
        assert_eq!(good.told(&[]), [""; 0], "the object that is fine");
        good
    }

    fn changed(&self, changes: &[Change]) -> Value {
        let mut object = self.object.clone();
        for (pointer, value) in changes {
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
            match (parent, key.parse::<usize>()) {
                (Value::Array(items), Ok(i)) => items[i] = value.clone(),
                (Value::Object(map), _) if value.is_null() => drop(map.remove(key)),
                (Value::Object(map), _) => drop(map.insert(key.to_owned(), value.clone())),
                _ => panic!("no {pointer}"),
            }
        }
        object
    }

    fn kind(&self) -> &'static super::Kind {
        let kind = Registry::built_in().by_resource(self.group, "v1", self.plural);
        kind.expect("a served kind")
    }

    /// What is told of it as a new object, after the changes.
    fn told(&self, changes: &[Change]) -> Vec<String> {
        let mut object = self.changed(changes);
        self.kind().strategy.default(&mut object);
        self.kind().validate(&object).iter().map(ToString::to_string).collect()
    }

    /// What is told of an update of it.
    fn told_of_update(&self, changes: &[Change], subresource: &str) -> Vec<String> {
        let mut object = self.changed(changes);
        self.kind().strategy.default(&mut object);
        let errors = self.kind().validate_update(&object, &self.object, subresource);
        errors.iter().map(ToString::to_string).collect()
    }

    /// Each value at its place is told so; an update to it is as well, and one that leaves it is not.
    fn refuses(&self, rows: Vec<(&'static str, Value, &str)>) {
        for (pointer, value, expected) in rows {
            let change = [(pointer, value)];
            let told = self.told(&change).join("; ");
            assert_eq!(told, expected, "{} {change:?}", self.plural);
        }
    }

    /// Each value at its place cannot be what the stored one becomes.
    fn keeps(&self, rows: Vec<(&'static str, Value, &str)>) {
        for (pointer, value, expected) in rows {
            let change = [(pointer, value)];
            let told = self.told_of_update(&change, "").join("; ");
            assert_eq!(told, expected, "{} {change:?}", self.plural);
        }
    }

    /// An object that was stored before there was a rule stays as it is, and can be labelled.
    fn leaves_alone(&self, change: Change) {
        let kind = self.kind();
        let mut stored = self.changed(&[change]);
        kind.strategy.default(&mut stored);
        assert!(!kind.validate(&stored).is_empty(), "{} is wrong", self.plural);
        let mut labelled = stored.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let told = kind.validate_update(&labelled, &stored, "");
        assert!(told.is_empty(), "{} {told:?}", self.plural);
    }
}
