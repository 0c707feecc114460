//! An X.509 version 3 certificate, written and signed. Pure.
//!
//! Subject and names of a client's request go in as they were sent, byte for byte, so that nothing is lost on the way.

use super::der::{
    CONTEXT_0, CONTEXT_3, bits, boolean, integer, named_bits, octets, oid, sequence, set, tagged, time, utf8,
};
use k8s_openapi::jiff::Timestamp;
use rcgen::{KeyPair, SigningKey};
use std::collections::BTreeSet;
use std::net::IpAddr;

const KEY_USAGE: &[u32] = &[2, 5, 29, 15];
const EXTENDED_KEY_USAGE: &[u32] = &[2, 5, 29, 37];
const BASIC_CONSTRAINTS: &[u32] = &[2, 5, 29, 19];
const AUTHORITY_KEY_ID: &[u32] = &[2, 5, 29, 35];
const ALTERNATIVE_NAMES: &[u32] = &[2, 5, 29, 17];
const COMMON_NAME: &[u32] = &[2, 5, 4, 3];
const ORGANIZATION: &[u32] = &[2, 5, 4, 10];

/// What a certificate's key may be used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usages {
    /// Named bits of the key usage extension.
    pub key: u16,
    /// Identifiers of the extended key usage extension.
    pub extended: Vec<&'static [u32]>,
}

impl Usages {
    /// Named bit `digitalSignature`.
    pub const DIGITAL_SIGNATURE: u16 = 1;
    /// Extended usage `serverAuth`.
    pub const SERVER_AUTH: &[u32] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
    /// Extended usage `clientAuth`.
    pub const CLIENT_AUTH: &[u32] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];

    /// Every word [`Usages::named`] knows, in alphabetical order.
    pub fn words() -> Vec<&'static str> {
        let extended = EXTENDED_USAGES.iter().map(|(name, _)| *name);
        let mut all: Vec<&str> = KEY_USAGES.iter().copied().flatten().copied().chain(extended).collect();
        all.sort_unstable();
        all
    }

    /// The usages of a CertificateSigningRequest; the error is the word that is none.
    ///
    /// # Errors
    /// The first word that is not one of [`Usages::words`].
    pub fn named<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut usages = Self::default();
        for word in words {
            match KEY_USAGES.iter().position(|names| names.contains(&word)) {
                Some(bit) => usages.key |= 1 << bit,
                None => match EXTENDED_USAGES.iter().find(|(name, _)| *name == word) {
                    Some((_, id)) if usages.extended.contains(id) => {}
                    Some((_, id)) => usages.extended.push(id),
                    None => return Err(word.to_owned()),
                },
            }
        }
        Ok(usages)
    }
}

/// The API's words for the named bits, by bit.
const KEY_USAGES: &[&[&str]] = &[
    &["digital signature", "signing"],
    &["content commitment"],
    &["key encipherment"],
    &["data encipherment"],
    &["key agreement"],
    &["cert sign"],
    &["crl sign"],
    &["encipher only"],
    &["decipher only"],
];

/// The API's words for extended usages.
const EXTENDED_USAGES: &[(&str, &[u32])] = &[
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", Usages::SERVER_AUTH),
    ("client auth", Usages::CLIENT_AUTH),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

/// Who signs.
pub(super) struct Subject<'a> {
    /// Its name, DER.
    pub(super) name: &'a [u8],
    /// Its key identifier, if it names one.
    pub(super) key_id: Option<&'a [u8]>,
}

