//! Certificates for members and their clients, good for as long as a test wants.
//!
//! Owns files in one directory. Never a daemon's.

use crate::members::{COUNT, Side, Tls};
use anyhow::Context;
use etcd::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use std::path::{Path, PathBuf};

/// How long something is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// Until long after every test.
    Now,
    /// Not any more.
    Before,
}

/// An authority and where it puts what it signs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// Its certificate cannot be written.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(directory.join("ca.pem"), issuer.pem())?;
        let directory = directory.to_owned();
        Ok(Self { issuer, directory })
    }

    /// Certificate and key of somebody, for both sides of a connection, at the members' addresses; written over what is there.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn sign(&self, name: &str, good: Good) -> anyhow::Result<TlsFiles> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        for member in 0..COUNT {
            let address = Side::Clients.address(member).parse().context("an address")?;
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        if good == Good::Before {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let (cert, key_file) = (self.file(name, "crt"), self.file(name, "key"));
        for (file, text) in [(&cert, certificate.pem()), (&key_file, key.serialize_pem())] {
            // Whole at any moment: it may be read just now.
            let beside = file.with_extension("new");
            std::fs::write(&beside, text)?;
            std::fs::rename(beside, file)?;
        }
        Ok(TlsFiles {
            ca: Some(self.directory.join("ca.pem")),
            cert: Some(cert),
            key: Some(key_file),
        })
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.directory.join(format!("{name}.{kind}"))
    }

    /// What members are started with, and a client of this name.
    ///
    /// # Errors
    /// As [`Authority::sign`].
    pub fn tls(&self, client: &str) -> anyhow::Result<Tls> {
        self.sign("member", Good::Now)?;
        Ok(Tls {
            ca: self.directory.join("ca.pem"),
            certificate: self.file("member", "crt"),
            key: self.file("member", "key"),
            client: self.sign(client, Good::Now)?,
            root: self.sign("root", Good::Now)?,
        })
    }
}
