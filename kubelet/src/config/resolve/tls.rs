//! `tlsMinVersion`, `tlsCipherSuites` and `tlsCurvePreferences`: what the server offers.
//!
//! Names are Go's, as upstream's (kubelet contract §1). A suite or curve that upstream knows and that is not offered here
//! (old ones: CBC, RC4, 3DES, RSA key exchange, P-521) is left out, which only makes the choice narrower.

use super::Reader;
use crate::config::{KubeletConfiguration, ServingTls};
use rustls::{CipherSuite, NamedGroup};

/// Suites of TLS 1.2 that are offered, by upstream's names, old spellings among them.
const SUITES: &[(&str, CipherSuite)] = &[
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Suites upstream knows that a list may name without effect: those of TLS 1.3, which cannot be chosen there either, and
/// those that are never offered here.
const OTHER_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

const VERSIONS: &[&str] = &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// Curves by their numbers in TLS, as upstream's field has them: those that are offered.
const GROUPS: &[(i64, NamedGroup)] = &[
    (23, NamedGroup::secp256r1),
    (24, NamedGroup::secp384r1),
    (29, NamedGroup::X25519),
];
/// Those upstream knows besides: P-521 and the hybrids of ML-KEM.
const OTHER_GROUPS: &[i64] = &[25, 4587, 4588, 4589];

pub(super) fn tls(reader: &mut Reader, written: &KubeletConfiguration) -> ServingTls {
    let version = written.tls_min_version.as_deref().filter(|version| !version.is_empty());
    if let Some(version) = version.filter(|version| !VERSIONS.contains(version)) {
        let why = format!(
            "unknown tls version {version:?}: must be one of {}",
            VERSIONS.join(", ")
        );
        reader.wrong("tlsMinVersion", why);
    }
    ServingTls {
        tls13_only: version == Some("VersionTLS13"),
        suites: suites(reader, written.tls_cipher_suites.as_deref().unwrap_or_default()),
        groups: groups(reader, written.tls_curve_preferences.as_deref().unwrap_or_default()),
    }
}

fn suites(reader: &mut Reader, names: &[String]) -> Option<Vec<CipherSuite>> {
    let mut chosen = Vec::new();
    for name in names {
        match SUITES.iter().find(|(known, _)| known == name) {
            Some((_, suite)) => chosen.push(*suite),
            None if OTHER_SUITES.contains(&name.as_str()) => {}
            None => {
                let why = format!("Cipher suite {name} not supported or doesn't exist");
                reader.wrong("tlsCipherSuites", why);
            }
        }
    }
    (!names.is_empty()).then_some(chosen)
}

fn groups(reader: &mut Reader, numbers: &[i64]) -> Option<Vec<NamedGroup>> {
    let mut chosen = Vec::new();
    for number in numbers {
        match GROUPS.iter().find(|(known, _)| known == number) {
            Some((_, group)) => chosen.push(*group),
            None if OTHER_GROUPS.contains(number) => {}
            None => reader.wrong("tlsCurvePreferences", format!("unknown curve {number}")),
        }
    }
    if chosen.is_empty() && !numbers.is_empty() {
        let why = "none of these can be offered: name one of 23 (P-256), 24 (P-384), 29 (X25519)";
        reader.wrong("tlsCurvePreferences", why);
    }
    (!numbers.is_empty()).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: &str, names: &[&str], curves: &[i64]) -> Result<ServingTls, Vec<String>> {
        let written = KubeletConfiguration {
            tls_min_version: Some(version.to_owned()),
            tls_cipher_suites: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            tls_curve_preferences: Some(curves.to_vec()),
            ..KubeletConfiguration::default()
        };
        let mut reader = Reader::default();
        let tls = tls(&mut reader, &written);
        if reader.mistakes.is_empty() {
            Ok(tls)
        } else {
            Err(reader.mistakes)
        }
    }

    #[test]
    fn what_is_asked_for_is_offered_or_refused() {
        assert_eq!(read("", &[], &[]), Ok(ServingTls::default()));
        assert!(read("VersionTLS13", &[], &[]).expect("sound").tls13_only);
        // The CIS benchmark's list names suites with RSA key exchange, which are never offered.
        let cis = read(
            "VersionTLS12",
            &[
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_RSA_WITH_AES_128_GCM_SHA256",
            ],
            &[29, 25],
        )
        .expect("sound");
        assert_eq!(
            cis.suites,
            Some(vec![CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256])
        );
        assert_eq!(cis.groups, Some(vec![NamedGroup::X25519]));
        assert_eq!(
            read("SSL3", &["TLS_NULL"], &[7]).expect_err("mistakes"),
            [
                "tlsMinVersion: unknown tls version \"SSL3\": must be one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13",
                "tlsCipherSuites: Cipher suite TLS_NULL not supported or doesn't exist",
                "tlsCurvePreferences: unknown curve 7",
                "tlsCurvePreferences: none of these can be offered: name one of 23 (P-256), 24 (P-384), 29 (X25519)",
            ]
        );
    }
}
