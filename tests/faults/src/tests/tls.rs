//! etcd over TLS, with client certificates and users.

use super::block_on;
use crate::certificates::{Authority, Good};
use crate::members::{COUNT, Members};
use crate::{campaign, isolation};
use base64::Engine;
use bytes::Bytes;
use etcd::{Etcd, Options};
use futures::StreamExt;
use serde_json::json;
use std::time::Duration;
use store::{Expect, Store, StoreError};

/// Beyond it something hangs.
const LONG: Duration = Duration::from_secs(120);

/// Until a write is answered as expected: members come and go meanwhile.
async fn put_until(store: &Etcd, what: &str, is_it: impl Fn(&Result<u64, StoreError>) -> bool) {
    let asking = async {
        for number in 0.. {
            let key = format!("/registry/{what}/{number}");
            let answer = store.put(&key, Bytes::from_static(b"v"), Expect::Absent).await;
            if is_it(&answer) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, asking).await.is_ok(), "{what}");
}

fn hastily(options: Options) -> Options {
    let deadlines = etcd::Deadlines {
        start: Duration::from_secs(3),
        ..options.deadlines
    };
    Options { deadlines, ..options }
}

async fn refusal(options: Options) -> String {
    let opened = Etcd::open(hastily(options)).await;
    opened.err().expect("refused").to_string()
}

#[test]
fn certificates_that_expire_are_named_and_renewed_ones_used() {
    if !isolation::is_inside("tests::tls::certificates_that_expire_are_named_and_renewed_ones_used") {
        return;
    }
    block_on(async {
        let directory = isolation::directory().unwrap();
        let authority = Authority::new(&directory).unwrap();
        let mut members = Members::start(Some(authority.tls("skiff").unwrap())).unwrap();
        campaign::ready(&members).await.unwrap();
        let store = Etcd::open(members.options(0)).await.unwrap();
        // The members' own: said to who begins, and to who has to connect again.
        authority.sign("member", Good::Before).unwrap();
        let told = refusal(members.options(0)).await;
        assert!(told.contains("TLS") && told.contains("xpired"), "{told}");
        for member in 0..COUNT {
            members.kill(member);
            members.revive(member).unwrap();
        }
        let is_named =
            |answer: &Result<u64, StoreError>| answer.as_ref().is_err_and(|error| error.to_string().contains("xpired"));
        put_until(&store, "expired", is_named).await;
        authority.sign("member", Good::Now).unwrap();
        put_until(&store, "renewed", Result::is_ok).await;
        // Ours, which etcd does not say anything of: it closes the connection.
        authority.sign("skiff", Good::Before).unwrap();
        let told = refusal(members.options(0)).await;
        assert!(told.contains("no server of --etcd-servers answers"), "{told}");
        authority.sign("skiff", Good::Now).unwrap();
        assert!(Etcd::open(members.options(0)).await.is_ok());
    });
}

#[test]
fn users_of_etcd_work_with_the_rights_they_need_and_are_told_which() {
    if !isolation::is_inside("tests::tls::users_of_etcd_work_with_the_rights_they_need_and_are_told_which") {
        return;
    }
    block_on(async {
        let directory = isolation::directory().unwrap();
        let authority = Authority::new(&directory).unwrap();
        let members = Members::start(Some(authority.tls("skiff").unwrap())).unwrap();
        campaign::ready(&members).await.unwrap();
        enable_users(&members).unwrap();
        let with = |name: &str| Options {
            tls: authority.sign(name, Good::Now).unwrap(),
            ..members.options(0)
        };
        // One that may do what README says.
        let store = Etcd::open(with("skiff")).await.unwrap();
        let base = store.current_revision().await.unwrap();
        let mut steps = store.follow(base).await.unwrap();
        let made = store
            .put("/registry/a", Bytes::from_static(b"v"), Expect::Absent)
            .await
            .unwrap();
        let step = tokio::time::timeout(LONG, steps.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(step.revision, made);
        assert_eq!(
            store.range("/registry/").await.unwrap().1.len(),
            2,
            "and what was made first"
        );
        // Of newer etcds root alone may; it is told then, and nothing else depends on it.
        let compacted = store.compact(made).await;
        let is_told =
            |error: &StoreError| matches!(error, StoreError::Refused(why) if why.contains("permission denied"));
        assert!(compacted.as_ref().err().is_none_or(is_told), "{compacted:?}");
        let elsewhere = Etcd::open(Options {
            prefix: "/elsewhere".to_owned(),
            ..with("skiff")
        })
        .await
        .unwrap();
        let refused = elsewhere
            .put("/registry/a", Bytes::new(), Expect::Absent)
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, StoreError::Refused(why) if why.contains("permission denied")),
            "{refused:?}"
        );
        // One that may use the prefix alone, which is not enough.
        let told = refusal(with("narrow")).await;
        assert!(
            told.contains("permission denied") && told.contains("read all keys"),
            "{told}"
        );
        // One that nobody knows.
        let told = refusal(with("nobody")).await;
        assert!(told.contains("read all keys") || told.contains("auth"), "{told}");
    });
}

/// Users `root`, `skiff` and `narrow`, known by their certificates.
fn enable_users(members: &Members) -> anyhow::Result<()> {
    // The gateway takes bytes so.
    let text = |key: &str| base64::engine::general_purpose::STANDARD.encode(key);
    let ask = |path: &str, body| members.ask(0, path, &body).map(drop);
    for (role, kind, key, end) in [
        ("skiff", "READ", "\0", "\0"),
        ("skiff", "READWRITE", "/registry/", "/registry0"),
        ("skiff", "READWRITE", "compact_rev_key", ""),
        ("narrow", "READWRITE", "/registry/", "/registry0"),
    ] {
        // Made with its first right.
        let _ = ask("auth/role/add", json!({"name": role}));
        let permission = json!({"permType": kind, "key": text(key), "range_end": text(end)});
        ask("auth/role/grant", json!({"name": role, "perm": permission}))?;
    }
    for user in ["root", "skiff", "narrow"] {
        ask("auth/user/add", json!({"name": user, "options": {"no_password": true}}))?;
        ask("auth/user/grant", json!({"user": user, "role": user})).or_else(|_| {
            ask("auth/role/add", json!({"name": user}))?;
            ask("auth/user/grant", json!({"user": user, "role": user}))
        })?;
    }
    ask("auth/enable", json!({}))
}
