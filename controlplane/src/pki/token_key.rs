//! The key that signs tokens for Secrets where controllers run beside an API server that is not in this process: a file of its cluster, in
//! any of the forms that upstream's have (PKCS#1, SEC1, PKCS#8).

use super::{PkiError, files};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::Signer;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use std::path::Path;

/// What keys can do: a scheme, its name in tokens, and how long each of the two numbers of a signature is, where it has two.
const SCHEMES: [(SignatureScheme, &str, Option<usize>); 3] = [
    (SignatureScheme::RSA_PKCS1_SHA256, "RS256", None),
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ES256", Some(32)),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ES384", Some(48)),
];

/// The key.
pub struct TokenKey {
    signer: Box<dyn Signer>,
    algorithm: &'static str,
    number_bytes: Option<usize>,
}

impl TokenKey {
    /// Reads a key.
    ///
    /// # Errors
    /// Names the file that is missing, or holds no key that tokens can be signed with.
    pub fn load(path: &Path) -> Result<Self, PkiError> {
        let pem = files::read(path)?;
        Self::of_pem(&pem).map_err(|why| PkiError::Content {
            path: path.to_owned(),
            why: format!("does not hold a usable private key: {why}"),
        })
    }

    fn of_pem(pem: &str) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
        let key = any_supported_type(&der).map_err(|error| error.to_string())?;
        let each = SCHEMES.into_iter().find_map(|(scheme, algorithm, number_bytes)| {
            let signer = key.choose_scheme(&[scheme])?;
            Some(Self {
                signer,
                algorithm,
                number_bytes,
            })
        });
        each.ok_or_else(|| "it is neither RSA nor ECDSA on P-256 or P-384".to_owned())
    }

    /// A token that claims this. It names no key: whoever checks it tries all that are known.
    ///
    /// # Errors
    /// The signature could not be made.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, String> {
        let told = |error: String| format!("cannot sign a token: {error}");
        let claims = serde_json::to_vec(claims).map_err(|error| told(error.to_string()))?;
        let header = format!("{{\"alg\":\"{}\"}}", self.algorithm);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(&claims));
        let signature = self.signer.sign(signed.as_bytes());
        let mut signature = signature.map_err(|error| told(error.to_string()))?;
        if let Some(bytes) = self.number_bytes {
            signature = plain(&signature, bytes).ok_or_else(|| told("its form is not known".to_owned()))?;
        }
        Ok(format!("{signed}.{}", encode(&signature)))
    }
}

/// The two numbers of an ECDSA signature one after the other, each so many bytes long (RFC 7518, 3.4), instead of in DER.
fn plain(der: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // No length is beyond 127: two numbers of 49 bytes at most.
    let [0x30, length, rest @ ..] = der else { return None };
    if usize::from(*length) != rest.len() {
        return None;
    }
    let mut rest = rest;
    let mut all = Vec::with_capacity(2 * bytes);
    for _ in 0..2 {
        let [2, length, more @ ..] = rest else { return None };
        let (number, more) = more.split_at_checked(usize::from(*length))?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros..];
        all.resize(all.len() + bytes.checked_sub(number.len())?, 0);
        all.extend_from_slice(number);
        rest = more;
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{Algorithm, DecodingKey, Validation};
    use rcgen::KeyPair;
    use serde_json::{Value, json};

    fn verified(token: &str, algorithm: Algorithm, key: &DecodingKey) -> Option<Value> {
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        let read = jsonwebtoken::decode::<Value>(token, key, &validation);
        read.ok().map(|read| read.claims)
    }

    #[test]
    fn tokens_are_verified_by_the_public_half() {
        let claims = json!({"iss": "kubernetes/serviceaccount", "sub": "a"});
        for (kind, algorithm) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384),
        ] {
            let pair = KeyPair::generate_for(kind).unwrap();
            let other = KeyPair::generate_for(kind).unwrap();
            let key = TokenKey::of_pem(&pair.serialize_pem()).unwrap();
            let of = |pair: &KeyPair| DecodingKey::from_ec_pem(pair.public_key_pem().as_bytes()).unwrap();
            // Numbers of signatures begin with zeros now and then.
            for _ in 0..50 {
                let token = key.sign(&claims).unwrap();
                assert_eq!(verified(&token, algorithm, &of(&pair)), Some(claims.clone()));
                assert_eq!(verified(&token, algorithm, &of(&other)), None);
            }
        }
    }

    #[test]
    fn numbers_are_as_long_as_they_are_to_be() {
        let der = |first: &[u8], second: &[u8]| {
            let number = |bytes: &[u8]| [&[2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
            let both = [number(first), number(second)].concat();
            [&[0x30, u8::try_from(both.len()).unwrap()], &both[..]].concat()
        };
        assert_eq!(plain(&der(&[1], &[0, 0x80, 2]), 2), Some(vec![0, 1, 0x80, 2]));
        assert_eq!(plain(&der(&[1, 2, 3], &[1]), 2), None, "longer");
        assert_eq!(plain(&[&der(&[1], &[1])[..], &[0]].concat(), 2), None, "more behind it");
        assert_eq!(plain(&[], 2), None);
    }

    #[test]
    fn other_keys_are_refused() {
        let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        let why = TokenKey::of_pem(&edwards).err().unwrap();
        assert_eq!(why, "it is neither RSA nor ECDSA on P-256 or P-384");
        assert!(TokenKey::of_pem("none").is_err());
        let missing = TokenKey::load(Path::new("/nowhere/sa.key")).err().unwrap();
        assert!(missing.to_string().contains("/nowhere/sa.key"), "{missing}");
    }
}
