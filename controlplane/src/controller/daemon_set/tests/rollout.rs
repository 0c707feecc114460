//! Replacing pods of old templates, and the revisions by which they are told.

use super::*;

#[test]
fn a_rollout_keeps_to_what_may_be_unavailable() {
    let (old, new) = (
        |n: &str| pod(&format!("p{n}"), n, "old", json!({})),
        |n: &str| pod(&format!("p{n}"), n, "new", json!({})),
    );
    let budget = |n: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": n}}}});
    let four = nodes(&["a", "b", "c", "d"]);
    let all = || vec![old("a"), old("b"), old("c"), old("d")];
    let nothing: &[&str] = &[];
    for (name, extra, pods, want) in [
        ("one", json!({}), all(), &["-pa"][..]),
        ("a share, rounded up", budget(json!("30%")), all(), &["-pa", "-pb"]),
        (
            "none while one is not well",
            json!({}),
            vec![pod("pa", "a", "new", unready()), old("b"), old("c"), old("d")],
            nothing,
        ),
        (
            "what does not serve goes at once",
            json!({}),
            vec![
                pod("pa", "a", "old", unready()),
                pod("pb", "b", "old", unready()),
                old("c"),
                old("d"),
            ],
            &["-pa", "-pb"],
        ),
        (
            "a node whose pod goes counts",
            json!({}),
            vec![pod("pa", "a", "old", going()), old("b"), old("c"), old("d")],
            nothing,
        ),
        (
            "the next",
            json!({}),
            vec![new("a"), old("b"), old("c"), old("d")],
            &["-pb"],
        ),
        ("done", json!({}), vec![new("a"), new("b"), new("c"), new("d")], nothing),
        (
            "not by itself",
            json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}),
            all(),
            nothing,
        ),
        (
            "the generation counts, too",
            json!({}),
            vec![
                pod(
                    "pa",
                    "a",
                    "x",
                    json!({"metadata": {"labels": {"pod-template-generation": "2"}}}),
                ),
                new("b"),
                new("c"),
                new("d"),
            ],
            nothing,
        ),
    ] {
        assert_eq!(words(&plan(&set(extra), &four, &pods)), want, "{name}");
    }
}

#[test]
fn a_surge_puts_new_pods_beside_old_ones() {
    let surge = |n: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": n}}}});
    let old = |n: &str| pod(&format!("o{n}"), n, "old", json!({}));
    let new = |n: &str, extra| pod(&format!("p{n}"), n, "new", extra);
    let three = nodes(&["a", "b", "c"]);
    let away = vec![
        node("a", tainted("x", "NoSchedule")),
        node("b", json!({})),
        node("c", json!({})),
    ];
    let nothing: &[&str] = &[];
    for (name, extra, nodes, pods, want) in [
        (
            "one",
            surge(json!(1)),
            &three,
            vec![old("a"), old("b"), old("c")],
            &["+a"][..],
        ),
        (
            "a share",
            surge(json!("50%")),
            &three,
            vec![old("a"), old("b"), old("c")],
            &["+a", "+b"],
        ),
        (
            "waits for the new one",
            surge(json!(1)),
            &three,
            vec![old("a"), new("a", unready()), old("b"), old("c")],
            nothing,
        ),
        (
            "then the old one goes",
            surge(json!(1)),
            &three,
            vec![old("a"), new("a", json!({})), old("b"), old("c")],
            &["-oa"],
        ),
        (
            "an old one that is not ready goes at once",
            surge(json!(1)),
            &three,
            vec![
                pod("oa", "a", "old", unready()),
                new("a", unready()),
                old("b"),
                old("c"),
            ],
            &["-oa"],
        ),
        (
            "beside what does not serve at once",
            surge(json!(1)),
            &three,
            vec![
                pod("oa", "a", "old", unready()),
                pod("ob", "b", "old", unready()),
                old("c"),
            ],
            &["+a", "+b", "+c"],
        ),
        (
            "several of a kind",
            surge(json!(1)),
            &three,
            vec![
                new("a", json!({})),
                pod("q", "a", "new", json!({})),
                new("b", json!({})),
                new("c", json!({})),
            ],
            &["-q"],
        ),
        (
            "what no longer belongs there stays while it is needed",
            surge(json!(1)),
            &away,
            vec![old("a"), new("b", json!({})), new("c", unready())],
            nothing,
        ),
        (
            "and goes when it is not",
            surge(json!(1)),
            &away,
            vec![old("a"), new("b", json!({})), new("c", json!({}))],
            &["-oa"],
        ),
    ] {
        assert_eq!(words(&plan(&set(extra), nodes, &pods)), want, "{name}");
    }
}

#[test]
fn revisions_are_made_numbered_anew_merged_and_forgotten() {
    let set = set(json!({"spec": {"revisionHistoryLimit": 1}}));
    let look = |revisions: Vec<Arc<Revision>>, pods: Vec<Arc<Pod>>| {
        let seen = Seen::new(set.clone(), (pods, vec![]), (revisions, vec![]));
        seen.plan(&[], true, &mut Backoffs::default(), at(0))
    };
    let first = look(vec![revision("old", 4, "old")], vec![]);
    let Verb::Create(body) = &first.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["revision"], 5);
    let hash = body["metadata"]["labels"][REVISION_LABEL].as_str().unwrap();
    assert_eq!(body["metadata"]["name"], format!("d-{hash}"));
    let back = look(vec![revision("new", 1, "new"), revision("old", 2, "old")], vec![]);
    let Verb::Patch(_, _, body) = &back.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        (back.writes[0].key.name.as_str(), &body["revision"]),
        ("d-new", &json!(3))
    );
    let mut bare = Revision::clone(&revision("new", 1, "new"));
    bare.metadata.labels.as_mut().unwrap().remove(REVISION_LABEL);
    let named = look(vec![Arc::new(bare)], vec![]);
    let Verb::Patch(_, _, body) = &named.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["metadata"]["labels"][REVISION_LABEL], "d-new");
    let twice = || {
        vec![
            revision("twin", 1, "new"),
            revision("old", 2, "old"),
            revision("new", 3, "new"),
        ]
    };
    let pods = vec![pod("p", "a", "twin", json!({})), pod("q", "b", "old", json!({}))];
    let relabelled = look(twice(), pods);
    assert_eq!(words(&relabelled), ["~p"], "pods of another template keep their own");
    assert_eq!(
        words(&look(twice(), vec![pod("q", "b", "old", json!({}))])),
        ["-d-twin"]
    );
    let many = vec![
        revision("x", 1, "x"),
        revision("y", 2, "y"),
        revision("z", 3, "z"),
        revision("new", 4, "new"),
    ];
    assert_eq!(
        words(&look(many, vec![pod("p", "gone", "x", going())])),
        ["-d-y", "-d-z"]
    );
}
