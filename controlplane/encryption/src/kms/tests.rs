//! A plugin of ours behind a real socket.

use super::*;
use proto::kms::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use proto::kms::{DecryptRequest, DecryptResponse, EncryptRequest, StatusRequest};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const KEY: &str = "/registry/secrets/default/s";
const PLAIN: &[u8] = br#"{"kind":"Secret"}"#;
/// An EncryptedObject put together field by field in Python around what `cryptography` 48.0 encrypted (see the ciphers' tests: seed,
/// info and nonce are the same), with the key `key-1`, the encrypted seed `sealed-dek` and the annotation `a.example.com: v`.
const OBJECT: &str = "0a4dc8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e76465666768696a6b6c6d6e6f58d2a087ea7a0b714e\
    ca1496fd9c3ce2b4a475f4cad159cc1c761567350cbd0e0b12056b65792d311a0a7365616c65642d64656b22120a0d612e6578616d706c652e636f6d1201762801";

/// "Encrypts" by turning round.
#[derive(Default)]
struct Plugin {
    key: AtomicU32,
    decrypted: AtomicU32,
    is_ill: AtomicU32,
}

/// What the socket's server has of it.
struct Served(Arc<Plugin>);

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}

#[tonic::async_trait]
impl KeyManagementService for Served {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let is_ill = self.0.is_ill.load(Ordering::SeqCst) > 0;
        Ok(Response::new(StatusResponse {
            version: "v2".to_owned(),
            healthz: if is_ill { "fever" } else { "ok" }.to_owned(),
            key_id: format!("key-{}", self.0.key.load(Ordering::SeqCst)),
        }))
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let plain = request.into_inner().plaintext;
        Ok(Response::new(EncryptResponse {
            ciphertext: turned(&plain),
            key_id: format!("key-{}", self.0.key.load(Ordering::SeqCst)),
            annotations: [("a.example.com".to_owned(), b"v".to_vec())].into(),
        }))
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let asked = request.into_inner();
        if asked.annotations.get("a.example.com").map(Vec::as_slice) != Some(b"v") {
            return Err(Status::invalid_argument("the annotation is missing"));
        }
        self.0.decrypted.fetch_add(1, Ordering::SeqCst);
        let plaintext = match &asked.ciphertext[..] {
            b"sealed-dek" => (0..32).collect(),
            other => turned(other),
        };
        Ok(Response::new(DecryptResponse { plaintext }))
    }
}

fn serve(socket: &Path) -> (Arc<Plugin>, tokio::task::JoinHandle<()>) {
    let plugin = Arc::new(Plugin::default());
    let listener = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
    let service = KeyManagementServiceServer::new(Served(Arc::clone(&plugin)));
    let server = tonic::transport::Server::builder().add_service(service);
    let task = tokio::spawn(async move { server.serve_with_incoming(listener).await.unwrap() });
    (plugin, task)
}

fn client(socket: &Path) -> Kms {
    let plugin = KmsPlugin {
        name: "p".to_owned(),
        socket: socket.to_owned(),
        timeout: Duration::from_secs(60),
    };
    Kms::connect(&plugin, &Arc::default())
}

async fn open(kms: &Kms, key: &str, sealed: &[u8]) -> Result<(Vec<u8>, bool), OpenError> {
    kms.open(key, sealed).await.map_err(|failed| failed.error)
}

#[tokio::test]
async fn values_are_sealed_and_stale_once_the_plugin_has_another_key() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let (plugin, _task) = serve(&socket);
    let kms = client(&socket);
    let unasked = kms.seal(KEY, PLAIN).unwrap_err();
    assert_eq!(
        unasked.to_string(),
        "KMS provider p has no key: it has not been asked yet"
    );
    kms.look().await.unwrap();
    let sealed = kms.seal(KEY, PLAIN).unwrap();
    assert_eq!(open(&kms, KEY, &sealed).await.unwrap(), (PLAIN.to_vec(), false));
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 0, "the seed is our own");
    let elsewhere = open(&kms, "/registry/secrets/default/t", &sealed).await;
    assert!(matches!(elsewhere, Err(OpenError::Unreadable(_))), "{elsewhere:?}");

    // Another process asks the plugin, once.
    let other = client(&socket);
    other.look().await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            open(&other, KEY, &sealed).await.unwrap(),
            (PLAIN.to_vec(), false),
            "the same key of the plugin's"
        );
    }
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 1);

    plugin.key.store(1, Ordering::SeqCst);
    assert!(!open(&kms, KEY, &sealed).await.unwrap().1, "nobody knows yet");
    kms.look().await.unwrap();
    assert_eq!(open(&kms, KEY, &sealed).await.unwrap(), (PLAIN.to_vec(), true));
    let again = kms.seal(KEY, PLAIN).unwrap();
    assert!(!open(&kms, KEY, &again).await.unwrap().1);
}

