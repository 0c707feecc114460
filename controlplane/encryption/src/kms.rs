//! A key management plugin, v2 (KEP-3299): it keeps the key, we keep what it has encrypted.
//!
//! A seed is made here, encrypted once by the plugin, and every value has a key of its own derived of it. When the plugin says that it
//! writes with another key, another seed is made; what was written with the one before is stale. Owns the seeds in use and those of
//! values that have been read; the calls are `service`'s.

mod service;

use crate::cipher::{self, Algorithm, CipherError, SEED_BYTES, Secret};
use crate::config::KmsPlugin;
use crate::metrics::{Metrics, Way};
use crate::provider::{Failed, OpenError, SealError};
use prost::Message;
use proto::kms::{EncryptResponse, EncryptedDekSourceType, EncryptedObject, StatusResponse};
use service::Service;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long is written with a key after the plugin last said that it is its own.
const WRITE_FOR: Duration = Duration::from_secs(180);
/// Longest name of a key, and longest encrypted seed, in bytes.
const SHORT_MAX: usize = 1 << 10;
/// Most that annotations may take together, in bytes.
const ANNOTATIONS_MAX: usize = 32 << 10;
/// Seeds of values read that are kept; the one used longest ago goes first.
const SEEDS_MAX: usize = 1024;

/// What values are written with.
#[derive(Clone)]
struct Writing {
    seed: Arc<Secret>,
    /// All of a stored value but its data.
    envelope: EncryptedObject,
    until: Instant,
}

/// Seeds and keys that the plugin has decrypted, by what they were decrypted of.
#[derive(Default)]
struct Seeds {
    by_envelope: HashMap<[u8; 32], Arc<Secret>>,
    order: VecDeque<[u8; 32]>,
}

impl Seeds {
    fn insert(&mut self, of: [u8; 32], seed: Arc<Secret>) {
        if self.by_envelope.insert(of, seed).is_none() {
            self.order.push_back(of);
        }
        if self.order.len() > SEEDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_envelope.remove(&oldest);
        }
    }
}

#[derive(Default)]
struct State {
    writing: Option<Writing>,
    seeds: Seeds,
    /// What the last look at the plugin found wrong.
    wrong: Option<String>,
}

/// See the module.
pub struct Kms {
    name: String,
    service: Service,
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

impl Kms {
    /// A client of a plugin, which is asked nothing yet.
    pub fn connect(plugin: &KmsPlugin, metrics: &Arc<Metrics>) -> Self {
        Self {
            name: plugin.name.clone(),
            service: Service::new(plugin, metrics),
            state: Mutex::default(),
            metrics: Arc::clone(metrics),
        }
    }

    /// The name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the plugin how it is, and makes a seed if it writes with another key than the last one.
    ///
    /// # Errors
    /// What is wrong with it; reads and, for a while, writes go on.
    pub async fn look(&self) -> Result<(), String> {
        // Before the call: the time is an upper bound.
        let until = Instant::now() + WRITE_FOR;
        let found = self.renewed(until).await;
        let mut state = self.state();
        state.wrong = found.as_ref().err().cloned();
        if let Some(writing) = found? {
            self.keep(&mut state, digest(&writing.envelope), &writing.seed);
            state.writing = Some(writing);
        } else if let Some(writing) = &mut state.writing {
            writing.until = until;
        }
        Ok(())
    }

