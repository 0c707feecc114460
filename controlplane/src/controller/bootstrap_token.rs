//! Bootstrap tokens: Secrets of type `bootstrap.kubernetes.io/token` in kube-system (control-plane contract §6, §12). Expired ones are
//! removed, and ConfigMap `cluster-info` in kube-public is signed by each that may sign, as `kubeadm join` expects.
//!
//! Never makes tokens (people do) and never authenticates by them (the API server does).

pub mod clean;
pub mod sign;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;

/// When the token ends; `None` means never. What cannot be read has ended: nobody can have meant it to last.
fn expiration(secret: &Secret) -> Option<Timestamp> {
    let text = datum(secret, "expiration")?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

fn datum<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    let bytes = secret.data.as_ref()?.get(key)?;
    std::str::from_utf8(&bytes.0).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::well_known::bootstrap_token::{NAME_PREFIX, SECRET_TYPE};
    use crate::controller::write::Verb;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn token(id: &str, expiration: &str) -> Arc<Secret> {
        let data = [
            ("token-id", id),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
            ("expiration", expiration),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        Arc::new(Secret {
            metadata: kube::api::ObjectMeta {
                name: Some(format!("{NAME_PREFIX}{id}")),
                ..Default::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(BTreeMap::from(data)),
            ..Secret::default()
        })
    }

    fn now() -> Timestamp {
        "2027-01-15T08:00:00Z".parse().unwrap()
    }

    #[test]
    fn tokens_go_when_they_end() {
        let left = |expiration: &str| clean::left(&token("abcdef", expiration), now()).map(|left| left.as_secs());
        assert_eq!(left(""), None);
        assert_eq!(left("2027-01-15T09:00:00Z"), Some(3600));
        assert_eq!(left("2027-01-15T07:00:00Z"), Some(0));
        assert_eq!(left("tomorrow"), Some(0));
    }

    #[test]
    fn every_token_that_may_sign_signs_and_old_signatures_go() {
        let map = |data: &[(&str, &str)]| ConfigMap {
            data: Some(data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
            ..ConfigMap::default()
        };
        let tokens = [token("abcdef", ""), token("fedcba", "2027-01-15T07:00:00Z")];
        let stored = map(&[
            ("kubeconfig", "content"),
            ("jws-kubeconfig-zzzzzz", "old"),
            ("other", "kept"),
        ]);
        let write = sign::plan(&stored, &tokens, now()).unwrap();
        let Verb::Replace(body) = write.verb else { panic!() };
        let signed: ConfigMap = serde_json::from_value(body).unwrap();
        let data = signed.data.clone().unwrap();
        assert_eq!(
            data.keys().collect::<Vec<_>>(),
            ["jws-kubeconfig-abcdef", "kubeconfig", "other"]
        );
        // HMAC-SHA256 of `eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9.Y29udGVudA` under the secret.
        let (header, rest) = data["jws-kubeconfig-abcdef"].split_once('.').unwrap();
        assert_eq!(header, "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9");
        let mac = rest.strip_prefix('.').unwrap();
        let key = jsonwebtoken::DecodingKey::from_secret(b"0123456789abcdef");
        let message = format!("{header}.Y29udGVudA");
        assert!(jsonwebtoken::crypto::verify(mac, message.as_bytes(), &key, jsonwebtoken::Algorithm::HS256).unwrap());
        assert_eq!(sign::plan(&signed, &tokens, now()), None);
        assert_eq!(sign::plan(&map(&[]), &tokens, now()), None);
    }

    #[test]
    fn a_token_signs_by_the_id_that_its_name_says() {
        let content = BTreeMap::from([("kubeconfig".to_owned(), "content".to_owned())]);
        let map = ConfigMap {
            data: Some(content),
            ..ConfigMap::default()
        };
        let signs = |name: &str, id: &str| {
            let mut secret = Secret::clone(&token(id, ""));
            secret.metadata.name = Some(name.to_owned());
            sign::plan(&map, &[Arc::new(secret)], now()).is_some()
        };
        assert!(signs("bootstrap-token-abc123", "abc123"));
        for (name, id) in [
            ("bootstrap-token-abcdef", "fedcba"),
            ("other", "abcdef"),
            ("bootstrap-token-", ""),
            ("bootstrap-token-abcde", "abcde"),
            ("bootstrap-token-abcdefg", "abcdefg"),
            ("bootstrap-token-ab.def", "ab.def"),
            ("bootstrap-token-ABCDEF", "ABCDEF"),
            ("bootstrap-token-abcdef", "\"},\"x\":{\""),
        ] {
            assert!(!signs(name, id), "{name} {id}");
        }
    }
}
