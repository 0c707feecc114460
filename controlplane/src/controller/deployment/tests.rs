use super::*;
use crate::controller::write::Verb;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

mod properties;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn deployment(replicas: i32, image: &str, extra: Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1, "annotations": {"note": "x"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

/// The replica set a deployment of that image would have.
pub(super) fn set(image: &str, age: i64, replicas: i32, available: i32, desired: i32) -> Arc<ReplicaSet> {
    let deployment = deployment(desired, image, json!({}));
    let view = View::new(&deployment, vec![], |_| false).unwrap();
    let Verb::Create(mut body) = template::create(&view).verb else {
        panic!()
    };
    body["spec"]["replicas"] = json!(replicas);
    body["metadata"]["creationTimestamp"] = json!(at(age).to_string());
    body["metadata"]["annotations"][annotation::REVISION] = json!((age + 1).to_string());
    body["metadata"]["uid"] = json!(image);
    body["status"] = json!({"replicas": replicas, "readyReplicas": available, "availableReplicas": available});
    Arc::new(serde_json::from_value(body).unwrap())
}

fn next(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>) -> Vec<Write> {
    let running = |rs: &ReplicaSet| rs.status.as_ref().is_some_and(|s| s.replicas > 0);
    plan(&View::new(deployment, sets, running).unwrap()).writes
}

/// What a plan does to sizes: (image, new size).
fn sizes(writes: &[Write], sets: &[Arc<ReplicaSet>]) -> Vec<(String, i32)> {
    let size = |w: &Write| {
        let Verb::Patch(_, _, body) = &w.verb else { return None };
        let to = body["spec"]["replicas"].as_i64()?;
        let rs = sets.iter().find(|rs| rs.name_any() == w.key.name)?;
        Some((rs.uid().unwrap(), i32::try_from(to).unwrap()))
    };
    writes.iter().filter_map(size).collect()
}

fn revised(deployment: &mut Deployment, revision: &str) {
    deployment
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(annotation::REVISION.into(), revision.into());
}

#[test]
fn the_first_replica_set_has_everything() {
    let writes = next(&deployment(3, "a", json!({})), vec![]);
    assert_eq!(writes.len(), 1);
    let Verb::Create(body) = &writes[0].verb else { panic!() };
    let hash = body["metadata"]["labels"][template::HASH_LABEL].as_str().unwrap();
    assert_eq!(body["metadata"]["name"], format!("web-{hash}"));
    assert!(
        hash.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
        "{hash}"
    );
    assert_eq!(
        body["spec"]["selector"]["matchLabels"],
        json!({"app": "web", "pod-template-hash": hash})
    );
    assert_eq!(
        body["spec"]["template"]["metadata"]["labels"],
        json!({"app": "web", "pod-template-hash": hash})
    );
    assert_eq!(body["spec"]["replicas"], 3);
    let want = json!({"note": "x", annotation::REVISION: "1", annotation::DESIRED: "3", annotation::MAX: "4"});
    assert_eq!(body["metadata"]["annotations"], want);
    assert_eq!(body["metadata"]["ownerReferences"][0]["kind"], "Deployment");
    let event = writes[0].on_success.as_ref().unwrap();
    assert_eq!(event.message, format!("Scaled up replica set web-{hash} from 0 to 3"));
}

#[test]
fn the_hash_follows_template_and_collisions_only() {
    let a = deployment(3, "a", json!({})).spec.unwrap().template;
    let b = deployment(3, "b", json!({})).spec.unwrap().template;
    assert_eq!(template::hash(&a, None), template::hash(&a, Some(0)));
    assert_ne!(template::hash(&a, None), template::hash(&b, None));
    assert_ne!(template::hash(&a, None), template::hash(&a, Some(1)));
    let mut labelled = a.clone();
    let labels = labelled.metadata.as_mut().unwrap().labels.as_mut().unwrap();
    labels.insert(template::HASH_LABEL.into(), "x".into());
    assert_eq!(template::hash(&a, None), template::hash(&labelled, None));
}

#[test]
fn a_name_collides_with_another_set_alone() {
    let deployment = deployment(3, "a", json!({}));
    let view = View::new(&deployment, vec![], |_| false).unwrap();
    let own = set("a", 0, 3, 0, 3);
    assert_eq!(own.name_any(), template::name(&view));
    assert!(!template::collides(&view, None), "not seen yet");
    assert!(!template::collides(&view, Some(&own)), "its answer got lost");
    assert!(template::collides(&view, Some(&set("b", 0, 3, 0, 3))));
    let mut foreign = ReplicaSet::clone(&own);
    foreign.metadata.owner_references = None;
    assert!(template::collides(&view, Some(&foreign)));
}

#[test]
fn rolling_steps() {
    // (name, wanted, new (size, available), old (size, available), expected)
    type Row = (&'static str, i32, (i32, i32), (i32, i32), Vec<(&'static str, i32)>);
    let table: [Row; 9] = [
        ("new grows into the surge", 4, (0, 0), (4, 4), vec![("b", 1)]),
        ("old shrinks to the least", 4, (1, 0), (4, 4), vec![("a", 3)]),
        ("nothing while none may go", 4, (2, 0), (3, 3), vec![]),
        ("room is used", 4, (1, 0), (3, 3), vec![("b", 2)]),
        ("available new lets old go", 4, (2, 2), (3, 3), vec![("a", 1)]),
        ("unhealthy old go first", 4, (1, 0), (4, 2), vec![("a", 3)]),
        ("last old goes", 4, (4, 4), (1, 1), vec![("a", 0)]),
        ("done", 4, (4, 4), (0, 0), vec![]),
        (
            "the largest has its surge",
            i32::MAX,
            (0, 0),
            (i32::MAX, i32::MAX),
            vec![("b", 536_870_912)],
        ),
    ];
    for (name, wanted, new, old, want) in table {
        let mut d = deployment(wanted, "b", json!({}));
        revised(&mut d, "2");
        let sets = vec![set("a", 0, old.0, old.1, wanted), set("b", 1, new.0, new.1, wanted)];
        let got = sizes(&next(&d, sets.clone()), &sets);
        let want: Vec<_> = want.into_iter().map(|(i, n)| (i.to_owned(), n)).collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn recreate_waits_for_old_pods() {
    let strategy = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    let mut d = deployment(2, "b", strategy);
    revised(&mut d, "1");
    let old = vec![set("a", 0, 2, 2, 2)];
    assert_eq!(sizes(&next(&d, old.clone()), &old), vec![("a".to_owned(), 0)]);
    let mut ending = ReplicaSet::clone(&set("a", 0, 0, 0, 2));
    ending.status.as_mut().unwrap().replicas = 1;
    assert_eq!(next(&d, vec![Arc::new(ending)]), vec![]);
    let writes = next(&d, vec![set("a", 0, 0, 0, 2)]);
    let Verb::Create(body) = &writes[0].verb else {
        panic!("{writes:?}")
    };
    assert_eq!(body["spec"]["replicas"], 2);
}

#[test]
fn resizing_keeps_proportions() {
    // 10 wanted, surge 3: 8 old and 5 new; resized to 20 (surge 5).
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}});
    let mut d = deployment(20, "b", surge);
    revised(&mut d, "2");
    let sets = vec![scaled("a", 0, 8, 10, "13"), scaled("b", 1, 5, 10, "13")];
    let got: BTreeMap<_, _> = sizes(&next(&d, sets.clone()), &sets).into_iter().collect();
    assert_eq!(got, BTreeMap::from([("a".to_owned(), 14), ("b".to_owned(), 9)]));
}

