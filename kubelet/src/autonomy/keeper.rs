//! Keeps what is kept current: what ends a pod at once, everything else every ten seconds.
//!
//! Owns which files are known to be as they should be. The one writer, beside [`Kept::forget`].

use super::decide::{self, Item, POD_PREFIX, Wanted};
use super::job::{Content, Entry, Needed, carry_out};
use super::{Kept, WORK};
use crate::events::Severity;
use crate::id::PodUid;
use crate::objects::{KnownObject, ObjectRef};
use crate::parts::Parts;
use crate::pod_object;
use crate::reason::event;
use crate::source::Pods;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often what changed is written: what changes each second is written no more often.
const PERIOD: Duration = Duration::from_secs(10);
/// How long until it is tried again after the disk, or a bound, refused something.
const AGAIN: Duration = Duration::from_secs(60);

/// A pod as it was last written.
struct Written {
    pod: Arc<Pod>,
    status: Arc<PodStatus>,
    over: bool,
}

/// Keeps the pods of a kubelet.
pub struct Keeper {
    parts: Arc<Parts>,
    kept: Arc<Kept>,
    pods: watch::Receiver<Pods>,
    /// The marks of files that are as they should be.
    marks: BTreeMap<String, String>,
    written: BTreeMap<PodUid, Written>,
    /// Files that were refused, and when they are tried again.
    refused: BTreeMap<String, Instant>,
    /// How heavy contents with these marks are.
    weights: BTreeMap<String, (String, u64)>,
    /// Pods that do not have room for all they need, and were told.
    crowded: BTreeSet<PodUid>,
}

/// How much of what changed is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Pods that are new, end, or are gone.
    Pressing,
    /// Everything.
    All,
}

/// What a turn is to do.
#[derive(Default)]
struct Work {
    entries: Vec<Entry>,
    needed: BTreeSet<String>,
    pods: BTreeMap<PodUid, (String, Written)>,
}

impl Keeper {
    /// Keeps the pods that are delivered.
    pub fn new(parts: Arc<Parts>, kept: Arc<Kept>, pods: watch::Receiver<Pods>) -> Self {
        Self {
            parts,
            kept,
            pods,
            marks: BTreeMap::new(),
            written: BTreeMap::new(),
            refused: BTreeMap::new(),
            weights: BTreeMap::new(),
            crowded: BTreeSet::new(),
        }
    }

