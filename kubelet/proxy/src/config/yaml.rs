//! A tree of values as YAML in blocks. Pure. Keys are names of fields; texts are written as JSON does, which YAML reads.

use serde_json::Value;

/// The tree's text.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

fn block(out: &mut String, value: &Value, depth: usize) {
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        out.push_str(&"  ".repeat(depth));
        out.push_str(key);
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push_str(":\n");
                block(out, value, depth + 1);
            }
            // What else there is fits on a line, in JSON's form.
            other => out.push_str(&format!(": {other}\n")),
        }
    }
}
