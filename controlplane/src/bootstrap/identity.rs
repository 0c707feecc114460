//! The Lease by which an API server says that it is one of several: `kube-system/apiserver-HASH` (contract §12; KEP-1965).
//!
//! Owns the own Lease, and removes those of API servers that have not renewed theirs for as long as it says. Nothing rests on them: they
//! are for people, and for upstream's API servers beside this one. Kept only where the store is shared.

use super::{RETRY, apiserver};
use crate::apiserver::ApiServer;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Upstream's label and its value.
const LABEL: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const LEASE_SECONDS: i32 = 3600;
const RENEW: Duration = Duration::from_secs(10);
/// The alphabet of base32 (RFC 4648), in lower case as upstream writes it.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Who an API server is: upstream hashes the host's name; here its address belongs to it, so that several on one host differ.
pub(crate) fn name(hostname: &str, address: SocketAddr) -> String {
    let hash = Sha256::digest(format!("{hostname}/{address}"));
    let (mut text, mut bits, mut held) = (String::from("apiserver-"), 0u32, 0u32);
    for byte in &hash[..16] {
        (bits, held) = ((bits << 8) | u32::from(*byte), held + 8);
        while held >= 5 {
            held -= 5;
            text.push(char::from(ALPHABET[(bits >> held) as usize & 31]));
        }
        bits &= (1 << held) - 1;
    }
    text.push(char::from(ALPHABET[(bits << (5 - held)) as usize & 31]));
    text
}

/// Keeps the Lease of this server until shutdown, where the store is shared. `hostname` is shown on it.
pub async fn keep(server: ApiServer, hostname: String, address: SocketAddr, shutdown: CancellationToken) {
    if !server.store().is_shared() {
        return;
    }
    let api: Api<Lease> = Api::namespaced(server.client_as(apiserver()), "kube-system");
    let name = name(&hostname, address);
    let holder = format!("{name}_{}", server.uuid());
    loop {
        let kept = renew(&api, &name, &holder, &hostname, server.now()).await;
        let pause = match kept {
            Ok(()) => RENEW,
            // Somebody wrote it in between: once more.
            Err(kube::Error::Api(status)) if status.code == 409 => RETRY,
            Err(error) => {
                tracing::warn!(lease = name, %error, "the lease that names this API server cannot be written");
                RENEW
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn renew(api: &Api<Lease>, name: &str, holder: &str, hostname: &str, now: Timestamp) -> Result<(), kube::Error> {
    let selector = format!("{}={}", LABEL.0, LABEL.1);
    let all = api.list(&ListParams::default().labels(&selector)).await?.items;
    for lease in all.iter().filter(|lease| is_over(lease, now)) {
        let other = lease.metadata.name.clone().unwrap_or_default();
        if other == name {
            continue;
        }
        let seen = Preconditions {
            resource_version: lease.metadata.resource_version.clone(),
            uid: None,
        };
        match api.delete(&other, &DeleteParams::default().preconditions(seen)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    let mine = all
        .into_iter()
        .find(|lease| lease.metadata.name.as_deref() == Some(name));
    let is_new = mine.is_none();
    let lease = kept(mine, name, holder, hostname, now);
    match is_new {
        true => api.create(&PostParams::default(), &lease).await?,
        false => api.replace(name, &PostParams::default(), &lease).await?,
    };
    Ok(())
}

/// Whether nobody has renewed it for as long as it says.
fn is_over(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let (Some(seconds), Some(renewed)) = (seconds, renewed) else {
        return true;
    };
    now.duration_since(renewed.0) > SignedDuration::from_secs(i64::from(seconds))
}

/// The Lease as it is to be: one's own, renewed now.
fn kept(mine: Option<Lease>, name: &str, holder: &str, hostname: &str, now: Timestamp) -> Lease {
    let mut lease = mine.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("kube-system".to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.metadata.managed_fields = None;
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(LABEL.0.to_owned(), LABEL.1.to_owned());
    labels.insert("kubernetes.io/hostname".to_owned(), hostname.to_owned());
    let old = lease.spec.take().unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..old
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_name_of_its_own_and_keeps_it() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let first = name("host", at(6443));
        assert_eq!(first, name("host", at(6443)));
        assert_ne!(first, name("host", at(6444)));
        assert_ne!(first, name("other", at(6443)));
        let hash = first.strip_prefix("apiserver-").unwrap();
        // Sixteen bytes in base32, unpadded.
        assert_eq!(hash.len(), 26);
        assert!(hash.bytes().all(|byte| ALPHABET.contains(&byte)), "{hash}");
    }

    #[test]
    fn what_is_not_renewed_is_over_and_what_is_kept_keeps_the_rest() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = kept(None, "apiserver-x", "apiserver-x_1", "host", at(1000));
        assert!(!is_over(&lease, at(1000 + 3600)));
        assert!(is_over(&lease, at(1000 + 3601)));
        assert!(is_over(&Lease::default(), at(0)));
        let mut before = lease;
        before.metadata.uid = Some("u".to_owned());
        let after = kept(Some(before), "apiserver-x", "apiserver-x_2", "host", at(2000));
        assert_eq!(after.metadata.uid.as_deref(), Some("u"));
        let spec = after.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("apiserver-x_2"));
        assert_eq!(spec.renew_time, Some(MicroTime(at(2000))));
    }
}
