//! What resources the server has, for controllers that treat all of them alike.

use super::ask::ask;
use super::write::Resource;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResource, APIResourceList};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
/// The longest list of groups or resources, in bytes: anybody may serve a group.
const MOST: usize = 8 << 20;
/// Groups whose resources are events.
const EVENTS: [&str; 2] = ["", "events.k8s.io"];

/// A resource with what can be done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The resource.
    pub resource: Resource,
    /// Verbs, such as `list`.
    pub verbs: Vec<String>,
}

impl Discovered {
    /// Whether all the verbs are there.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|v| v == verb))
    }

    /// Whether its objects are events, which nobody owns or is owned by.
    pub fn is_event(&self) -> bool {
        self.resource.plural == "events" && EVENTS.contains(&&*self.resource.group)
    }
}

/// A version of a group whose resources could not be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedVersion {
    /// Its group.
    pub group: String,
    /// Such as `metrics.k8s.io/v1beta1`.
    pub group_version: String,
    /// Why.
    pub error: String,
}

impl fmt::Display for FailedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.group_version, self.error)
    }
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Every resource, in its group's preferred version if it is served in that one.
    pub resources: Vec<Discovered>,
    /// What could not be asked, in order.
    pub failed: Vec<FailedVersion>,
    /// Versions that are none: more than one slash.
    pub unparsed: Vec<String>,
}

async fn get<T: DeserializeOwned>(client: &kube::Client, path: &str) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    match timeout(DEADLINE, ask::<T>(client, request, MOST)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("deadline exceeded".to_owned()),
    }
}

fn collect(list: APIResourceList, group: &str, version: &str, found: &mut Vec<Discovered>) {
    let whole = |r: &APIResource| !r.name.contains('/');
    for resource in list.resources.into_iter().filter(whole) {
        found.push(Discovered {
            resource: Resource {
                group: Cow::Owned(group.to_owned()),
                version: Cow::Owned(version.to_owned()),
                plural: Cow::Owned(resource.name),
                kind: Cow::Owned(resource.kind),
                namespaced: resource.namespaced,
            },
            verbs: resource.verbs,
        });
    }
}

/// The resource of a kind in one version, and whether it can be scaled; `None` when there is none.
///
/// # Errors
/// When the server cannot be asked.
pub async fn of_kind(client: &kube::Client, api_version: &str, kind: &str) -> Result<Option<(Resource, bool)>, String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let path = format!("{root}/{api_version}");
    let list: APIResourceList = get(client, &path).await.map_err(|error| format!("{path}: {error}"))?;
    let scaled: Vec<String> = list
        .resources
        .iter()
        .filter_map(|r| r.name.strip_suffix("/scale").map(str::to_owned))
        .collect();
    let mut found = Vec::new();
    collect(list, group, version, &mut found);
    let of_kind = found.into_iter().find(|r| r.resource.kind == kind);
    Ok(of_kind.map(|r| {
        let has_scale = scaled.iter().any(|name| *name == *r.resource.plural);
        (r.resource, has_scale)
    }))
}

/// Every resource there is.
///
/// # Errors
/// When the server cannot be asked at all.
pub async fn resources(client: &kube::Client) -> Result<Discovery, String> {
    let mut discovery = Discovery::default();
    let core: APIResourceList = get(client, "/api/v1").await?;
    collect(core, "", "v1", &mut discovery.resources);
    let groups: APIGroupList = get(client, "/apis").await?;
    for group in groups.groups {
        discovery.add_group(client, group).await;
    }
    discovery.failed.sort_by(|a, b| a.group_version.cmp(&b.group_version));
    Ok(discovery)
}

impl Discovery {
    /// A resource that is not served in the preferred version is taken from the first that has it.
    async fn add_group(&mut self, client: &kube::Client, group: APIGroup) {
        let preferred = group.preferred_version.map(|version| version.group_version);
        let mut versions = group.versions;
        versions.sort_by_key(|version| preferred.as_ref() != Some(&version.group_version));
        let mut known = BTreeSet::new();
        for version in versions {
            if version.group_version.matches('/').count() > 1 {
                self.unparsed.push(version.group_version);
                continue;
            }
            match get(client, &format!("/apis/{}", version.group_version)).await {
                Ok(list) => {
                    let mut found = Vec::new();
                    collect(list, &group.name, &version.version, &mut found);
                    found.retain(|d| known.insert(d.resource.plural.to_string()));
                    self.resources.append(&mut found);
                }
                Err(error) => self.failed.push(FailedVersion {
                    group: group.name.clone(),
                    group_version: version.group_version,
                    error,
                }),
            }
        }
    }
}
