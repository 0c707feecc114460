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
use prometheus_client::registry::Registry;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use std::sync::Arc;

#[cfg(test)]
pub(crate) mod secured;
#[cfg(test)]
mod tests;

/// The chain around storage. Every function that can refuse returns the complete error reply.
///
/// A gate may stand on another one ([`Gate::beneath`]) and says then only what it changes. What neither it nor a gate
/// beneath it says is refused: who leaves something out opens nothing.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// The gate that is asked for all that this one does not say itself.
    fn beneath(&self) -> Option<&dyn Gate> {
        None
    }

    /// Who sends this request; `peer` is the client's certificate chain, leaf first, whose key the
    /// handshake has proved and whose chain is to be verified here.
    async fn authenticate(
        &self,
        parts: &http::request::Parts,
        peer: Option<&[CertificateDer<'static>]>,
        reader: &Reader,
    ) -> Result<User, ApiError> {
        let gate = self.beneath().ok_or_else(unsaid)?;
        gate.authenticate(parts, peer, reader).await
    }

    /// Whom the sender acts as for this request, if not as itself.
    ///
    /// # Errors
    /// 403 if it may not.
    async fn impersonate(
        &self,
        sender: &User,
        parts: &http::request::Parts,
        reader: &Reader,
    ) -> Result<Option<User>, ApiError> {
        let gate = self.beneath().ok_or_else(unsaid)?;
        gate.impersonate(sender, parts, reader).await
    }

    /// Whether `user` may do what `info` says; the error is the 403 reply.
    async fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Result<(), ApiError> {
        let gate = self.beneath().ok_or_else(unsaid)?;
        gate.authorize(user, info, reader).await
    }

    /// Mutating admission. `object` is null for deletions.
    async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        let gate = self.beneath().ok_or_else(unsaid)?;
        gate.mutate(attributes, object, old, reader).await
    }

    /// Validating admission, after defaulting, preparing and validation.
    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        let gate = self.beneath().ok_or_else(unsaid)?;
        gate.validate(attributes, object, old, reader).await
    }

    /// Whether writes are charged to ResourceQuotas.
    fn enforces_quota(&self) -> bool {
        self.beneath().is_some_and(Gate::enforces_quota)
    }

    /// Adds what the chain counts to `registry`.
    fn register(&self, reader: &Reader, registry: &mut Registry) {
        if let Some(gate) = self.beneath() {
            gate.register(reader, registry);
        }
    }

    /// Where requests are written down, if they are.
    fn audit(&self) -> Option<&Arc<Audit>> {
        self.beneath()?.audit()
    }

    /// Answers what is not a storage verb: health, version, reviews, tokens, logs, exec, proxies. The request is already
    /// authorized and still whole (upgrades work). `Err` gives the request back unanswered.
    async fn other(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>> {
        match self.beneath() {
            Some(gate) => gate.other(server, user, info, request).await,
            None => Err(request),
        }
    }
}

/// The reply to a question that no gate answers.
fn unsaid() -> ApiError {
    ApiError::internal("no part of the request chain decides this")
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

    async fn impersonate(
        &self,
        _sender: &User,
        _parts: &http::request::Parts,
        _reader: &Reader,
    ) -> Result<Option<User>, ApiError> {
        Ok(None)
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
}