/// A certificate before it is signed.
pub(super) struct Template {
    /// DER.
    pub(super) subject: Vec<u8>,
    /// DER.
    pub(super) public_key: Vec<u8>,
    /// Value of the extension, DER.
    pub(super) alternative_names: Option<Vec<u8>>,
    pub(super) usages: Usages,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Template {
    /// The signed certificate, PEM.
    pub(super) fn sign(&self, issuer: &Subject<'_>, key: &KeyPair, serial: &[u8]) -> Result<String, rcgen::Error> {
        let algorithm = signature_algorithm(key)?;
        let body = sequence(&[
            &tagged(CONTEXT_0, &[&integer(&[2])]),
            &integer(serial),
            &algorithm,
            issuer.name,
            &sequence(&[&time(self.not_before), &time(self.not_after)]),
            &self.subject,
            &self.public_key,
            &tagged(CONTEXT_3, &[&self.extensions(issuer)]),
        ]);
        let signature = key.sign(&body)?;
        let der = sequence(&[&body, &algorithm, &bits(&signature)]);
        Ok(pem("CERTIFICATE", &der))
    }

    fn extensions(&self, issuer: &Subject<'_>) -> Vec<u8> {
        let mut all = Vec::new();
        if self.usages.key != 0 {
            all.extend(extension(KEY_USAGE, true, &named_bits(self.usages.key)));
        }
        if !self.usages.extended.is_empty() {
            let ids: Vec<Vec<u8>> = self.usages.extended.iter().map(|id| oid(id)).collect();
            let ids: Vec<&[u8]> = ids.iter().map(Vec::as_slice).collect();
            all.extend(extension(EXTENDED_KEY_USAGE, false, &sequence(&ids)));
        }
        all.extend(extension(BASIC_CONSTRAINTS, true, &sequence(&[])));
        if let Some(id) = issuer.key_id {
            all.extend(extension(AUTHORITY_KEY_ID, false, &sequence(&[&tagged(0x80, &[id])])));
        }
        if let Some(names) = &self.alternative_names {
            all.extend(extension(ALTERNATIVE_NAMES, false, names));
        }
        sequence(&[&all])
    }
}

fn extension(id: &[u32], critical: bool, value: &[u8]) -> Vec<u8> {
    let flag = if critical { boolean(true) } else { Vec::new() };
    sequence(&[&oid(id), &flag, &octets(value)])
}

fn signature_algorithm(key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let algorithm = key.algorithm();
    let (id, null): (&[u32], bool) = if algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 {
        (&[1, 2, 840, 10045, 4, 3, 2], false)
    } else if algorithm == &rcgen::PKCS_ECDSA_P384_SHA384 {
        (&[1, 2, 840, 10045, 4, 3, 3], false)
    } else if algorithm == &rcgen::PKCS_ED25519 {
        (&[1, 3, 101, 112], false)
    } else if algorithm == &rcgen::PKCS_RSA_SHA256 {
        (&[1, 2, 840, 113_549, 1, 1, 11], true)
    } else {
        return Err(rcgen::Error::UnsupportedSignatureAlgorithm);
    };
    let parameters: &[u8] = if null { &[5, 0] } else { &[] };
    Ok(sequence(&[&oid(id), parameters]))
}

/// A distinguished name: organizations in order, then the common name.
pub(super) fn name(organizations: &[String], common_name: &str) -> Vec<u8> {
    let part = |id: &[u32], text: &str| set(&[&sequence(&[&oid(id), &utf8(text)])]);
    let mut parts: Vec<u8> = organizations.iter().flat_map(|o| part(ORGANIZATION, o)).collect();
    parts.extend(part(COMMON_NAME, common_name));
    sequence(&[&parts])
}

/// The value of a subjectAltName extension; `None` without names.
pub(super) fn alternative_names(names: &BTreeSet<String>) -> Result<Option<Vec<u8>>, rcgen::Error> {
    let mut parts = Vec::new();
    for name in names {
        parts.extend(match name.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => tagged(0x87, &[&address.octets()]),
            Ok(IpAddr::V6(address)) => tagged(0x87, &[&address.octets()]),
            Err(_) => {
                let plain = rcgen::string::Ia5String::try_from(name.as_str())?;
                tagged(0x82, &[plain.as_str().as_bytes()])
            }
        });
    }
    Ok((!names.is_empty()).then(|| sequence(&[&parts])))
}

/// A PEM block.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bits_and_identifiers() {
        let usages = Usages::named(["digital signature", "key encipherment", "client auth", "client auth"]).unwrap();
        assert_eq!(usages.key, 0b101);
        assert_eq!(usages.extended, [Usages::CLIENT_AUTH]);
        assert_eq!(Usages::named(["flying"]), Err("flying".to_owned()));
    }
}
