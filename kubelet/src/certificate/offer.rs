//! What the server offers of TLS: versions, suites, curves. Pure.

use crate::config::ServingTls;
use rustls::crypto::CryptoProvider;
use rustls::{ProtocolVersion, SupportedProtocolVersion, version};

/// The cryptography and the versions a configuration asks for. Suites of TLS 1.3 are always all there, as upstream's.
pub(super) fn offer(wanted: &ServingTls) -> (CryptoProvider, Vec<&'static SupportedProtocolVersion>) {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_tls13 = |suite: &rustls::SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
    if let Some(suites) = &wanted.suites {
        provider
            .cipher_suites
            .retain(|suite| is_tls13(suite) || suites.contains(&suite.suite()));
    }
    if let Some(groups) = &wanted.groups {
        provider.kx_groups.retain(|group| groups.contains(&group.name()));
    }
    let mut versions = vec![&version::TLS13];
    if !wanted.tls13_only && provider.cipher_suites.iter().any(|suite| !is_tls13(suite)) {
        versions.push(&version::TLS12);
    }
    (provider, versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CipherSuite, NamedGroup};

    fn of(wanted: &ServingTls) -> (Vec<CipherSuite>, Vec<ProtocolVersion>) {
        let (provider, versions) = offer(wanted);
        let old = provider.cipher_suites.iter().map(rustls::SupportedCipherSuite::suite);
        let old = old.filter(|suite| suite.as_str().is_some_and(|name| !name.starts_with("TLS13_")));
        (old.collect(), versions.iter().map(|version| version.version).collect())
    }

    #[test]
    fn only_what_is_asked_for_is_offered() {
        let both = [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2];
        let (suites, versions) = of(&ServingTls::default());
        assert_eq!((suites.len(), versions.as_slice()), (6, both.as_slice()));
        let one = ServingTls {
            suites: Some(vec![CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]),
            groups: Some(vec![NamedGroup::secp384r1]),
            ..ServingTls::default()
        };
        let (suites, versions) = of(&one);
        assert_eq!(suites, [CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]);
        assert_eq!(versions, both);
        assert_eq!(offer(&one).0.kx_groups.len(), 1);
        let newest = ServingTls {
            tls13_only: true,
            ..ServingTls::default()
        };
        assert_eq!(of(&newest).1, [ProtocolVersion::TLSv1_3]);
        // A list of suites of TLS 1.3 alone leaves none for 1.2.
        let none = ServingTls {
            suites: Some(Vec::new()),
            ..ServingTls::default()
        };
        assert_eq!(of(&none).1, [ProtocolVersion::TLSv1_3]);
    }
}
