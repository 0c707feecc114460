//! Cleaner of tokens in Secrets that were made for accounts and that nobody used for a year: marked first, which ends their use, and
//! deleted after another year. What a user made stays, and so does what a pod refers to.

use super::{account_of, is_of, refers_to};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::well_known::account_token::{
    INVALID_SINCE, LAST_USED, TRACKING_KEY, TRACKING_NAME, TRACKING_NAMESPACE,
};
use crate::controller::write::{self, PatchKind, Plan, Verb, Write};
use client::{Clock, Key};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// How long a token may stay unused (upstream's `--legacy-service-account-token-clean-up-period`).
const UNUSED: SignedDuration = SignedDuration::from_hours(8760);
/// How often each token is looked at.
const EVERY: Duration = Duration::from_secs(24 * 3600);
const DEADLINE: Duration = Duration::from_secs(10);

/// The controller. Its keys are Secrets.
pub struct Unused {
    informers: Informers,
    clock: Arc<dyn Clock>,
    /// Since when uses are noted, as the API server said last for this key.
    since: Mutex<BTreeMap<Key, Option<Date>>>,
}

impl Unused {
    /// A controller that knows nothing yet.
    pub fn new(informers: Informers, clock: Arc<dyn Clock>) -> Self {
        Self {
            informers,
            clock,
            since: Mutex::default(),
        }
    }

    fn account(&self, secret: &Secret) -> Option<Arc<ServiceAccount>> {
        let (name, uid) = account_of(secret);
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let account = self.informers.service_accounts.get(namespace, name)?;
        is_of(&account, uid).then_some(account)
    }

    /// Whether a pod of its namespace refers to the Secret.
    fn is_mounted(&self, secret: &Secret) -> bool {
        let name = secret.name_any();
        let pods = self
            .informers
            .pods
            .list_namespace(&secret.namespace().unwrap_or_default());
        pods.iter().any(|pod| pod.names_secret(&name))
    }
}

/// A day as labels have it, and only as they have it.
pub(super) fn day(text: &str) -> Option<Date> {
    let read = Date::strptime("%Y-%m-%d", text).ok()?;
    (text_of(read) == text).then_some(read)
}

pub(super) fn text_of(day: Date) -> String {
    day.strftime("%Y-%m-%d").to_string()
}

fn today(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
}

/// Asks since when uses are noted: `None` if that is not said, or not known.
async fn ask(client: &kube::Client) -> Option<Date> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), TRACKING_NAMESPACE);
    let found = timeout(DEADLINE, maps.get_opt(TRACKING_NAME)).await.ok()?.ok()??;
    day(found.data?.get(TRACKING_KEY)?)
}

impl Controller for Unused {
    const NAME: &'static str = "legacy-service-account-token-cleaner";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.account_tokens);
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let secret = self.informers.account_tokens.get_key(key)?;
        if !is_old(&secret, self.clock.now()) {
            return None;
        }
        let key = key.clone();
        Some(Box::pin(async move {
            let since = ask(client).await;
            let mut known = self.since.lock().expect("no holder of this lock panics");
            known.insert(key, since);
        }))
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let since = self
            .since
            .lock()
            .expect("no holder of this lock panics")
            .remove(key)
            .flatten();
        let Some(secret) = self.informers.account_tokens.get_key(key) else {
            return Plan::default();
        };
        let is_candidate = is_tracked_long_enough(since, now) && is_unused(&secret, now);
        let account = self.account(&secret).filter(|_| is_candidate);
        let is_made_for = account.is_some_and(|account| refers_to(&account, &secret.name_any()));
        // Its namespace's pods are looked at where that decides something alone.
        let due = decide(&secret, now).filter(|_| is_made_for);
        let write = due.filter(|_| !self.is_mounted(&secret));
        Plan {
            writes: write.into_iter().collect(),
            again_in: Some(EVERY),
            ..Plan::default()
        }
    }
}

/// The first moment at which a use counts.
fn kept_from(now: Timestamp) -> Timestamp {
    now.saturating_sub(UNUSED).unwrap_or(Timestamp::MIN)
}

/// Whether the Secret was made before the last year.
fn is_old(secret: &Secret, now: Timestamp) -> bool {
    let made = secret.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| made.0 < kept_from(now)) && secret.metadata.deletion_timestamp.is_none()
}

/// Whether uses have been noted for a whole year: from the day after the one that is said, which may not have been whole.
pub(super) fn is_tracked_long_enough(since: Option<Date>, now: Timestamp) -> bool {
    let first = since.and_then(|since| since.checked_add(1.day()).ok());
    let first = first.and_then(|first| first.to_zoned(TimeZone::UTC).ok());
    first.is_some_and(|first| first.timestamp() <= kept_from(now))
}

/// Whether nobody used the token within the last year. What cannot be read is taken for a use.
pub(super) fn is_unused(secret: &Secret, now: Timestamp) -> bool {
    let kept = today(kept_from(now));
    let is_before = |used: &String| day(used).is_some_and(|used| used < kept);
    is_old(secret, now) && secret.labels().get(LAST_USED).is_none_or(is_before)
}

/// What becomes of a token that nobody uses: it is marked, and goes when the mark is a year old.
pub(super) fn decide(secret: &Secret, now: Timestamp) -> Option<Write> {
    let marked = secret.labels().get(INVALID_SINCE).and_then(|since| day(since));
    let Some(marked) = marked else {
        let body = json!({"metadata": {"uid": secret.metadata.uid, "labels": {INVALID_SINCE: text_of(today(now))}}});
        return Some(Write::patch(write::SECRETS, Key::of(secret), PatchKind::Merge, body));
    };
    if marked >= today(kept_from(now)) {
        return None;
    }
    let verb = Verb::Delete {
        uid: secret.metadata.uid.clone().unwrap_or_default(),
        // A use in between changes it.
        revision: secret.metadata.resource_version.clone(),
        grace: None,
        propagation: None,
    };
    Some(Write::new(write::SECRETS, Key::of(secret), verb))
}

#[cfg(test)]
mod tests;
