use super::*;
use crate::config;
use crate::metrics::Metrics;
use crate::metrics::tests::lines;
use futures::StreamExt;
use store::Change;
use store::memory::Memory;

const A: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const B: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SECRET: &str = "/registry/secrets/default/s";
const PLAIN: &[u8] = br#"{"kind":"Secret"}"#;
/// `AESGCM(bytes(range(32))).encrypt(bytes(range(100, 112)), PLAIN, SECRET)` behind its nonce, by Python's `cryptography` 48.0.
const SEALED: &str = "6465666768696a6b6c6d6e6f3339b50f178d74a41c313a8ba8001edf3f500b37f9deafe01534555041e9170334";

fn transformers(entries: &str) -> Transformers {
    counted(entries, &Arc::default())
}

fn counted(entries: &str, metrics: &Arc<Metrics>) -> Transformers {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    let entries = config::parse(&format!("{head}{entries}")).unwrap_or_else(|why| panic!("{why}"));
    Transformers::new(&entries, metrics)
}

/// Of secrets, with these providers.
fn of_secrets(providers: &str) -> Transformers {
    transformers(&format!("- {{resources: [secrets], providers: [{providers}]}}"))
}

fn keys(provider: &str, keys: &[(&str, &str)]) -> String {
    let keys = keys
        .iter()
        .map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}"));
    format!("{{{provider}: {{keys: [{}]}}}}", keys.collect::<Vec<_>>().join(", "))
}

/// A store around one in memory, and that.
fn around(memory: &Arc<Memory>, transformers: Transformers) -> (Encrypted, Encryption) {
    let locate: Locate = Arc::new(|key| {
        let resource = key.strip_prefix("/registry/")?.split('/').next()?;
        Some((String::new(), resource.to_owned()))
    });
    let encryption = Encryption::new(transformers, locate);
    (
        Encrypted::new(Arc::clone(memory) as Arc<dyn Store>, encryption.clone()),
        encryption,
    )
}

async fn inside(memory: &Memory, key: &str) -> Bytes {
    memory.get(key).await.unwrap().unwrap().value
}

fn plain() -> Bytes {
    Bytes::from_static(PLAIN)
}

/// The first changes after a revision: as many as were asked for, or more.
async fn changes(store: &Encrypted, after: Revision, count: usize) -> Vec<Change> {
    let mut steps = store.follow(after).await.unwrap();
    let mut changes = Vec::new();
    while changes.len() < count {
        changes.extend(steps.next().await.unwrap().unwrap().changes);
    }
    changes
}

#[tokio::test]
async fn a_store_around_a_store_is_one() {
    let all = transformers(&format!(
        "- {{resources: ['*.*'], providers: [{}]}}",
        keys("secretbox", &[("a", A)])
    ));
    let encryption = Encryption::new(all, Arc::new(|key| Some((String::new(), key.to_owned()))));
    let memory = Arc::new(Memory::new());
    let inner = Arc::clone(&memory) as Arc<dyn Store>;
    store::conformance::all(Arc::new(Encrypted::new(inner, encryption))).await;
    let (_, records) = memory.range("/q/").await.unwrap();
    assert!(
        records
            .iter()
            .all(|record| record.value.starts_with(b"k8s:enc:secretbox:v1:a:"))
    );
}

#[tokio::test]
async fn values_leave_encrypted_and_come_back() {
    for (provider, prefix) in [
        ("aesgcm", "k8s:enc:aesgcm:v1:key1:"),
        ("aescbc", "k8s:enc:aescbc:v1:key1:"),
        ("secretbox", "k8s:enc:secretbox:v1:key1:"),
    ] {
        let memory = Arc::new(Memory::new());
        let (store, _) = around(&memory, of_secrets(&keys(provider, &[("key1", A)])));
        let after = store.current_revision().await.unwrap();
        let revision = store.put(SECRET, plain(), Expect::Absent).await.unwrap();
        store
            .put("/registry/pods/default/p", plain(), Expect::Absent)
            .await
            .unwrap();
        let stored = inside(&memory, SECRET).await;
        assert!(stored.starts_with(prefix.as_bytes()) && !stored.windows(6).any(|part| part == b"Secret"));
        assert_eq!(
            inside(&memory, "/registry/pods/default/p").await,
            PLAIN,
            "nothing is said of pods"
        );
        assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, PLAIN);
        assert!(
            store
                .range("")
                .await
                .unwrap()
                .1
                .iter()
                .all(|record| record.value == PLAIN)
        );
        let changes = changes(&store, after, 2).await;
        assert!(changes.iter().all(|change| change.value.as_deref() == Some(PLAIN)));
        let Err(StoreError::Conflict { current, .. }) = store.put(SECRET, plain(), Expect::Absent).await else {
            panic!("it is there")
        };
        assert_eq!(current.unwrap().value, PLAIN);
        assert!(!store.is_stale(SECRET, revision).await);
        store.delete(SECRET, revision).await.unwrap();
    }
}

