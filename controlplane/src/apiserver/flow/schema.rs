//! Which flow schema a request belongs to: the first that matches, by precedence, then by name (control-plane contract §8, KEP-1040).
//! Pure; made anew as a whole when a schema changes.
//!
//! Rules are found by the subjects they name, so that a request looks only at those of its own user and groups, and allocates
//! nothing.

use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use crate::resource::field::{flag, int, list, text};
use crate::resource::flow_defaults::{CATCH_ALL, flow_schemas, is_mandatory};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What user names of service accounts begin with.
const ACCOUNT: &str = "system:serviceaccount:";

/// What tells the flows of one schema apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distinguisher {
    /// Nothing: all its requests are one flow.
    None,
    ByUser,
    ByNamespace,
}

impl Distinguisher {
    /// What a request's flow is called within its schema.
    pub(super) fn of<'a>(self, user: &'a User, info: &'a RequestInfo) -> &'a str {
        match self {
            Self::None => "",
            Self::ByUser => &user.name,
            Self::ByNamespace => &info.namespace,
        }
    }
}

/// A stored FlowSchema, read.
#[derive(Debug)]
pub(super) struct FlowSchema {
    pub(super) name: Arc<str>,
    /// Empty for one that is not stored.
    pub(super) uid: String,
    precedence: i64,
    /// Its priority level.
    pub(super) level: String,
    pub(super) distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    others: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    AnyUser,
    User(String),
    AnyGroup,
    Group(String),
    /// Every service account of a namespace.
    AccountsOf(String),
}

/// Some names, or all.
#[derive(Debug)]
enum Names {
    All,
    These(Vec<Box<str>>),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    /// `pods`, `pods/status`.
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Names,
}

impl Names {
    fn read(value: &Value, key: &str) -> Self {
        let names = list(value, &[key]).iter().filter_map(Value::as_str);
        let names: Vec<Box<str>> = names.map(Box::from).collect();
        match names.iter().any(|name| &**name == "*") {
            true => Self::All,
            false => Self::These(names),
        }
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|name| is(name)),
        }
    }

    fn has(&self, wanted: &str) -> bool {
        self.any(|name| name == wanted)
    }
}

impl ResourceRule {
    fn covers(&self, info: &RequestInfo) -> bool {
        let resource = |name: &str| match info.subresource.as_str() {
            "" => name == info.resource,
            part => name
                .split_once('/')
                .is_some_and(|(whole, own)| whole == info.resource && own == part),
        };
        let is_within = match info.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => self.namespaces.has(namespace),
        };
        is_within && self.verbs.has(&info.verb) && self.groups.has(&info.group) && self.resources.any(resource)
    }
}

impl PathRule {
    fn covers(&self, info: &RequestInfo) -> bool {
        let is_own = |path: &str| match path.strip_suffix('*') {
            Some(start) => info.path.starts_with(start),
            None => path == info.path,
        };
        self.verbs.has(&info.verb) && self.paths.any(is_own)
    }
}

impl Rule {
    fn read(value: &Value) -> Self {
        let subjects = list(value, &["subjects"]).iter().filter_map(|subject| {
            let own = |part: &str| text(subject, &[part, "name"]).to_owned();
            Some(match text(subject, &["kind"]) {
                "User" if own("user") == "*" => Subject::AnyUser,
                "User" => Subject::User(own("user")),
                "Group" if own("group") == "*" => Subject::AnyGroup,
                "Group" => Subject::Group(own("group")),
                "ServiceAccount" => {
                    let namespace = text(subject, &["serviceAccount", "namespace"]);
                    match own("serviceAccount").as_str() {
                        "*" => Subject::AccountsOf(namespace.to_owned()),
                        name => Subject::User(format!("{ACCOUNT}{namespace}:{name}")),
                    }
                }
                _ => return None,
            })
        });
        let resources = list(value, &["resourceRules"]).iter().map(|rule| ResourceRule {
            verbs: Names::read(rule, "verbs"),
            groups: Names::read(rule, "apiGroups"),
            resources: Names::read(rule, "resources"),
            namespaces: Names::read(rule, "namespaces"),
            cluster_scope: flag(rule, &["clusterScope"]),
        });
        let others = list(value, &["nonResourceRules"]).iter().map(|rule| PathRule {
            verbs: Names::read(rule, "verbs"),
            paths: Names::read(rule, "nonResourceURLs"),
        });
        Self {
            subjects: subjects.collect(),
            resources: resources.collect(),
            others: others.collect(),
        }
    }

