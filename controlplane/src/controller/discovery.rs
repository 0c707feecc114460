//! What resources the server has, for controllers that treat all of them alike.

use super::write::Resource;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResource, APIResourceList};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

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

    /// Whether objects of it are worth following or deleting: events are neither.
    pub fn is_event(&self) -> bool {
        self.resource.plural == "events"
    }
}

async fn get<T: DeserializeOwned>(client: &kube::Client, path: &str) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    match timeout(DEADLINE, client.request::<T>(request)).await {
        Ok(reply) => reply.map_err(|e| format!("{path}: {e}")),
        Err(_) => Err(format!("{path}: deadline exceeded")),
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
    let list: APIResourceList = get(client, &format!("{root}/{api_version}")).await?;
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

/// Every resource in its group's preferred version, and the groups that could not be asked.
///
/// # Errors
/// When the server cannot be asked at all.
pub async fn resources(client: &kube::Client) -> Result<(Vec<Discovered>, Vec<String>), String> {
    let mut found = Vec::new();
    let mut failed = Vec::new();
    let core: APIResourceList = get(client, "/api/v1").await?;
    collect(core, "", "v1", &mut found);
    let groups: APIGroupList = get(client, "/apis").await?;
    for group in groups.groups {
        let preferred = group.preferred_version.or_else(|| group.versions.into_iter().next());
        let Some(version) = preferred else { continue };
        match get(client, &format!("/apis/{}", version.group_version)).await {
            Ok(list) => collect(list, &group.name, &version.version, &mut found),
            Err(error) => failed.push(error),
        }
    }
    Ok((found, failed))
}
