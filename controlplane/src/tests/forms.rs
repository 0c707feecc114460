//! One object in every form a body may have is one tree, and what is not of the kind goes once and for all (control-plane contract §1).

use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::make;
use super::smallest::holds;
use super::{config, is_empty, kinds, same};
use crate::resource::Kind;
use crate::schema::{Media, PROBLEMS_MAX, Schema, Shape, decode, normalize, protobuf, prune};

fn read(kind: &Kind, bytes: &[u8], media: Media) -> Result<Value, String> {
    let read = decode(kind, bytes, media).map_err(|error| error.to_string())?;
    match read.problems.is_empty() {
        true => Ok(read.value),
        false => Err(format!("{media:?}: {:?}", read.problems)),
    }
}

fn is_normal(kind: &Kind, tree: &Value) -> bool {
    let mut again = tree.clone();
    let named = tree["kind"] == *kind.kind && tree["apiVersion"] == *kind.api_version;
    named && normalize(kind, &mut again) == Ok(vec![]) && again == *tree
}

/// The tree without zeros and what is empty: which of those mean something the tables of the protobuf form say field by field, and
/// its own tests judge. Claims inside StatefulSets do not say on the wire what they are (contract §1: envelopes do), and where a
/// definition's schema has another schema or something else, only what is either is in a message.
fn said(mut tree: Value) -> Value {
    fn reduce(value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(reduce),
            Value::Object(map) => {
                for name in ["items", "additionalItems", "additionalProperties"] {
                    let schema = map.get_mut(name).and_then(Value::as_object_mut);
                    schema.map(|schema| schema.remove("free"));
                }
                let dependencies = map.get_mut("dependencies").and_then(Value::as_object_mut);
                for schema in dependencies.into_iter().flat_map(|map| map.values_mut()) {
                    schema.as_object_mut().map(|schema| schema.remove("free"));
                }
                map.values_mut().for_each(reduce);
                let claims = map.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
                for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
                    claim.retain(|name, _| name != "apiVersion" && name != "kind");
                }
                let says = |value: &Value| !is_empty(value) && *value != 0 && *value != false && *value != "";
                map.retain(|_, value| says(value));
            }
            _ => {}
        }
    }
    reduce(&mut tree);
    tree
}

/// Adds a field that no type has to every object of a known type; how many.
fn spoil(schema: &Schema, shape: &Shape, value: &mut Value) -> usize {
    match (shape, value) {
        (Shape::Object(id), Value::Object(map)) => {
            let below: usize = map
                .iter_mut()
                .filter_map(|(name, value)| Some(spoil(schema, &schema.get(*id).field(name)?.shape, value)))
                .sum();
            map.insert("unheardOf".to_owned(), json!({"a": [1]}));
            below + 1
        }
        (Shape::List(items), Value::Array(list)) => list.iter_mut().map(|item| spoil(schema, items, item)).sum(),
        (Shape::Map(values), Value::Object(map)) => map.values_mut().map(|value| spoil(schema, values, value)).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_form_is_read_as_one_tree(seed in any::<u64>()) {
        for kind in kinds(seed) {
            holds(&format!("{kind:?}"), [make(&kind, seed)], |[object]| {
                if !is_normal(&kind, object) {
                    return Ok(());
                }
                same("JSON", &read(&kind, object.to_string().as_bytes(), Media::Json)?, object)?;
                let yaml = serde_saphyr::to_string(object).map_err(|error| error.to_string())?;
                same("YAML", &read(&kind, yaml.as_bytes(), Media::Yaml)?, object)?;
                match protobuf::of_object(object).filter(|_| kind.structural.is_none()) {
                    Some(written) => {
                        let read = read(&kind, &written, Media::Protobuf)?;
                        same("protobuf", &said(read), &said(object.clone()))
                    }
                    None if kind.structural.is_none() => Err("no protobuf".to_owned()),
                    None => Ok(()),
                }
            });
        }
    }

    #[test]
    fn pruning_takes_what_is_unknown_and_no_more(seed in any::<u64>()) {
        for kind in kinds(seed) {
            let (schema, id) = kind.schema();
            let shape = Shape::Object(id.expect("a type"));
            holds(&format!("{kind:?}"), [make(&kind, seed)], |[object]| {
                if !is_normal(&kind, object) {
                    return Ok(());
                }
                let mut spoiled = object.clone();
                let count = spoil(schema, &shape, &mut spoiled);
                let mut pruned = spoiled.clone();
                let told = prune(&kind, &mut pruned);
                let keeps = kind.structural.is_some();
                if !keeps {
                    same("pruned", &pruned, object)?;
                    same("told", &json!(told.len()), &json!(count.min(PROBLEMS_MAX)))?;
                }
                let once = pruned.clone();
                same("told again", &json!(prune(&kind, &mut pruned)), &json!([]))?;
                same("pruned again", &pruned, &once)
            });
        }
    }
}
