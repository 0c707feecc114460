//! The owner of a shutdown: begins it when logind says so, ends pods group by group, keeps the record, lets go of the lock.
//!
//! A turn: what logind last said, then who has not ended ([`super::plan`]), then a short wait. A shutdown that is cancelled ends
//! nobody else; whose end has begun ends.

use super::link::{Link, Told};
use super::plan::{self, Candidate, Course, Periods};
use super::record::{self, Record};
use super::{MESSAGE, Phase};
use crate::api_status::StatusWriter;
use crate::events::Severity;
use crate::eviction::Killer;
use crate::host::FileWork;
use crate::parts::Parts;
use crate::pod::state::Cause;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::reason;
use crate::source::Pods;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is looked who has ended.
const LOOK: Duration = Duration::from_millis(250);
/// How long is waited for the last ends and their statuses once every pod had its time. The machine waits with it, if it may.
const STATUSES_MAX: Duration = Duration::from_secs(5);
/// How long new pods wait at most until it is known whether the machine goes down.
const ASKING_MAX: Duration = Duration::from_secs(10);
/// How long is waited for the pods to be delivered to a kubelet that begins in the middle of a shutdown.
const DELIVERY_MAX: Duration = Duration::from_secs(10);
/// How long the record may take to be written: pods do not wait for a disk that hangs.
const FILE_DEADLINE: Duration = Duration::from_secs(2);

/// Ends pods before the machine goes down.
pub struct Shutdown {
    parts: Arc<Parts>,
    periods: Periods,
    killer: Killer,
    statuses: StatusWriter,
    desired: watch::Receiver<Pods>,
    files: FileWork,
    record: Record,
}

/// A shutdown under way.
struct Closing {
    /// When it was seen, and how long it had been under way then.
    seen: Instant,
    before: Duration,
    course: Course,
    /// Since when nobody is left to wait for.
    ended: Option<Instant>,
    /// Whether the machine may go down.
    over: bool,
}

impl Shutdown {
    /// One that tells `killer` whom to end of the `desired` pods, each within its period, and waits for what `statuses` has to write.
    pub fn new(
        parts: Arc<Parts>,
        periods: Periods,
        killer: Killer,
        statuses: StatusWriter,
        desired: watch::Receiver<Pods>,
    ) -> Self {
        Self {
            parts,
            periods,
            killer,
            statuses,
            desired,
            files: FileWork::new(FILE_DEADLINE),
            record: Record::default(),
        }
    }

