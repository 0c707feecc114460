//! A small world: a server that keeps objects, kubelets that end pods, a controller whose writes are refused, whose answers are lost or
//! late, and which dies between any two writes. Whatever happens, every end counts once.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    Refused,
    /// Done, but the answer is lost.
    Lost,
    /// Done some time later; the controller is told that it failed.
    Late,
    /// The controller dies, after it or before it.
    Dies {
        done: bool,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Turn(Vec<Fate>),
    Run(usize),
    End(usize, bool),
    Delete(usize),
    Land,
    Pods,
    Job,
    Wait(i64),
    Suspend(bool),
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Done),
        1 => Just(Fate::Refused),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Late),
        1 => any::<bool>().prop_map(|done| Fate::Dies { done }),
    ]
}

fn steps(suspends: bool) -> impl Strategy<Value = Vec<Step>> {
    let pod = 0..8_usize;
    let step = prop_oneof![
        8 => prop::collection::vec(fates(), 0..6).prop_map(Step::Turn),
        3 => pod.clone().prop_map(Step::Run),
        5 => (pod.clone(), any::<bool>()).prop_map(|(pod, good)| Step::End(pod, good)),
        1 => pod.prop_map(Step::Delete),
        1 => Just(Step::Land),
        2 => Just(Step::Pods),
        2 => Just(Step::Job),
        2 => (1..700_i64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(move |to| Step::Suspend(to && suspends)),
    ];
    prop::collection::vec(step, 0..120)
}

struct World {
    now: i64,
    revision: u64,
    job: Job,
    pods: BTreeMap<String, Pod>,
    /// What the controller knows.
    seen_job: Job,
    seen_pods: Vec<Arc<Pod>>,
    memory: Memory,
    late: Vec<Write>,
    /// UIDs that the status ever listed, succeeded and failed.
    listed: [BTreeSet<String>; 2],
    /// UIDs of pods that ended while they were tracked, and what they were then.
    ends: BTreeMap<String, bool>,
    /// Whether pods were removed without being counted.
    removes: bool,
    /// Pods whose creation came late, after the controller that asked for them had died, and that nobody has seen yet.
    unknown: BTreeSet<String>,
}

impl World {
    fn new(mut job: Job) -> Self {
        job.status = None;
        Self {
            now: 1000,
            revision: 1,
            seen_job: job.clone(),
            job,
            pods: BTreeMap::new(),
            seen_pods: Vec::new(),
            memory: Memory::default(),
            late: Vec::new(),
            listed: [BTreeSet::new(), BTreeSet::new()],
            ends: BTreeMap::new(),
            removes: false,
            unknown: BTreeSet::new(),
        }
    }

    fn look(&mut self) {
        self.seen_job = self.job.clone();
        self.look_at_pods();
    }

    fn look_at_pods(&mut self) {
        self.seen_pods = self.pods.values().cloned().map(Arc::new).collect();
        self.unknown.clear();
    }

    /// The server's part. An error is a refusal.
    fn apply(&mut self, write: &Write) -> Result<(), &'static str> {
        let name = &write.key.name;
        match &write.verb {
            Verb::Create(body) => {
                if self.pods.contains_key(name) {
                    return Err("AlreadyExists");
                }
                self.revision += 1;
                let mut pod: Pod = serde_json::from_value(body.clone()).unwrap();
                pod.metadata.uid = Some(format!("{name}/{}", self.revision));
                pod.metadata.creation_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(self.now)));
                self.pods.insert(name.clone(), pod);
            }
            Verb::Delete { uid, .. } => {
                if let Some(pod) = self
                    .pods
                    .get_mut(name)
                    .filter(|pod| pod.metadata.uid.as_ref() == Some(uid))
                {
                    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(self.now));
                    pod.metadata.deletion_timestamp.get_or_insert(time);
                }
            }
            Verb::Patch(_, "", body) => {
                let pod = self.pods.get_mut(name).ok_or("NotFound")?;
                if body["metadata"]["uid"] != json!(pod.metadata.uid) {
                    return Err("Conflict");
                }
                pod.metadata
                    .finalizers
                    .get_or_insert_default()
                    .retain(|f| f != FINALIZER);
                let uid = pod.metadata.uid.clone().unwrap();
                let is_listed = self.listed.iter().any(|list| list.contains(&uid));
                self.removes |= !is_listed && self.job.spec.as_ref().unwrap().suspend == Some(true);
            }
            Verb::ReplaceSub("status", body) => {
                if body["metadata"]["resourceVersion"] != json!(self.job.metadata.resource_version) {
                    return Err("Conflict");
                }
                self.revision += 1;
                self.job.metadata.resource_version = Some(self.revision.to_string());
                self.job.status = serde_json::from_value(body["status"].clone()).unwrap();
            }
            other => panic!("{other:?}"),
        }
        self.collect();
        self.judge();
        Ok(())
    }

    /// Pods that are deleted, over and held by nobody are gone. No creation is later than the life of the pod it asked for.
    fn collect(&mut self) {
        let late = &mut self.late;
        self.pods.retain(|name, pod| {
            let is_held = pod.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty());
            let stays = pod.metadata.deletion_timestamp.is_none() || is_held || !pod::is_terminal(pod);
            late.retain(|write| stays || write.key.name != *name);
            stays
        });
    }

    /// What must hold after every write.
    fn judge(&mut self) {
        if view::finished(&self.job).is_some() {
            // What nobody could know of is the orphans' controller's, as what lands later.
            let unknown = std::mem::take(&mut self.unknown);
            self.pods.retain(|name, _| !unknown.contains(name));
        }
        let spec = self.job.spec.as_ref().unwrap();
        let active: Vec<&Pod> = self.pods.values().filter(|pod| pod::is_active(pod)).collect();
        let parallelism = usize::try_from(spec.parallelism.unwrap()).unwrap();
        assert!(active.len() <= parallelism, "{} pods run", active.len());
        let indexes: Vec<u32> = active.iter().filter_map(|pod| view::index_of(pod)).collect();
        assert_eq!(
            indexes.len(),
            indexes.iter().collect::<BTreeSet<_>>().len(),
            "an index twice"
        );
        let Some(status) = &self.job.status else { return };
        let lists = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        for (place, (list, counter)) in [(lists.succeeded, status.succeeded), (lists.failed, status.failed)]
            .into_iter()
            .enumerate()
        {
            let list = list.unwrap_or_default();
            self.listed[place].extend(list.iter().cloned());
            if place == 1 || !is_indexed {
                assert_eq!(
                    view::counted(counter) + list.len(),
                    self.listed[place].len(),
                    "{status:?}"
                );
            }
        }
        assert!(self.listed[0].is_disjoint(&self.listed[1]), "{:?}", self.listed);
        if is_indexed {
            let succeeded: BTreeSet<u32> = self.completed();
            assert_eq!(view::counted(status.succeeded), succeeded.len());
        }
        let is_over = view::finished(&self.job).is_some();
        if is_over {
            assert!(active.is_empty(), "over, and pods run");
            assert!(
                self.pods.values().all(|pod| !view::is_tracked(pod)),
                "over, and pods are not counted"
            );
        }
    }

    fn completed(&self) -> BTreeSet<u32> {
        let text = self
            .job
            .status
            .as_ref()
            .and_then(|status| status.completed_indexes.clone())
            .unwrap_or_default();
        let indexes = indexes::Indexes::parse(&text, 1000);
        (0..1000).filter(|index| indexes.has(*index)).collect()
    }

    /// The controller's part; as the harness does it, one write after the other until one fails.
    fn turn(&mut self, fates: &[Fate]) -> bool {
        if view::finished(&self.seen_job).is_some() {
            return false;
        }
        let (job, pods) = (self.seen_job.clone(), self.seen_pods.clone());
        let view = View::new(&job, pods.clone(), at(self.now)).unwrap();
        self.memory.record.observe(&view);
        self.memory
            .asked
            .retain(|name| !pods.iter().any(|pod| pod.name_any() == *name));
        let decision = plan(&view, &self.memory, &|name| {
            pods.iter().any(|pod| pod.name_any() == name)
        });
        self.memory.ask(&decision.plan.writes);
        let mut fates = fates.iter().copied();
        let did = !decision.plan.writes.is_empty();
        for write in &decision.plan.writes {
            match fates.next().unwrap_or(Fate::Done) {
                Fate::Done => {
                    let done = self.apply(write);
                    if done.is_err() {
                        return did;
                    }
                    // The harness waits until what was done is seen.
                    self.look();
                }
                Fate::Refused => return did,
                Fate::Lost => {
                    let _ = self.apply(write);
                    return did;
                }
                Fate::Late => {
                    self.late.push(write.clone());
                    return did;
                }
                Fate::Dies { done } => {
                    if done {
                        let _ = self.apply(write);
                    }
                    self.memory = Memory::default();
                    self.look();
                    return did;
                }
            }
        }
        did
    }

    fn pick(&mut self, place: usize) -> Option<&mut Pod> {
        let open: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| !pod::is_terminal(pod))
            .map(|(name, _)| name.clone())
            .collect();
        let name = open.get(place.checked_rem(open.len())?)?.clone();
        self.pods.get_mut(&name)
    }

    fn end(&mut self, place: usize, is_good: bool) {
        let now = at(self.now).to_string();
        let Some(pod) = self.pick(place) else { return };
        let phase = if is_good { "Succeeded" } else { "Failed" };
        let state = json!({"terminated": {"exitCode": i32::from(!is_good), "finishedAt": now}});
        pod.status = serde_json::from_value(json!({"phase": phase, "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}))
        .unwrap();
        if view::is_tracked(pod) {
            let uid = pod.metadata.uid.clone().unwrap();
            self.ends.insert(uid, is_good);
        }
        self.collect();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Turn(fates) => {
                self.turn(fates);
            }
            Step::Run(place) => {
                if let Some(pod) = self.pick(*place) {
                    pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
                }
            }
            Step::End(place, is_good) => self.end(*place, *is_good),
            Step::Delete(place) => {
                let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(self.now));
                if let Some(pod) = self.pick(*place) {
                    pod.metadata.deletion_timestamp.get_or_insert(now);
                }
            }
            Step::Land => self.land(),
            Step::Pods => self.look_at_pods(),
            Step::Job => self.seen_job = self.job.clone(),
            Step::Wait(seconds) => self.now += seconds,
            Step::Suspend(to) => {
                let is_change = self.job.spec.as_ref().unwrap().suspend != Some(*to);
                if is_change && view::finished(&self.job).is_none() {
                    // A creation that is late from before the change is not known by its name after it.
                    self.land();
                    self.job.spec.as_mut().unwrap().suspend = Some(*to);
                    self.revision += 1;
                    self.job.metadata.resource_version = Some(self.revision.to_string());
                    *self.job.metadata.generation.as_mut().unwrap() += 1;
                    self.look();
                }
            }
        }
    }

    fn land(&mut self) {
        for write in std::mem::take(&mut self.late) {
            // What is made for a Job that is over is the orphans' controller's.
            if view::finished(&self.job).is_some() && matches!(write.verb, Verb::Create(_)) {
                continue;
            }
            let is_forgotten = !self.memory.asked.contains(&write.key.name);
            let is_made = self.apply(&write).is_ok() && matches!(write.verb, Verb::Create(_));
            if is_made && is_forgotten {
                self.unknown.insert(write.key.name);
            }
        }
    }

    /// No more faults: everything ends well, and the Job with it.
    fn settle(&mut self) {
        self.land();
        self.step(&Step::Suspend(false));
        for _ in 0..2000 {
            self.look();
            if view::finished(&self.job).is_some() {
                break;
            }
            if !self.turn(&[]) {
                self.now += 700;
                self.end(0, true);
            }
        }
        let status = self.job.status.clone().unwrap_or_default();
        assert!(
            view::finished(&self.job).is_some(),
            "it never ends: {status:?} {:?}",
            self.pods
        );
        let is_indexed = self.job.spec.as_ref().unwrap().completion_mode.as_deref() == Some("Indexed");
        if is_indexed || self.removes {
            return;
        }
        for (uid, is_good) in &self.ends {
            // One that was being deleted has failed, however it ended.
            let is_counted = self.listed[usize::from(!is_good)].contains(uid) || self.listed[1].contains(uid);
            assert!(is_counted, "{uid} ended and was not counted");
        }
    }
}