#[tokio::test]
async fn what_others_wrote_is_read() {
    let memory = Arc::new(Memory::new());
    let value = [b"k8s:enc:aesgcm:v1:key1:".as_slice(), &hex::decode(SEALED).unwrap()].concat();
    memory.put(SECRET, value.clone().into(), Expect::Absent).await.unwrap();
    memory
        .put("/registry/secrets/default/moved", value.into(), Expect::Absent)
        .await
        .unwrap();
    let (store, _) = around(&memory, of_secrets(&keys("aesgcm", &[("key1", A)])));
    assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, PLAIN);
    let moved = store.get("/registry/secrets/default/moved").await.unwrap().unwrap();
    let why = "unable to transform key \"/registry/secrets/default/moved\": cipher: message authentication failed";
    assert_eq!(unreadable::reason(&moved.value), Some(why), "it is bound to its place");
    // As under an `--etcd-prefix`: the place is not the key.
    let (_, encryption) = around(&memory, of_secrets(&keys("aesgcm", &[("key1", A)])));
    let encryption = encryption.at(Arc::new(|key| key.replace("moved", "s")));
    let store = Encrypted::new(Arc::clone(&memory) as Arc<dyn Store>, encryption);
    let there = store.get("/registry/secrets/default/moved").await.unwrap().unwrap();
    assert_eq!(there.value, PLAIN);
    assert!(!store.is_stale(&there.key, there.modified).await);
    let modified = store.put(&there.key, plain(), Expect::At(there.modified)).await;
    let stored = inside(&memory, &there.key).await;
    memory.delete(&there.key, modified.unwrap()).await.unwrap();
    let revision = memory.get(SECRET).await.unwrap().unwrap().modified;
    memory.put(SECRET, stored, Expect::At(revision)).await.unwrap();
    assert_eq!(
        store.get(SECRET).await.unwrap().unwrap().value,
        PLAIN,
        "sealed for there, too"
    );
}

#[tokio::test]
async fn what_another_key_wrote_is_stale_until_it_is_written_again() {
    let memory = Arc::new(Memory::new());
    let (gcm, boxed) = (keys("aesgcm", &[("one", A)]), keys("secretbox", &[("one", A)]));
    let (store, encryption) = around(&memory, of_secrets("{identity: {}}"));
    let mut revision = store.put(SECRET, plain(), Expect::Absent).await.unwrap();
    let steps = [
        (format!("{gcm}, {{identity: {{}}}}"), "k8s:enc:aesgcm:v1:one:"),
        (keys("aesgcm", &[("two", B), ("one", A)]), "k8s:enc:aesgcm:v1:two:"),
        // Another key of the same name: whichever opens it.
        (keys("aesgcm", &[("two", A), ("two", B)]), "k8s:enc:aesgcm:v1:two:"),
        (
            format!("{boxed}, {}", keys("aesgcm", &[("two", A)])),
            "k8s:enc:secretbox:v1:one:",
        ),
        (format!("{{identity: {{}}}}, {boxed}"), "{"),
    ];
    for (providers, prefix) in steps {
        assert!(!store.is_stale(SECRET, revision).await, "{prefix}");
        encryption.replace(Arc::new(of_secrets(&providers)));
        assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, PLAIN, "{prefix}");
        assert!(store.is_stale(SECRET, revision).await, "{prefix}");
        assert!(!store.is_stale(SECRET, revision - 1).await, "only what is there now");
        revision = store.put(SECRET, plain(), Expect::At(revision)).await.unwrap();
        assert!(inside(&memory, SECRET).await.starts_with(prefix.as_bytes()), "{prefix}");
    }
    assert!(!store.is_stale("/registry/pods/default/none", 1).await);
}

