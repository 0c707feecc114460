use super::*;
use crate::resource::defined;
use crate::store::memory::Memory;
use crate::store::value::{TypeMeta, canonical};
use crate::store::{Expect, Store};
use bytes::Bytes;

async fn put(store: &Arc<Memory>, key: &str) {
    let of = TypeMeta::new("zoo.example/v1", "LIONS");
    store
        .put(
            key,
            Bytes::from(canonical(&of, &serde_json::json!({"metadata": {"name": "a"}}))),
            Expect::Absent,
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn a_resource_comes_and_goes_with_its_window() {
    let store = Arc::new(Memory::new());
    put(&store, "/registry/zoo.example/lions/n/a").await;
    let window = Window::open(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let publisher = Publisher::new(Arc::clone(Registry::built_in()), window);
    let reader = publisher.reader();
    let before = publisher.current();
    assert!(reader.list("zoo.example", "lions", "").is_empty(), "nobody serves it");
    let lions = defined("zoo.example", "v1", "lions");
    publisher.serve("zoo.example", "lions", &[Arc::clone(&lions)]);
    assert_eq!(reader.list("zoo.example", "lions", "n").len(), 1);
    assert!(
        publisher
            .current()
            .registry()
            .by_resource("zoo.example", "v1", "lions")
            .is_some()
    );
    assert!(before.registry().by_resource("zoo.example", "v1", "lions").is_none());
    let window = reader.window_of("zoo.example", "lions").unwrap();
    let mut cursor = window.cursor(window.cached().revision).unwrap();
    // Another version of it: the same objects, the same window.
    publisher.serve("zoo.example", "lions", &[lions, defined("zoo.example", "v2", "lions")]);
    assert!(Arc::ptr_eq(&window, &reader.window_of("zoo.example", "lions").unwrap()));
    assert!(cursor.take().is_ok());
    publisher.serve("zoo.example", "lions", &[]);
    assert!(cursor.next().await.is_err(), "watches end with it");
    assert!(reader.window_of("zoo.example", "lions").is_none());
    put(&store, "/registry/zoo.example/lions/n/b").await;
    reader.refresh().await.unwrap();
    publisher.serve("zoo.example", "lions", &[defined("zoo.example", "v1", "lions")]);
    assert_eq!(reader.count("zoo.example", "lions"), 2, "what is stored shows again");
}

#[tokio::test]
async fn documents_are_made_anew_for_what_changed_only() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let window = Window::open(store).await.unwrap();
    let publisher = Publisher::new(Arc::clone(Registry::built_in()), window);
    let openapi = |served: &Served, path: &str| served.openapi().is_made(path, false);
    let first = publisher.current();
    first.openapi().answer("/openapi/v3/apis/coordination.k8s.io/v1", "");
    assert!(openapi(&first, "/openapi/v3/apis/coordination.k8s.io/v1") && !openapi(&first, "/openapi/v3/api/v1"));
    publisher.serve("zoo.example", "lions", &[defined("zoo.example", "v1", "lions")]);
    let second = publisher.current();
    assert!(
        openapi(&second, "/openapi/v3/apis/coordination.k8s.io/v1"),
        "it is the same"
    );
    assert!(!openapi(&second, "/openapi/v3/apis/zoo.example/v1") && !openapi(&second, "/openapi/v3"));
}
