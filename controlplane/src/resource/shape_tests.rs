//! Properties of every kind over random objects that have the kind's shape, made from the schema table.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::apiserver::printer::{IncludeObject, render};
use crate::patch::{merge_patch, strategic_patch};
use crate::schema::normalize;
use crate::tests::objects::make;

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
