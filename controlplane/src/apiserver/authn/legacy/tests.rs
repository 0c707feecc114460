//! Tables of tokens that hold and of those that do not.

use super::*;
use serde_json::json;
use std::sync::Arc;

const TOKEN: &str = "a.b.c";

fn claims() -> LegacyClaims {
    LegacyClaims::of(&Subject {
        namespace: "ns".to_owned(),
        account: "sa".to_owned(),
        account_uid: "su".to_owned(),
        secret: "s".to_owned(),
    })
}

fn now() -> Timestamp {
    "2026-01-31T23:00:00Z".parse().unwrap()
}

fn secret(labels: Value) -> Value {
    json!({"metadata": {"uid": "xu", "labels": labels}, "data": {"token": STANDARD.encode(TOKEN)}})
}

fn account() -> Value {
    json!({"metadata": {"uid": "su"}})
}

fn judged(secret: Option<&Value>, account: Option<&Value>) -> Judged {
    judge(&claims(), TOKEN, now(), |resource, namespace, name| {
        let (found, expected) = if resource == "secrets" {
            (secret, "s")
        } else {
            (account, "sa")
        };
        assert_eq!((namespace, name), ("ns", expected));
        found.cloned().map(Arc::new)
    })
}

#[test]
fn the_claims_are_upstreams() {
    let written = serde_json::to_value(claims()).unwrap();
    let prefix = "kubernetes.io/serviceaccount";
    let expected = json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:sa", format!("{prefix}/namespace"): "ns",
        format!("{prefix}/secret.name"): "s", format!("{prefix}/service-account.name"): "sa",
        format!("{prefix}/service-account.uid"): "su"});
    assert_eq!(written, expected);
    assert_eq!(claims().check(), Ok(()));
    type Change = fn(&mut LegacyClaims);
    let table: [(Change, &str); 6] = [
        (|claims| claims.sub.clear(), "sub claim is missing"),
        (|claims| claims.namespace.clear(), "namespace claim is missing"),
        (|claims| claims.secret.clear(), "secretName claim is missing"),
        (|claims| claims.account.clear(), "serviceAccountName claim is missing"),
        (
            |claims| claims.account_uid.clear(),
            "serviceAccountUID claim is missing",
        ),
        (|claims| claims.sub.push('x'), "sub claim is invalid"),
    ];
    for (change, why) in table {
        let mut changed = claims();
        change(&mut changed);
        assert_eq!(changed.check(), Err(why));
    }
}

#[test]
fn a_token_that_holds_gives_its_account() {
    let found = judged(Some(&secret(json!({}))), Some(&account()));
    let user = found.user.unwrap();
    assert_eq!(
        (&*user.name, user.uid.as_deref()),
        ("system:serviceaccount:ns:sa", Some("su"))
    );
    assert!(user.is_in("system:serviceaccounts:ns") && user.extra.is_empty());
    let used = Use {
        namespace: "ns".to_owned(),
        secret: "s".to_owned(),
        uid: "xu".to_owned(),
    };
    assert_eq!(found.used, Some(used));
}

#[test]
fn a_use_is_noted_once_a_day() {
    for (day, is_noted) in [
        ("2026-01-30", false),
        ("2026-01-31", true),
        ("2026-02-01", true),
        ("2026-02-02", false),
    ] {
        let found = judged(Some(&secret(json!({LAST_USED: day}))), Some(&account()));
        assert!(found.user.is_ok());
        assert_eq!(found.used.is_none(), is_noted, "{day}");
    }
}

#[test]
fn what_went_or_says_something_else_ends_a_token() {
    let whole = secret(json!({}));
    let ending = |mut object: Value| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object
    };
    let mut other = whole.clone();
    other["data"]["token"] = json!(STANDARD.encode("a.b.d"));
    let mut empty = whole.clone();
    empty["data"] = Value::Null;
    let another = json!({"metadata": {"uid": "other"}});
    for (secret, account, why) in [
        (None, Some(account()), "Token has been invalidated"),
        (
            Some(ending(whole.clone())),
            Some(account()),
            "Token has been invalidated",
        ),
        (Some(other), Some(account()), "Token does not match server's copy"),
        (Some(empty), Some(account()), "Token does not match server's copy"),
        (Some(whole.clone()), None, "serviceaccounts \"sa\" not found"),
        (
            Some(whole.clone()),
            Some(ending(account())),
            "ServiceAccount ns/sa has been deleted",
        ),
        (
            Some(whole),
            Some(another),
            "ServiceAccount UID (other) does not match claim (su)",
        ),
    ] {
        let found = judged(secret.as_ref(), account.as_ref());
        assert_eq!(
            found.user.map(|user| user.name),
            Err(TokenError::Invalidated(why.to_owned()))
        );
        assert_eq!(found.used, None);
    }
}

#[test]
fn a_marked_token_is_refused_and_its_use_noted() {
    let found = judged(Some(&secret(json!({INVALID_SINCE: "2026-01-01"}))), Some(&account()));
    let error = found.user.unwrap_err().to_string();
    assert!(
        error.contains("the token in secret ns/s for service account ns/sa has been marked invalid."),
        "{error}"
    );
    assert!(found.used.is_some());
    let unmarked = judged(Some(&secret(json!({INVALID_SINCE: ""}))), Some(&account()));
    assert!(unmarked.user.is_ok());
}
