//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether the toleration covers the taint: an empty effect covers all, an empty key with `Exists` covers all keys.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |o: &Option<String>| o.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = text(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// Whether any toleration covers the taint.
pub fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|t| tolerates(t, taint))
}

/// The first taint with one of `effects` that no toleration covers.
pub fn find_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    taints
        .iter()
        .find(|t| effects.contains(&t.effect.as_str()) && !tolerated(t, tolerations))
}

/// Whether two taints are the same one: key and effect identify a taint.
pub fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toleration_table() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.into(),
            value: (!value.is_empty()).then(|| value.into()),
            effect: effect.into(),
            time_added: None,
        };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| {
            let opt = |t: &str| (!t.is_empty()).then(|| t.to_owned());
            Toleration {
                key: opt(key),
                operator: opt(operator),
                value: opt(value),
                effect: opt(effect),
                toleration_seconds: None,
            }
        };
        let table = [
            (toleration("a", "Exists", "", ""), taint("a", "x", "NoSchedule"), true),
            (
                toleration("a", "Exists", "", "NoExecute"),
                taint("a", "x", "NoSchedule"),
                false,
            ),
            (toleration("a", "Equal", "x", ""), taint("a", "x", "NoSchedule"), true),
            (toleration("a", "", "x", ""), taint("a", "x", "NoSchedule"), true),
            (toleration("a", "", "y", ""), taint("a", "x", "NoSchedule"), false),
            (toleration("a", "", "", ""), taint("a", "", "NoSchedule"), true),
            (toleration("", "Exists", "", ""), taint("b", "", "NoExecute"), true),
            (toleration("", "", "", ""), taint("b", "", "NoExecute"), false),
            (toleration("b", "Bogus", "", ""), taint("b", "", "NoExecute"), false),
        ];
        for (i, (t, taint, want)) in table.iter().enumerate() {
            assert_eq!(tolerates(t, taint), *want, "row {i}");
        }
        let taints = [taint("p", "", "PreferNoSchedule"), taint("n", "", "NoSchedule")];
        let found = find_untolerated(&taints, &[], &["NoSchedule", "NoExecute"]);
        assert_eq!(found.map(|t| t.key.as_str()), Some("n"));
    }
}
