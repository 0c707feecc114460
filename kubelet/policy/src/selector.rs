//! Label selectors, compiled once and asked often. Pure.

use client::ordered::Arrange;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// What one key must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            // Values are sorted.
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.binary_search(value).is_ok()),
            // An absent key is not among the values (labels.Requirement of apimachinery).
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| values.binary_search(value).is_err()),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

/// A label selector in a form that two equal ones share: what it requires, sorted. Without requirements it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Compiles a selector.
    ///
    /// # Errors
    /// The operator that is not known. The API server lets none through.
    pub fn compile(selector: &LabelSelector) -> Result<Self, String> {
        let pairs = selector.match_labels.iter().flatten();
        let mut all: Vec<Requirement> = pairs
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.clone();
            let mut values = expression.values.clone().unwrap_or_default();
            values.arrange();
            values.dedup();
            all.push(match expression.operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::DoesNotExist(key),
                other => return Err(format!("{other:?} is no operator of a label selector")),
            });
        }
        all.arrange();
        all.dedup();
        Ok(Self(all))
    }

    /// How many requirements it has.
    pub(crate) fn weight(&self) -> usize {
        self.0.len()
    }

    /// Whether an object with these labels is selected.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_operator() {
        let labels = Labels::from([("app".into(), "web".into()), ("tier".into(), "front".into())]);
        let one = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, selects) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (one("In", "app", &["db", "web"]), true),
            (one("In", "app", &["db"]), false),
            (one("In", "none", &["db"]), false),
            (one("NotIn", "app", &["web"]), false),
            (one("NotIn", "app", &["db"]), true),
            (one("NotIn", "none", &["db"]), true),
            (one("Exists", "tier", &[]), true),
            (one("Exists", "none", &[]), false),
            (one("DoesNotExist", "tier", &[]), false),
            (one("DoesNotExist", "none", &[]), true),
        ] {
            let compiled = Selector::compile(&serde_json::from_value(selector.clone()).unwrap()).unwrap();
            assert_eq!(compiled.selects(&labels), selects, "{selector}");
        }
        let unknown = serde_json::from_value(one("Like", "app", &[])).unwrap();
        assert!(Selector::compile(&unknown).is_err());
    }

    #[test]
    fn equal_selectors_are_one_value() {
        let compile = |value| Selector::compile(&serde_json::from_value(value).unwrap()).unwrap();
        let a = compile(json!({"matchLabels": {"a": "1", "b": "2"}}));
        let b = compile(json!({"matchExpressions": [
            {"key": "b", "operator": "In", "values": ["2", "2"]}, {"key": "a", "operator": "In", "values": ["1"]}]}));
        assert_eq!(a, b);
    }
}
