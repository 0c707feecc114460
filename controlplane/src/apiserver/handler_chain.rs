//! The real chain around storage, put together: authentication with impersonation, RBAC, admission, and all that is not storage.
//!
//! Decides nothing of its own; each part is a module beside this one.

use super::admission::{Admission, Attributes};
use super::audit::Audit;
use super::authn::{Authn, impersonate};
use super::authz::{Authz, forbidden};
use super::gate::Gate;
use super::kubelet_proxy::KubeletProxy;
use super::negotiate::Output;
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::unstored::{Answered, UnstoredEndpoints};
use super::user::User;
use super::{ApiServer, Body, Reader, reply};
use async_trait::async_trait;
use http::{Request, Response};
use prometheus_client::registry::Registry;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use std::sync::Arc;

/// The chain a served cluster has.
pub struct HandlerChain {
    /// Who asks.
    pub authn: Arc<Authn>,
    /// May they.
    pub authz: Arc<Authz>,
    /// What is changed and refused on the way in.
    pub admission: Admission,
    /// Health, version, reviews, tokens.
    pub unstored: UnstoredEndpoints,
    /// Logs, exec, attach, port-forward, proxies.
    pub proxy: KubeletProxy,
    /// Writes down who asked what.
    pub audit: Option<Arc<Audit>>,
}

#[async_trait]
impl Gate for HandlerChain {
    async fn authenticate(
        &self,
        parts: &http::request::Parts,
        peer: Option<&[CertificateDer<'static>]>,
        reader: &Reader,
    ) -> Result<User, ApiError> {
        self.authn.authenticate(parts, peer, reader).await
    }

    async fn impersonate(
        &self,
        sender: &User,
        parts: &http::request::Parts,
        reader: &Reader,
    ) -> Result<Option<User>, ApiError> {
        impersonate(sender, &parts.headers, &self.authz, reader)
    }

    async fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Result<(), ApiError> {
        let decision = self.authz.authorize(user, info, reader);
        if decision.allowed {
            Ok(())
        } else {
            Err(forbidden(user, info, &decision.reason))
        }
    }

    async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        self.admission.mutate(attributes, object, old, reader).await
    }

    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        self.admission.validate(attributes, object, old, reader).await
    }

    fn register(&self, reader: &Reader, registry: &mut Registry) {
        self.admission.register(reader, registry);
    }

    fn enforces_quota(&self) -> bool {
        self.admission.enforces_quota()
    }

    fn audit(&self) -> Option<&Arc<Audit>> {
        self.audit.as_ref()
    }

    async fn other(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>> {
        let parts = (
            request.headers().clone(),
            request.uri().query().unwrap_or("").to_owned(),
        );
        let mut answered = self.unstored.handle(server, user, info, request).await;
        if let Answered::Not(request) = answered {
            answered = self.proxy.handle(server, &self.authz, user, info, request).await;
        }
        match answered {
            Answered::Yes(Ok(response)) => Ok(response),
            Answered::Yes(Err(error)) => {
                let output = Output::of_status(&parts.0, &Query::parse(&parts.1));
                Ok(reply::error(&error, &error.to_status(), output))
            }
            Answered::Not(request) => Err(request),
        }
    }
}
