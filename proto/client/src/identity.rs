//! A client certificate that may change while clients run: new connections use the newest one, and those made with an older one
//! are closed, so that long watches do not go on under a certificate that expires.

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, SignatureScheme};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Why a PEM text is no client certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No certificate, or no private key, in the text.
    #[error("not a PEM certificate with its private key: {0}")]
    Pem(String),
    /// The key is of a kind TLS cannot use, or not the certificate's.
    #[error("the private key cannot be used")]
    Key(#[source] TlsError),
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<CertifiedKey>>,
    /// Ends the connections made since the last change.
    connections: CancellationToken,
}

/// A client certificate that may change, or may not be there yet. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    state: Arc<Mutex<State>>,
}

impl Identity {
    /// Uses this certificate chain and key (PEM, in one text) from now on, and closes all connections made so far.
    ///
    /// # Errors
    /// See [`IdentityError`]; nothing changes then.
    pub fn set(&self, pem: &[u8]) -> Result<(), IdentityError> {
        let bad = |error: &dyn std::fmt::Display| IdentityError::Pem(error.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.map_err(|error| bad(&error))?;
        if chain.is_empty() {
            return Err(bad(&"no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| bad(&error))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(IdentityError::Key)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(IdentityError::Key)?;
        let old = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.current = Some(Arc::new(certified));
            std::mem::take(&mut state.connections)
        };
        old.cancel();
        Ok(())
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.current.clone()
    }

    /// Wraps a connection made now.
    pub(crate) fn connection<S>(&self, stream: S) -> Closing<S> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Closing {
            stream,
            closed: Box::pin(state.connections.clone().cancelled_owned()),
            over: false,
        }
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _root_hint_subjects: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current()
    }

    fn has_certs(&self) -> bool {
        self.current().is_some()
    }
}

/// A connection that ends when its certificate is replaced.
pub(crate) struct Closing<S> {
    stream: S,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    over: bool,
}

impl<S> Closing<S> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.over = self.over || self.closed.as_mut().poll(cx).is_ready();
        if self.over {
            let why = "the client certificate was replaced";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        Ok(())
    }
}

impl<S: Read + Unpin> Read for Closing<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Write + Unpin> Write for Closing<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

impl<S: Connection> Connection for Closing<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pem() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = rcgen::CertificateParams::new(vec![])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        cert.pem() + &key.serialize_pem()
    }

    #[tokio::test]
    async fn a_new_certificate_closes_the_connections_made_before() {
        let identity = Identity::default();
        assert!(!identity.has_certs());
        identity.set(pem().as_bytes()).unwrap();
        let (near, mut far) = tokio::io::duplex(64);
        let mut old = TokioIo::new(identity.connection(TokioIo::new(near)));
        far.write_all(b"x").await.unwrap();
        assert_eq!(old.read_u8().await.unwrap(), b'x');
        let waiting = tokio::spawn(async move { old.read_u8().await });
        identity.set(pem().as_bytes()).unwrap();
        let ended = waiting.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionAborted);
        let (near, mut far) = tokio::io::duplex(64);
        let mut new = TokioIo::new(identity.connection(TokioIo::new(near)));
        far.write_all(b"y").await.unwrap();
        assert_eq!(new.read_u8().await.unwrap(), b'y');
    }

    #[test]
    fn what_is_no_pair_changes_nothing() {
        let identity = Identity::default();
        identity.set(pem().as_bytes()).unwrap();
        let before = identity.current().unwrap();
        let (one, other) = (pem(), pem());
        let mixed = one.split("-----BEGIN PRIVATE").next().unwrap().to_owned()
            + &other[other.find("-----BEGIN PRIVATE").unwrap()..];
        for text in ["", "nonsense", mixed.as_str()] {
            identity.set(text.as_bytes()).unwrap_err();
        }
        assert!(Arc::ptr_eq(&before, &identity.current().unwrap()));
    }
}
