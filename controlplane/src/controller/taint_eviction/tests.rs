use super::*;
use serde_json::Value;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(tolerations: &Value, extra: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "tolerations": tolerations}});
    json_patch::merge(&mut pod, &extra);
    serde_json::from_value(pod).unwrap()
}

fn taint(key: &str, added: Option<i64>) -> Taint {
    Taint {
        key: key.into(),
        effect: "NoExecute".into(),
        time_added: added.map(|second| Time(at(second))),
        value: None,
    }
}

#[test]
fn how_long_a_pod_may_stay() {
    let forever = json!({"key": "a", "operator": "Exists"});
    let limited = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 300});
    let short = json!({"operator": "Exists", "tolerationSeconds": 30});
    let past = json!({"operator": "Exists", "tolerationSeconds": -5});
    let absurd = json!({"operator": "Exists", "tolerationSeconds": i64::MAX});
    let (a, b) = (taint("a", None), taint("b", None));
    let s = |n| Some(Duration::from_secs(n));
    let table = [
        ("no taint", json!([]), vec![], None),
        ("untolerated", json!([]), vec![&a], s(0)),
        ("tolerated for good", json!([forever]), vec![&a], None),
        ("tolerated for a while", json!([limited]), vec![&a], s(290)),
        ("a limit that is none", json!([past]), vec![&a], s(0)),
        ("the first that covers it", json!([limited, short]), vec![&a], s(290)),
        ("the first sets no limit", json!([forever, short]), vec![&a], None),
        (
            "the shortest of two taints",
            json!([limited, short]),
            vec![&a, &b],
            s(20),
        ),
        ("one of two untolerated", json!([forever]), vec![&a, &b], s(0)),
        (
            "beyond all time",
            json!([absurd]),
            vec![&a],
            Some(LONGEST - Duration::from_secs(10)),
        ),
    ];
    for (name, tolerations, taints, want) in table {
        let pod = pod(&tolerations, json!({}));
        assert_eq!(evict_in(&pod, &taints, |_| Duration::from_secs(10)), want, "{name}");
    }
}

#[test]
fn a_pod_and_a_taint_are_together_since_the_later_of_them_came() {
    let created = |second: i64| json!({"metadata": {"creationTimestamp": Time(at(second))}});
    let bound = |second: i64| {
        let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": Time(at(second))});
        json!({"metadata": {"creationTimestamp": Time(at(50))}, "status": {"conditions": [condition]}})
    };
    let table = [
        ("the taint is younger", created(50), Some(100), 60),
        ("the pod is younger", created(120), Some(100), 40),
        ("it was bound late", bound(150), Some(100), 10),
        ("nobody said when", created(50), None, 0),
        ("in the future", created(50), Some(900), 0),
    ];
    for (name, extra, added, want) in table {
        let found = together(&pod(&json!([]), extra), &taint("a", added), at(160));
        assert_eq!(found.as_secs(), want, "{name}");
    }
}
