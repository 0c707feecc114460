use super::*;
use crate::controller::write::Verb;
use serde_json::Value;

const NOW: i64 = 1_800_000_000;

fn cidr(name: &str, cidrs: &[&str], more: Value) -> ServiceCIDR {
    let mut value = json!({"metadata": {"name": name, "resourceVersion": "5"}, "spec": {"cidrs": cidrs}});
    json_patch::merge(&mut value, &more);
    serde_json::from_value(value).unwrap()
}

fn going(seconds: i64, ready: &str) -> Value {
    let since = Timestamp::from_second(NOW - seconds).unwrap().to_string();
    json!({"metadata": {"deletionTimestamp": since, "finalizers": ["a/b", FINALIZER]},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "", "message": "",
            "lastTransitionTime": since}]}})
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn body(plan: &Plan) -> Value {
    match plan.writes.as_slice() {
        [
            Write {
                verb: Verb::Patch(_, _, body) | Verb::ReplaceSub("status", body),
                ..
            },
        ] => body.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_range_is_held_and_then_ready() {
    let new = cidr("more", &["10.97.0.0/24"], json!({}));
    let first = plan(&new, None, now());
    assert_eq!(
        body(&first),
        json!({"metadata": {"finalizers": [FINALIZER], "resourceVersion": "5"}})
    );
    let held = cidr(
        "more",
        &["10.97.0.0/24"],
        json!({"metadata": {"finalizers": [FINALIZER]}}),
    );
    let ready = body(&plan(&held, None, now()));
    let condition = &ready["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("True"), &json!(IS_READY))
    );
    let mut value = serde_json::to_value(&held).unwrap();
    value["status"] = ready["status"].clone();
    let done: ServiceCIDR = serde_json::from_value(value).unwrap();
    assert_eq!(plan(&done, None, now()), Plan::default());
}

#[test]
fn a_range_goes_after_its_grace_and_when_no_address_needs_it() {
    let of = |seconds, ready| cidr("more", &["10.97.0.0/24"], going(seconds, ready));
    let blocked = plan(&of(60, "True"), Some(true), now());
    let condition = &body(&blocked)["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (&json!("False"), &json!("Terminating"), &json!(IS_USED))
    );
    assert_eq!(
        plan(&of(60, "False"), Some(true), now()),
        again(vec![], LOOK),
        "said once"
    );
    assert_eq!(
        plan(&of(60, "True"), None, now()),
        again(vec![], LOOK),
        "nothing is known"
    );
    assert_eq!(
        plan(&of(4, "True"), Some(false), now()),
        again(vec![], Duration::from_secs(6))
    );
    let free = plan(&of(10, "True"), Some(false), now());
    assert_eq!(
        body(&free),
        json!({"metadata": {"finalizers": ["a/b"], "resourceVersion": "5"}})
    );
    let mut others = of(10, "True");
    others.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    assert_eq!(plan(&others, Some(false), now()), Plan::default());
}

#[test]
fn an_address_needs_the_only_range_it_is_in() {
    let one = cidr("one", &["10.97.0.0/24", "fd00::/112"], json!({}));
    let wide = Arc::new(cidr("wide", &["10.0.0.0/8"], json!({})));
    let v6 = Arc::new(cidr("v6", &["fd00::/108"], json!({})));
    let ip = |text: &str| text.parse().unwrap();
    for (others, covered, v4_needs, v6_needs) in [
        (vec![], false, true, true),
        (vec![wide.clone()], false, false, true),
        (vec![wide, v6], true, false, false),
    ] {
        assert_eq!(is_covered(&one, &others), covered);
        assert_eq!(needs(&one, &others, ip("10.97.0.7")), v4_needs);
        assert_eq!(needs(&one, &others, ip("fd00::7")), v6_needs);
        assert!(!needs(&one, &others, ip("10.98.0.7")), "it is in none");
    }
}
