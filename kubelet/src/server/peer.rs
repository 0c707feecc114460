//! Who is at the other end of a connection, and what its client certificate is worth at a moment.

use super::User;
use crate::certificate::clients::ClientAuthority;
use crate::certificate::serving::Offered;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What it showed at the handshake.
    pub certificate: Option<ClientCertificate>,
}

/// A client's certificate, whose key it has; nothing more is known of it until it is judged.
#[derive(Debug)]
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    offered: watch::Receiver<Offered>,
    /// The last judgement that was for it: signatures are not computed anew for each request.
    judged: Mutex<Option<Judged>>,
}

/// What a certificate is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is this one's.
    User(User),
    /// It is sound, and names nobody.
    Nobody,
    /// The client authority does not vouch for it now.
    Nothing,
}

#[derive(Clone, Debug)]
struct Judged {
    by: ClientAuthority,
    from: Timestamp,
    until: Timestamp,
    worth: Worth,
}

/// When the first of them ends.
fn first_end(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let ends = chain.iter().map(|certificate| {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
    });
    ends.collect::<Option<Vec<_>>>()?.into_iter().min()
}

impl ClientCertificate {
    /// As it was sent, with what leads to its authority behind it; `offered` tells the authority of each moment.
    pub fn new(chain: Vec<CertificateDer<'static>>, offered: watch::Receiver<Offered>) -> Self {
        let judged = Mutex::default();
        Self { chain, offered, judged }
    }

    /// What it is worth at that time.
    pub(super) fn worth(&self, now: Timestamp) -> Worth {
        let Some(authority) = self.offered.borrow().clients.clone() else {
            return Worth::Nothing;
        };
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |last: &&Judged| last.by.is(&authority) && last.from <= now && now < last.until;
        if let Some(last) = judged.as_ref().filter(holds) {
            return last.worth.clone();
        }
        *judged = None;
        if !authority.vouches_for(&self.chain, now) {
            return Worth::Nothing;
        }
        let user = self.chain.first().and_then(|first| User::of_certificate(first));
        let worth = user.map_or(Worth::Nobody, Worth::User);
        *judged = first_end(&self.chain).map(|until| Judged {
            by: authority,
            from: now,
            until,
            worth: worth.clone(),
        });
        worth
    }
}