    /// Runs until shut down, and writes once more then: a reboot begins with it.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut next = Instant::now() + PERIOD;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    self.turn(Extent::All).await;
                    return;
                }
                () = tokio::time::sleep_until(next) => {
                    let done = self.turn(Extent::All).await;
                    next = Instant::now() + if done { PERIOD } else { AGAIN };
                }
                Ok(()) = self.pods.changed() => drop(self.turn(Extent::Pressing).await),
            }
        }
    }

    /// Looks at the pods and writes; tells whether everything is as it should be.
    async fn turn(&mut self, extent: Extent) -> bool {
        let pods = self.pods.borrow_and_update().clone();
        if !pods.answered && pods.kept.is_empty() {
            return true;
        }
        let mut work = self.work(&pods, extent);
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        work.entries
            .retain(|entry| entry.over.is_some() || !self.refused.contains_key(&entry.name));
        // What is there and not delivered is only known to be gone once the API server has said so.
        let prefix = if extent == Extent::All { "" } else { POD_PREFIX };
        let needed = Needed {
            names: work.needed,
            prefix,
        };
        let useless = self.marks.keys().any(|name| needed.is_useless(name));
        if extent == Extent::Pressing && work.entries.is_empty() && !(pods.answered && useless) {
            return true;
        }
        let needed = pods.answered.then_some(needed);
        if let Some(needed) = &needed {
            self.marks.retain(|name, _| !needed.is_useless(name));
        }
        let (folder, state) = (self.kept.folder.clone(), self.kept.state.clone());
        let job = move || {
            let is_gone = |name: &str| {
                let state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                state.gone.iter().any(|uid| Item::Pod(uid.clone()).file_name() == name)
            };
            carry_out(&folder, needed.as_ref(), work.entries, is_gone)
        };
        let report = match self.kept.files.run(WORK, job).await {
            Ok(report) => report,
            Err(error) => {
                let message = format!("what pods are and need is not written in time: {error}");
                self.kept.tell("disk", &message);
                return false;
            }
        };
        self.kept.over("disk");
        let again = Instant::now() + AGAIN;
        self.refused
            .extend(report.refused.into_iter().map(|name| (name, again)));
        match &report.fault {
            Some(why) => {
                let message = format!("{} files are not as they should be, the first: {why}", report.faults);
                self.kept.tell("write", &message);
            }
            None if self.refused.is_empty() => self.kept.over("write"),
            None => {}
        }
        for (uid, (name, written)) in work.pods {
            if report.kept.contains_key(&name) {
                self.written.insert(uid, written);
            }
        }
        self.marks.extend(report.kept);
        !report.broken
    }

    /// What is to be written, and what is needed at all.
    fn work(&mut self, pods: &Pods, extent: Extent) -> Work {
        let mut work = Work::default();
        let mut items = BTreeMap::<Item, BTreeSet<PodUid>>::new();
        let mut namespaces = BTreeSet::from([self.parts.context.master_service_namespace.as_str()]);
        self.written.retain(|uid, _| pods.desired.contains_key(uid));
        let gone = {
            let mut state = self.kept.state();
            state.gone.retain(|uid| pods.desired.contains_key(uid));
            state.gone.clone()
        };
        for (uid, pod) in pods.desired.iter() {
            if pod_object::is_static(pod) || gone.contains(uid) {
                continue;
            }
            work.needed.insert(Item::Pod(uid.clone()).file_name());
            let snapshot = self.parts.pods.by_uid(uid);
            let status = snapshot.as_ref().map(|snapshot| &snapshot.status);
            let over = decide::is_over(pod, status.map(|status| &**status));
            if !over && extent == Extent::All {
                for item in decide::needs(pod) {
                    items.entry(item).or_default().insert(uid.clone());
                }
                let namespace = pod_object::namespace(pod);
                let services = Item::Services(namespace.to_owned());
                items.entry(services).or_default().insert(uid.clone());
                namespaces.insert(namespace);
            }
            // Without a worker it was not let in yet.
            if let Some(status) = status {
                self.take_pod(&mut work, uid, pod, status, over, extent);
            }
        }
        work.needed.extend(items.keys().map(Item::file_name));
        let master = Item::Services(self.parts.context.master_service_namespace.clone());
        work.needed.insert(master.file_name());
        if extent == Extent::All && pods.answered {
            let mut contents = self.contents(&items);
            contents.extend(self.services(&namespaces));
            self.take_needs(&mut work, contents, &items, pods);
        }
        work
    }

    /// What fits of what pods need.
    fn take_needs(
        &mut self,
        work: &mut Work,
        contents: Vec<(Item, String, Content)>,
        items: &BTreeMap<Item, BTreeSet<PodUid>>,
        pods: &Pods,
    ) {
        let mut weights = BTreeMap::new();
        let mut wanted = Vec::new();
        for (item, mark, content) in &contents {
            let name = item.file_name();
            let before = self.weights.get(&name).filter(|(before, _)| before == mark);
            let weight = before.map_or_else(|| content.weight(), |(_, weight)| *weight);
            weights.insert(name.clone(), (mark.clone(), weight));
            let namespace = item.namespace().to_owned();
            wanted.push(Wanted {
                namespace,
                name,
                weight,
            });
        }
        self.weights = weights;
        let misfits = decide::misfits(wanted, decide::NEEDS_MAX);
        let mut crowded = BTreeSet::new();
        for (item, mark, content) in contents {
            if misfits.contains(&item.file_name()) {
                work.needed.remove(&item.file_name());
                crowded.extend(items.get(&item).into_iter().flatten().cloned());
            } else {
                self.take(work, &item, mark, content);
            }
        }
        for uid in crowded.difference(&self.crowded) {
            if let Some(pod) = pods.desired.get(uid) {
                let room = decide::NEEDS_MAX >> 20;
                let message = format!(
                    "Node autonomy: what this pod needs does not fit into its namespace's share of {room} MiB, it will not start \
                     again without an API server"
                );
                let recorder = &self.parts.recorder;
                recorder.pod(pod, Severity::Warning, event::NODE_AUTONOMY, message);
            }
        }
        self.crowded = crowded;
    }

    fn take_pod(
        &self,
        work: &mut Work,
        uid: &PodUid,
        pod: &Arc<Pod>,
        status: &Arc<PodStatus>,
        over: bool,
        extent: Extent,
    ) {
        let before = self.written.get(uid);
        let same = before.is_some_and(|w| Arc::ptr_eq(&w.pod, pod) && Arc::ptr_eq(&w.status, status));
        let presses = before.is_none_or(|written| written.over != over);
        if same || (extent == Extent::Pressing && !presses) {
            return;
        }
        let name = Item::Pod(uid.clone()).file_name();
        work.entries.push(Entry {
            name: name.clone(),
            mark: uid.to_string(),
            content: Content::Pod(Box::new(decide::record(pod, status))),
            over: over.then(|| uid.clone()),
        });
        let written = Written {
            pod: pod.clone(),
            status: status.clone(),
            over,
        };
        work.pods.insert(uid.clone(), (name, written));
    }

    /// What pods need, as far as the API server has told it. From here on it is watched, whether a container asks for it or not.
    fn contents(&self, items: &BTreeMap<Item, BTreeSet<PodUid>>) -> Vec<(Item, String, Content)> {
        let mut contents = Vec::new();
        let objects = &self.parts.objects;
        let references: BTreeSet<ObjectRef> = items
            .keys()
            .filter_map(|item| match item {
                Item::Object(of) => Some(of.clone()),
                _ => None,
            })
            .collect_ordered();
        objects.hold(&references);
        for item in items.keys() {
            let (mark, content) = match item {
                Item::Object(of) => match objects.known(of) {
                    Some(KnownObject::ConfigMap(map)) => {
                        (mark(map.as_ref().map(|map| &map.metadata)), Content::ConfigMap(map))
                    }
                    Some(KnownObject::Secret(secret)) => (
                        mark(secret.as_ref().map(|secret| &secret.metadata)),
                        Content::Secret(secret),
                    ),
                    None => continue,
                },
                Item::RuntimeClass(class) => match objects.known_handler(class) {
                    Some(handler) => (handler.clone(), Content::Handler(handler)),
                    None => continue,
                },
                Item::Pod(_) | Item::Token(_) | Item::Services(_) => continue,
            };
            contents.push((item.clone(), mark, content));
        }
        for (key, token) in objects.held_tokens() {
            let item = Item::Token(key);
            if items.contains_key(&item) {
                contents.push((item, token.expires.to_string(), Content::Token(token)));
            }
        }
        contents
    }

    fn services(&self, namespaces: &BTreeSet<&str>) -> Vec<(Item, String, Content)> {
        let all = self.parts.objects.known_services();
        let told = all.map(|all| decide::services(&all, namespaces));
        let content = |(namespace, services): (String, Vec<Arc<Service>>)| {
            let marks: Vec<String> = services.iter().map(|service| mark(Some(&service.metadata))).collect();
            (Item::Services(namespace), marks.join(" "), Content::Services(services))
        };
        told.into_iter().flatten().map(content).collect()
    }

    fn take(&self, work: &mut Work, item: &Item, mark: String, content: Content) {
        let name = item.file_name();
        if self.marks.get(&name) != Some(&mark) {
            work.entries.push(Entry {
                name,
                mark,
                content,
                over: None,
            });
        }
    }
}

/// What tells one state of an object from all others.
fn mark(object: Option<&ObjectMeta>) -> String {
    match object {
        None => "absent".to_owned(),
        Some(meta) => {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            format!("{}/{}", text(&meta.uid), text(&meta.resource_version))
        }
    }
}