    /// What is to be written with from now on; `None` if it is what was written with before.
    async fn renewed(&self, until: Instant) -> Result<Option<Writing>, String> {
        let name = &self.name;
        let status = self.service.status().await;
        let status = status.map_err(|error| {
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let invalid = match status.key_id.len() {
            0 => Some("empty"),
            1..=SHORT_MAX => None,
            _ => Some("too_long"),
        };
        match invalid {
            Some(invalid) => self.metrics.key_was_invalid(name, invalid),
            None => self.metrics.key_named(name, &status.key_id),
        }
        healthy(name, &status)?;
        let key_id = self.state().writing.as_ref().map(|now| now.envelope.key_id.clone());
        if key_id.as_ref() == Some(&status.key_id) {
            return Ok(None);
        }
        let began = std::time::Instant::now();
        let seed = cipher::random::<SEED_BYTES>();
        self.metrics.generated(began, seed.is_ok());
        let seed = seed.map_err(|error| error.to_string())?;
        let seed = Secret::new(seed.to_vec());
        let sealed = self.service.encrypt(&seed).await;
        let sealed = sealed.map_err(|error| format!("failed to encrypt DEK, error: {error}"))?;
        let envelope = envelope(sealed);
        valid(&envelope)?;
        Ok(Some(Writing {
            seed: Arc::new(seed),
            envelope,
            until,
        }))
    }

    /// What is stored of a value, without the provider's prefix.
    pub(crate) fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let (writing, wrong) = {
            let state = self.state();
            (state.writing.clone(), state.wrong.clone())
        };
        let name = &self.name;
        let Some(writing) = writing else {
            let wrong = wrong.unwrap_or_else(|| "it has not been asked yet".to_owned());
            return Err(SealError(format!("KMS provider {name} has no key: {wrong}")));
        };
        if Instant::now() > writing.until {
            let wrong = wrong.unwrap_or_default();
            return Err(SealError(format!(
                "the key of KMS provider {name} has expired: {wrong}"
            )));
        }
        let sealed = cipher::seed_seal(&writing.seed, key.as_bytes(), value);
        let sealed = sealed.map_err(|error| SealError(error.to_string()))?;
        self.metrics.key_used(Way::ToStorage, name, &writing.envelope.key_id);
        Ok(EncryptedObject {
            encrypted_data: sealed,
            ..writing.envelope
        }
        .encode_to_vec())
    }

    /// The value, and whether another key would be written with now.
    pub(crate) async fn open(&self, key: &str, stored: &[u8]) -> Result<(Vec<u8>, bool), Failed> {
        let unreadable = |why: String| OpenError::Unreadable(why);
        let object = EncryptedObject::decode(stored).map_err(|error| unreadable(error.to_string()))?;
        if object.encrypted_data.is_empty() {
            return Err(unreadable("encrypted data is empty".to_owned()).into());
        }
        valid(&object).map_err(unreadable)?;
        let seed = self.seed_of(&object).await?;
        let (aad, data) = (key.as_bytes(), &object.encrypted_data[..]);
        let value = match object.encrypted_dek_source_type() {
            EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed => cipher::seed_open(&seed, aad, data),
            EncryptedDekSourceType::AesGcmKey if matches!(seed.len(), 16 | 24 | 32) => {
                Algorithm::AesGcm.open(&seed, aad, data)
            }
            EncryptedDekSourceType::AesGcmKey => Err(CipherError::KeyLength(seed.len())),
        };
        let is_current = self.state().writing.as_ref().is_some_and(|now| {
            let (now, object) = (&now.envelope, &object);
            now.key_id == object.key_id && now.encrypted_dek_source_type == object.encrypted_dek_source_type
        });
        let value = value.map_err(OpenError::from)?;
        self.metrics.key_used(Way::FromStorage, &self.name, &object.key_id);
        Ok((value, !is_current))
    }

    /// What the data of a stored value are encrypted with; the plugin is asked once.
    async fn seed_of(&self, object: &EncryptedObject) -> Result<Arc<Secret>, Failed> {
        let of = digest(object);
        let known = self.state().seeds.by_envelope.get(&of).map(Arc::clone);
        if let Some(known) = known {
            return Ok(known);
        }
        self.metrics.cache_missed();
        let seed = self.service.decrypt(object).await;
        let seed = seed.map_err(|error| {
            let why = format!("failed to decrypt DEK, error: {error}");
            let code = error.code;
            let error = match error.is_final {
                true => OpenError::Unreadable(why),
                false => OpenError::Unavailable(why),
            };
            Failed { error, code }
        })?;
        let seed = Arc::new(seed);
        self.keep(&mut self.state(), of, &seed);
        Ok(seed)
    }

    fn keep(&self, state: &mut State, of: [u8; 32], seed: &Arc<Secret>) {
        state.seeds.insert(of, Arc::clone(seed));
        self.metrics.seeds_kept(&self.name, state.seeds.by_envelope.len());
    }
}

fn envelope(sealed: EncryptResponse) -> EncryptedObject {
    EncryptedObject {
        encrypted_data: Vec::new(),
        key_id: sealed.key_id,
        encrypted_dek_source: sealed.ciphertext,
        annotations: sealed.annotations,
        encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
    }
}

/// What tells seeds apart: everything the plugin is told of one.
fn digest(object: &EncryptedObject) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(&object.encrypted_dek_source_type.to_be_bytes());
    part(&object.encrypted_dek_source);
    part(object.key_id.as_bytes());
    let mut annotations: Vec<_> = object.annotations.iter().collect();
    annotations.sort();
    for (name, value) in annotations {
        part(name.as_bytes());
        part(value);
    }
    hash.finalize().into()
}

/// Whether a plugin's word on itself will do; upstream's texts.
fn healthy(name: &str, status: &StatusResponse) -> Result<(), String> {
    let mut wrong = Vec::new();
    if status.healthz != "ok" {
        wrong.push(format!("got unexpected healthz status: {}", status.healthz));
    }
    if !matches!(&*status.version, "v2" | "v2beta1") {
        wrong.push(format!("expected KMSv2 API version v2, got {}", status.version));
    }
    if let Err(why) = valid_key_id(&status.key_id) {
        wrong.push(format!("expected KMSv2 KeyID to be set, got {}: {why}", status.key_id));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "kmsv2 Provider {name} is not healthy, error: {}",
            wrong.join(", ")
        )),
    }
}

fn valid_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        1..=SHORT_MAX => Ok(()),
        length => Err(format!(
            "keyID is {length} bytes, which exceeds the max size of {SHORT_MAX}"
        )),
    }
}

/// Whether what stands beside a value's data is within its bounds.
fn valid(object: &EncryptedObject) -> Result<(), String> {
    let kind = object.encrypted_dek_source_type;
    if EncryptedDekSourceType::try_from(kind).is_err() {
        return Err(format!("unknown encryptedDEKSourceType: {kind}"));
    }
    match object.encrypted_dek_source.len() {
        0 => {
            return Err("failed to validate encrypted DEK source: encrypted DEK source is empty".to_owned());
        }
        length if length > SHORT_MAX => {
            return Err(format!(
                "failed to validate encrypted DEK source: encrypted DEK source is {length} bytes, which exceeds the max size of \
                 {SHORT_MAX}"
            ));
        }
        _ => {}
    }
    valid_key_id(&object.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
    let bytes: usize = object
        .annotations
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > ANNOTATIONS_MAX {
        return Err(format!(
            "failed to validate annotations: total size of annotations is {bytes}, which exceeds the max size of {ANNOTATIONS_MAX}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