    fn covers(&self, info: &RequestInfo) -> bool {
        match info.is_resource {
            true => self.resources.iter().any(|rule| rule.covers(info)),
            false => self.others.iter().any(|rule| rule.covers(info)),
        }
    }
}

impl FlowSchema {
    /// What a stored object is taken for: a mandatory one is as it is built in, whatever is stored.
    pub(super) fn obeyed(stored: &Value) -> Self {
        let name = text(stored, &["metadata", "name"]);
        let is_own = |object: &&Value| is_mandatory(name) && text(object, &["metadata", "name"]) == name;
        match flow_schemas().iter().find(is_own) {
            None => Self::read(stored),
            Some(built_in) => Self {
                uid: text(stored, &["metadata", "uid"]).to_owned(),
                ..Self::read(built_in)
            },
        }
    }

    /// Reads a stored object.
    pub(super) fn read(object: &Value) -> Self {
        let distinguisher = match text(object, &["spec", "distinguisherMethod", "type"]) {
            "ByUser" => Distinguisher::ByUser,
            "ByNamespace" => Distinguisher::ByNamespace,
            _ => Distinguisher::None,
        };
        Self {
            name: text(object, &["metadata", "name"]).into(),
            uid: text(object, &["metadata", "uid"]).to_owned(),
            precedence: int(object, &["spec", "matchingPrecedence"]).unwrap_or(i64::MAX),
            level: text(object, &["spec", "priorityLevelConfiguration", "name"]).to_owned(),
            distinguisher,
            rules: list(object, &["spec", "rules"]).iter().map(Rule::read).collect(),
        }
    }
}

/// Schema and rule, by their positions.
type Entries = Vec<(usize, usize)>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Classifier {
    /// In the order they are looked at.
    schemas: Vec<Arc<FlowSchema>>,
    users: BTreeMap<Box<str>, Entries>,
    groups: BTreeMap<Box<str>, Entries>,
    /// By namespace.
    accounts: BTreeMap<Box<str>, Entries>,
    any_user: Entries,
    any_group: Entries,
    /// The schema of what none matches.
    fallback: usize,
}

impl Classifier {
    /// Arranges the schemas; one of them is `catch-all`.
    pub(super) fn new(mut schemas: Vec<Arc<FlowSchema>>) -> Self {
        schemas.sort_by(|one, other| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        let fallback = schemas.iter().position(|schema| &*schema.name == CATCH_ALL);
        let mut classifier = Self {
            fallback: fallback.unwrap_or_default(),
            ..Self::default()
        };
        for (position, schema) in schemas.iter().enumerate() {
            for (number, rule) in schema.rules.iter().enumerate() {
                for subject in &rule.subjects {
                    let entries = match subject {
                        Subject::AnyUser => &mut classifier.any_user,
                        Subject::AnyGroup => &mut classifier.any_group,
                        Subject::User(name) => classifier.users.entry(name.as_str().into()).or_default(),
                        Subject::Group(name) => classifier.groups.entry(name.as_str().into()).or_default(),
                        Subject::AccountsOf(namespace) => {
                            classifier.accounts.entry(namespace.as_str().into()).or_default()
                        }
                    };
                    // A rule may name one subject many times.
                    if entries.last() != Some(&(position, number)) {
                        entries.push((position, number));
                    }
                }
            }
        }
        classifier.schemas = schemas;
        classifier
    }

    /// The schemas, by position.
    pub(super) fn schemas(&self) -> &[Arc<FlowSchema>] {
        &self.schemas
    }

    /// The position of the request's schema.
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> usize {
        let namespace = user.name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'));
        let accounts = namespace.and_then(|(namespace, _)| self.accounts.get(namespace));
        let of_groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let any_group = (!user.groups.is_empty()).then_some(&self.any_group);
        let lists = [
            Some(&self.any_user),
            any_group,
            self.users.get(user.name.as_str()),
            accounts,
        ];
        let mut best = usize::MAX;
        for entries in lists.into_iter().flatten().chain(of_groups) {
            for &(position, number) in entries {
                if position >= best {
                    break;
                }
                let rule = self.schemas.get(position).and_then(|schema| schema.rules.get(number));
                if rule.is_some_and(|rule| rule.covers(info)) {
                    best = position;
                }
            }
        }
        match best {
            usize::MAX => self.fallback,
            best => best,
        }
    }
}

#[cfg(test)]
mod tests;
