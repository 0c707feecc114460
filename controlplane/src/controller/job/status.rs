//! What a Job's status says next, and which pods' ends it says are counted. Pure.
//!
//! A pod is counted in three steps, each safe to repeat: its UID (or index) is written into the status; its finalizer goes; its
//! UID leaves the status and the counter grows. A pod that is listed is never listed again, and a counter grows only for a pod
//! that is listed and seen without the finalizer, so whatever fails in between, it counts once.

use super::end::End;
use super::view::{View, counted, index_of, is_tracked};
use crate::controller::pod;
use crate::held::Pod;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most pods that a status lists.
const LISTED: usize = 500;

/// A status and what it allows.
#[derive(Debug)]
pub struct Next {
    /// The status.
    pub status: JobStatus,
    /// Pods that are let go of once this status is stored.
    pub done: Vec<Arc<Pod>>,
    /// What it tells: the event's type, reason and message.
    pub news: Option<(&'static str, &'static str, String)>,
    /// Whether more succeeded than were asked for, and that is the end.
    pub too_many: bool,
}

/// The next status. `end`: how the Job ends, if it is to. `is_managed`: whether its pods are as many as they should be.
pub fn next(view: &View<'_>, end: Option<&End>, is_managed: bool) -> Next {
    let mut status = view.status.clone();
    let mut listed = status.uncounted_terminated_pods.take().unwrap_or_default();
    count(view, &mut status, &mut listed);
    let (done, is_full) = list(view, end, &mut listed);
    if let Some(by) = &view.by_index {
        // Upstream leaves out what is zero or empty here, and nowhere else.
        let total = i32::try_from(by.succeeded.total()).unwrap_or(i32::MAX);
        status.succeeded = Some(total).filter(|total| *total != 0);
        status.completed_indexes = Some(by.succeeded.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = by.failed.as_ref().map(ToString::to_string);
    }
    let is_counted =
        listed.succeeded.as_ref().is_none_or(Vec::is_empty) && listed.failed.as_ref().is_none_or(Vec::is_empty);
    status.uncounted_terminated_pods = Some(listed);
    let ready = view.active().filter(|pod| pod::is_ready(pod)).count();
    let terminating = view.terminating().count();
    status.active = Some(number(view.active().count())).filter(|active| *active != 0);
    status.ready = Some(number(ready));
    status.terminating = Some(number(terminating));
    if status.start_time.is_none() && !view.is_suspended() {
        status.start_time = Some(Time(view.now));
    }
    let mut news = None;
    let mut too_many = false;
    if let Some(end) = end {
        let (announcement, last) = end.conditions();
        let is_announced = view.condition(announcement).is_some();
        set(&mut status, announcement, "True", (&end.reason, &end.message), view.now);
        if is_announced
            && is_counted
            && !is_full
            && done.is_empty()
            && terminating == 0
            && view.active().next().is_none()
        {
            set(&mut status, last, "True", (&end.reason, &end.message), view.now);
            news = Some(if end.is_success {
                status.completion_time = Some(Time(view.now));
                too_many = view.spec.completions.is_some() && status.succeeded > view.spec.completions;
                ("Normal", "Completed", "Job completed".to_owned())
            } else {
                ("Warning", end.event_reason(), end.message.clone())
            });
        }
    } else if is_managed && !view.is_deleting() {
        news = suspension(view, &mut status);
    }
    Next {
        status,
        done,
        news,
        too_many,
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Moves pods that are listed and let go of into the counters.
fn count(view: &View<'_>, status: &mut JobStatus, listed: &mut UncountedTerminatedPods) {
    let held: BTreeSet<&str> = view
        .pods
        .iter()
        .filter(|pod| is_tracked(pod))
        .map(|pod| uid(pod))
        .collect();
    for (list, counter) in [
        (&mut listed.succeeded, &mut status.succeeded),
        (&mut listed.failed, &mut status.failed),
    ] {
        let Some(list) = list else { continue };
        let before = list.len();
        list.retain(|uid| held.contains(uid.as_str()));
        let gone = before - list.len();
        if gone > 0 {
            *counter = Some(number(counted(*counter) + gone));
        }
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Lists pods that have ended; gives those to let go of, and whether the list has no room for more.
fn list(view: &View<'_>, end: Option<&End>, listed: &mut UncountedTerminatedPods) -> (Vec<Arc<Pod>>, bool) {
    let length = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let mut room = LISTED.saturating_sub(length(&listed.succeeded) + length(&listed.failed));
    let mut done = Vec::new();
    let mut is_full = false;
    for pod in view.pods.iter().filter(|pod| is_tracked(pod)) {
        let is_failed = view.is_failed(pod);
        if !may_go(view, end, pod, is_failed) {
            continue;
        }
        let is_listed = view.uncounted_failed.contains(uid(pod)) || view.uncounted_succeeded.contains(uid(pod));
        let list = if is_listed {
            None
        } else if pod::phase(pod) == "Succeeded" {
            // Of an indexed Job the index is what counts.
            view.by_index.is_none().then_some(&mut listed.succeeded)
        } else {
            let ends = is_failed || end.is_some_and(|end| !end.is_success);
            let counts = ends && view.has_valid_index(pod) && view.outcome(pod).counts();
            counts.then_some(&mut listed.failed)
        };
        if let Some(list) = list {
            if room == 0 {
                is_full = true;
                continue;
            }
            room -= 1;
            list.get_or_insert_default().push(uid(pod).to_owned());
        }
        done.push(pod.clone());
    }
    (done, is_full)
}

/// Whether nothing more is needed of a pod once it is listed.
fn may_go(view: &View<'_>, end: Option<&End>, pod: &Pod, is_failed: bool) -> bool {
    if view.is_deleting() || end.is_some() || pod::phase(pod) == "Succeeded" {
        return true;
    }
    let kept = view.by_index.as_ref().zip(index_of(pod));
    let is_kept = kept.is_some_and(|(by, index)| by.kept.get(&index).is_some_and(|kept| uid(kept) == uid(pod)));
    is_failed && !is_kept
}

/// Whether the Job is suspended, told when it changes.
fn suspension(view: &View<'_>, status: &mut JobStatus) -> Option<(&'static str, &'static str, String)> {
    let (value, reason, message, event) = if view.is_suspended() {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    if !set(status, "Suspended", value, (reason, message), view.now) {
        return None;
    }
    // The time it may run begins anew with each resumption.
    status.start_time = (!view.is_suspended()).then_some(Time(view.now));
    Some(("Normal", event, message.to_owned()))
}

/// Puts a condition in place; one that is not there is not made to say False. Tells whether anything changed.
fn set(status: &mut JobStatus, kind: &str, value: &str, why: (&str, &str), now: Timestamp) -> bool {
    let list = status.conditions.get_or_insert_default();
    let new = JobCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(why.0.to_owned()),
        message: Some(why.1.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    match list.iter_mut().find(|condition| condition.type_ == kind) {
        None if value == "False" => false,
        None => {
            list.push(new);
            true
        }
        Some(old) if old.status == value && old.reason == new.reason && old.message == new.message => false,
        Some(old) => {
            *old = new;
            true
        }
    }
}

/// The same status in one spelling: what is zero or empty is absent.
pub fn plain(status: &JobStatus) -> JobStatus {
    let mut plain = status.clone();
    for count in [
        &mut plain.active,
        &mut plain.ready,
        &mut plain.terminating,
        &mut plain.succeeded,
        &mut plain.failed,
    ] {
        *count = count.filter(|count| *count != 0);
    }
    for text in [&mut plain.completed_indexes, &mut plain.failed_indexes] {
        *text = text.take().filter(|text| !text.is_empty());
    }
    plain.conditions = plain.conditions.filter(|list| !list.is_empty());
    let mut listed = plain.uncounted_terminated_pods.take().unwrap_or_default();
    listed.succeeded = listed.succeeded.filter(|list| !list.is_empty());
    listed.failed = listed.failed.filter(|list| !list.is_empty());
    plain.uncounted_terminated_pods = Some(listed);
    plain
}

/// Whether the second says something that pods or an end hang on.
pub fn is_urgent(stored: &JobStatus, next: &JobStatus) -> bool {
    let essence = |status: &JobStatus| {
        let mut status = plain(status);
        (status.active, status.ready, status.terminating, status.start_time) = (None, None, None, None);
        status
    };
    essence(stored) != essence(next)
}

/// Whether status says anything that is not stored.
pub fn differs(stored: &JobStatus, next: &JobStatus) -> bool {
    plain(stored) != plain(next)
}