#[tokio::test]
async fn what_no_key_reads_is_named_and_kept() {
    let memory = Arc::new(Memory::new());
    let (store, encryption) = around(&memory, of_secrets(&keys("secretbox", &[("one", A)])));
    let revision = store.put(SECRET, plain(), Expect::Absent).await.unwrap();
    let stored = inside(&memory, SECRET).await;
    for (providers, why) in [
        (
            of_secrets(&keys("secretbox", &[("one", B)])),
            "output array was not large enough for encryption",
        ),
        (
            of_secrets(&keys("secretbox", &[("two", A)])),
            "no matching key was found for the provided Secretbox transformer",
        ),
        (of_secrets(&keys("aescbc", &[("one", A)])), "no matching prefix found"),
        (of_secrets("{identity: {}}"), "no matching prefix found"),
        (
            Transformers::default(),
            "identity transformer tried to read encrypted data",
        ),
    ] {
        encryption.replace(Arc::new(providers));
        let text = format!("unable to transform key {SECRET:?}: {why}");
        let (_, records) = store.range("").await.unwrap();
        assert_eq!(unreadable::reason(&records[0].value), Some(&*text));
        let change = changes(&store, revision - 1, 1).await.remove(0);
        assert_eq!(unreadable::reason(&change.value.unwrap()), Some(&*text));
        let over = store.put(SECRET, plain(), Expect::At(revision + 7)).await.unwrap_err();
        assert_eq!(over.to_string(), text, "nobody writes over what they have not seen");
        let new = store.put(SECRET, plain(), Expect::Absent).await;
        assert!(
            matches!(new, Err(StoreError::Conflict { current: Some(_), .. })),
            "{new:?}"
        );
        assert_eq!(inside(&memory, SECRET).await, stored, "it stays as it is");
    }
    store.delete(SECRET, revision).await.unwrap();
    assert_eq!(
        memory.get(SECRET).await.unwrap(),
        None,
        "who asks for that by revision may"
    );
}

#[tokio::test]
async fn the_nearest_entry_counts() {
    let memory = Arc::new(Memory::new());
    let entries = [("secrets", "near"), ("'*.'", "core"), ("'*.*'", "all")].map(|(resource, name)| {
        format!(
            "- {{resources: [{resource}], providers: [{}]}}\n",
            keys("secretbox", &[(name, A)])
        )
    });
    let locate: Locate = Arc::new(|key| match key {
        "a" => Some((String::new(), "secrets".to_owned())),
        "b" => Some((String::new(), "pods".to_owned())),
        "c" => Some(("apps".to_owned(), "deployments".to_owned())),
        _ => None,
    });
    let encryption = Encryption::new(transformers(&entries.concat()), locate);
    let store = Encrypted::new(Arc::clone(&memory) as Arc<dyn Store>, encryption);
    for (key, prefix) in [
        ("a", "k8s:enc:secretbox:v1:near:"),
        ("b", "k8s:enc:secretbox:v1:core:"),
        ("c", "k8s:enc:secretbox:v1:all:"),
        ("d", "{"),
    ] {
        store.put(key, plain(), Expect::Absent).await.unwrap();
        assert!(inside(&memory, key).await.starts_with(prefix.as_bytes()), "{key}");
    }
}

#[tokio::test]
async fn what_is_written_and_read_is_counted_and_what_is_not_configured_is_not() {
    let memory = Arc::new(Memory::new());
    let metrics = Arc::<Metrics>::default();
    let entries = |providers: &str| format!("- {{resources: [secrets], providers: [{providers}]}}");
    let first = counted(&entries(&keys("aesgcm", &[("a", A)])), &metrics);
    let (store, encryption) = around(&memory, first);
    store.put(SECRET, plain(), Expect::Absent).await.unwrap();
    store
        .put("/registry/pods/default/p", plain(), Expect::Absent)
        .await
        .unwrap();
    assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, plain());
    let count = |way: &str, prefix: &str, status: &str| {
        format!(
            "operations_total{{resource=\"secrets\",transformation_type=\"{way}\",transformer_prefix=\"{prefix}\",status=\"{status}\"}} 1\n"
        )
    };
    let gcm = "k8s:enc:aesgcm:v1:";
    // Another configuration goes on counting: its key does not fit; then nothing does.
    let other = counted(&entries(&keys("aesgcm", &[("a", B)])), &metrics);
    encryption.replace(Arc::new(other));
    store.get(SECRET).await.unwrap();
    encryption.replace(Arc::new(counted(&entries(&keys("secretbox", &[("a", A)])), &metrics)));
    store.get(SECRET).await.unwrap();
    encryption.replace(Arc::new(counted(&entries("{identity: {}}"), &metrics)));
    let read = store.put("/registry/secrets/default/t", plain(), Expect::Absent).await;
    read.unwrap();
    store.get("/registry/secrets/default/t").await.unwrap();
    let text = lines(&metrics);
    for expected in [
        count("to_storage", gcm, "OK"),
        count("from_storage", gcm, "OK"),
        count("from_storage", gcm, "unknown-non-grpc"),
        count("from_storage", "unknown", "unknown-non-grpc"),
        count("to_storage", "", "OK"),
        count("from_storage", "identity", "OK"),
    ] {
        assert!(text.contains(&expected), "{expected} is not in\n{text}");
    }
    assert_eq!(text.matches("operations_total{").count(), 6, "{text}");
}
