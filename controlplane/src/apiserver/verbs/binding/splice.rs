//! A pod's stored text with what binding changes of it, made without a tree of all of it: a cluster binds its pods by the thousand, and of
//! each only a few members are asked for and changed. Pure.
//!
//! What is decided is decided by the same function as on the tree; here is only how its answer comes back into the text.

use super::bound;
use crate::apiserver::status::ApiError;
use crate::json_text::end;
use crate::store::Revision;
use crate::store::value::TypeMeta;
use serde_json::{Map, Value, json};

/// What the decision asks of the metadata, beside the revision.
const ASKED_OF_METADATA: [&str; 4] = ["name", "uid", "generation", "deletionTimestamp"];
/// Of what more is asked than where it is.
const LOOKED_INTO: [&str; 2] = ["metadata", "spec"];
/// What it asks of the spec.
const GATES: &str = "schedulingGates";
const NODE: &str = "nodeName";

/// The members of an object as they stand in a text: name, and where the value begins and ends.
type Found<'t> = Vec<(&'t str, usize, usize)>;

/// The members of the object that begins at `at`, and where it ends; `None` where not all of it is understood. `end_of` finds the end of the
/// value of a member that begins there.
fn found<'t>(
    text: &'t str,
    at: usize,
    end_of: &mut dyn FnMut(&'t str, usize) -> Option<usize>,
) -> Option<(Found<'t>, usize)> {
    let bytes = text.as_bytes();
    let (mut all, mut at) = (Found::new(), at);
    let is_next = |at: usize, byte: u8| (bytes.get(at) == Some(&byte)).then_some(at + 1);
    at = is_next(at, b'{')?;
    if let Some(end) = is_next(at, b'}') {
        return Some((all, end));
    }
    loop {
        is_next(at, b'"')?;
        let key_end = end(bytes, at)?;
        let (name, begin) = (text.get(at + 1..key_end - 1)?, is_next(key_end, b':')?);
        let stop = end_of(name, begin)?;
        text.get(begin..stop)?;
        all.push((name, begin, stop));
        match is_next(stop, b',') {
            Some(next) => at = next,
            None => return Some((all, is_next(stop, b'}')?)),
        }
    }
}

/// The only member of that name.
fn only(all: &Found<'_>, name: &str) -> Option<(usize, usize)> {
    let mut named = all.iter().filter(|(own, ..)| *own == name);
    let (_, begin, end) = named.next()?;
    named.next().is_none().then_some((*begin, *end))
}

/// Those members of the object as a tree.
fn asked(text: &str, all: &Found<'_>, names: &[&str]) -> Option<Map<String, Value>> {
    let those = all.iter().filter(|(name, ..)| names.contains(name));
    let each =
        those.map(|(name, begin, end)| Some(((*name).to_owned(), serde_json::from_str(&text[*begin..*end]).ok()?)));
    each.collect()
}