    /// Watches for shutdowns until the kubelet itself ends; without periods there is nothing to watch for.
    pub async fn run(mut self, stop: CancellationToken) {
        if self.periods.is_empty() {
            // An earlier kubelet may have had some.
            self.parts.logind.release();
            return;
        }
        self.read_record().await;
        let (told, hear) = watch::channel(Told::Nothing);
        let (want, wanted) = watch::channel(true);
        let link = Link::new(
            self.parts.logind.clone(),
            self.periods.total(),
            told,
            wanted,
            self.parts.seed,
        );
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.watch(hear, &want) => {}
            never = link.keep() => match never {},
        }
    }

    async fn watch(&mut self, mut told: watch::Receiver<Told>, want: &watch::Sender<bool>) {
        let mut closing: Option<Closing> = None;
        let asked = Instant::now() + ASKING_MAX;
        loop {
            let now = *told.borrow_and_update();
            let is_asking = now == Told::Nothing && *self.parts.phase.borrow() == Phase::Asking;
            match (now, &mut closing) {
                (Told::Nothing, None) if asked <= Instant::now() => {
                    if is_asking {
                        tracing::warn!("logind does not say whether the machine goes down: pods are let in");
                    }
                    self.tell(Phase::Up);
                }
                (Told::Nothing | Told::NoAnswer, Some(_)) | (Told::Nothing, None) => {}
                (Told::Preparing(true), Some(closing)) => self.go_on(closing, want).await,
                (Told::Preparing(true), None) => {
                    closing = Some(self.begin().await);
                    continue;
                }
                (Told::Preparing(false), Some(under_way)) => {
                    let was_over = under_way.over;
                    closing = None;
                    self.cancel(was_over).await;
                    want.send_replace(true);
                }
                (Told::Preparing(false) | Told::NoAnswer, None) => {
                    self.tell(Phase::Up);
                    // Whatever an earlier kubelet began is over: the machine is up.
                    self.record.start_time = None;
                }
            }
            tokio::select! {
                biased;
                changed = told.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK), if closing.is_some() => {}
                () = tokio::time::sleep_until(asked), if is_asking && asked > Instant::now() => {}
            }
        }
    }

    fn tell(&self, phase: Phase) {
        self.parts.phase.send_if_modified(|told| {
            let news = *told != phase;
            *told = phase;
            news
        });
    }

    fn tell_event(&self, message: &str) {
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        recorder.node(node, Severity::Normal, reason::event::SHUTDOWN, message);
    }

    /// Begins a shutdown, or takes up one that an earlier kubelet began.
    async fn begin(&mut self) -> Closing {
        // First of all: nobody is let in from here on, and the node's status says so.
        self.tell(Phase::ShuttingDown);
        let now = self.parts.clock.now();
        let before = self.record.under_way(now, self.periods.total());
        match before {
            Some(before) => tracing::info!(?before, "going on with the shutdown of the node"),
            None => {
                tracing::info!("the machine is going down: pods are ended");
                self.tell_event("Shutdown manager detected shutdown event");
                self.record = Record {
                    start_time: Some(now),
                    end_time: None,
                };
                self.write_record().await;
            }
        }
        let before = before.unwrap_or_default();
        Closing {
            seen: Instant::now(),
            before,
            course: Course::since(before),
            ended: None,
            over: false,
        }
    }

    /// Ends whose turn it is, and lets the machine go down once nobody is left to wait for.
    async fn go_on(&mut self, closing: &mut Closing, want: &watch::Sender<bool>) {
        if !self.desired.borrow().complete && closing.seen.elapsed() < DELIVERY_MAX {
            // A kubelet that has just begun knows nobody yet.
            return;
        }
        let elapsed = closing.before + closing.seen.elapsed();
        let turn = plan::turn(&self.periods, &mut closing.course, &self.candidates(), elapsed);
        let all_ended = turn.ends.is_empty();
        for (uid, grace_seconds) in turn.ends {
            let kill = Kill {
                cause: Cause::Failed {
                    reason: reason::pod::TERMINATED.to_owned(),
                    message: MESSAGE.to_owned(),
                },
                grace_seconds: Some(grace_seconds),
                annotations: BTreeMap::new(),
            };
            self.killer.kill(uid, kill);
        }
        for uid in turn.given_up {
            tracing::warn!(pod = %uid, "a pod did not end in the time it had");
        }
        if turn.until.is_some() {
            return;
        }
        let ended = *closing.ended.get_or_insert_with(Instant::now);
        // What was killed at the end of its time has a moment to be told of.
        let is_told = all_ended && !self.statuses.owes_ends();
        if !closing.over && (is_told || ended.elapsed() >= STATUSES_MAX) {
            closing.over = true;
            self.end_record().await;
            tracing::info!(is_told, "the node's pods have ended, the machine may go down");
            want.send_replace(false);
        }
    }

    /// Pods that have something and have not ended, also those whose worker has not looked at them yet.
    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |pod: &Pod| Candidate {
            uid: pod_object::uid(pod),
            priority: pod_object::spec(pod).priority.unwrap_or_default(),
        };
        let view = self.parts.pods.list();
        let active = view.iter().filter(|snapshot| snapshot.active);
        let mut candidates: Vec<Candidate> = active.map(|snapshot| candidate(&snapshot.pod)).collect();
        let known = self.parts.pleg.known().borrow().clone();
        let desired = self.desired.borrow();
        let unseen = desired.desired.iter().filter(|(uid, _)| known.contains(*uid));
        let unseen = unseen.filter(|(uid, _)| self.parts.pods.by_uid(uid).is_none());
        candidates.extend(unseen.map(|(_, pod)| candidate(pod)));
        candidates
    }

    /// Goes on as before: the machine stays.
    async fn cancel(&mut self, was_over: bool) {
        tracing::info!("the machine does not go down after all");
        self.tell_event("Shutdown manager detected shutdown cancellation");
        if !was_over {
            self.end_record().await;
        }
        self.tell(Phase::Up);
    }

    async fn end_record(&mut self) {
        self.record.end_time = Some(self.parts.clock.now());
        self.write_record().await;
    }

    async fn read_record(&mut self) {
        let path = self.parts.context.root_dir.join(record::FILE_NAME);
        match self.files.run(record::FILE_NAME, move || Record::read(&path)).await {
            Ok(Ok(record)) => self.record = record,
            Ok(Err(error)) => tracing::warn!(%error, "when the last shutdown was cannot be read"),
            Err(error) => tracing::warn!(%error, "when the last shutdown was cannot be read"),
        }
        self.show_record();
    }

    async fn write_record(&self) {
        self.show_record();
        let (record, path) = (self.record, self.parts.context.root_dir.join(record::FILE_NAME));
        match self.files.run(record::FILE_NAME, move || record.write(&path)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "when this shutdown began or ended is not written"),
            Err(error) => tracing::warn!(%error, "when this shutdown began or ended is not written"),
        }
    }

    fn show_record(&self) {
        let Record { start_time, end_time } = self.record;
        self.parts.metrics.node.shutdown(start_time, end_time);
    }
}
