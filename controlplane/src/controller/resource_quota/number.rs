//! How many objects of a resource a namespace has, asked of the server: a list of one, which says how many remain, or where it does not (no
//! server has to) all of them page by page. Holds no object.

use crate::quota::{Evaluator, Measured};
use client::Key;
use http::Request;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Deadline of one question.
const DEADLINE: Duration = Duration::from_secs(30);
/// Objects of a page, where they are read.
const PAGE: usize = 500;
/// Only what every object has.
const ACCEPT: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// What was last told, by quota and by the name that is counted; `None` for what could not be asked.
#[derive(Default)]
pub struct Numbers {
    known: Mutex<BTreeMap<Key, BTreeMap<String, Option<i64>>>>,
}

impl Numbers {
    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeMap<String, Option<i64>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the numbers of a quota.
    pub async fn look_up(&self, client: &kube::Client, quota: Key, names: Vec<String>) {
        let mut told = BTreeMap::new();
        for name in names {
            let number = match ask(client, &quota.namespace, &name).await {
                Ok(number) => Some(number),
                Err(error) => {
                    tracing::warn!(%quota, name, error, "objects cannot be counted for a quota, retrying");
                    None
                }
            };
            told.insert(name, number);
        }
        self.known().insert(quota, told);
    }

    /// What was told for a quota.
    pub fn of(&self, quota: &Key) -> BTreeMap<String, i64> {
        let known = self.known();
        let all = known.get(quota).into_iter().flatten();
        all.filter_map(|(name, number)| Some((name.clone(), (*number)?)))
            .collect()
    }

    /// Whether something of it could not be asked.
    pub fn is_incomplete(&self, quota: &Key) -> bool {
        let known = self.known();
        known.get(quota).is_some_and(|told| told.values().any(Option::is_none))
    }

    /// The quota is gone.
    pub fn forget(&self, quota: &Key) {
        self.known().remove(quota);
    }
}

/// The number of objects counted under the name. Of a kind that is not served there are none.
async fn ask(client: &kube::Client, namespace: &str, name: &str) -> Result<i64, String> {
    let (group, plural) = match Evaluator::of_name(name) {
        Some(Evaluator::Objects { group, plural }) => (group, plural),
        Some(Evaluator::DeviceClaims) => return devices(client, namespace, name).await,
        _ => return Ok(0),
    };
    for root in roots(client, &group).await? {
        let path = format!("{root}/namespaces/{namespace}/{plural}");
        if let Some(list) = get(client, &format!("{path}?limit=1"), ACCEPT).await? {
            return match number(&list) {
                Some(number) => Ok(number),
                None => counted(client, &path).await,
            };
        }
    }
    Ok(0)
}

/// Counts what is listed at a path. What is gone meanwhile counts as nothing.
async fn counted(client: &kube::Client, path: &str) -> Result<i64, String> {
    let (mut total, mut next) = (0i64, String::new());
    loop {
        let Some(page) = get(client, &format!("{path}?limit={PAGE}{next}"), ACCEPT).await? else {
            return Ok(total);
        };
        total = total.saturating_add(items(&page));
        match rest(&page) {
            Some(more) => next = format!("&continue={more}"),
            None => return Ok(total),
        }
    }
}

/// What the ResourceClaims of a namespace use under the name: those are read, page by page.
async fn devices(client: &kube::Client, namespace: &str, name: &str) -> Result<i64, String> {
    let (mut total, mut next) = (0i64, String::new());
    loop {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims?limit={PAGE}{next}");
        let Some(page) = get(client, &path, "application/json").await? else {
            return Ok(total);
        };
        total = total.saturating_add(used_under(&page, name));
        match rest(&page) {
            Some(more) => next = format!("&continue={more}"),
            None => return Ok(total),
        }
    }
}

