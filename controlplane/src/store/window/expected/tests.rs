use crate::store::memory::Memory;
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::{Expected, ResourceWindow, RevisionError, WatchClosed, Window};
use crate::store::{Expect, Revision, Store};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;

const LIONS: &str = "/registry/zoo.example/lions/";

async fn put(store: &Memory, name: &str, of: (&str, &str), expect: Expect) -> Revision {
    let raw = canonical(&TypeMeta::new(of.0, of.1), &json!({"metadata": {"name": name}}));
    store
        .put(&format!("{LIONS}{name}"), Bytes::from(raw), expect)
        .await
        .unwrap()
}

fn names(window: &ResourceWindow) -> Vec<String> {
    let objects = window.cached().objects;
    objects.values().map(|stored| stored.name().to_owned()).collect()
}

#[tokio::test]
async fn what_does_not_belong_is_told_and_never_shown() {
    let store = Arc::new(Memory::new());
    put(&store, "a", ("zoo.example/v1", "Lion"), Expect::Absent).await;
    let cat = put(&store, "b", ("zoo.example/v1", "Cat"), Expect::Absent).await;
    put(&store, "c", ("zoo.example/v2", "Lion"), Expect::Absent).await;
    put(&store, "d", ("circus.example/v1", "Lion"), Expect::Absent).await;
    let bare = Bytes::from_static(b"{\"metadata\":{}}");
    store.put(&format!("{LIONS}e"), bare, Expect::Absent).await.unwrap();
    let window = Window::open(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let lions = window.resource_of(LIONS, Some(Expected::any_version("zoo.example/v3", "Lion")));
    assert_eq!(names(&lions), ["a", "c"], "any version of the group and kind");
    let text = |name: &str| {
        lions
            .misfit_at(&format!("{LIONS}{name}"))
            .map(|misfit| misfit.to_string())
    };
    let told = "/registry/zoo.example/lions/b holds zoo.example/v1 Cat, where zoo.example/v3 Lion belongs";
    assert_eq!(text("b").as_deref(), Some(told));
    assert!(text("e").unwrap().contains("without kind and apiVersion"));
    assert_eq!(lions.misfit_under(LIONS).unwrap().to_string(), told);
    assert!(text("a").is_none() && lions.misfit_under("/registry/zoo.example/lions/f").is_none());

    // It becomes what belongs there, and watchers see it come. It becomes what does not: it has not gone, and they are not told so.
    let mut cursor = lions.cursor(lions.cached().revision).unwrap();
    let fits = put(&store, "b", ("zoo.example/v1", "Lion"), Expect::At(cat)).await;
    lions.reach(fits).await.unwrap();
    let come = cursor.next().await.unwrap().events;
    assert!(come[0].old.is_none() && come[0].new.as_ref().unwrap().created == cat);
    assert_eq!((names(&lions).len(), text("b")), (3, None));
    let unfit = put(&store, "b", ("zoo.example/v1", "Cat"), Expect::At(fits)).await;
    lions.reach(unfit).await.unwrap();
    assert_eq!(cursor.next().await.unwrap_err(), WatchClosed);
    assert!(
        matches!(lions.cursor(fits), Err(RevisionError::Gone { .. })),
        "they list again"
    );
    assert!(matches!(lions.at(fits), Err(RevisionError::Gone { .. })));
    assert_eq!(
        (names(&lions), text("b").as_deref()),
        (vec!["a".to_owned(), "c".to_owned()], Some(told))
    );

    // Whoever gives the resource up loses nothing, and exactly one version may be asked for.
    window.release(LIONS);
    let lions = window.resource_of(LIONS, Some(Expected::version("zoo.example/v1", "Cat")));
    assert_eq!(names(&lions), ["b"]);
    let after = store.delete(&format!("{LIONS}d"), 5).await.unwrap();
    lions.reach(after).await.unwrap();
    assert!(lions.misfit_at(&format!("{LIONS}d")).is_none());
}

#[tokio::test]
async fn what_a_disk_has_damaged_is_told_and_never_shown() {
    let store = Arc::new(Memory::new());
    let lion = ("zoo.example/v1", "Lion");
    put(&store, "a", lion, Expect::Absent).await;
    let whole = canonical(
        &TypeMeta::new(lion.0, lion.1),
        &json!({"metadata": {"name": "b"}, "spec": "text"}),
    );
    let end = whole.len();
    for (name, at, byte) in [
        ("b", 0, b'x'),
        ("c", end - 1, b' '),
        ("d", end - 3, b'"'),
        ("e", end - 3, 0xff),
    ] {
        let mut damaged = whole.clone();
        damaged[at] = byte;
        store
            .put(&format!("{LIONS}{name}"), Bytes::from(damaged), Expect::Absent)
            .await
            .unwrap();
    }
    let window = Window::open(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let lions = window.resource_of(LIONS, Some(Expected::any_version("zoo.example/v1", "Lion")));
    assert_eq!(names(&lions), ["a"]);
    for name in ["b", "c", "d", "e"] {
        let told = lions.misfit_at(&format!("{LIONS}{name}")).unwrap().to_string();
        assert!(told.starts_with(&format!("{LIONS}{name} holds ")), "{told}");
        assert!(name == "b" || told.contains("damaged bytes ("), "{told}");
    }
}
