//! RBAC rules: what one rule allows, and whether rules cover others (control-plane contract §6). Pure.

use crate::apiserver::request::RequestInfo;
use serde::Deserialize;
use serde_json::{Value, json};

/// One rule of a role, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups; empty string for core, `*` for all.
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/log`, `*`, `*/scale`.
    pub resources: Vec<String>,
    /// Names the rule is limited to; empty for all.
    pub resource_names: Vec<String>,
    /// Paths: exact, `*`, or with a trailing `*`.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Whether the rule allows the request.
    pub fn allows(&self, info: &RequestInfo) -> bool {
        if !has(&self.verbs, &info.verb) {
            return false;
        }
        if !info.is_resource {
            return self
                .non_resource_urls
                .iter()
                .any(|pattern| path_matches(pattern, &info.path));
        }
        has(&self.api_groups, &info.group)
            && self.names_resource(&info.resource, &info.subresource)
            && (self.resource_names.is_empty() || self.resource_names.contains(&info.name))
    }

    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|item| match item.split_once('/') {
            None if item == "*" => true,
            None => subresource.is_empty() && item == resource,
            Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
            Some((own, sub)) => own == resource && sub == subresource,
        })
    }

    /// Whether this rule covers everything `wanted` allows; `wanted` is broken down (one verb, one group, one resource).
    fn covers(&self, wanted: &Rule) -> bool {
        if !wanted.verbs.iter().all(|verb| has(&self.verbs, verb)) {
            return false;
        }
        if !wanted.non_resource_urls.is_empty() {
            return wanted.non_resource_urls.iter().all(|path| {
                self.non_resource_urls
                    .iter()
                    .any(|own| own == path || path_matches(own, path))
            });
        }
        let resource = |wanted: &String| {
            self.resources.iter().any(|own| {
                own == "*"
                    || own == wanted
                    || matches!((own.strip_prefix("*/"), wanted.split_once('/')), (Some(a), Some((_, b))) if a == b)
            })
        };
        let names = if wanted.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            let own = &self.resource_names;
            own.is_empty() || wanted.resource_names.iter().all(|name| own.contains(name))
        };
        wanted.api_groups.iter().all(|group| has(&self.api_groups, group))
            && wanted.resources.iter().all(resource)
            && names
    }

    /// The rule as rules of one verb, one group, one resource, one name, one path each.
    fn broken_down(&self) -> Vec<Rule> {
        let mut all = Vec::new();
        let names: Vec<Vec<String>> = match self.resource_names.len() {
            0 => vec![Vec::new()],
            _ => self.resource_names.iter().map(|name| vec![name.clone()]).collect(),
        };
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    for name in &names {
                        all.push(Rule {
                            verbs: vec![verb.clone()],
                            api_groups: vec![group.clone()],
                            resources: vec![resource.clone()],
                            resource_names: name.clone(),
                            non_resource_urls: Vec::new(),
                        });
                    }
                }
            }
            for path in &self.non_resource_urls {
                all.push(Rule {
                    verbs: vec![verb.clone()],
                    non_resource_urls: vec![path.clone()],
                    ..Rule::default()
                });
            }
        }
        all
    }

    /// The rule as `SelfSubjectRulesReview` and stored roles show it.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"verbs": self.verbs});
        for (key, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                value[key] = json!(list);
            }
        }
        value
    }

    /// The text upstream prints in escalation errors.
    fn text(&self) -> String {
        let mut parts = Vec::new();
        for (key, list) in [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.resource_names),
            ("NonResourceURLs", &self.non_resource_urls),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                let quoted: Vec<String> = list.iter().map(|item| format!("\"{item}\"")).collect();
                parts.push(format!("{key}:[{}]", quoted.join(" ")));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

/// What of `wanted` no rule of `owned` covers, as upstream's text lines; empty when everything is held.
pub(super) fn not_covered(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut rules: Vec<Rule> = Vec::new();
    for rule in wanted.iter().flat_map(Rule::broken_down) {
        if owned.iter().any(|own| own.covers(&rule)) {
            continue;
        }
        let same = rules.iter_mut().find(|other| {
            other.api_groups == rule.api_groups
                && other.resources == rule.resources
                && other.resource_names == rule.resource_names
                && other.non_resource_urls == rule.non_resource_urls
        });
        match same {
            Some(same) if rule.verbs.iter().all(|verb| same.verbs.contains(verb)) => {}
            Some(same) => same.verbs.extend(rule.verbs),
            None => rules.push(rule),
        }
    }
    let mut lines: Vec<String> = rules.iter().map(Rule::text).collect();
    lines.sort();
    lines
}

/// The rules of a stored role.
pub(super) fn rules_of(role: &Value) -> Vec<Rule> {
    role.get("rules")
        .and_then(|rules| Vec::<Rule>::deserialize(rules).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn ask(verb: &str, group: &str, resource: &str, name: &str) -> RequestInfo {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        RequestInfo {
            is_resource: true,
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..RequestInfo::default()
        }
    }

    #[test]
    fn resource_rules() {
        let pods = rule(&["get", "list"], &[""], &["pods"], &[]);
        let logs = rule(&["*"], &[""], &["pods/log"], &[]);
        let any = rule(&["*"], &["*"], &["*"], &[]);
        let scale = rule(&["update"], &["apps"], &["*/scale"], &[]);
        let one = rule(&["get"], &[""], &["secrets"], &["mine"]);
        for (rule, request, allowed) in [
            (&pods, ask("get", "", "pods", "a"), true),
            (&pods, ask("watch", "", "pods", ""), false),
            (&pods, ask("get", "apps", "pods", "a"), false),
            (&pods, ask("get", "", "pods/log", "a"), false),
            (&logs, ask("get", "", "pods/log", "a"), true),
            (&logs, ask("get", "", "pods", "a"), false),
            (&any, ask("delete", "apps", "deployments/scale", "a"), true),
            (&scale, ask("update", "apps", "deployments/scale", "a"), true),
            (&scale, ask("update", "apps", "deployments", "a"), false),
            (&one, ask("get", "", "secrets", "mine"), true),
            (&one, ask("get", "", "secrets", "other"), false),
            (&one, ask("list", "", "secrets", ""), false),
        ] {
            assert_eq!(rule.allows(&request), allowed, "{rule:?} {request:?}");
        }
    }

    #[test]
    fn path_rules() {
        let paths = |pattern: &str| Rule {
            verbs: vec!["get".to_owned()],
            non_resource_urls: vec![pattern.to_owned()],
            ..Rule::default()
        };
        let ask = |path: &str| RequestInfo {
            verb: "get".to_owned(),
            path: path.to_owned(),
            ..RequestInfo::default()
        };
        for (pattern, path, allowed) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz*", "/healthz", true),
            ("*", "/anything", true),
        ] {
            assert_eq!(paths(pattern).allows(&ask(path)), allowed, "{pattern} {path}");
        }
        assert!(!paths("*").allows(&super::tests::ask("get", "", "pods", "")));
    }

    #[test]
    fn rights_not_held_are_listed() {
        let own = [rule(&["get", "list"], &[""], &["pods"], &[])];
        assert!(not_covered(&own, &[rule(&["get"], &[""], &["pods"], &["a"])]).is_empty());
        assert_eq!(
            not_covered(
                &own,
                &[rule(&["get", "delete", "patch"], &[""], &["pods", "secrets"], &[])]
            ),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "patch"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete" "patch"]}"#,
            ]
        );
        let named = [rule(&["get"], &[""], &["secrets"], &["a"])];
        assert_eq!(
            not_covered(&named, &[rule(&["get"], &[""], &["secrets"], &[])]).len(),
            1
        );
        let all = [rule(&["*"], &["*"], &["*"], &[])];
        assert!(not_covered(&all, &[rule(&["*"], &["apps"], &["*/scale"], &[])]).is_empty());
        assert_eq!(not_covered(&own, &[rule(&["*"], &[""], &["pods"], &[])]).len(), 1);
    }
}
