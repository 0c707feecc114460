//! Secrets that are encrypted where they are stored, over several starts with other keys.

use super::*;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;

const KEY: &str = "/registry/secrets/default/s";
const A: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const B: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A control plane whose secrets are encrypted with these keys, the first of which writes.
async fn started(dir: &Path, store: &Arc<dyn Store>, keys: &[(&str, &str)]) -> Daemon {
    let keys = keys
        .iter()
        .map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}"));
    let keys = keys.collect::<Vec<_>>().join(", ");
    let file = dir.join("encryption.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{{aesgcm: {{keys: [{keys}]}}}}, {{identity: {{}}}}]}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let flag = format!("--encryption-provider-config={}", file.display());
    embedded_with(dir, store, &[&flag]).await
}

fn secrets(daemon: &Daemon) -> Api<Secret> {
    Api::default_namespaced(root(daemon))
}

async fn prefix(store: &Arc<dyn Store>, length: usize) -> String {
    let value = store.get(KEY).await.unwrap().unwrap().value;
    String::from_utf8_lossy(&value[..length]).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_encrypted_by_the_first_write_after_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let daemon = embedded(dir.path(), &store).await;
    let secret =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}})).unwrap();
    let created = secrets(&daemon).create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!(
        prefix(&store, 8).await,
        r#"{"kind":"#,
        "in clear, as upstream's default"
    );
    daemon.stop().await;

    let mut seen = created.metadata.resource_version;
    let mut uses = vec![("one", A)];
    for (name, secret) in [("one", A), ("two", B)] {
        uses.insert(0, (name, secret));
        uses.dedup();
        let daemon = started(dir.path(), &store, &uses).await;
        let read = secrets(&daemon).get("s").await.unwrap();
        assert_eq!(read.data.as_ref().unwrap()["password"].0, b"hunter2");
        assert_eq!(read.metadata.resource_version, seen);
        // A write that changes nothing writes it as the first key has it, once.
        let replaced = secrets(&daemon)
            .replace("s", &PostParams::default(), &read)
            .await
            .unwrap();
        assert_ne!(replaced.metadata.resource_version, seen);
        let expected = format!("k8s:enc:aesgcm:v1:{name}:");
        assert_eq!(prefix(&store, expected.len()).await, expected);
        let again = secrets(&daemon)
            .replace("s", &PostParams::default(), &replaced)
            .await
            .unwrap();
        assert_eq!(again.metadata.resource_version, replaced.metadata.resource_version);
        seen = again.metadata.resource_version;
        daemon.stop().await;
    }
    let raw = store.get(KEY).await.unwrap().unwrap().value;
    assert!(
        !raw.windows(5).any(|part| part == b"hunte" || part == b"aHVud"),
        "in no form"
    );

    // The key is lost: it is told by name, stays as it is, and everything else goes on.
    let daemon = started(dir.path(), &store, &[("two", A)]).await;
    let secrets = secrets(&daemon);
    let told = "unable to transform key \"/registry/secrets/default/s\": cipher: message authentication failed";
    for error in [
        secrets.get("s").await.unwrap_err(),
        secrets.list(&ListParams::default()).await.unwrap_err(),
        secrets.replace("s", &PostParams::default(), &secret).await.unwrap_err(),
        secrets.delete("s", &DeleteParams::default()).await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("Internal error occurred") && text.contains(told),
            "{text}"
        );
    }
    let taken = secrets.create(&PostParams::default(), &secret).await.unwrap_err();
    assert!(taken.to_string().contains("already exists"), "{taken}");
    assert_eq!(store.get(KEY).await.unwrap().unwrap().value, raw);
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    secrets.create(&PostParams::default(), &other).await.unwrap();
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_holds_after_a_while_if_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let file = dir.path().join("encryption.yaml");
    let write = |providers: &str| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - {{resources: [secrets], providers: [{providers}]}}\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("{identity: {}}");
    let flag = format!("--encryption-provider-config={}", file.display());
    let words = [&*flag, "--encryption-provider-config-automatic-reload"];
    let daemon = embedded_with(dir.path(), &store, &words).await;
    let secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
    let mut secret: Secret = secrets(&daemon).create(&PostParams::default(), &secret).await.unwrap();
    write("{secretbox: {keys: [{name: one, secret: short}]}}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    secret = secrets(&daemon)
        .replace("s", &PostParams::default(), &secret)
        .await
        .unwrap();
    assert_eq!(prefix(&store, 1).await, "{", "a mistake changes nothing");
    write(&format!(
        "{{secretbox: {{keys: [{{name: one, secret: {A}}}]}}}}, {{identity: {{}}}}"
    ));
    let kept = std::sync::Mutex::new(secret);
    eventually("an encrypted secret", || async {
        let sent = kept.lock().unwrap().clone();
        let written = secrets(&daemon)
            .replace("s", &PostParams::default(), &sent)
            .await
            .unwrap();
        *kept.lock().unwrap() = written;
        prefix(&store, 8).await == "k8s:enc:"
    })
    .await;
    let mut registry = prometheus_client::registry::Registry::default();
    daemon.server().metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for status in ["success", "failure"] {
        let start = format!(
            "apiserver_encryption_config_controller_automatic_reloads_total{{status=\"{status}\",apiserver_id_hash=\"sha256:"
        );
        let line = text.lines().find(|line| line.starts_with(&start));
        assert!(line.is_some_and(|line| line.ends_with("\"} 1")), "{status}: {line:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_mistake_in_the_file_names_it_and_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("encryption.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- {resources: [secrets], \
                providers: [{aescbc: {keys: [{name: a, secret: AAEC}]}}]}\n";
    std::fs::write(&file, text).unwrap();
    let words = [format!("--encryption-provider-config={}", file.display())];
    let config = Config::resolve(&flags::parse(words.into_iter())).unwrap();
    let found = super::super::encryption::around(&config, "", Arc::new(Memory::new())).await;
    let expected = format!(
        "--encryption-provider-config {}: resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is \
         not of the expected length, got 3, expected one of [16 24 32]",
        file.display()
    );
    assert_eq!(found.err().unwrap().to_string(), expected);
    let alone = Config::resolve(&flags::parse(
        ["--encryption-provider-config-automatic-reload".to_owned()].into_iter(),
    ));
    assert!(alone.unwrap_err()[0].contains("--encryption-provider-config must be set with it"));
}
