//! A member that has other data than the others at the very same revision.

use super::block_on;
use crate::members::{COUNT, Members, Side};
use crate::{campaign, isolation};
use base64::Engine;
use etcd::Etcd;
use etcd::moving;
use serde_json::{Value, json};
use std::time::Duration;
use store::Store;

/// Beyond it something hangs.
const LONG: Duration = Duration::from_secs(120);
const KEY: &str = "/registry/p";
/// The one that is damaged.
const ONE: usize = 2;

fn coded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn put(value: &str) -> Value {
    json!({"key": coded(KEY), "value": coded(value)})
}

/// Until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, waiting).await.is_ok(), "{what}");
}

/// A key's creation is applied once more where it is there already, and a change of it not: as many revisions as with the others, and
/// another value.
async fn damage(members: &mut Members) {
    let snapshot = members.snapshot(ONE).unwrap();
    members.restore_alone(ONE, &snapshot).unwrap();
    let others = (0..COUNT).find(|member| *member != ONE).unwrap();
    members.leader().unwrap();
    let mut modified = Value::Null;
    until("the others serve", || {
        let found = members.ask(others, "kv/range", &json!({"key": coded(KEY)}));
        modified = found.map_or(Value::Null, |found| found["kvs"][0]["mod_revision"].clone());
        !modified.is_null()
    })
    .await;
    let change = json!({
        "compare": [{"key": coded(KEY), "target": "MOD", "result": "EQUAL", "mod_revision": modified}],
        "success": [{"request_put": put("changed")}],
    });
    let changed = members.ask(others, "kv/txn", &change).unwrap();
    assert_eq!(changed["succeeded"], json!(true), "{changed}");
    let revision = |member: usize| {
        let status = members.ask(member, "maintenance/status", &json!({}));
        status.map_or(Value::Null, |status| status["header"]["revision"].clone())
    };
    until("all have one revision", || {
        let all: Vec<Value> = (0..COUNT).map(revision).collect();
        !all[0].is_null() && all.iter().all(|one| *one == all[0])
    })
    .await;
}

/// Whether clients reach others than the one.
fn alone(members: &Members, is_up: bool) {
    let others = (0..COUNT).filter(|member| *member != ONE);
    others.for_each(|member| members.link(Side::Clients, member, is_up).unwrap());
}

/// What a move would take.
async fn moved(members: &Members) -> Result<String, String> {
    let side = moving::Side::open(&members.options(ONE))
        .await
        .map_err(|error| error.to_string())?;
    let mut found = String::new();
    let take = |records: Vec<store::Record>| {
        let one = records.iter().find(|record| &*record.key == KEY);
        found.push_str(&one.map_or_else(String::new, |one| String::from_utf8_lossy(&one.value).into_owned()));
        std::future::ready(Ok(()))
    };
    side.read(take).await.map_err(|error| error.to_string())?;
    Ok(found)
}

async fn value(store: &Etcd) -> String {
    let found = store.get(KEY).await.unwrap().expect("it is there");
    String::from_utf8_lossy(&found.value).into_owned()
}

#[test]
fn a_member_of_the_same_revision_with_other_data_is_not_believed() {
    if !isolation::is_inside("tests::differing::a_member_of_the_same_revision_with_other_data_is_not_believed") {
        return;
    }
    block_on(async {
        let mut members = Members::start(None).unwrap();
        campaign::ready(&members).await.unwrap();
        members.ask(ONE, "kv/put", &put("made")).unwrap();
        damage(&mut members).await;
        // Who comes now asks it before the others, and takes no answer of it.
        let anew = Etcd::open(members.options(ONE)).await.unwrap();
        assert_eq!(value(&anew).await, "changed");
        anew.compare_members().await;
        assert_eq!(value(&anew).await, "changed", "and goes on");
        alone(&members, false);
        assert!(anew.get(KEY).await.is_err(), "not even where there is nobody else");
        alone(&members, true);
        assert_eq!(moved(&members).await.unwrap(), "changed", "nor is it moved anywhere");
        // Of two nobody can say who is right: that is said, and no more.
        members.link(Side::Clients, (ONE + 1) % COUNT, false).unwrap();
        let misled = Etcd::open(members.options(ONE)).await.unwrap();
        misled.compare_members().await;
        assert_eq!(value(&misled).await, "made", "nothing else tells them apart");
        let refused = moved(&members).await.unwrap_err();
        assert!(refused.contains("have different data at revision"), "{refused}");
        // Who has read from it cannot go on once it is found out.
        members.link(Side::Clients, (ONE + 1) % COUNT, true).unwrap();
        let asking = async {
            loop {
                misled.compare_members().await;
                if let Ok(over) = tokio::time::timeout(Duration::from_secs(1), misled.over()).await {
                    return over;
                }
            }
        };
        let over = tokio::time::timeout(LONG, asking).await.expect("it is over");
        for part in [
            "has other data than the other members",
            "at the same revision",
            "etcdctl member remove",
        ] {
            assert!(over.contains(part), "{over}");
        }
        // Once it has been taken out and in again all are alike.
        members.replace(ONE).unwrap();
        members.leader().unwrap();
        until("it has come to what the others have", || {
            let found = members.ask(ONE, "kv/range", &json!({"key": coded(KEY), "serializable": true}));
            found.is_ok_and(|found| found["kvs"][0]["value"] == json!(coded("changed")))
        })
        .await;
        let asking = async {
            let mut is_asked = false;
            while !is_asked {
                anew.compare_members().await;
                alone(&members, false);
                is_asked = anew.get(KEY).await.is_ok();
                alone(&members, true);
            }
        };
        tokio::time::timeout(LONG, asking).await.expect("it is asked again");
        assert_eq!(value(&anew).await, "changed");
    });
}