fn drive(job: Job, steps: &[Step]) -> World {
    let mut world = World::new(job);
    for step in steps {
        world.step(step);
    }
    world.settle();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_end_counts_once(steps in steps(false), only_failed in any::<bool>(), parallelism in 1..4, limit in 0..20) {
        let policy = if only_failed { "Failed" } else { "TerminatingOrFailed" };
        drive(job(json!({"spec": {"parallelism": parallelism, "completions": 5, "backoffLimit": limit, "podReplacementPolicy": policy}})), &steps);
    }

    #[test]
    fn suspended_jobs_go_on_where_they_were(steps in steps(true), parallelism in 1..4) {
        drive(job(json!({"spec": {"parallelism": parallelism, "completions": 4, "backoffLimit": 50}})), &steps);
    }

    #[test]
    fn indexes_are_never_had_twice(steps in steps(true), parallelism in 1..4, per_index in prop::option::of(0..3)) {
        let mut spec = json!({"parallelism": parallelism, "completions": 4, "backoffLimit": 100});
        if let Some(limit) = per_index {
            spec["backoffLimitPerIndex"] = json!(limit);
        }
        let world = drive(indexed(json!({"spec": spec})), &steps);
        let status = world.job.status.clone().unwrap();
        let failed = indexes::Indexes::parse(&status.failed_indexes.unwrap_or_default(), 4);
        let completed = world.completed();
        prop_assert!(completed.iter().all(|index| !failed.has(*index)));
        if per_index.is_some() {
            prop_assert_eq!(completed.len() + failed.total() as usize, 4, "every index is decided");
        } else {
            prop_assert_eq!(completed.len(), 4);
        }
    }

    #[test]
    fn without_a_goal_the_first_success_is_the_last_start(steps in steps(false), parallelism in 1..4) {
        drive(job(json!({"spec": {"parallelism": parallelism, "completions": null, "backoffLimit": 100}})), &steps);
    }
}
