//! The container hash annotation: what decides whether a running container still is the one the spec asks for.

use crate::checksum::fnv32a;
use k8s_openapi::api::core::v1::Container;

/// A JSON string as Go's encoder writes it: like serde's, with `<`, `>`, `&` and the two line separators escaped too.
fn go_json_string(text: &str) -> String {
    let plain = serde_json::Value::String(text.to_owned()).to_string();
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => out.push(other),
        }
    }
    out
}

/// Lower-case hex of FNV-32a over the dump of `{"image":…,"name":…}` (kubelet contract §2): equal to upstream's, so taking
/// a node over restarts nothing.
pub fn container_hash(container: &Container) -> String {
    let json = format!(
        "{{\"image\":{},\"name\":{}}}",
        go_json_string(container.image.as_deref().unwrap_or("")),
        go_json_string(&container.name)
    );
    let bytes: Vec<String> = json.bytes().map(|b| b.to_string()).collect();
    let dump = format!("([]uint8)[{}]", bytes.join(" "));
    format!("{:x}", fnv32a(dump.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_upstreams_test_vector() {
        let container = Container {
            name: "test_container".into(),
            image: Some("foo/image:v1".into()),
            ..Default::default()
        };
        assert_eq!(container_hash(&container), "8e45cbd0");
    }

    #[test]
    fn only_name_and_image_count() {
        let mut container = Container {
            name: "a".into(),
            image: Some("i".into()),
            ..Default::default()
        };
        let before = container_hash(&container);
        container.command = Some(vec!["x".into()]);
        assert_eq!(container_hash(&container), before);
        container.image = Some("j".into());
        assert_ne!(container_hash(&container), before);
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(go_json_string("a<b>&\"\n"), r#""a\u003cb\u003e\u0026\"\n""#);
    }
}
