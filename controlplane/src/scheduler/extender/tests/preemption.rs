//! Who should go for a pod, by extenders' word.

use super::*;
use crate::scheduler::plugin::default_preemption::Preemption;
use crate::scheduler::pod::PodInfo;
use crate::scheduler::testing::important;

/// Pods by node and name: `a` has two of priority 1 and 2, `b` one of priority 1 and one that is as important as the pod.
fn on(node: &str, uid: &str) -> Option<Arc<PodInfo>> {
    let priority = match (node, uid) {
        ("a" | "b", "low") => 1,
        ("a", "mid") => 2,
        ("b", "high") => 9,
        _ => return None,
    };
    Some(important(uid, priority, "1", json!({})))
}

fn candidate(node: &str, uids: &[&str], violations: usize) -> Preemption {
    Preemption {
        node: node.to_owned(),
        victims: uids.iter().map(|uid| on(node, uid).unwrap()).collect(),
        displaced: Vec::new(),
        violations,
    }
}

fn candidates() -> Vec<Preemption> {
    vec![candidate("a", &["mid"], 0), candidate("b", &["low"], 1)]
}

fn preemptor() -> Arc<PodInfo> {
    important("p", 9, "1", json!({}))
}

type Left = Vec<(String, Vec<String>, usize)>;

fn shown(left: &[Preemption]) -> Left {
    let uids = |candidate: &Preemption| candidate.victims.iter().map(|pod| pod.uid.clone()).collect();
    left.iter()
        .map(|candidate| (candidate.node.clone(), uids(candidate), candidate.violations))
        .collect()
}

fn left(all: &[(&str, &[&str], usize)]) -> Left {
    all.iter()
        .map(|(node, uids, violations)| ((*node).to_owned(), names(uids), *violations))
        .collect()
}

fn meta(node: &str, uids: &[&str], violations: usize) -> Value {
    let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
    json!({"NodeNameToMetaVictims": {node: {"Pods": pods, "NumPDBViolations": violations}}})
}

#[test]
fn the_question_names_victims_or_has_them_whole() {
    let (asked, number) = message::victims(&preemptor(), &candidates(), true, usize::MAX);
    assert_eq!(number, 2);
    assert_eq!(asked["Pod"]["metadata"]["name"], "p");
    assert_eq!(asked["NodeNameToVictims"], Value::Null);
    let expected = json!({"a": {"Pods": [{"UID": "mid"}], "NumPDBViolations": 0},
        "b": {"Pods": [{"UID": "low"}], "NumPDBViolations": 1}});
    assert_eq!(asked["NodeNameToMetaVictims"], expected);
    let (asked, _) = message::victims(&preemptor(), &candidates(), false, usize::MAX);
    assert_eq!(asked["NodeNameToMetaVictims"], Value::Null);
    let victim = &asked["NodeNameToVictims"]["b"]["Pods"][0];
    assert_eq!(
        (&victim["metadata"]["uid"], &victim["spec"]["priority"]),
        (&json!("low"), &json!(1))
    );
}

#[test]
fn a_question_is_about_no_more_than_fits() {
    let all: Vec<Preemption> = (0..50)
        .map(|number| Preemption {
            node: format!("n{number}"),
            ..candidate("a", &["mid", "low"], 0)
        })
        .collect();
    let of = |knows, most| message::victims(&preemptor(), &all, knows, most);
    let whole = of(false, usize::MAX).0["NodeNameToVictims"]["n0"].to_string().len();
    for (most, asked) in [
        (0, 1),
        (whole, 1),
        (2 * whole - 1, 1),
        (2 * whole, 2),
        (9 * whole, 9),
        (99 * whole, 50),
    ] {
        let (question, number) = of(false, most);
        assert_eq!(number, asked, "{most}");
        let nodes = question["NodeNameToVictims"].as_object().unwrap();
        assert_eq!(nodes.len(), asked);
        assert!(
            (0..asked).all(|number| nodes.contains_key(&format!("n{number}"))),
            "the best first"
        );
    }
    assert_eq!(of(true, 9 * whole).1, 50, "UIDs are short");
}

#[tokio::test]
async fn an_extender_is_asked_about_the_next_where_none_of_the_first_will_do() {
    let large = "x".repeat(1 << 20);
    let victim = important("v", 1, "1", json!({"metadata": {"annotations": {"a": large}}}));
    let all: Vec<Preemption> = (0..100)
        .map(|number| Preemption {
            node: format!("n{number:02}"),
            victims: vec![Arc::clone(&victim)],
            ..candidate("a", &[], 0)
        })
        .collect();
    let (url, asked) = server(vec![("nobody", 200, "{}".to_owned())]).await;
    let whole = Extender {
        preempt: "nobody".to_owned(),
        knows_nodes: false,
        ..extender(&url, "", "")
    };
    let callers = [Arc::new(Caller::new(whole).unwrap())];
    let left = call::preempt(&callers, &preemptor(), all, &on).await;
    assert!(left.unwrap().is_empty());
    let asked = asked.lock().unwrap();
    let nodes: Vec<usize> = asked
        .iter()
        .map(|(_, question)| question["NodeNameToVictims"].as_object().unwrap().len())
        .collect();
    assert_eq!(nodes, [3, 3, 3, 3], "and not for ever");
    assert!(asked[3].1["NodeNameToVictims"]["n11"].is_object());
}