/// With these sizes, the deployment's size that each was scaled for, and what all together might be then.
fn scaled(image: &str, age: i64, size: i32, desired: i32, most: &str) -> Arc<ReplicaSet> {
    let mut rs = ReplicaSet::clone(&set(image, age, size, size, desired));
    let annotations = rs.metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::MAX.into(), most.into());
    Arc::new(rs)
}

/// Annotations that were never true or are so no longer, beside sizes that somebody gave by hand: there are never more than there may be.
#[test]
fn untrue_annotations_let_nothing_grow_beyond_the_surge() {
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}});
    let mut d = deployment(8, "b", surge);
    revised(&mut d, "2");
    for (name, sets, expected) in [
        (
            "one would grow where ten are to go",
            [scaled("a", 0, 10, 10, "40"), scaled("b", 1, 9, 10, "3")],
            [("a", 0), ("b", 9)],
        ),
        (
            "the first alone has not enough",
            [scaled("a", 0, 10, 10, "1"), scaled("b", 1, 10, 10, "1")],
            [("a", 0), ("b", 9)],
        ),
        (
            "none shrinks where some are to come",
            [scaled("a", 0, 4, 4, "4000"), scaled("b", 1, 2, 4, "2")],
            [("a", 4), ("b", 5)],
        ),
    ] {
        let sets = sets.to_vec();
        let mut got: BTreeMap<String, i32> = sets.iter().map(|rs| (rs.uid().unwrap(), size(rs))).collect();
        got.extend(sizes(&next(&d, sets.clone()), &sets));
        let expected = expected.map(|(image, size)| (image.to_owned(), size));
        assert_eq!(got, BTreeMap::from(expected), "{name}");
    }
}