#[tokio::test]
async fn what_others_wrote_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let (_plugin, _task) = serve(&socket);
    let kms = client(&socket);
    kms.look().await.unwrap();
    let object = hex::decode(OBJECT).unwrap();
    assert_eq!(open(&kms, KEY, &object).await.unwrap(), (PLAIN.to_vec(), true));
    let parsed = EncryptedObject::decode(&*object).unwrap();
    assert_eq!(parsed.encode_to_vec(), object, "and would be written so");

    let with = |change: fn(&mut EncryptedObject)| {
        let mut other = parsed.clone();
        change(&mut other);
        other.encode_to_vec()
    };
    for (other, part) in [
        (with(|object| object.encrypted_data.clear()), "encrypted data is empty"),
        (
            with(|object| object.key_id.clear()),
            "failed to validate key id: keyID is empty",
        ),
        (with(|object| object.key_id = "k".repeat(1025)), "keyID is 1025 bytes"),
        (
            with(|object| object.encrypted_dek_source.clear()),
            "encrypted DEK source is empty",
        ),
        (
            with(|object| object.encrypted_dek_source_type = 7),
            "unknown encryptedDEKSourceType: 7",
        ),
        (
            with(|object| drop(object.annotations.insert("b.example.com".to_owned(), vec![0; 40_000]))),
            "failed to validate annotations",
        ),
    ] {
        let Err(OpenError::Unreadable(why)) = open(&kms, KEY, &other).await else {
            panic!("{part}")
        };
        assert!(why.contains(part), "{why}");
    }
    let Err(OpenError::Unreadable(why)) = open(&kms, KEY, &with(|object| object.annotations.clear())).await else {
        panic!("the plugin wants the annotation")
    };
    assert!(
        why.starts_with("failed to decrypt DEK, error: ") && why.contains("the annotation is missing"),
        "{why}"
    );
}

#[tokio::test]
async fn a_plugin_that_is_not_well_is_told_of_and_written_with_for_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let nobody = client(&socket).look().await.unwrap_err();
    assert!(
        nobody.starts_with("failed to perform status section of the healthz check for KMS Provider p"),
        "{nobody}"
    );
    let (plugin, _task) = serve(&socket);
    let kms = client(&socket);
    kms.look().await.unwrap();
    plugin.is_ill.store(1, Ordering::SeqCst);
    let why = kms.look().await.unwrap_err();
    assert_eq!(
        why,
        "kmsv2 Provider p is not healthy, error: got unexpected healthz status: fever"
    );
    let sealed = kms.seal(KEY, PLAIN).unwrap();
    if let Some(writing) = &mut kms.state().writing {
        writing.until = Instant::now() - Duration::from_millis(1);
    }
    let expired = kms.seal(KEY, PLAIN).unwrap_err().to_string();
    assert!(
        expired.starts_with("the key of KMS provider p has expired: "),
        "{expired}"
    );
    assert_eq!(open(&kms, KEY, &sealed).await.unwrap().0, PLAIN, "reads go on");
    plugin.is_ill.store(0, Ordering::SeqCst);
    kms.look().await.unwrap();
    kms.seal(KEY, PLAIN).unwrap();
}

#[test]
fn seeds_are_bounded() {
    let mut seeds = Seeds::default();
    for number in 0..=SEEDS_MAX {
        let mut of = [0; 32];
        of[..8].copy_from_slice(&number.to_be_bytes());
        seeds.insert(of, Arc::default());
    }
    assert_eq!((seeds.by_envelope.len(), seeds.order.len()), (SEEDS_MAX, SEEDS_MAX));
    assert!(!seeds.by_envelope.contains_key(&[0; 32]), "the oldest is gone");
}