#[test]
fn answers_about_victims() {
    let read = |answer: &Value, ignorable| {
        let left = message::preempted(answer, &preemptor(), &candidates(), &on, ignorable);
        left.map(|left| shown(&left))
    };
    let both = json!({"nodeNameToMetaVictims": {"a": {"pods": [{"uid": "low"}, {"uid": "mid"}, {"uid": "low"}]}, "b": {"Pods": [{"UID": "low"}]}}});
    let good = [
        (json!({}), left(&[])),
        (json!({"NodeNameToMetaVictims": {}}), left(&[])),
        (meta("b", &["low"], 0), left(&[("b", &["low"], 0)])),
        // Other victims than it was asked about, and each once; the less important ones are the better choice.
        (meta("a", &["low"], 3), left(&[("a", &["low"], 3)])),
        (both, left(&[("b", &["low"], 0), ("a", &["mid", "low"], 0)])),
    ];
    for (answer, expected) in good {
        for ignorable in [false, true] {
            assert_eq!(read(&answer, ignorable).as_ref(), Ok(&expected), "{answer}");
        }
    }
    for (bad, part) in [
        (json!([]), "no object"),
        (json!({"NodeNameToMetaVictims": []}), "NodeNameToMetaVictims"),
        (meta("c", &["low"], 0), "\"c\" was not asked about"),
        (meta("b", &["mid"], 0), "(UID: mid) is not on node \"b\""),
        (meta("b", &["high"], 0), "has no lower priority"),
        (json!({"NodeNameToMetaVictims": {"a": []}}), "no object"),
        (json!({"NodeNameToMetaVictims": {"a": {"Pods": {}}}}), "Pods of \"a\""),
        (
            json!({"NodeNameToMetaVictims": {"a": {"Pods": ["low"]}}}),
            "UID of a pod on \"a\"",
        ),
        (
            json!({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "low"}], "NumPDBViolations": -1}}}),
            "NumPDBViolations of \"a\"",
        ),
    ] {
        for ignorable in [false, true] {
            let error = read(&bad, ignorable).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
    for nobody in [meta("a", &[], 0), json!({"NodeNameToMetaVictims": {"a": null}})] {
        let error = read(&nobody, false).unwrap_err();
        assert!(error.contains("at least one victim pod on node \"a\""), "{error}");
        assert_eq!(read(&nobody, true), Ok(left(&[])));
    }
}

fn preempting(url: &str, verb: &str, ignorable: bool) -> Arc<Caller> {
    let extender = Extender {
        preempt: verb.to_owned(),
        ignorable,
        ..extender(url, "", "")
    };
    Arc::new(Caller::new(extender).unwrap())
}

#[tokio::test]
async fn extenders_are_asked_one_after_the_other() {
    let answers = vec![
        ("first", 200, meta("b", &["low"], 0).to_string()),
        ("second", 200, meta("b", &["low"], 2).to_string()),
        ("nobody", 200, "{}".to_owned()),
        ("broken", 500, "{}".to_owned()),
    ];
    let (url, asked) = server(answers).await;
    let ask = async |verbs: &[(&str, bool)]| {
        let callers: Vec<Arc<Caller>> = verbs
            .iter()
            .map(|(verb, ignorable)| preempting(&url, verb, *ignorable))
            .collect();
        let left = call::preempt(&callers, &preemptor(), candidates(), &on).await;
        left.map(|left| shown(&left))
    };
    let unchanged = left(&[("a", &["mid"], 0), ("b", &["low"], 1)]);
    assert_eq!(ask(&[("", false)]).await, Ok(unchanged.clone()), "it has no say");
    assert_eq!(
        ask(&[("first", false), ("second", false)]).await,
        Ok(left(&[("b", &["low"], 2)]))
    );
    assert_eq!(ask(&[("broken", true)]).await, Ok(unchanged), "it is ignorable");
    let error = ask(&[("broken", false), ("first", false)]).await.unwrap_err();
    assert!(error.contains("answered 500") && error.contains(&url), "{error}");
    assert_eq!(ask(&[("nobody", false), ("first", false)]).await, Ok(left(&[])));
    let asked = asked.lock().unwrap();
    let paths: Vec<&str> = asked.iter().map(|(path, _)| path.as_str()).collect();
    let expected = ["first", "second", "broken", "broken", "nobody"].map(|verb| format!("/prefix/{verb}"));
    assert_eq!(paths, expected, "who would be asked about nobody is not asked");
    assert_eq!(asked[1].1["NodeNameToMetaVictims"].as_object().unwrap().len(), 1);
}
