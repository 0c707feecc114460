use super::*;
use crate::resource::stored::resource_of;
use crate::store::memory::Memory;
use ::store::around::Around;
use prometheus_client::registry::Registry;
use std::io::Write;
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// What is said.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines since the last call.
    fn take(&self) -> Vec<String> {
        let text = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let lines = tracing_subscriber::fmt()
            .with_writer(self.clone())
            .with_ansi(false)
            .without_time();
        tracing::subscriber::set_default(lines.finish())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A store that fails as it is told to.
#[derive(Default)]
struct Failed {
    inner: Memory,
    with: Mutex<Option<StoreError>>,
}

impl Failed {
    fn fails(&self, with: Option<StoreError>) {
        *self.with.lock().unwrap() = with;
    }
}

#[async_trait]
impl Around for Failed {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        let with = self.with.lock().unwrap().clone();
        match with {
            Some(error) => Err(error),
            None => self.inner.put(key, value, expect).await,
        }
    }
}

fn told() -> (Told, Arc<Failed>, Arc<WriteErrors>) {
    let (inner, errors) = (Arc::<Failed>::default(), Arc::<WriteErrors>::default());
    let store = Told::over(
        Arc::clone(&inner) as Arc<dyn Store>,
        Arc::clone(&errors),
        Box::new(resource_of()),
    );
    (store, inner, errors)
}

#[tokio::test]
async fn it_is_a_store() {
    let store = Told::over(Arc::new(Memory::new()), Arc::default(), Box::new(resource_of()));
    crate::store::conformance::all(Arc::new(store)).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_said_to_once_a_minute_and_each_who_asked_is_told() {
    let log = Log::default();
    let _listening = log.listen();
    let (store, inner, errors) = told();
    let put = || store.put("/registry/pods/a/b", Bytes::new(), Expect::Absent);
    inner.fails(Some(StoreError::Unusable("the disk is gone".to_owned())));
    for _ in 0..100 {
        let refused = put().await.unwrap_err();
        assert_eq!(refused.to_string(), "the disk is gone");
        assert!(store.get("/registry/pods/a/c").await.is_ok(), "reads go on");
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("ERROR") && lines[0].contains("the disk is gone"),
        "{lines:?}"
    );

    // Another failure is not hidden behind it.
    inner.fails(Some(StoreError::Refused("mvcc: database space exceeded".to_owned())));
    assert!(put().await.is_err());
    assert_eq!(log.take().len(), 1);
    inner.fails(Some(StoreError::Unusable("the disk is gone".to_owned())));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(put().await.is_err());
    let lines = log.take();
    assert!(lines.len() == 1 && lines[0].contains("failed=100"), "{lines:#?}");

    inner.fails(None);
    let made = put().await.unwrap();
    assert!(put().await.is_err(), "a conflict is an answer");
    let lines = log.take();
    assert!(
        lines.len() == 1 && lines[0].contains("failed=1"),
        "the other's end: {lines:#?}"
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    store.delete("/registry/pods/a/b", made).await.unwrap();
    let lines = log.take();
    assert!(lines.len() == 1 && lines[0].contains("failed=101"), "{lines:#?}");
    assert!(!store.is_failing.load(Ordering::Relaxed));

    let mut registry = Registry::default();
    errors.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let of = "skiff_storage_write_errors_total{operation=\"create\",group=\"\",resource=\"pods\",reason=";
    for (reason, count) in [("failed", 101), ("refused", 1)] {
        assert!(text.contains(&format!("{of}\"{reason}\"}} {count}\n")), "{text}");
    }
}

#[tokio::test]
async fn a_full_disk_is_counted_and_not_said_again() {
    let log = Log::default();
    let _listening = log.listen();
    let (store, inner, errors) = told();
    inner.fails(Some(StoreError::Full {
        directory: "/d".into(),
        free_mib: 1,
        reserve_mib: 16,
    }));
    for _ in 0..3 {
        assert!(
            store
                .put("/registry/pods/a/b", Bytes::new(), Expect::Absent)
                .await
                .is_err()
        );
    }
    assert_eq!(log.take(), [""; 0]);
    let mut registry = Registry::default();
    errors.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("reason=\"full\"} 3\n"), "{text}");
}