/// What another server wrote while our plugin is away is not shown as unreadable: the changes end, and go on when it is back.
#[tokio::test]
async fn changes_wait_for_a_plugin_that_is_away() {
    use crate::{Encrypted, Encryption, Transformers, config};
    use futures::StreamExt;
    use store::memory::Memory;
    use store::{Expect, Store, StoreError, unreadable};
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{{kms: {{apiVersion: v2, name: p, endpoint: 'unix://{}', timeout: 60s}}}}]}}",
        socket.display()
    );
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let metrics = Arc::<Metrics>::default();
    let around = || {
        let entries = config::parse(&text).unwrap_or_else(|why| panic!("{why}"));
        let transformers = Transformers::new(&entries, &metrics);
        let locate = Arc::new(|_: &str| Some((String::new(), "secrets".to_owned())));
        let encryption = Encryption::new(transformers, locate);
        (Encrypted::new(Arc::clone(&memory), encryption.clone()), encryption)
    };
    let (_plugin, task) = serve(&socket);
    let (theirs, encryption) = around();
    encryption.transformers().look().await.unwrap();
    let base = theirs.current_revision().await.unwrap();
    theirs.put(KEY, PLAIN.into(), Expect::Absent).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&socket).unwrap();

    let (ours, _) = around();
    let mut steps = ours.follow(base).await.unwrap();
    let away = steps.next().await.unwrap();
    assert!(matches!(&away, Err(StoreError::Unavailable(_))), "{away:?}");
    assert!(steps.next().await.is_none(), "nothing is passed over");
    assert!(ours.range("").await.is_err());
    let (plugin, _task) = serve(&socket);
    let step = ours.follow(base).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(step.changes[0].value.as_deref(), Some(PLAIN));
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 1);

    // What the plugin has judged stays so, and holds nobody up.
    let object = EncryptedObject {
        annotations: std::collections::HashMap::new(),
        ..EncryptedObject::decode(&*hex::decode(OBJECT).unwrap()).unwrap()
    };
    let stored = [b"k8s:enc:kms:v2:p:".to_vec(), object.encode_to_vec()].concat();
    let made = memory.put("/registry/secrets/b", stored.into(), Expect::Absent).await;
    let mut steps = ours.follow(made.unwrap() - 1).await.unwrap();
    let step = steps.next().await.unwrap().unwrap();
    let value = step.changes[0].value.as_ref().unwrap();
    assert!(unreadable::reason(value).is_some_and(|why| why.contains("the annotation is missing")));
    let text = crate::metrics::tests::lines(&metrics);
    let read = "operations_total{resource=\"secrets\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:kms:v2:p:\",status=";
    let call = |method: &str, code: &str, count: usize| {
        format!(
            "kms_operations_latency_seconds_count{{provider_name=\"p\",method_name=\"/v2.KeyManagementService/{method}\",\
             grpc_status_code=\"{code}\"}} {count}\n"
        )
    };
    for line in [
        // The change, the list, and both again.
        format!("{read}\"Unavailable\"}} 2\n"),
        format!("{read}\"OK\"}} 1\n"),
        format!("{read}\"InvalidArgument\"}} 1\n"),
        "cache_misses_total 4\n".to_owned(),
        "data_key_generation_duration_seconds_count 1\n".to_owned(),
        call("Status", "OK", 1),
        call("Encrypt", "OK", 1),
        call("Decrypt", "Unavailable", 2),
        call("Decrypt", "OK", 1),
        // Who wrote it had it, and who read it has it now.
        "dek_source_cache_size{provider_name=\"p\"} 1\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let keys = |name: &str| {
        let start = format!("apiserver_envelope_encryption_key_id_hash_{name}");
        text.lines().filter(|line| line.starts_with(&start)).count()
    };
    let found = [
        keys("total{transformation_type=\"from_storage\",provider_name=\"p\",key_id_hash=\"sha256:"),
        keys("total{transformation_type=\"to_storage\""),
        keys("status_last_timestamp_seconds{provider_name=\"p\",key_id_hash=\"sha256:"),
    ];
    assert_eq!(found, [1, 1, 1], "{text}");
}
