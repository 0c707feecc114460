//! List and watch under cuts: whoever resumes where an event or a bookmark told him to misses nothing.

use super::watches::Watch;
use super::*;
use crate::store::value::testing::as_stored;
use crate::store::{Expect, Revision, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

/// Every revision written to the watched namespace.
type Truth = Arc<Mutex<BTreeSet<Revision>>>;

/// 1,000 writes a second in groups, some of them elsewhere, until `seconds` have passed.
async fn write(store: Arc<dyn Store>, truth: Truth, seconds: u64, group: usize) {
    let mut at: BTreeMap<String, Revision> = BTreeMap::new();
    let mut number = 0_usize;
    for _ in 0..seconds * 1000 / group as u64 {
        for _ in 0..group {
            number += 1;
            let place = if number.is_multiple_of(5) {
                "pods/b"
            } else {
                "configmaps/a"
            };
            let name = format!("m{}", number * 7 % 40);
            let key = format!("/registry/{place}/{name}");
            let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"n": number.to_string()}});
            let revision = match at.get(&key).copied() {
                Some(old) if number.is_multiple_of(11) => {
                    at.remove(&key);
                    store.delete(&key, old).await.unwrap()
                }
                old => {
                    let expect = old.map_or(Expect::Absent, Expect::At);
                    let revision = store.put(&key, as_stored(&key, &object), expect).await.unwrap();
                    at.insert(key.clone(), revision);
                    revision
                }
            };
            if place == "configmaps/a" {
                truth.lock().unwrap().insert(revision);
            }
        }
        tokio::time::sleep(Duration::from_millis(group as u64)).await;
    }
}

fn revision(object: &Value) -> Revision {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// What a client knows.
#[derive(Default)]
struct Known {
    objects: BTreeMap<String, Value>,
    /// Where it would resume.
    at: Revision,
    seen: BTreeSet<Revision>,
    bookmarks: usize,
}

impl Known {
    async fn list(server: &ApiServer) -> Self {
        let list = get(server, MAPS).await.body;
        let items = list["items"].as_array().unwrap().iter();
        Self {
            objects: items
                .map(|item| (item["metadata"]["name"].to_string(), item["data"].clone()))
                .collect(),
            at: revision(&list),
            ..Self::default()
        }
    }

    fn note(&mut self, event: &Value, begin: Revision, truth: &Truth) {
        let object = &event["object"];
        let name = object["metadata"]["name"].to_string();
        let at = revision(object);
        assert!(at >= self.at, "revisions never go back");
        match event["type"].as_str().unwrap() {
            "BOOKMARK" => {
                self.bookmarks += 1;
                let truth = truth.lock().unwrap();
                let missed: Vec<&Revision> = truth
                    .range(begin + 1..=at)
                    .filter(|one| !self.seen.contains(one))
                    .collect();
                assert!(missed.is_empty(), "the bookmark at {at} hides {missed:?}");
            }
            "DELETED" => {
                self.objects.remove(&name);
                self.seen.insert(at);
            }
            _ => {
                self.objects.insert(name, object["data"].clone());
                self.seen.insert(at);
            }
        }
        self.at = at;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn list_and_watch_under_cuts_are_the_truth(
        cuts in prop::collection::vec(1u64..4_000, 1..8),
        group in prop::sample::select(vec![1usize, 10, 50, 250]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = server().await;
            let truth = Truth::default();
            let writer = tokio::spawn(write(Arc::clone(server.store()), Arc::clone(&truth), 5, group));
            tokio::time::sleep(Duration::from_millis(30)).await;
            let mut known = Known::list(&server).await;
            let begin = known.at;
            // The server's own end of a watch, and a bookmark two seconds before it, are cuts as well.
            for millis in cuts.into_iter().chain([20_000]) {
                let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}", known.at);
                let mut watch = Watch::json(&server, &path).await;
                let end = tokio::time::Instant::now() + Duration::from_millis(millis);
                while let Ok(Some(event)) = tokio::time::timeout_at(end, watch.next()).await {
                    known.note(&event, begin, &truth);
                }
            }
            writer.await.unwrap();
            let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}", known.at);
            let mut watch = Watch::json(&server, &path).await;
            while let Some(event) = watch.next().await {
                known.note(&event, begin, &truth);
            }
            prop_assert!(known.bookmarks > 0);
            let truth: BTreeSet<Revision> = truth.lock().unwrap().range(begin + 1..).copied().collect();
            prop_assert_eq!(&known.seen, &truth);
            let now = Known::list(&server).await;
            prop_assert_eq!(known.objects, now.objects);
            Ok(())
        })?;
    }
}