/// What the ResourceClaims of a page use under the name. What cannot be read uses nothing.
fn used_under(page: &Value, name: &str) -> i64 {
    let items = page["items"].as_array().into_iter().flatten();
    let claims = items.filter_map(|item| ResourceClaim::deserialize(item).ok());
    let used = claims.filter_map(|claim| {
        claim
            .usage(Timestamp::UNIX_EPOCH)
            .get(name)
            .map(|amount| amount.value())
    });
    used.fold(0, i64::saturating_add)
}

/// How many objects the first page of a list says there are; nothing where it does not say.
fn number(list: &Value) -> Option<i64> {
    let remain = match rest(list) {
        None => 0,
        Some(_) => list["metadata"]["remainingItemCount"].as_i64()?,
    };
    Some(remain.saturating_add(items(list)))
}

/// Where a list goes on; nothing at its end.
fn rest(list: &Value) -> Option<&str> {
    list["metadata"]["continue"].as_str().filter(|more| !more.is_empty())
}

fn items(list: &Value) -> i64 {
    let items = list["items"].as_array().map_or(0, Vec::len);
    i64::try_from(items).unwrap_or(i64::MAX)
}

/// Where the versions of a group are served, the preferred one first.
async fn roots(client: &kube::Client, group: &str) -> Result<Vec<String>, String> {
    if group.is_empty() {
        return Ok(vec!["/api/v1".to_owned()]);
    }
    let Some(found) = get(client, &format!("/apis/{group}"), ACCEPT).await? else {
        return Ok(Vec::new());
    };
    let preferred = found["preferredVersion"]["groupVersion"].as_str();
    let others = found["versions"].as_array().into_iter().flatten();
    let others = others.filter_map(|version| version["groupVersion"].as_str());
    let others = others.filter(|version| Some(*version) != preferred);
    Ok(preferred
        .into_iter()
        .chain(others)
        .map(|version| format!("/apis/{version}"))
        .collect())
}

/// What is at a path; `None` where nothing is served.
async fn get(client: &kube::Client, path: &str, accept: &str) -> Result<Option<Value>, String> {
    let request = Request::get(path).header(http::header::ACCEPT, accept);
    let request = request.body(Vec::new()).map_err(|error| error.to_string())?;
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(error)) => Err(format!("{path}: {error}")),
        Err(_) => Err(format!("{path}: deadline exceeded")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_of_all_claims_are_added_up() {
        let claim = |count: i64| {
            json!({"metadata": {}, "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}}})
        };
        let page = json!({"items": [claim(2), claim(3), {"spec": 7}]});
        assert_eq!(used_under(&page, "gpu.deviceclass.resource.k8s.io/devices"), 5);
        assert_eq!(used_under(&page, "count/resourceclaims.resource.k8s.io"), 2);
        assert_eq!(used_under(&page, "nic.deviceclass.resource.k8s.io/devices"), 0);
    }

    #[test]
    fn a_list_says_how_many_there_are() {
        assert_eq!(number(&json!({"metadata": {}, "items": []})), Some(0));
        assert_eq!(number(&json!({"metadata": {}, "items": [{}]})), Some(1));
        let more = json!({"metadata": {"continue": "c", "remainingItemCount": 41}, "items": [{}]});
        assert_eq!(number(&more), Some(42));
        let silent = json!({"metadata": {"continue": "c"}, "items": [{}]});
        assert_eq!(number(&silent), None);
    }

    /// A server need not say how many remain.
    #[tokio::test]
    async fn what_is_not_said_is_counted() {
        let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let page =
                |count: usize, more: &str| json!({"metadata": {"continue": more}, "items": vec![json!({}); count]});
            let list = match (request.uri().path(), query.as_str()) {
                ("/apis/example.com", _) => json!({"preferredVersion": {"groupVersion": "example.com/v1"}}),
                (_, "limit=1") => page(1, "c0"),
                (_, "limit=500") => page(500, "c1"),
                (_, "limit=500&continue=c1") => page(7, ""),
                other => panic!("{other:?}"),
            };
            let body = kube::client::Body::from(list.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        });
        let client = kube::Client::new(service, "default");
        assert_eq!(ask(&client, "ns", "count/widgets.example.com").await, Ok(507));
    }
}
