//! One way to write and read values, and the order in which several are tried.
//!
//! Owns the prefixes. Never knows which resources are written so.

use crate::cipher::{Algorithm, CipherError};
use crate::config::{GroupResource, NamedKey, ProviderConfig};
use crate::kms::Kms;
use crate::metrics::{Metrics, NO_CALL, Way};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// How everything begins that is encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// How everything begins that is encrypted through a plugin; its name and a colon follow.
const KMS: &str = "k8s:enc:kms:v2:";
/// What upstream says when no provider wrote the value.
const NO_PREFIX: &str = "no matching prefix found";

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No key reads it.
    #[error("{0}")]
    Unreadable(String),
    /// The plugin that could read it does not answer.
    #[error("{0}")]
    Unavailable(String),
}

impl From<CipherError> for OpenError {
    fn from(error: CipherError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The same, with the status it is counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) error: OpenError,
    pub(crate) code: &'static str,
}

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Self {
        Self { error, code: NO_CALL }
    }
}

/// Why a value cannot be written; the text says which key or plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SealError(pub(crate) String);

/// A value as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) value: Bytes,
    /// Whether it would be written in another way now.
    pub(crate) is_stale: bool,
}

/// See the module.
pub(crate) enum Provider {
    Identity,
    Keys(Algorithm, Vec<NamedKey>),
    Kms(Arc<Kms>),
}

fn prefix(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::AesGcm => "k8s:enc:aesgcm:v1:",
        Algorithm::AesCbc => "k8s:enc:aescbc:v1:",
        Algorithm::Secretbox => "k8s:enc:secretbox:v1:",
    }
}

impl Provider {
    /// How what it writes begins.
    fn prefix(&self) -> Cow<'static, str> {
        match self {
            Self::Identity => Cow::Borrowed(""),
            Self::Keys(algorithm, _) => Cow::Borrowed(prefix(*algorithm)),
            Self::Kms(kms) => Cow::Owned(format!("{KMS}{}:", kms.name())),
        }
    }

    pub(crate) fn new(config: &ProviderConfig, metrics: &Arc<Metrics>) -> Self {
        match config {
            ProviderConfig::Identity => Self::Identity,
            ProviderConfig::Keys(algorithm, keys) => Self::Keys(*algorithm, keys.clone()),
            ProviderConfig::Kms(plugin) => Self::Kms(Arc::new(Kms::connect(plugin, metrics))),
        }
    }

    async fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, SealError> {
        match self {
            Self::Identity if value.starts_with(ENCRYPTED) => Err(SealError(
                "identity transformer failed: the value looks like encrypted data".to_owned(),
            )),
            Self::Identity => Ok(value.to_vec()),
            Self::Keys(algorithm, keys) => {
                let Some(first) = keys.first() else {
                    return Err(SealError("the provider has no key".to_owned()));
                };
                let sealed = algorithm.seal(&first.secret, key.as_bytes(), value);
                let sealed = sealed.map_err(|error| SealError(format!("key {}: {error}", first.name)))?;
                Ok([prefix(*algorithm).as_bytes(), first.name.as_bytes(), b":", &sealed].concat())
            }
            Self::Kms(kms) => {
                let sealed = kms.seal(key, value)?;
                Ok([KMS.as_bytes(), kms.name().as_bytes(), b":", &sealed].concat())
            }
        }
    }

    /// The value, and whether another key would be written with now; `None` if it is another provider's.
    async fn open(&self, key: &str, stored: &Bytes) -> Option<Result<Opened, Failed>> {
        match self {
            Self::Identity => (!stored.starts_with(ENCRYPTED)).then(|| {
                Ok(Opened {
                    value: stored.clone(),
                    is_stale: false,
                })
            }),
            Self::Keys(algorithm, keys) => {
                let sealed = stored.strip_prefix(prefix(*algorithm).as_bytes())?;
                Some(open_with(*algorithm, keys, key, sealed).map_err(Failed::from))
            }
            Self::Kms(kms) => {
                let rest = stored.strip_prefix(KMS.as_bytes())?;
                let sealed = rest.strip_prefix(kms.name().as_bytes())?.strip_prefix(b":")?;
                let opened = kms.open(key, sealed).await;
                Some(opened.map(|(value, is_stale)| Opened {
                    value: value.into(),
                    is_stale,
                }))
            }
        }
    }
}

