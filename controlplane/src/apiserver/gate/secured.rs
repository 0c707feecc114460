//! The real authorization and admission; only the identity is taken as given.

use crate::apiserver::admission::{Admission, Attributes};
use crate::apiserver::authz::{Authz, forbidden};
use crate::apiserver::gate::{Gate, Open};
use crate::apiserver::negotiate::Output;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::status::ApiError;
use crate::apiserver::usage::{self, Usage};
use crate::apiserver::user::User;
use crate::apiserver::{ApiServer, Body, Reader, reply};
use crate::config::AdmissionConfig;
use async_trait::async_trait;
use http::{Request, Response};
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// User and resource.
pub(crate) type Denied = Arc<Mutex<Vec<(String, &'static str)>>>;

/// Refusals are kept: a controller never needs what upstream's role of its name does not give.
pub(crate) struct Secured {
    pub(crate) refused: Arc<Mutex<Vec<String>>>,
    /// Users and resources that are refused whatever their roles say, without a note.
    pub(crate) denied: Denied,
    /// What nodes and pods use, where that is served.
    pub(crate) usage: Option<Arc<Usage>>,
    authz: Arc<Authz>,
    admission: Admission,
}

impl Secured {
    pub(crate) fn new() -> Self {
        Self::giving("10.96.0.0/16")
    }

    /// With other ranges of Services.
    pub(crate) fn giving(ranges: &str) -> Self {
        let authz = Arc::new(Authz::default());
        Self {
            refused: Arc::default(),
            denied: Arc::default(),
            usage: None,
            admission: Admission::new(authz.clone(), ranges.parse().unwrap(), AdmissionConfig::default(), 3),
            authz,
        }
    }
}

#[async_trait]
impl Gate for Secured {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Result<(), ApiError> {
        let mut denied = self.denied.lock().unwrap().clone().into_iter();
        if denied.any(|(name, resource)| name == user.name && resource == info.resource) {
            return Err(forbidden(user, info, "denied"));
        }
        let decision = self.authz.authorize(user, info, reader);
        if decision.allowed {
            return Ok(());
        }
        self.refused
            .lock()
            .unwrap()
            .push(format!("{} may not {info:?}", user.name));
        Err(forbidden(user, info, &decision.reason))
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

    async fn other(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>> {
        let usage = self.usage.as_ref().filter(|_| usage::serves(info));
        let Some(usage) = usage else { return Err(request) };
        let (parts, _) = request.into_parts();
        let output = Output::of_status(&parts.headers, &Query::default());
        let answer = usage::answer(usage, server, user, info, &parts).await;
        Ok(answer.unwrap_or_else(|error| reply::error(&error, &error.to_status(), output)))
    }
}
