//! Properties of every kind over random objects that have the kind's shape, made from the schema table.

use std::sync::Arc;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use super::*;
use crate::apiserver::printer::{IncludeObject, render};
use crate::patch::{merge_patch, strategic_patch};
use crate::schema::{Schema, Shape, TypeId, normalize};

/// Words that mean something to some strategy, and some that mean nothing.
const WORDS: &[&str] = &[
    "",
    "a",
    "A b",
    "web",
    "Always",
    "Never",
    "None",
    "ClusterIP",
    "ExternalName",
    "NodePort",
    "RollingUpdate",
    "Recreate",
    "10.0.0.1",
    "10.1.0.0/16",
    "25%",
    "100%",
    "metadata.name",
    "kubernetes",
    "In",
    "Exists",
    "Pod",
    "v1",
    "TCP",
    "*/5 * * * *",
    "nginx:latest",
    "Indexed",
    "Localhost",
    "../x",
    "/x",
];

struct Maker<'s> {
    schema: &'s Schema,
    rng: StdRng,
}

impl Maker<'_> {
    fn object(&mut self, id: TypeId, depth: usize) -> Value {
        let mut map = Map::new();
        for field in &self.schema.get(id).fields {
            let wanted = if depth < 4 { 0.45 } else { 0.15 };
            if depth < 12 && self.rng.random_bool(wanted) {
                map.insert(field.name.to_string(), self.value(&field.shape, depth));
            }
        }
        Value::Object(map)
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.rng.random_range(0..WORDS.len())]
    }

    fn value(&mut self, shape: &Shape, depth: usize) -> Value {
        let number = [-1, 0, 1, 80, 443, 30_000, 70_000][self.rng.random_range(0..7)];
        match shape {
            Shape::String => json!(self.word()),
            Shape::Bytes => json!("aGVsbG8="),
            Shape::Time => json!("2026-01-02T03:04:05Z"),
            Shape::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
            Shape::Quantity => json!(["0", "1", "100m", "1Gi", "-1", "3u"][self.rng.random_range(0..6)]),
            Shape::IntOrString if self.rng.random_bool(0.5) => json!(self.word()),
            Shape::IntOrString | Shape::Int32 | Shape::Int64 => json!(number),
            Shape::Number => json!(0.5),
            Shape::Boolean => json!(self.rng.random_bool(0.5)),
            Shape::Any => json!({"free": [self.word()]}),
            Shape::Object(id) => self.object(*id, depth + 1),
            Shape::List(items) => {
                let length = self.rng.random_range(0..3);
                (0..length).map(|_| self.value(items, depth + 1)).collect()
            }
            Shape::Map(values) => {
                let length = self.rng.random_range(0..3);
                let pairs = (0..length).map(|_| (self.word().to_owned(), self.value(values, depth + 1)));
                Value::Object(pairs.collect())
            }
        }
    }
}

fn make(kind: &Kind, seed: u64) -> Value {
    let (schema, id) = kind.schema();
    let id = id.expect("every kind has a type");
    let mut maker = Maker {
        schema,
        rng: StdRng::seed_from_u64(seed),
    };
    let mut object = maker.object(id, 0);
    normalize(kind, &mut object).expect("made to fit");
    object
}

fn check(kind: &Kind, seed: u64) {
    let ctx = PrepareContext {
        uid: "u",
        now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
    };
    let strategy = &kind.strategy;
    let mut object = make(kind, seed);
    let once = object.clone();
    assert_eq!(
        normalize(kind, &mut object),
        Ok(vec![]),
        "{kind:?}: normal forms have no unknown fields"
    );
    assert_eq!(object, once, "{kind:?}: normalizing twice changes nothing");

    strategy.default(&mut object);
    let defaulted = object.clone();
    strategy.default(&mut object);
    assert_eq!(object, defaulted, "{kind:?}: defaults are idempotent");
    let mut normal = object.clone();
    assert_eq!(
        normalize(kind, &mut normal),
        Ok(vec![]),
        "{kind:?}: defaults set only fields there are"
    );

    strategy.prepare_create(&mut object, &ctx);
    let mut normal = object.clone();
    assert_eq!(
        normalize(kind, &mut normal),
        Ok(vec![]),
        "{kind:?}: preparation sets only fields there are"
    );
    kind.validate(&object);

    let parts = kind.subresources.iter().map(|part| part.name);
    for part in parts.chain([""]) {
        let mut new = make(kind, seed.wrapping_add(1));
        strategy.default(&mut new);
        strategy.prepare_update(&mut new, &object, part);
        let mut normal = new.clone();
        assert_eq!(normalize(kind, &mut normal), Ok(vec![]), "{kind:?} {part}");
        kind.validate_update(&new, &object, part);
        if part == "status" {
            assert_eq!(
                new.get("spec"),
                object.get("spec"),
                "{kind:?}: status leaves spec alone"
            );
        }
    }
    let labels: Vec<&str> = strategy.selectable_fields(&object).into_keys().collect();
    for label in strategy.field_labels() {
        assert!(labels.contains(label), "{kind:?}: {label} has a value");
    }
    render(kind, &[Arc::new(object)], IncludeObject::Object, ctx.now, json!({}));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_kind_keeps_its_shape_and_nothing_panics(seed in any::<u64>()) {
        // Defaults and rules of the others are of another kind's form.
        for kind in Registry::built_in().kinds().filter(|kind| kind.conversion.is_none()) {
            check(kind, seed);
        }
    }

    #[test]
    fn patches_keep_the_shape(seed in any::<u64>()) {
        for kind in Registry::built_in().kinds() {
            let (original, patch) = (make(kind, seed), make(kind, seed.wrapping_add(7)));
            prop_assert_eq!(strategic_patch(kind, &original, &json!({})), Ok(original.clone()));
            for result in [merge_patch(kind, &original, &patch), strategic_patch(kind, &original, &patch)] {
                // A list member without its merge key is the one thing that may go wrong here.
                match result {
                    Ok(mut merged) => prop_assert_eq!(normalize(kind, &mut merged), Ok(vec![])),
                    Err(error) => prop_assert!(error.message.contains("does not contain declared merge key"), "{}", error),
                }
            }
        }
    }
}
