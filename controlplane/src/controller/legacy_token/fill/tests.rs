//! Tables of what a token's Secret needs.

use super::*;
use crate::controller::write::Verb;
use serde_json::{Value, json};

fn account() -> Account {
    let account = json!({"metadata": {"name": "robot", "namespace": "a", "uid": "u1", "resourceVersion": "5"},
        "secrets": [{"name": "t"}, {"name": "other"}]});
    Account::There(Arc::new(serde_json::from_value(account).unwrap()))
}

/// A Secret with these data, as text.
fn secret(data: &[(&str, &str)]) -> Secret {
    let data = data
        .iter()
        .map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())));
    let mut secret: Secret =
        serde_json::from_value(json!({"type": account_token::SECRET_TYPE, "metadata": {"name": "t",
        "namespace": "a", "uid": "s1", "resourceVersion": "7", "annotations": {account_token::ACCOUNT_NAME: "robot"}}}))
        .unwrap();
    secret.data = Some(data.collect());
    secret
}

fn signed(subject: &Subject) -> Result<String, String> {
    let Subject {
        namespace,
        account,
        account_uid,
        secret,
    } = subject;
    Ok(format!("{namespace} {account} {account_uid} {secret}"))
}

/// The data that are written, as text.
fn written(write: &Write) -> (Vec<(String, String)>, Value) {
    let Verb::Replace(body) = &write.verb else {
        panic!("{write:?}")
    };
    let read: Secret = serde_json::from_value(body.clone()).unwrap();
    let data = read.data.unwrap().into_iter();
    let data = data.map(|(key, bytes)| (key, String::from_utf8(bytes.0).unwrap()));
    (data.collect(), body["metadata"].clone())
}

#[test]
fn a_secret_is_filled_with_what_it_lacks() {
    let whole = [("ca.crt", "CA"), ("namespace", "a"), ("token", "a robot u1 t")];
    for (has, ca, expected) in [
        (&[][..], "CA", Some(&whole[..])),
        (&[("token", "")], "CA", Some(&whole)),
        // A token stays what it is.
        (
            &[("token", "x"), ("namespace", "a")],
            "CA",
            Some(&[("ca.crt", "CA"), ("namespace", "a"), ("token", "x")]),
        ),
        (
            &[("ca.crt", "old"), ("token", "x"), ("namespace", "a")],
            "CA",
            Some(&[("ca.crt", "CA"), ("namespace", "a"), ("token", "x")]),
        ),
        (&whole, "CA", None),
        // Without a CA to tell, the one there is stays.
        (&[("ca.crt", "old"), ("token", "x"), ("namespace", "a")], "", None),
        (
            &[("extra", "e")],
            "",
            Some(&[("extra", "e"), ("namespace", "a"), ("token", "a robot u1 t")]),
        ),
    ] {
        let write = plan(&secret(has), &account(), ca, &signed).unwrap();
        let Some(expected) = expected else {
            assert_eq!(write, None, "{has:?}");
            continue;
        };
        let (data, metadata) = written(&write.unwrap());
        let data: Vec<(&str, &str)> = data.iter().map(|(key, text)| (&**key, &**text)).collect();
        assert_eq!(data, expected, "{has:?}");
        let annotations = json!({account_token::ACCOUNT_NAME: "robot", account_token::ACCOUNT_UID: "u1"});
        assert_eq!(
            (&metadata["annotations"], &metadata["resourceVersion"]),
            (&annotations, &json!("7"))
        );
    }
}

#[test]
fn a_token_goes_with_its_account_and_not_before_that_is_known() {
    let gone = plan(&secret(&[]), &Account::Gone, "CA", &signed).unwrap().unwrap();
    assert!(matches!(gone.verb, Verb::Delete { uid, .. } if uid == "s1"));
    assert_eq!(plan(&secret(&[]), &Account::Unknown, "CA", &signed), Ok(None));
    let mut ending = secret(&[]);
    ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(
        plan(&ending, &account(), "CA", &signed),
        Ok(None),
        "it is being deleted"
    );
    let failed = plan(&secret(&[]), &account(), "CA", &|_| Err("no key".to_owned()));
    assert_eq!(failed, Err("no key".to_owned()));
}

#[test]
fn an_account_forgets_the_secret_that_went() {
    let Account::There(account) = account() else { panic!() };
    let write = without(&account, "t");
    let Verb::Replace(body) = &write.verb else {
        panic!("{write:?}")
    };
    assert_eq!(body["secrets"], json!([{"name": "other"}]));
    assert_eq!(body["metadata"]["resourceVersion"], "5");
}
