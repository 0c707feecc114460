//! Bootstrap signer: ConfigMap `kube-public/cluster-info` carries, for each token that may sign, a detached signature of its
//! kubeconfig (JWS, HS256), so that a joining node can tell it from a forgery.

use super::{clean, datum};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::well_known::bootstrap_token::NAME_PREFIX;
use crate::controller::well_known::cluster_info::{NAME, NAMESPACE};
use crate::controller::write::{self, Plan, Write};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::Key;
use jsonwebtoken::{Algorithm, EncodingKey};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The key whose content is signed.
const CONTENT: &str = "kubeconfig";
/// What the keys of signatures begin with, before the token's id.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// Characters of a token's id.
const ID_LENGTH: usize = 6;

/// The controller. Its one key is the config map.
pub struct BootstrapSigner {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for BootstrapSigner {
    const NAME: &'static str = "bootstrap-signer";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.cluster_info);
        wiring.on(&self.informers.bootstrap_tokens, |_| vec![Key::new(NAMESPACE, NAME)]);
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let map = self.informers.cluster_info.get_key(key);
        let tokens = self.informers.bootstrap_tokens.list();
        let write = map.and_then(|map| plan(&map, &tokens, now));
        Plan {
            writes: write.into_iter().collect(),
            ..Plan::default()
        }
    }
}

/// The write that makes the signatures right, if any.
pub(super) fn plan(map: &ConfigMap, tokens: &[Arc<Secret>], now: Timestamp) -> Option<Write> {
    let data = map.data.as_ref()?;
    let content = data.get(CONTENT)?;
    let mut wanted: BTreeMap<String, String> = data.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    for secret in tokens.iter().filter(|secret| may_sign(secret, now)) {
        if let (Some(id), Some(key)) = (id(secret), datum(secret, "token-secret"))
            && let Some(signature) = signature(content, id, key)
        {
            wanted.insert(format!("{SIGNATURE_PREFIX}{id}"), signature);
        }
    }
    if wanted == *data {
        return None;
    }
    let mut signed = map.clone();
    signed.data = Some(wanted);
    Some(Write::replace(write::CONFIG_MAPS, &signed))
}

/// The token's id, which is the Secret's name, too: there are no two of one. What is no id would be no key, or would say more than an id
/// in what is signed.
fn id(secret: &Secret) -> Option<&str> {
    let name = secret.metadata.name.as_deref()?.strip_prefix(NAME_PREFIX)?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_id = name.len() == ID_LENGTH && name.bytes().all(is_plain);
    datum(secret, "token-id").filter(|id| is_id && *id == name)
}

fn may_sign(secret: &Secret, now: Timestamp) -> bool {
    let lives = clean::left(secret, now).is_none_or(|left| !left.is_zero());
    lives && secret.metadata.deletion_timestamp.is_none() && datum(secret, "usage-bootstrap-signing") == Some("true")
}

/// `header..signature`: the payload is left out.
fn signature(content: &str, id: &str, secret: &str) -> Option<String> {
    // Written by hand: who verifies compares bytes, so the order of the fields matters.
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = EncodingKey::from_secret(secret.as_bytes());
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).ok()?;
    Some(format!("{header}..{signature}"))
}
