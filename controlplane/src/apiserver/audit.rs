//! The audit log of the basic kind: who asked what, when, and how it ended (control-plane contract §8).
//!
//! Owns the decision what is written ([`policy`]), the shape of an event ([`event`]) and the file ([`log`]). A [`Trail`] follows one
//! request. Never decides whether a request may go on; a log that cannot be written holds nobody up.

mod event;
mod log;
pub mod policy;

pub use log::{AuditLog, LogOptions};

use super::request::RequestInfo;
use super::user::User;
use client::Clock;
use event::{Answer, Subject};
use jiff::Timestamp;
use policy::{Level, Policy, Rule, Stage};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is audited and where to.
pub struct Audit {
    policy: Policy,
    log: AuditLog,
    clock: Arc<dyn Clock>,
}

impl Audit {
    /// Puts the parts together.
    pub fn new(policy: Policy, log: AuditLog, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { policy, log, clock })
    }

    /// Begins to follow a request whose sender is known; `None` when the policy does not care for it.
    pub(super) fn begin(
        self: &Arc<Self>,
        user: &User,
        info: &RequestInfo,
        parts: &http::request::Parts,
        audit_id: &str,
    ) -> Option<Trail> {
        let rule = self.policy.rule(user, info);
        if rule.level == Level::None {
            return None;
        }
        let trail = Trail {
            subject: Subject::new(user, info, parts, audit_id, self.clock.now()),
            audit: Arc::clone(self),
            rule,
            request_object: None,
            annotations: BTreeMap::new(),
            ended: false,
        };
        trail.write(Stage::RequestReceived, None);
        Some(trail)
    }
}

/// One request on its way. A trail that is dropped before its end (the client of a watch went away) ends then.
pub(super) struct Trail {
    audit: Arc<Audit>,
    rule: Rule,
    subject: Subject,
    request_object: Option<Value>,
    annotations: BTreeMap<&'static str, String>,
    ended: bool,
}

impl Trail {
    /// Whether the body of the request is to be written.
    pub(super) fn wants_request(&self) -> bool {
        self.rule.level >= Level::Request
    }

    /// Whether the body of the reply is to be written.
    pub(super) fn wants_response(&self) -> bool {
        self.rule.level >= Level::RequestResponse
    }

    /// The request's object.
    pub(super) fn request(&mut self, object: Value) {
        self.request_object = Some(object);
    }

    /// The sender acts as somebody else, which is known after the request was received.
    pub(super) fn acts_as(&mut self, other: &User) {
        self.subject.acts_as(other);
    }

    /// What authorization said.
    pub(super) fn authorized(&mut self, allowed: bool) {
        let decision = if allowed { "allow" } else { "forbid" };
        self.annotations
            .insert("authorization.k8s.io/decision", decision.to_owned());
        self.annotations.insert("authorization.k8s.io/reason", String::new());
    }

    /// The reply is too large for the log (upstream's annotation).
    pub(super) fn truncated(&mut self) {
        self.annotations.insert("audit.k8s.io/truncated", "true".to_owned());
    }

    /// The first bytes of a long answer have been sent.
    pub(super) fn started(&self, code: u16) {
        self.write(Stage::ResponseStarted, Some(Answer::code(code)));
    }

    /// The request is over; `status` is the Status of an error, `object` the reply where it is wanted.
    pub(super) fn complete(mut self, code: u16, status: Option<&Value>, object: Option<Value>) {
        self.ended = true;
        let mut answer = Answer::code(code);
        answer.status = status.cloned();
        answer.object = object;
        self.write(Stage::ResponseComplete, Some(answer));
    }

    /// The handler panicked.
    pub(super) fn panicked(mut self) {
        self.ended = true;
        self.write(Stage::Panic, Some(Answer::code(500)));
    }

    fn write(&self, stage: Stage, answer: Option<Answer>) {
        if self.rule.omit_stages.contains(&stage) {
            return;
        }
        let request = self.request_object.as_ref().filter(|_| stage != Stage::RequestReceived);
        let now: Timestamp = self.audit.clock.now();
        let event = event::render(
            &self.subject,
            &self.rule,
            stage,
            answer,
            request,
            &self.annotations,
            now,
        );
        self.audit.log.write(event.to_string());
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if !self.ended {
            self.write(Stage::ResponseComplete, Some(Answer::code(200)));
        }
    }
}

#[cfg(test)]
mod tests;
