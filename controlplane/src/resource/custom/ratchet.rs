//! What an update of a custom resource is not refused for: values that were wrong before and are not touched (control-plane contract §9;
//! KEP-4008). A schema may be tightened while objects exist, which must still lose their finalizers. Pure.

use serde_json::Value;

use crate::resource::field_error::FieldErrors;

/// The errors of `new` that are of this update. An error stays out when the value it names, or the nearest one that is there, is what it
/// was. Lists are compared whole: their members have no identity that an index would tell.
pub(super) fn new_errors(errors: FieldErrors, new: &Value, old: &Value) -> FieldErrors {
    if errors.is_empty() || is_same(new, old) {
        return FieldErrors::default();
    }
    // Those that are only counted cannot be judged, so they all stay.
    if errors.more() > 0 {
        return errors;
    }
    let mut kept = FieldErrors::default();
    kept.extend(errors.iter().filter(|error| !is_kept(&error.path, new, old)).cloned());
    kept
}

/// Whether all but the metadata is the same.
fn is_same(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return new == old;
    };
    let own = |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind");
    new.iter()
        .filter(|(key, _)| own(key))
        .eq(old.iter().filter(|(key, _)| own(key)))
}

/// Whether what is at the path, or what is nearest above, is the same in both.
fn is_kept(path: &str, new: &Value, old: &Value) -> bool {
    let (mut new, mut old, mut rest) = (new, old, path);
    while let Some((below, left)) = step(rest, new) {
        let Some(before) = old.get(below) else {
            return false;
        };
        (new, old) = (&new[below], before);
        rest = left;
    }
    new == old
}

/// The member of an object that the path goes on to, and the path from there. Keys may hold dots: the longest that is there is meant.
fn step<'p, 'v>(path: &'p str, object: &'v Value) -> Option<(&'v str, &'p str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    let goes_on = |key: &str| {
        path.strip_prefix(key)
            .filter(|left| left.is_empty() || left.starts_with(['.', '[']))
    };
    object
        .as_object()?
        .keys()
        .filter_map(|key| goes_on(key).map(|left| (key.as_str(), left)))
        .max_by_key(|(key, _)| key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::field_error::FieldError;
    use serde_json::json;

    fn left(path: &str, new: &Value, old: &Value) -> usize {
        let errors: FieldErrors = vec![FieldError::required(path, "")].into();
        new_errors(errors, new, old).len()
    }

    #[test]
    fn what_was_wrong_and_is_not_touched_is_let_be() {
        let old = json!({"metadata": {"finalizers": ["x"]}, "spec": {"a": {"b": 1}, "c.d": {"e": 1}, "l": [{"f": 1}]}, "n": 1});
        let mut freed = old.clone();
        freed["metadata"] = json!({});
        assert_eq!(left("spec.a.b", &freed, &old), 0, "only metadata differ");
        let mut other = old.clone();
        other["n"] = json!(2);
        for untouched in ["spec.a.b", "spec.a.missing", "spec.c.d.e", "spec.l[0].f"] {
            assert_eq!(left(untouched, &other, &old), 0, "{untouched}");
        }
        assert_eq!(left("n", &other, &old), 1);
        other["spec"]["a"] = json!({"b": 2});
        other["spec"]["l"] = json!([{"f": 1}, {"f": 2}]);
        other["spec"]["c.d"] = json!({"e": 2});
        for touched in [
            "spec.a.b",
            "spec.a.missing",
            "spec.c.d.e",
            "spec.l[0].f",
            "spec.missing",
        ] {
            assert_eq!(left(touched, &other, &old), 1, "{touched}");
        }
    }
}
