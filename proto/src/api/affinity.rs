//! Node selectors: which nodes a pod may, and would like to, run on.

use super::resources::SpecForm;
use super::selector::{Operator, Requirement};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use std::collections::BTreeMap;

fn requirement(expression: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = match expression.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    let values = expression.values.clone().unwrap_or_default();
    Requirement::new(&expression.key, operator, values).ok()
}

fn expression_matches(expression: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    requirement(expression).is_some_and(|r| r.matches(labels))
}

fn field_matches(field: &NodeSelectorRequirement, name: &str) -> bool {
    let values = field.values.as_deref().unwrap_or_default();
    match (field.key.as_str(), field.operator.as_str(), values) {
        ("metadata.name", "In", [value]) => value == name,
        ("metadata.name", "NotIn", [value]) => value != name,
        _ => false,
    }
}

/// Whether the term selects a node of that name and labels; an empty term selects none.
pub fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|e| expression_matches(e, labels)) && fields.iter().all(|f| field_matches(f, name))
}

/// Whether any term selects the node.
pub fn selector_matches(selector: &NodeSelector, name: &str, labels: &BTreeMap<String, String>) -> bool {
    selector
        .node_selector_terms
        .iter()
        .any(|t| term_matches(t, name, labels))
}

/// Whether `nodeSelector` and the required node affinity of the pod allow a node of that name and labels.
pub fn pod_allows<S: SpecForm>(spec: &S, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let pairs = spec.node_selector().into_iter().flatten();
    if !pairs.into_iter().all(|(k, v)| labels.get(k) == Some(v)) {
        return false;
    }
    let node_affinity = spec.affinity().and_then(|a| a.node_affinity.as_ref());
    let required = node_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector_matches(selector, name, labels))
}

/// Sum of the weights of the pod's preferred terms that select the node.
pub fn preferred_weight<S: SpecForm>(spec: &S, name: &str, labels: &BTreeMap<String, String>) -> i64 {
    let node_affinity = spec.affinity().and_then(|a| a.node_affinity.as_ref());
    let preferred = node_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = preferred.into_iter().flatten();
    terms
        .filter(|t| t.weight != 0 && term_matches(&t.preference, name, labels))
        .map(|t| i64::from(t.weight))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Affinity, NodeAffinity, PodSpec, PreferredSchedulingTerm};

    fn expression(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
        }
    }

    fn term(expressions: Vec<NodeSelectorRequirement>, fields: Vec<NodeSelectorRequirement>) -> NodeSelectorTerm {
        NodeSelectorTerm {
            match_expressions: Some(expressions),
            match_fields: Some(fields),
        }
    }

    #[test]
    fn term_table() {
        let labels = BTreeMap::from([
            ("zone".to_owned(), "a".to_owned()),
            ("cores".to_owned(), "8".to_owned()),
        ]);
        let table = [
            (term(vec![], vec![]), false),
            (term(vec![expression("zone", "In", &["a", "b"])], vec![]), true),
            (term(vec![expression("zone", "NotIn", &["a"])], vec![]), false),
            (term(vec![expression("disk", "NotIn", &["a"])], vec![]), true),
            (term(vec![expression("zone", "Exists", &[])], vec![]), true),
            (term(vec![expression("disk", "DoesNotExist", &[])], vec![]), true),
            (term(vec![expression("cores", "Gt", &["4"])], vec![]), true),
            (term(vec![expression("cores", "Lt", &["8"])], vec![]), false),
            (term(vec![expression("zone", "Gt", &["4"])], vec![]), false),
            (term(vec![expression("zone", "Bogus", &["a"])], vec![]), false),
            (term(vec![], vec![expression("metadata.name", "In", &["n1"])]), true),
            (term(vec![], vec![expression("metadata.name", "NotIn", &["n1"])]), false),
            (
                term(
                    vec![expression("zone", "In", &["b"])],
                    vec![expression("metadata.name", "In", &["n1"])],
                ),
                false,
            ),
        ];
        for (i, (term, want)) in table.iter().enumerate() {
            assert_eq!(term_matches(term, "n1", &labels), *want, "row {i}");
        }
    }

    #[test]
    fn selector_and_affinity_are_both_required() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let mut spec = PodSpec {
            node_selector: Some(BTreeMap::from([("zone".to_owned(), "a".to_owned())])),
            ..Default::default()
        };
        assert!(pod_allows(&spec, "n1", &labels));
        spec.affinity = Some(Affinity {
            node_affinity: Some(NodeAffinity {
                required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                    node_selector_terms: vec![term(vec![expression("zone", "In", &["b"])], vec![])],
                }),
                preferred_during_scheduling_ignored_during_execution: Some(vec![PreferredSchedulingTerm {
                    weight: 7,
                    preference: term(vec![expression("zone", "In", &["a"])], vec![]),
                }]),
            }),
            ..Default::default()
        });
        assert!(!pod_allows(&spec, "n1", &labels));
        assert_eq!(preferred_weight(&spec, "n1", &labels), 7);
    }
}