/// Upstream's takes a new size for one to be shared out, which it does for rolling updates only.
#[test]
fn who_replaces_all_at_once_does_so_in_the_middle_of_a_resized_rolling_update() {
    let strategy = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    let mut d = deployment(6, "b", strategy);
    revised(&mut d, "2");
    let sets = vec![set("a", 0, 2, 2, 4), set("b", 1, 2, 2, 4)];
    assert_eq!(sizes(&next(&d, sets.clone()), &sets), [("a".to_owned(), 0)]);
    // Pods of the old one are there still.
    let mut ending = ReplicaSet::clone(&set("a", 0, 0, 0, 6));
    ending.status.as_mut().unwrap().replicas = 1;
    let sets = vec![Arc::new(ending), set("b", 1, 2, 2, 4)];
    assert_eq!(next(&d, sets), vec![]);
    let sets = vec![set("a", 0, 0, 0, 6), set("b", 1, 2, 2, 4)];
    assert_eq!(sizes(&next(&d, sets.clone()), &sets), [("b".to_owned(), 6)]);
}

#[test]
fn the_history_of_rollbacks_has_a_bound() {
    let d = deployment(3, "a", json!({}));
    let earlier = |history: &str| {
        let mut rs = ReplicaSet::clone(&set("a", 0, 3, 3, 3));
        let annotations = rs.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::REVISION.into(), "5000".into());
        annotations.insert(annotation::HISTORY.into(), history.into());
        let mut newer = ReplicaSet::clone(&set("b", 1, 0, 0, 3));
        let annotations = newer.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::REVISION.into(), i64::MAX.to_string());
        let writes = next(&d, vec![Arc::new(rs), Arc::new(newer)]);
        let Verb::Patch(_, _, body) = &writes[0].verb else {
            panic!("{writes:?}")
        };
        let of = |name: &str| body["metadata"]["annotations"][name].as_str().unwrap().to_owned();
        assert_eq!(of(annotation::REVISION), i64::MAX.to_string(), "it goes no higher");
        of(annotation::HISTORY)
    };
    assert_eq!(earlier("1,2"), "1,2,5000");
    let long: Vec<String> = (1000..1400).map(|revision| revision.to_string()).collect();
    let cut = earlier(&long.join(","));
    assert!(cut.len() <= 2000 && cut.len() > 1990, "{}", cut.len());
    assert!(cut.starts_with("1001,") && cut.ends_with(",1399,5000"), "{cut}");
    assert_eq!(earlier(&"9".repeat(3000)), "5000", "what is no list is forgotten");
}

#[test]
fn resizing_to_the_largest_wraps_nothing() {
    let mut d = deployment(i32::MAX, "b", json!({}));
    revised(&mut d, "2");
    let sets = vec![set("a", 0, 8, 8, 10), set("b", 1, 5, 0, 10)];
    let got: BTreeMap<_, _> = sizes(&next(&d, sets.clone()), &sets).into_iter().collect();
    let want = [("a".to_owned(), 1_651_910_498), ("b".to_owned(), 1_032_444_061)];
    assert_eq!(got, BTreeMap::from(want));
    let sets = vec![set("a", 0, i32::MAX, 1, i32::MAX), set("b", 1, i32::MAX, 0, i32::MAX)];
    let status = status::status(&View::new(&d, sets, |_| true).unwrap(), None, at(1));
    let told = (status.replicas, status.available_replicas, status.unavailable_replicas);
    assert_eq!(told, (Some(i32::MAX), Some(1), Some(i32::MAX)));
}

#[test]
fn resizing_one_set_needs_one_write() {
    let mut d = deployment(5, "a", json!({}));
    revised(&mut d, "1");
    let sets = vec![set("a", 0, 3, 3, 3)];
    let writes = next(&d, sets.clone());
    assert_eq!(sizes(&writes, &sets), vec![("a".to_owned(), 5)]);
    let Verb::Patch(_, _, body) = &writes[0].verb else {
        panic!()
    };
    assert_eq!(body["metadata"]["annotations"][annotation::DESIRED], "5");
    let name = sets[0].name_any();
    assert_eq!(
        writes[0].on_success.as_ref().unwrap().message,
        format!("Scaled up replica set {name} from 3 to 5")
    );
}

