//! Values as Go prints them: upstream's messages have some of them so. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A selector.
pub fn selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let requirements = selector.match_expressions.iter().flatten().map(|requirement| {
        let values = requirement.values.as_deref().unwrap_or_default().join(" ");
        let (key, operator) = (&requirement.key, &requirement.operator);
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let requirements: String = requirements.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}
