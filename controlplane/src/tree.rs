//! How deep and how large a JSON tree from outside may be. Pure.
//!
//! Everything that walks a tree (schema, patches, comparison, serialisation, drop) recurses once per level, so the depth is
//! bounded where trees come into being: in the readers of request bodies and after every patch. The checks themselves keep
//! their place on the heap and may be given any tree.

use serde_json::Value;

/// Most lists and objects inside one another in a body, a patch or an object. The JSON parser that reads stored objects back
/// gives up at 127, and replies put up to two more around an object. (Upstream's JSON decoder stops at 10,000; no built-in
/// type needs more than a few dozen.)
pub const DEPTH_MAX: usize = 100;
/// Largest object as JSON text, in bytes: as much as a request body may have (control-plane contract §2.2).
pub const SIZE_MAX_BYTES: usize = 3 << 20;

/// Why a tree is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// More than [`DEPTH_MAX`] levels.
    #[error("exceeded max depth")]
    TooDeep,
    /// More than [`SIZE_MAX_BYTES`].
    #[error("limit is {SIZE_MAX_BYTES}")]
    TooLarge,
}

/// Whether the tree is within [`DEPTH_MAX`] and [`SIZE_MAX_BYTES`].
///
/// # Errors
/// The bound it exceeds; depth first.
pub fn check(tree: &Value) -> Result<(), TreeError> {
    if depth(tree) > DEPTH_MAX {
        return Err(TreeError::TooDeep);
    }
    match size(tree, SIZE_MAX_BYTES) {
        bytes if bytes > SIZE_MAX_BYTES => Err(TreeError::TooLarge),
        _ => Ok(()),
    }
}

/// How many lists and objects are inside one another; 0 for a scalar.
pub fn depth(tree: &Value) -> usize {
    measure(tree).depth
}

/// What a walk over a whole tree finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Lists and objects inside one another.
    pub depth: usize,
    /// Values of any type.
    pub nodes: usize,
}

/// Walks the whole tree.
pub fn measure(tree: &Value) -> Measure {
    let mut found = Measure::default();
    let mut open: Vec<(&Value, usize)> = vec![(tree, 0)];
    while let Some((value, above)) = open.pop() {
        found.nodes += 1;
        match value {
            Value::Array(items) => {
                found.depth = found.depth.max(above + 1);
                open.extend(items.iter().map(|item| (item, above + 1)));
            }
            Value::Object(map) => {
                found.depth = found.depth.max(above + 1);
                open.extend(map.values().map(|item| (item, above + 1)));
            }
            _ => {}
        }
    }
    found
}

/// The name of the type that Go's JSON decoder makes of a value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The length of the tree as JSON text without blanks, in bytes; the walk ends once it is beyond `limit`.
pub fn size(tree: &Value, limit: usize) -> usize {
    let mut bytes = 0;
    let mut open: Vec<&Value> = vec![tree];
    while let Some(value) = open.pop() {
        bytes += match value {
            Value::Null | Value::Bool(true) => 4,
            Value::Bool(false) => 5,
            Value::Number(number) => number.to_string().len(),
            Value::String(text) => text_size(text),
            Value::Array(items) => {
                open.extend(items);
                2 + items.len().saturating_sub(1)
            }
            Value::Object(map) => {
                open.extend(map.values());
                let keys: usize = map.keys().map(|key| text_size(key) + 1).sum();
                2 + map.len().saturating_sub(1) + keys
            }
        };
        if bytes > limit {
            break;
        }
    }
    bytes
}

/// Bytes that an allocation takes beside what is in it.
const ALLOCATION: usize = 16;
/// Members that a leaf of a map has room for, and those it has at least when it is not the only one.
const LEAF: usize = 11;
const LEAF_LEAST: usize = 6;

/// About how many bytes of memory the tree takes. Nodes count, not only text: a short object takes many times its text.
pub fn held(tree: &Value) -> usize {
    let member = size_of::<String>() + size_of::<Value>();
    let text = |text: &str| if text.is_empty() { 0 } else { text.len() + ALLOCATION };
    let mut bytes = size_of::<Value>();
    let mut open: Vec<&Value> = vec![tree];
    while let Some(value) = open.pop() {
        bytes += match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(string) => text(string),
            Value::Array(items) => {
                open.extend(items);
                items.len() * size_of::<Value>() + ALLOCATION
            }
            Value::Object(map) => {
                open.extend(map.values());
                let leaves = map.len().div_ceil(if map.len() > LEAF { LEAF_LEAST } else { LEAF });
                let keys: usize = map.keys().map(|key| text(key)).sum();
                leaves * (LEAF * member + ALLOCATION) + keys
            }
        };
    }
    bytes
}

/// The length of a JSON string with its quotes.
fn text_size(text: &str) -> usize {
    let escaped: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum();
    escaped + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            "\\PC{0,6}|[\\x00-\\x7f]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec(("[\\x00-\\x7f]{0,4}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!([inner]))
    }

    proptest! {
        #[test]
        fn the_size_is_that_of_the_text(tree in trees()) {
            prop_assert_eq!(size(&tree, usize::MAX), serde_json::to_vec(&tree).unwrap().len());
        }
    }

    #[test]
    fn what_is_held_is_more_than_its_text() {
        for tree in [
            json!({"a": 1}),
            json!(vec![json!(""); 1000]),
            json!(vec![json!({"b": []}); 1000]),
            json!("x".repeat(1000)),
        ] {
            assert!(held(&tree) >= size(&tree, usize::MAX), "{tree}");
        }
        assert!(held(&json!(vec![json!(""); 1000])) >= 1000 * size_of::<Value>());
        assert!(held(&json!({"a": 1})) >= LEAF * (size_of::<String>() + size_of::<Value>()));
    }

    #[test]
    fn both_bounds_hold_exactly() {
        assert_eq!(depth(&json!({"a": [{}], "b": 1})), 3);
        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nested(DEPTH_MAX + 1)), Err(TreeError::TooDeep));
        assert_eq!(check(&json!("x".repeat(SIZE_MAX_BYTES - 2))), Ok(()));
        assert_eq!(check(&json!("x".repeat(SIZE_MAX_BYTES - 1))), Err(TreeError::TooLarge));
    }
}
