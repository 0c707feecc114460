//! The seam around storage: who asks, may they, what is changed on the way in, and what is not storage at all.
//!
//! The request path ([`ApiServer::handle`]) knows only [`Gate`]; the daemon gives it the real chain (authentication,
//! authorization, admission, proxies), and [`Open`] lets everything pass where that chain is not the point.

use super::admission::Attributes;
use super::audit::Audit;
use super::{ApiServer, Body, Reader};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use async_trait::async_trait;
use http::{Request, Response};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use std::sync::Arc;

#[cfg(test)]
pub(crate) mod secured;

/// The chain around storage. Every function that can refuse returns the complete error reply.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Who sends this request; `peer` is the client's certificate chain, leaf first, whose key the
    /// handshake has proved and whose chain is to be verified here.
    async fn authenticate(
        &self,
        parts: &http::request::Parts,
        peer: Option<&[CertificateDer<'static>]>,
        reader: &Reader,
    ) -> Result<User, ApiError>;

    /// Whom the sender acts as for this request, if not as itself.
    ///
    /// # Errors
    /// 403 if it may not.
    async fn impersonate(
        &self,
        _sender: &User,
        _parts: &http::request::Parts,
        _reader: &Reader,
    ) -> Result<Option<User>, ApiError> {
        Ok(None)
    }

    /// Whether `user` may do what `info` says; the error is the 403 reply.
    async fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Result<(), ApiError>;

    /// Mutating admission. `object` is null for deletions.
    async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError>;

    /// Validating admission, after defaulting, preparing and validation.
    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError>;

    /// Where requests are written down, if they are.
    fn audit(&self) -> Option<&Arc<Audit>> {
        None
    }

    /// Answers what is not a storage verb: health, version, reviews, tokens, logs, exec, proxies. The request is already
    /// authorized and still whole (upgrades work). `Err` gives the request back unanswered.
    async fn other(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>>;
}

/// Lets everything pass and answers nothing beyond storage and discovery: for tests and for embedding without the chain.
/// A request without an identity is `system:admin` of group `system:masters`.
pub struct Open;

#[async_trait]
impl Gate for Open {
    async fn authenticate(
        &self,
        _parts: &http::request::Parts,
        _peer: Option<&[CertificateDer<'static>]>,
        _reader: &Reader,
    ) -> Result<User, ApiError> {
        Ok(User::named("system:admin", &["system:masters"]))
    }

    async fn authorize(&self, _user: &User, _info: &RequestInfo, _reader: &Reader) -> Result<(), ApiError> {
        Ok(())
    }

    async fn mutate(
        &self,
        _attributes: &Attributes<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
        _reader: &Reader,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    async fn validate(
        &self,
        _attributes: &Attributes<'_>,
        _object: &Value,
        _old: Option<&Value>,
        _reader: &Reader,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    async fn other(
        &self,
        _server: &ApiServer,
        _user: &User,
        _info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>> {
        Err(request)
    }
}
