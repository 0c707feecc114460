//! Server-side apply of every kind (control-plane contract §2.5): it is idempotent, and managers of different fields commute.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::{Parts, distinct, split};
use super::smallest::holds;
use super::{config, kinds, same, settled};
use crate::managed_fields::{Applied, Apply, ApplyError, Live, Scope, Typing, Writer, nothing};
use crate::resource::Kind;

/// An object and its owners.
type Owned = (Value, Option<String>);

fn apply(kind: &Kind, live: &Owned, config: &Value, manager: &str, force: bool) -> Result<Owned, ApplyError> {
    let apply = Apply {
        typing: Typing::of_kind(kind).expect("typed"),
        scope: Scope::of(kind, ""),
        writer: Writer {
            manager,
            api_version: &kind.api_version,
            subresource: "",
            now: Timestamp::UNIX_EPOCH,
        },
        force,
    };
    let live = Live {
        object: &live.0,
        owners: live.1.as_deref(),
    };
    let Applied { object, owners } = apply.to(live, config)?;
    Ok((object, owners))
}

fn none(kind: &Kind) -> Owned {
    (nothing(&kind.api_version, &kind.kind), None)
}

/// What each manager owns.
fn owners(owned: &Owned) -> BTreeMap<String, Value> {
    let list: Value = serde_json::from_str(owned.1.as_deref().unwrap_or("[]")).expect("JSON");
    let entries = list.as_array().into_iter().flatten();
    entries
        .map(|entry| {
            (
                entry["manager"].as_str().expect("a name").to_owned(),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

/// Of the object what somebody can own: what its main endpoint can change, without the server's own part of the metadata. Nobody owns
/// an empty list either, as upstream.
fn own(kind: &Kind, mut object: Value) -> Value {
    fn without_empty_lists(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(without_empty_lists);
                map.retain(|_, value| *value != json!([]));
            }
            Value::Array(list) => list.iter_mut().for_each(without_empty_lists),
            _ => {}
        }
    }
    without_empty_lists(&mut object);
    if let Some(map) = object.as_object_mut().filter(|_| kind.subresource("status").is_some()) {
        map.remove("status");
    }
    let metadata = object["metadata"].as_object_mut().expect("it has a name");
    for name in [
        "creationTimestamp",
        "generation",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ] {
        metadata.remove(name);
    }
    object
}

fn is_object(kind: &Kind, tree: &Value) -> bool {
    tree["kind"] == *kind.kind && tree["apiVersion"] == *kind.api_version && tree["metadata"]["name"].is_string()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn applying_twice_is_applying_once(seed in any::<u64>()) {
        for kind in kinds(seed) {
            let trees = [distinct(&kind, seed), distinct(&kind, seed.wrapping_add(1))];
            holds(&format!("{kind:?}: live, configuration"), trees, |[first, second]| {
                // What is no configuration of the kind any more says nothing.
                let Ok(live) = apply(&kind, &none(&kind), first, "other", true) else { return Ok(()) };
                let Ok(once) = apply(&kind, &live, second, "one", true) else { return Ok(()) };
                let twice = apply(&kind, &once, second, "one", false).map_err(|error| error.to_string())?;
                same("the object", &twice.0, &once.0)?;
                let mut after = owners(&twice);
                if owners(&once).is_empty() {
                    // Nobody owns anything yet: what there is, if only an empty list's field, is from before the first apply.
                    after.remove("before-first-apply");
                }
                same("its owners", &json!(after), &json!(owners(&once)))
            });
        }
    }

    #[test]
    fn managers_of_different_fields_commute_and_leave_without_a_trace(seed in any::<u64>()) {
        for kind in kinds(seed) {
            let whole = own(&kind, distinct(&kind, seed));
            holds(&format!("{kind:?} (seed {seed})"), [whole], |[whole]| {
                if !is_object(&kind, whole) {
                    return Ok(());
                }
                let [one, two] = split(&kind, whole, seed, Parts::Owned);
                let told = |error: ApplyError| format!("{error}\n  one {one}\n  two {two}");
                let Ok(a) = apply(&kind, &none(&kind), &one, "a", false) else { return Ok(()) };
                let Ok(b) = apply(&kind, &none(&kind), &two, "b", false) else { return Ok(()) };
                let ab = apply(&kind, &a, &two, "b", false).map_err(told)?;
                let ba = apply(&kind, &b, &one, "a", false).map_err(told)?;
                same("both, in either order", &settled(ab.0.clone()), &settled(ba.0.clone()))?;
                same("both are the whole", &settled(ab.0.clone()), &settled(whole.clone()))?;
                same("owners, in either order", &json!(owners(&ab)), &json!(owners(&ba)))?;
                let mut bare = json!({"apiVersion": whole["apiVersion"], "kind": whole["kind"]});
                bare["metadata"]["name"] = whole["metadata"]["name"].clone();
                let left = apply(&kind, &ab, &bare, "b", false).map_err(told)?;
                same("what one leaves is the other's", &settled(left.0.clone()), &settled(a.0.clone()))?;
                same("and only its", &json!(owners(&left)), &json!(owners(&a)))
            });
        }
    }
}
