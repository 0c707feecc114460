//! Tables of which tokens are unused, and what becomes of them.

use super::*;
use serde_json::Value;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn secret(made: &str, labels: &Value) -> Secret {
    let secret = json!({"metadata": {"name": "t", "namespace": "a", "uid": "s1", "resourceVersion": "7",
        "creationTimestamp": made, "labels": labels}});
    serde_json::from_value(secret).unwrap()
}

#[test]
fn uses_are_noted_from_the_day_after_the_one_that_is_said() {
    for (since, now, expected) in [
        (None, "2030-01-01T00:00:00Z", false),
        (Some("2026-01-01"), "2026-06-01T00:00:00Z", false),
        (Some("2026-01-01"), "2027-01-01T23:59:59Z", false),
        (Some("2026-01-01"), "2027-01-02T00:00:00Z", true),
    ] {
        let since = since.map(|since| day(since).unwrap());
        assert_eq!(is_tracked_long_enough(since, at(now)), expected, "{since:?} {now}");
    }
}

#[test]
fn days_are_read_only_as_they_are_written() {
    for (text, is_day) in [
        ("2026-02-03", true),
        ("2026-2-3", false),
        ("2026-02-30", false),
        ("20260203", false),
        ("2026-02-03T00", false),
        ("", false),
    ] {
        assert_eq!(day(text).is_some(), is_day, "{text}");
    }
}

#[test]
fn a_token_is_unused_after_a_year_without_a_use() {
    let now = at("2027-03-01T12:00:00Z");
    for (made, labels, expected) in [
        ("2026-01-01T00:00:00Z", json!({}), true),
        ("2026-03-01T11:59:59Z", json!({}), true),
        ("2026-03-01T12:00:00Z", json!({}), false),
        ("2026-01-01T00:00:00Z", json!({LAST_USED: "2026-02-28"}), true),
        ("2026-01-01T00:00:00Z", json!({LAST_USED: "2026-03-01"}), false),
        ("2026-01-01T00:00:00Z", json!({LAST_USED: "yesterday"}), false),
    ] {
        assert_eq!(is_unused(&secret(made, &labels), now), expected, "{made} {labels}");
    }
    let mut ending = secret("2026-01-01T00:00:00Z", &json!({}));
    ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
    assert!(!is_unused(&ending, now));
}

#[test]
fn what_is_unused_is_marked_and_a_year_later_deleted() {
    let now = at("2027-03-01T12:00:00Z");
    let made = "2025-01-01T00:00:00Z";
    for labels in [json!({}), json!({INVALID_SINCE: "some day"})] {
        let write = decide(&secret(made, &labels), now).unwrap();
        let Verb::Patch(PatchKind::Merge, "", body) = write.verb else {
            panic!("{labels}")
        };
        assert_eq!(
            body,
            json!({"metadata": {"uid": "s1", "labels": {INVALID_SINCE: "2027-03-01"}}})
        );
    }
    for (marked, is_deleted) in [("2026-03-01", false), ("2026-02-28", true)] {
        let write = decide(&secret(made, &json!({INVALID_SINCE: marked})), now);
        assert_eq!(write.is_some(), is_deleted, "{marked}");
        if let Some(write) = write {
            let Verb::Delete { uid, revision, .. } = write.verb else {
                panic!()
            };
            assert_eq!((&*uid, revision.as_deref()), ("s1", Some("7")));
        }
    }
}