/// Several keys may have one name: whichever opens it will do.
fn open_with(algorithm: Algorithm, keys: &[NamedKey], key: &str, sealed: &[u8]) -> Result<Opened, OpenError> {
    let mut failed = None;
    for (number, candidate) in keys.iter().enumerate() {
        let named = sealed.strip_prefix(candidate.name.as_bytes());
        let Some(sealed) = named.and_then(|rest| rest.strip_prefix(b":")) else {
            continue;
        };
        match algorithm.open(&candidate.secret, key.as_bytes(), sealed) {
            Ok(value) => {
                return Ok(Opened {
                    value: value.into(),
                    is_stale: number > 0,
                });
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let none = || {
        let which = if algorithm == Algorithm::Secretbox {
            "Secretbox"
        } else {
            "AES"
        };
        OpenError::Unreadable(format!(
            "no matching key was found for the provided {which} transformer"
        ))
    };
    Err(failed.map_or_else(none, OpenError::from))
}

/// How values of a resource are written, by the first, and read, by whichever wrote them.
#[derive(Clone)]
pub(crate) struct Providers {
    pub(crate) all: Vec<Arc<Provider>>,
    /// What is counted under.
    resource: Arc<str>,
    metrics: Arc<Metrics>,
}

impl Providers {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            all: Vec::new(),
            resource: Arc::from(""),
            metrics: Arc::clone(metrics),
        }
    }

    /// The same, counted as of this resource.
    pub(crate) fn of(&self, resource: &GroupResource) -> Self {
        Self {
            resource: Arc::from(resource.to_string()),
            ..self.clone()
        }
    }

    pub(crate) async fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, SealError> {
        let Some(first) = self.all.first() else {
            return Ok(value);
        };
        let began = Instant::now();
        let sealed = first.seal(key, &value).await;
        let outcome = sealed.as_ref().map(drop).map_err(|_| NO_CALL);
        // In clear there is none, as upstream has it.
        self.metrics
            .transformed(Way::ToStorage, (&self.resource, &first.prefix()), began, outcome);
        Ok(sealed?.into())
    }

    pub(crate) async fn open(&self, key: &str, stored: &Bytes) -> Result<Opened, OpenError> {
        let mut failed: Option<OpenError> = None;
        let began = Instant::now();
        let count = |prefix: &str, outcome| {
            let prefix = if prefix.is_empty() { "identity" } else { prefix };
            self.metrics
                .transformed(Way::FromStorage, (&self.resource, prefix), began, outcome);
        };
        for (number, provider) in self.all.iter().enumerate() {
            let opened = provider.open(key, stored).await;
            if let Some(opened) = &opened {
                let outcome = opened.as_ref().map(drop).map_err(|failed| failed.code);
                count(&provider.prefix(), outcome);
            }
            match opened.map(|opened| opened.map_err(|failed| failed.error)) {
                None => {}
                Some(Ok(opened)) => {
                    let is_stale = opened.is_stale || number > 0;
                    return Ok(Opened { is_stale, ..opened });
                }
                // A plugin that may come back matters more than a key that does not fit.
                Some(Err(error)) => match (&failed, &error) {
                    (None, _) | (Some(OpenError::Unreadable(_)), OpenError::Unavailable(_)) => failed = Some(error),
                    _ => {}
                },
            }
        }
        Err(failed.unwrap_or_else(|| {
            count("unknown", Err(NO_CALL));
            OpenError::Unreadable(NO_PREFIX.to_owned())
        }))
    }
}

/// A value of a resource that nothing is said of.
pub(crate) fn open_plain(stored: &Bytes) -> Result<Opened, OpenError> {
    if stored.starts_with(ENCRYPTED) {
        let why = "identity transformer tried to read encrypted data";
        return Err(OpenError::Unreadable(why.to_owned()));
    }
    Ok(Opened {
        value: stored.clone(),
        is_stale: false,
    })
}
