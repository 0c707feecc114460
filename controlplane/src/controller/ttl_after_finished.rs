//! Deletes Jobs some time after they are over (`spec.ttlSecondsAfterFinished`), and their pods before them.
//!
//! Source: control-plane contract §12. A deletion holds only for the Job as it was judged: one that was changed meanwhile (a longer
//! time, perhaps) is judged again.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::job::view::finished;
use super::write::{self, Failure, Plan, Verb, Write};
use crate::metrics::controllers::Controllers as Counters;
use client::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// The controller.
pub struct TtlAfterFinished {
    /// The shared informers.
    pub informers: Informers,
}

/// When a Job is to go; `None` if it is to stay, or runs, or is on its way.
pub fn expiry(job: &Job) -> Option<Timestamp> {
    due(job).filter(|_| job.metadata.deletion_timestamp.is_none())
}

/// As [`expiry`], of one that is on its way, too.
fn due(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let end = finished(job)?.last_transition_time.as_ref()?.0;
    end.checked_add(SignedDuration::from_secs(i64::from(seconds.max(0))))
        .ok()
}

/// What is to be done about a Job now.
pub fn plan(job: &Job, now: Timestamp) -> Plan {
    let Some(expiry) = expiry(job) else {
        return Plan::default();
    };
    let left = Duration::try_from(expiry.duration_since(now)).unwrap_or(Duration::ZERO);
    if !left.is_zero() {
        return Plan {
            again_in: Some(left),
            ..Plan::default()
        };
    }
    let verb = Verb::Delete {
        uid: job.metadata.uid.clone().unwrap_or_default(),
        revision: job.metadata.resource_version.clone(),
        grace: None,
        propagation: Some("Foreground"),
    };
    Plan {
        writes: vec![Write::new(write::JOBS, Key::of(job), verb)],
        ..Plan::default()
    }
}

impl Controller for TtlAfterFinished {
    const NAME: &'static str = "ttl-after-finished-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.jobs, |change| {
            let expires = change.new.as_deref().is_some_and(|job| expiry(job).is_some());
            expires.then(|| change.key.clone()).into_iter().collect()
        });
    }

    fn wrote(&self, counters: &Counters, key: &Key, _write: &Write, failure: Option<&Failure>, now: Timestamp) {
        let job = self.informers.jobs.get_key(key).filter(|_| failure.is_none());
        if let Some(due) = job.and_then(|job| due(&job)) {
            counters.job_expired(now.duration_since(due).as_secs_f64().max(0.0));
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let job = self.informers.jobs.get_key(key);
        job.map(|job| plan(&job, now)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(extra: Value) -> Job {
        let mut value = json!({
            "metadata": {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": "7"},
            "spec": {"ttlSecondsAfterFinished": 30, "template": {}},
            "status": {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]},
        });
        json_patch::merge(&mut value, &extra);
        serde_json::from_value(value).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_job_goes_in_its_time() {
        assert_eq!(plan(&job(json!({})), at(25)).again_in, Some(Duration::from_secs(15)));
        let writes = plan(&job(json!({})), at(40)).writes;
        let expected = Verb::Delete {
            uid: "u".into(),
            revision: Some("7".into()),
            grace: None,
            propagation: Some("Foreground"),
        };
        assert_eq!(writes[0].verb, expected);
    }

    #[test]
    fn others_stay() {
        for extra in [
            json!({"spec": {"ttlSecondsAfterFinished": null}}),
            json!({"status": null}),
            json!({"status": {"conditions": [{"type": "FailureTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]}}),
            json!({"status": {"conditions": [{"type": "Complete", "status": "False", "lastTransitionTime": "1970-01-01T00:00:10Z"}]}}),
            json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z"}}),
        ] {
            assert_eq!(plan(&job(extra.clone()), at(1000)), Plan::default(), "{extra}");
        }
    }
}