/// The stored text of a pod of this revision, bound; `None` where only the tree tells.
///
/// # Errors
/// As [`bound`].
pub(super) fn spliced(
    raw: &[u8],
    (of, revision): (&TypeMeta<'_>, Revision),
    binding: &Value,
    now: &str,
) -> Option<Result<Vec<u8>, ApiError>> {
    let marks = |part: &str| {
        binding["metadata"][part]
            .as_object()
            .is_some_and(|marks| !marks.is_empty())
    };
    if marks("labels") || marks("annotations") || TypeMeta::of(raw).as_ref() != Some(of) {
        return None;
    }
    let text = std::str::from_utf8(raw).ok()?;
    // All is read once: who is looked into says where it ends.
    let mut shallow = |_: &str, begin: usize| end(raw, begin);
    let mut inner: [Option<Found<'_>>; 2] = Default::default();
    let (whole, all) = found(text, 0, &mut |name, begin| {
        let Some(at) = LOOKED_INTO.iter().position(|part| *part == name) else {
            return end(raw, begin);
        };
        let (members, end) = found(text, begin, &mut shallow)?;
        inner[at] = Some(members);
        Some(end)
    })?;
    let (status, [Some(metadata), Some(parts)]) = (only(&whole, "status")?, inner) else {
        return None;
    };
    let is_once = LOOKED_INTO.iter().all(|part| only(&whole, part).is_some());
    if !is_once || all != raw.len() {
        return None;
    }
    let mut about = asked(text, &metadata, &ASKED_OF_METADATA)?;
    about.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    // Where it stands among the others, as they are written in order.
    let (next, begin, _) = *parts.iter().find(|(name, ..)| *name >= NODE)?;
    if parts.iter().any(|(name, ..)| *name == NODE || name.contains('\\')) {
        return None;
    }
    let pod = json!({
        "metadata": about,
        "spec": asked(text, &parts, &[GATES])?,
        "status": serde_json::from_str::<Map<String, Value>>(&text[status.0..status.1]).ok()?,
    });
    let pod = match bound(pod, binding, now) {
        Ok(pod) => pod,
        Err(refused) => return Some(Err(refused)),
    };
    // The name and its quotes and colon stand before the value.
    let at = begin.checked_sub(next.len() + 3)?;
    let parts = [text.get(..at)?, text.get(at..status.0)?, &text[status.1..]];
    Some(Ok(put_together(parts, &pod)))
}

/// The text of which these parts stay: the node goes behind the first, the status behind the second.
fn put_together([head, between, tail]: [&str; 3], pod: &Value) -> Vec<u8> {
    let (node, status) = (pod["spec"][NODE].to_string(), pod["status"].to_string());
    [head, "\"", NODE, "\":", &node, ",", between, &status, tail]
        .concat()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::value::canonical_owned;
    use proptest::prelude::*;

    const REVISION: Revision = 7;
    const NOW: &str = "2026-01-01T00:00:00Z";

    fn of() -> TypeMeta<'static> {
        TypeMeta::new("v1", "Pod")
    }

    fn binding(uid: &str, revision: &str, labels: Value) -> Value {
        json!({"metadata": {"name": "p", "uid": uid, "resourceVersion": revision, "labels": labels},
            "target": {"kind": "Node", "name": "n\"1"}})
    }

    /// The plain way: a tree of all of it but the owners, and its text.
    fn plainly(pod: &Value, owners: Option<&str>, binding: &Value) -> Result<Vec<u8>, ApiError> {
        let mut pod = pod.clone();
        pod["metadata"]["resourceVersion"] = json!(REVISION.to_string());
        Ok(canonical_owned(&of(), &bound(pod, binding, NOW)?, owners))
    }

    fn some(all: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
        proptest::option::weighted(0.5, proptest::sample::select(all))
    }

    /// Members as text, of which each pod has some.
    fn object(always: &'static [&'static str], sometimes: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let chosen = proptest::sample::subsequence(sometimes, 0..=sometimes.len());
        chosen.prop_map(move |chosen| {
            let text = always.iter().copied().chain(chosen).collect::<Vec<_>>().join(",");
            serde_json::from_str(&format!("{{{text}}}")).unwrap()
        })
    }

    fn pods() -> impl Strategy<Value = (Value, Option<&'static str>)> {
        let metadata = object(
            &[r#""name":"p""#, r#""uid":"u""#],
            &[
                r#""generation":3"#,
                r#""deletionTimestamp":"2026-01-01T00:00:00Z""#,
                r#""labels":{"a":"{\"spec\":{}}"}"#,
                r#""annotations":{"status":"}}","nodeName":"x"}"#,
            ],
        );
        let spec = object(
            &[],
            &[
                r#""containers":[{"name":"c","env":[{"name":"nodeName","value":"\\\"}"}]}]"#,
                r#""nodeName":"""#,
                r#""nodeName":"other""#,
                r#""nodeSelector":{"x":"y"}"#,
                r#""schedulerName":"s""#,
                r#""schedulingGates":[]"#,
                r#""schedulingGates":[{"name":"g"}]"#,
                r#""z\\\"":1.5e10"#,
            ],
        );
        let status = object(
            &[],
            &[
                r#""phase":"Pending""#,
                r#""nominatedNodeName":"n0""#,
                r#""conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]"#,
                r#""conditions":[{"type":"PodScheduled","status":"True"},{"type":"ä"}]"#,
                r#""conditions":[]"#,
            ],
        );
        let owners = some(&[r#"[{"manager":"x","fieldsV1":{"f:spec":{}}}]"#]);
        (metadata, spec, proptest::option::weighted(0.9, status), owners).prop_map(
            |(metadata, spec, status, owners)| {
                let mut pod = json!({"metadata": metadata, "spec": spec});
                if let Some(status) = status {
                    pod["status"] = status;
                }
                (pod, owners)
            },
        )
    }

    proptest! {
        #[test]
        fn a_spliced_text_is_the_one_that_the_tree_gives(
            (pod, owners) in pods(),
            uid in some(&["u", "v"]),
            revision in some(&["7", "8"]),
            labels in prop_oneof![4 => Just(json!({})), 1 => Just(json!({"a": "b"}))],
        ) {
            let raw = canonical_owned(&of(), &pod, owners);
            let binding = binding(uid.unwrap_or_default(), revision.unwrap_or_default(), labels);
            match (spliced(&raw, (&of(), REVISION), &binding, NOW), plainly(&pod, owners, &binding)) {
                (None, _) => {}
                (Some(Ok(new)), Ok(plain)) => {
                    prop_assert_eq!(String::from_utf8(new).unwrap(), String::from_utf8(plain).unwrap());
                }
                (Some(Err(refused)), Err(plain)) => prop_assert_eq!(refused.message, plain.message),
                (spliced, plain) => prop_assert!(false, "{spliced:?}, plainly {plain:?}"),
            }
        }
    }

    /// Otherwise the property says nothing.
    #[test]
    fn a_pod_as_they_are_created_is_spliced_and_one_with_marks_is_not() {
        let pod = json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": {"containers": [], "tolerations": []},
            "status": {"phase": "Pending"}});
        let raw = canonical_owned(&of(), &pod, Some("[]"));
        let known = (&of(), REVISION);
        let new = spliced(&raw, known, &binding("u", "", json!({})), NOW)
            .unwrap()
            .unwrap();
        let new: Value = serde_json::from_slice(&new).unwrap();
        assert_eq!(new["spec"]["nodeName"], "n\"1");
        assert_eq!(new["status"]["conditions"][0]["status"], "True");
        assert!(spliced(&raw, known, &binding("u", "", json!({"a": "b"})), NOW).is_none());
        // Nor is what is no pod's canonical text.
        for other in [
            &b"{}"[..],
            b"",
            b"[1]",
            &raw[..raw.len() - 1],
            &[&raw[..], b" "].concat(),
            b"{\"kind\":\"Pod\"}",
        ] {
            assert!(
                spliced(other, known, &binding("u", "", json!({})), NOW).is_none(),
                "{other:?}"
            );
        }
    }
}
