//! The policy: which requests are written, and how much of them (audit.k8s.io/v1 Policy). Pure.

use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use serde::Deserialize;

/// How much is written, from nothing to everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what and when.
    Metadata,
    /// The request's object as well.
    Request,
    /// The reply's object as well.
    RequestResponse,
}

impl Level {
    /// Upstream's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The sender is known, nothing is done yet.
    RequestReceived,
    /// A long answer has begun.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// Upstream's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Group {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyRule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Group>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
    #[serde(default)]
    rules: Vec<PolicyRule>,
}

/// A checked policy.
#[derive(Clone, Debug)]
pub struct Policy {
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
    rules: Vec<PolicyRule>,
}

/// What holds for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) level: Level,
    pub(super) omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy in YAML or JSON.
    ///
    /// # Errors
    /// What is wrong, with the field or the rule's number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if (file.api_version.as_str(), file.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let (version, kind) = (file.api_version, file.kind);
            return Err(format!("want audit.k8s.io/v1 Policy, found {version} {kind}"));
        }
        if file.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        for (index, rule) in file.rules.iter().enumerate() {
            rule.check().map_err(|why| format!("rules[{index}]: {why}"))?;
        }
        Ok(Self {
            omit_stages: file.omit_stages,
            omit_managed_fields: file.omit_managed_fields,
            rules: file.rules,
        })
    }

    /// The first rule that matches; without one nothing is written.
    pub(super) fn rule(&self, user: &User, info: &RequestInfo) -> Rule {
        let found = self.rules.iter().find(|rule| rule.matches(user, info));
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(found.into_iter().flat_map(|rule| &rule.omit_stages));
        Rule {
            level: found.map_or(Level::None, |rule| rule.level),
            omit_stages,
            omit_managed_fields: found
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
        }
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

impl PolicyRule {
    fn check(&self) -> Result<(), String> {
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if about_resources && !self.non_resource_urls.is_empty() {
            return Err("rules cannot apply to both regular resources and non-resource URLs".to_owned());
        }
        for url in &self.non_resource_urls {
            let stars = url.matches('*').count();
            if url != "*" && (!url.starts_with('/') || stars > 1 || (stars == 1 && !url.ends_with('*'))) {
                return Err(format!(
                    "nonResourceURLs: {url:?} must begin with a '/' and may have a '*' at its end only"
                ));
            }
        }
        match self.resources.iter().find(|group| group.group.contains('/')) {
            Some(group) => Err(format!(
                "resources: group {:?} must be a name without a version",
                group.group
            )),
            None => Ok(()),
        }
    }

    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let who = (self.users.is_empty() || has(&self.users, &user.name))
            && (self.user_groups.is_empty() || user.groups.iter().any(|group| has(&self.user_groups, group)));
        if !who || !(self.verbs.is_empty() || has(&self.verbs, &info.verb)) {
            return false;
        }
        if !self.resources.is_empty() || !self.namespaces.is_empty() {
            return info.is_resource && self.matches_resource(info);
        }
        self.non_resource_urls.is_empty() || (!info.is_resource && self.matches_url(&info.path))
    }

    fn matches_resource(&self, info: &RequestInfo) -> bool {
        if !self.namespaces.is_empty() && !has(&self.namespaces, &info.namespace) {
            return false;
        }
        self.resources.is_empty()
            || self
                .resources
                .iter()
                .any(|group| group.group == info.group && group.matches(info))
    }

    fn matches_url(&self, path: &str) -> bool {
        self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == url,
        })
    }
}

impl Group {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !has(&self.resource_names, &info.name) {
            return false;
        }
        let whole = match info.subresource.as_str() {
            "" => info.resource.clone(),
            part => format!("{}/{part}", info.resource),
        };
        self.resources.iter().any(|pattern| {
            pattern == "*"
                || *pattern == whole
                || pattern
                    .strip_prefix("*/")
                    .is_some_and(|part| !info.subresource.is_empty() && part == info.subresource)
                || pattern
                    .strip_suffix("/*")
                    .is_some_and(|resource| resource == info.resource)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ['system:kube-scheduler']
- level: None
  nonResourceURLs: ['/healthz*', '/version']
- level: Request
  verbs: [create]
  resources: [{group: '', resources: ['*/binding', 'pods/*', 'configmaps']}]
  omitStages: [ResponseStarted]
- level: RequestResponse
  namespaces: [kube-system]
- level: Metadata
  userGroups: ['system:masters']
";

    fn level(user: &str, group: &str, method: &str, uri: &str) -> Level {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query));
        Policy::parse(POLICY)
            .unwrap()
            .rule(&User::named(user, &[group]), &info)
            .level
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let pods = "/api/v1/namespaces/default/pods";
        for (user, group, method, path, expected) in [
            ("system:kube-scheduler", "x", "POST", pods, Level::None),
            ("a", "system:masters", "GET", "/healthz/ping", Level::None),
            ("a", "system:masters", "GET", "/version/x", Level::Metadata),
            (
                "a",
                "x",
                "POST",
                "/api/v1/namespaces/default/pods/p/eviction",
                Level::Request,
            ),
            (
                "a",
                "x",
                "POST",
                "/api/v1/namespaces/default/configmaps",
                Level::Request,
            ),
            (
                "a",
                "x",
                "POST",
                "/apis/apps/v1/namespaces/default/configmaps",
                Level::None,
            ),
            (
                "a",
                "x",
                "GET",
                "/api/v1/namespaces/kube-system/secrets",
                Level::RequestResponse,
            ),
            ("a", "system:masters", "GET", pods, Level::Metadata),
            ("a", "x", "GET", pods, Level::None),
        ] {
            assert_eq!(level(user, group, method, path), expected, "{user} {method} {path}");
        }
    }

    #[test]
    fn stages_add_up() {
        let info = RequestInfo::parse(
            &http::Method::POST,
            "/api/v1/namespaces/a/configmaps",
            &Query::parse(""),
        );
        let rule = Policy::parse(POLICY).unwrap().rule(&User::named("a", &[]), &info);
        assert_eq!(rule.omit_stages, [Stage::RequestReceived, Stage::ResponseStarted]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let policy = |rules: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n");
        for (text, part) in [
            (
                "apiVersion: v1\nkind: Policy\nrules: []\n".to_owned(),
                "want audit.k8s.io/v1",
            ),
            (policy("[]"), "0 rules"),
            (policy("[{level: Everything}]"), "Everything"),
            (policy("[{level: None, levels: x}]"), "levels"),
            (
                policy("[{level: None, namespaces: [a], nonResourceURLs: ['/x']}]"),
                "rules[0]: rules cannot apply",
            ),
            (
                policy("[{level: None, nonResourceURLs: ['x']}]"),
                "must begin with a '/'",
            ),
            (
                policy("[{level: None, resources: [{group: 'apps/v1'}]}]"),
                "without a version",
            ),
        ] {
            let error = Policy::parse(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
