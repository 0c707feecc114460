//! ClusterRoles that are the sum of others: whose labels a role's aggregationRule selects, their rules are its rules.
//!
//! Source: control-plane contract §12. What is written here is all that holds: the authorizer reads roles' rules and no more.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{CLUSTER_ROLES, PatchKind, Plan, Verb, Write};
use client::Key;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::{Selector, SelectorError};
use serde_json::json;
use std::sync::Arc;

/// Whose fields the rules become, as upstream.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// The controller. Its keys are roles with an aggregationRule.
pub struct RoleAggregation {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for RoleAggregation {
    const NAME: &'static str = "clusterrole-aggregation-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let roles = self.informers.cluster_roles.clone();
        // Any role may be part of any sum, before or after the change.
        wiring.on(&self.informers.cluster_roles, move |_| {
            let all = roles.list();
            let sums = all.iter().filter(|role| role.aggregation_rule.is_some());
            sums.map(|role| Key::of(&**role)).collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(role) = self.informers.cluster_roles.get_key(key) else {
            return Plan::default();
        };
        match sum(&role, &self.informers.cluster_roles.list()) {
            Ok(Some(rules)) => Plan::of(write(&role, &rules).into_iter().collect()),
            Ok(None) => Plan::default(),
            Err(error) => {
                tracing::warn!(role = key.name, %error, "a selector of the role's aggregationRule is invalid: its rules stay as they are");
                Plan::default()
            }
        }
    }
}

/// A rule in which what is empty is absent: both mean the same.
fn plain(rule: &PolicyRule) -> PolicyRule {
    let some = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: some(&rule.api_groups),
        non_resource_urls: some(&rule.non_resource_urls),
        resource_names: some(&rule.resource_names),
        resources: some(&rule.resources),
        verbs: rule.verbs.clone(),
    }
}

fn rules_of(role: &ClusterRole) -> impl Iterator<Item = PolicyRule> {
    role.rules.iter().flatten().map(plain)
}

/// The rules of the roles that a role's selectors choose, selector by selector, roles by name, each rule once; `None` for a role that is no sum.
///
/// # Errors
/// A selector that is none.
pub fn sum(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Result<Option<Vec<PolicyRule>>, SelectorError> {
    let Some(aggregation) = &role.aggregation_rule else {
        return Ok(None);
    };
    let mut others: Vec<&Arc<ClusterRole>> = all.iter().filter(|o| o.metadata.name != role.metadata.name).collect();
    others.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let selector = Selector::from_api(selector)?;
        for part in others.iter().filter(|o| selector.matches(o.labels())) {
            for rule in rules_of(part) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    Ok(Some(rules))
}

/// Gives the role these rules, if it has others. An apply of the rules alone, of this very role: who else has a part in it keeps his. And of
/// the revision that was read: what a late look at the parts summed up must not bring back rights that were taken away since.
fn write(role: &ClusterRole, rules: &[PolicyRule]) -> Option<Write> {
    if rules_of(role).eq(rules.iter().cloned()) {
        return None;
    }
    let body = json!({
        "apiVersion": CLUSTER_ROLES.api_version(), "kind": CLUSTER_ROLES.kind,
        "metadata": {
            "name": role.metadata.name, "uid": role.metadata.uid, "resourceVersion": role.metadata.resource_version,
        },
        "rules": rules,
    });
    let verb = Verb::Patch(PatchKind::Apply(MANAGER), "", body);
    Some(Write::new(CLUSTER_ROLES, Key::of(role), verb))
}

#[cfg(test)]
mod tests;