#[test]
fn paused_resizes_but_does_not_roll() {
    let mut d = deployment(3, "b", json!({"spec": {"paused": true}}));
    revised(&mut d, "1");
    assert_eq!(next(&d, vec![set("a", 0, 3, 3, 3)]), vec![]);
    let resized = vec![set("a", 0, 2, 2, 2)];
    assert_eq!(sizes(&next(&d, resized.clone()), &resized), vec![("a".to_owned(), 3)]);
}

#[test]
fn rolling_back_takes_the_next_revision() {
    let mut d = deployment(3, "a", json!({}));
    revised(&mut d, "2");
    let sets = vec![set("a", 0, 0, 0, 3), set("b", 1, 3, 3, 3)];
    let writes = next(&d, sets);
    let Verb::Patch(_, _, body) = &writes[0].verb else {
        panic!()
    };
    assert_eq!(
        body["metadata"]["annotations"],
        json!({annotation::REVISION: "3", annotation::HISTORY: "1"})
    );
    let Verb::Replace(body) = &writes[1].verb else { panic!() };
    assert_eq!(body["metadata"]["annotations"][annotation::REVISION], "3");
}

#[test]
fn history_is_cut_when_complete() {
    let mut d = deployment(1, "z", json!({"spec": {"revisionHistoryLimit": 2}}));
    revised(&mut d, "10");
    d.status = Some(
        serde_json::from_value(
            json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 1}),
        )
        .unwrap(),
    );
    let mut sets: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .zip(0..)
        .map(|(image, i)| set(image, i, 0, 0, 1))
        .collect();
    sets.push(set("z", 9, 1, 1, 1));
    let gone: Vec<_> = next(&d, sets.clone()).into_iter().map(|w| w.key.name).collect();
    assert_eq!(gone, vec![sets[0].name_any(), sets[1].name_any()]);
    let mut going = ReplicaSet::clone(&sets[2]);
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    let with_going = vec![sets[0].clone(), sets[1].clone(), Arc::new(going), sets[4].clone()];
    assert_eq!(next(&d, with_going), vec![], "two are history, and one goes anyway");
    d.status.as_mut().unwrap().available_replicas = Some(0);
    assert_eq!(next(&d, sets), vec![]);
}

#[test]
fn a_replica_set_that_cannot_be_made_is_told_by_its_name() {
    let d = deployment(2, "a", json!({}));
    let view = View::new(&d, vec![], |_| false).unwrap();
    let failure = Failure {
        resource: "replicasets".into(),
        creating: true,
        deleting: false,
        code: 403,
        reason: "Forbidden".into(),
        message: "no".into(),
    };
    let told = condition_of(&status::status(&view, Some(&failure), at(1)), "Progressing");
    let message = format!("Failed to create new replica set {:?}: no", template::name(&view));
    assert_eq!(told, ("False".to_owned(), "ReplicaSetCreateError".to_owned(), message));
}

fn condition_of(status: &k8s_openapi::api::apps::v1::DeploymentStatus, kind: &str) -> (String, String, String) {
    let all = status.conditions.as_ref().unwrap();
    let c = all.iter().find(|c| c.type_ == kind).unwrap();
    (c.status.clone(), c.reason.clone().unwrap(), c.message.clone().unwrap())
}

