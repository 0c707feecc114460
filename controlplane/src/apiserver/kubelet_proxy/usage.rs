//! A kubelet's `/metrics/resource`, asked for by the API server itself, for metrics.k8s.io.

use super::target::kubelet_of;
use super::{KubeletProxy, tunnel};
use crate::apiserver::body;
use crate::apiserver::usage::Fetch;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::sync::Arc;

/// Largest page that is read: a thousand containers take half of it.
const PAGE_BYTES: usize = 2 << 20;
const PATH: &str = "/metrics/resource";

impl KubeletProxy {
    /// Asks kubelets as the API server; who asks sets the deadline.
    pub fn usage_of_nodes(&self) -> Fetch {
        let tls = Arc::clone(&self.tls);
        Arc::new(move |name, node| {
            let tls = Arc::clone(&tls);
            Box::pin(async move { page(&name, &node, &tls).await })
        })
    }
}

async fn page(name: &str, node: &Value, tls: &Arc<rustls::ClientConfig>) -> Result<Bytes, String> {
    let target = kubelet_of(name, node, PATH.to_owned(), tls).map_err(|error| error.message)?;
    let request = Request::builder().method(Method::GET).uri(PATH);
    let request = request.body(body::empty()).map_err(|error| error.to_string())?;
    let response = tunnel::send(&target, request).await.map_err(|error| error.message)?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("request failed, status: \"{}\"", response.status()));
    }
    let content = Limited::new(response.into_body(), PAGE_BYTES).collect().await;
    let content = content.map_err(|error| format!("failed to read response body - {error}"))?;
    Ok(content.to_bytes())
}
