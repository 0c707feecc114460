//! A store that does not answer: what needs no answer of it is read all the same, and says so.

use super::*;
use crate::store::{Expect, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use futures::StreamExt;
use std::time::Duration;
use tokio::sync::watch;

/// A store that is out of reach while it is told so.
struct Far {
    memory: Memory,
    is_far: watch::Sender<bool>,
}

impl Far {
    fn reach(&self) -> Result<(), StoreError> {
        match *self.is_far.borrow() {
            true => Err(StoreError::Unavailable("etcdserver: request timed out".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl crate::store::around::Around for Far {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.reach()?;
        self.memory.put(key, value, expect).await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        self.reach()?;
        self.memory.put_if(key, value, expect, unchanged).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.reach()?;
        self.memory.current_revision().await
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.reach()?;
        let mut is_far = self.is_far.subscribe();
        let lost = async move { is_far.wait_for(|is_far| *is_far).await.map(drop) };
        let steps = self.memory.follow(after).await?.take_until(lost);
        let why = StoreError::Unavailable("no leader".to_owned());
        Ok(steps.chain(futures::stream::iter([Err(why)])).boxed())
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";

fn warning(reply: &Reply) -> &str {
    let warning = reply.headers.get("warning");
    warning.map_or("", |warning| warning.to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_answer_of_the_store_is_read_and_marked() {
    let store = Arc::new(Far {
        memory: Memory::shared(),
        is_far: watch::Sender::new(false),
    });
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: 7,
        gate: Arc::new(Open),
    };
    let server = ApiServer::new(parts).await.unwrap();
    let default = json!({"metadata": {"name": "default"}});
    assert_eq!(post(&server, "/api/v1/namespaces", &default).await.code, 201);
    let made = post(&server, MAPS, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let revision = made.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let cached = [
        format!("{MAP}?resourceVersion=0"),
        format!("{MAPS}?resourceVersion=0"),
        format!("{MAPS}?resourceVersion={revision}"),
    ];
    store.is_far.send_replace(true);
    tokio::time::sleep(Duration::from_millis(900)).await;
    for path in &cached {
        let read = get(&server, path).await;
        assert_eq!(
            (read.code, warning(&read)),
            (200, ""),
            "{path}: it may only be asked elsewhere"
        );
    }
    tokio::time::sleep(Duration::from_millis(4100)).await;
    for path in &cached {
        let read = get(&server, path).await;
        assert_eq!(read.code, 200, "{path}");
        let told = format!("the store has not answered for 5 s: this is what it held at revision {revision}");
        assert!(warning(&read).contains(&told), "{path}: {:?}", warning(&read));
    }
    for path in [MAP, MAPS] {
        let read = get(&server, path).await;
        assert_eq!((read.code, &read.body["reason"]), (504, &json!("Timeout")), "{path}");
    }
    let written = post(&server, MAPS, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!((written.code, &written.body["reason"]), (504, &json!("Timeout")));
    store.is_far.send_replace(false);
    // Nothing has to change there: it is enough that it answers again.
    for path in [MAP.to_owned()].iter().chain(&cached) {
        let read = get(&server, path).await;
        assert_eq!((read.code, warning(&read)), (200, ""), "{path}");
    }
}