#[test]
fn progress_is_told() {
    let mut d = deployment(2, "a", json!({}));
    let mut step = |available: i32, now: i64| {
        let view = View::new(&d, vec![set("a", 0, 2, available, 2)], |_| false).unwrap();
        let status = status::status(&view, None, at(now));
        d.status = Some(status.clone());
        status
    };
    let name = set("a", 0, 2, 0, 2).name_any();
    let first = step(0, 1);
    assert_eq!(condition_of(&first, "Available").1, "MinimumReplicasUnavailable");
    assert_eq!(condition_of(&first, "Progressing").1, "FoundNewReplicaSet");
    let second = step(1, 2);
    let want = (
        "True".to_owned(),
        "ReplicaSetUpdated".to_owned(),
        format!("ReplicaSet {name:?} is progressing."),
    );
    assert_eq!(condition_of(&second, "Progressing"), want);
    let third = step(2, 3);
    let want = (
        "True".to_owned(),
        "NewReplicaSetAvailable".to_owned(),
        format!("ReplicaSet {name:?} has successfully progressed."),
    );
    assert_eq!(condition_of(&third, "Progressing"), want);
    assert_eq!(condition_of(&third, "Available").1, "MinimumReplicasAvailable");
    assert_eq!(step(2, 1000), third, "nothing moves any more");
    assert_eq!(condition_of(&step(1, 2000), "Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn a_stuck_rollout_is_told_after_the_deadline() {
    let mut d = deployment(2, "a", json!({}));
    let mut step = |now: i64| {
        let view = View::new(&d, vec![set("a", 0, 2, 0, 2)], |_| false).unwrap();
        let (status, wait) = (
            status::status(&view, None, at(now)),
            status::deadline_in(&view, at(now)),
        );
        d.status = Some(status.clone());
        (condition_of(&status, "Progressing").1, wait)
    };
    step(0);
    step(1);
    let (reason, wait) = step(100);
    assert_ne!(reason, "ProgressDeadlineExceeded");
    let wait = i64::try_from(wait.unwrap().as_secs()).unwrap();
    assert_eq!(step(100 + wait).0, "ProgressDeadlineExceeded");
    assert_eq!(step(5000).1, None, "nothing to wait for");
}

/// Applies writes to replica sets the way the API server would.
fn apply(writes: &[Write], sets: &mut Vec<ReplicaSet>, deployment: &mut Deployment) {
    for write in writes {
        match &write.verb {
            Verb::Create(body) => {
                let mut rs: ReplicaSet = serde_json::from_value(body.clone()).unwrap();
                rs.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(
                    i64::try_from(sets.len()).unwrap(),
                )));
                rs.metadata.uid = rs.metadata.name.clone();
                sets.push(rs);
            }
            Verb::Replace(body) => *deployment = serde_json::from_value(body.clone()).unwrap(),
            Verb::Patch(_, _, body) => {
                let rs = sets.iter_mut().find(|rs| rs.name_any() == write.key.name).unwrap();
                let mut value = serde_json::to_value(&*rs).unwrap();
                json_patch::merge(&mut value, body);
                *rs = serde_json::from_value(value).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// One step of the pods' life: sizes are met, some become available.
fn live(rs: &mut ReplicaSet, more: i32) {
    let wanted = size(rs);
    let available = (super::available(rs).min(wanted) + more).min(wanted);
    rs.status = Some(
        serde_json::from_value(json!({"replicas": wanted, "availableReplicas": available, "readyReplicas": available}))
            .unwrap(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever the order of events, a rollout never exceeds the surge, never goes below the least available number, and ends.
    #[test]
    fn rollouts_keep_their_bounds_and_end(
        wanted in 1..12i32, surge in 0..5i32, unavailable in 0..5i32, steps in prop::collection::vec((0..3i32, 0..2usize), 400),
    ) {
        let strategy = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
        let mut d = deployment(wanted, "b", strategy);
        revised(&mut d, "1");
        let mut sets = vec![ReplicaSet::clone(&set("a", 0, wanted, wanted, wanted))];
        sets[0].metadata.annotations.as_mut().unwrap().insert(annotation::REVISION.into(), "1".into());
        sets[0].metadata.annotations.as_mut().unwrap().insert(annotation::MAX.into(), (wanted + surge).to_string());
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(wanted) };
        for (more, which) in steps {
            let writes = next(&d, sets.iter().cloned().map(Arc::new).collect());
            apply(&writes, &mut sets, &mut d);
            let pods: i32 = sets.iter().map(size).sum();
            prop_assert!(pods <= wanted + surge, "{pods} pods");
            // Only one replica set's controller acts between two plans: the other's status is stale.
            let index = which % sets.len();
            live(&mut sets[index], more);
            let available: i32 = sets.iter().map(|rs| super::available(rs).min(size(rs))).sum();
            prop_assert!(available >= wanted - unavailable, "{available} available");
        }
        for _ in 0..200 {
            let writes = next(&d, sets.iter().cloned().map(Arc::new).collect());
            apply(&writes, &mut sets, &mut d);
            sets.iter_mut().for_each(|rs| live(rs, 1));
        }
        let ends: Vec<_> = sets.iter().map(size).collect();
        prop_assert_eq!(ends, vec![0, wanted]);
    }
}
