//! Passes logs, exec, attach, port-forward and plain HTTP on to kubelets, pods and services (control-plane contract §2.1).
//!
//! Looks up where to go ([`target`], pure), opens a connection of its own for each request and relays bytes ([`tunnel`]), or
//! translates WebSockets for kubelets that do not ([`stream`]). Follows no redirect, and sends no credential of the client's on: to a kubelet the API server speaks as itself.

mod http_proxy;
mod stream;
mod target;
mod tunnel;
mod usage;

use super::authz::{Authz, forbidden};
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::unstored::Answered;
use super::user::User;
use super::{ApiServer, Body, body};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::sync::Arc;
use stream::Way;
use target::{Target, kubelet_of};

/// Most of an error text of a kubelet that is read.
const ERROR_TEXT_BYTES: usize = 2048;

/// Reaches kubelets, and through them or directly what runs on nodes.
pub struct KubeletProxy {
    tls: Arc<rustls::ClientConfig>,
}

type Outcome = Result<Response<Body>, ApiError>;

impl KubeletProxy {
    /// A proxy that shows kubelets the client certificate in `tls`, which must offer HTTP/1.1 alone.
    pub fn new(tls: rustls::ClientConfig) -> Self {
        Self { tls: Arc::new(tls) }
    }

    /// Passes the request on, or gives it back when it is not for a kubelet, pod or service.
    pub(super) async fn handle(
        &self,
        server: &ApiServer,
        authz: &Authz,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Answered {
        if !info.is_resource || !info.group.is_empty() {
            return Answered::Not(request);
        }
        Answered::Yes(match (info.resource.as_str(), info.subresource.as_str()) {
            ("pods", "log") if info.verb == "get" => self.log(server, info, request).await,
            ("pods", "exec" | "attach" | "portforward") if connects(info, &request) => {
                if let Err(error) = may_connect(server, authz, user, info) {
                    Err(error)
                } else {
                    self.stream(server, info, request).await
                }
            }
            ("pods" | "nodes" | "services", "proxy") => http_proxy::serve(&self.tls, server, info, request).await,
            _ => return Answered::Not(request),
        })
    }

    async fn log(&self, server: &ApiServer, info: &RequestInfo, request: Request<Body>) -> Outcome {
        let query = Query::parse(request.uri().query().unwrap_or(""));
        let pod = find_pod(server, info).await?;
        let container = target::container(&pod, &info.name, query.text("container"))?;
        target::check_log_options(&query)?;
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        };
        let path = target::log_path(&info.namespace, &info.name, &container, &query);
        let target = self.kubelet(server, node, path)?;
        let backend = Request::builder().method(Method::GET).uri(target.path.as_str());
        let backend = backend.body(body::empty()).map_err(ApiError::internal)?;
        let response = tunnel::send(&target, backend).await?;
        let response = refuse_errors(response, info).await?;
        let (mut parts, content) = response.into_parts();
        parts.headers.clear();
        parts
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(Response::from_parts(parts, body::boxed(content)))
    }

    async fn stream(&self, server: &ApiServer, info: &RequestInfo, request: Request<Body>) -> Outcome {
        let query = Query::parse(request.uri().query().unwrap_or(""));
        if !query.text("dryRun").is_empty() {
            return Err(ApiError::bad_request(
                "the dryRun query parameter is not supported for this request",
            ));
        }
        let pod = find_pod(server, info).await?;
        let path = match info.subresource.as_str() {
            "portforward" => target::port_forward_path(&info.namespace, &info.name, &query),
            kind => {
                let container = target::container(&pod, &info.name, query.text("container"))?;
                target::exec_path(kind, &info.namespace, &info.name, &container, &query)?
            }
        };
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
            let text = format!("pod {} does not have a host assigned", info.name);
            return Err(ApiError::bad_request(text));
        };
        let target = self.kubelet(server, node, path)?;
        match stream::way_of(request.headers(), info, &query, knows_websockets(server, node))? {
            Way::AsItIs => tunnel::upgrade(&target, request).await,
            way => stream::translate(&target, request, way).await,
        }
    }

    fn kubelet(&self, server: &ApiServer, node: &str, path: String) -> Result<Target, ApiError> {
        let found = server.reader().get("", "nodes", "", node);
        let object = found.ok_or_else(|| ApiError::not_found("", "nodes", node))?;
        kubelet_of(node, &object, path, &self.tls)
    }
}

/// Whether the method is one that opens a connection.
fn connects(info: &RequestInfo, request: &Request<Body>) -> bool {
    matches!(info.verb.as_str(), "get" | "create") && request.method() != Method::HEAD
}

/// A connection may do what it likes inside the container, so it needs `create` whatever its method (contract §2.1).
fn may_connect(server: &ApiServer, authz: &Authz, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
    if info.verb == "create" {
        return Ok(());
    }
    let create = RequestInfo {
        verb: "create".to_owned(),
        ..info.clone()
    };
    let decision = authz.authorize(user, &create, server.reader());
    if decision.allowed {
        Ok(())
    } else {
        Err(forbidden(user, &create, &decision.reason))
    }
}

/// Whether a node declares that its kubelet translates WebSockets itself (KEP-4006, KEP-5328).
fn knows_websockets(server: &ApiServer, node: &str) -> bool {
    let object = server.reader().get("", "nodes", "", node);
    let declared = object
        .as_ref()
        .and_then(|node| node["status"]["declaredFeatures"].as_array());
    declared.is_some_and(|features| features.iter().any(|feature| feature == stream::DECLARED))
}

async fn find_pod(server: &ApiServer, info: &RequestInfo) -> Result<Arc<Value>, ApiError> {
    let reader = server.reader();
    reader.refresh().await.map_err(ApiError::internal)?;
    let pod = reader.get("", "pods", &info.namespace, &info.name);
    pod.ok_or_else(|| ApiError::not_found("", "pods", &info.name))
}

/// WriteLocks a kubelet's refusal into a Status.
async fn refuse_errors(
    response: Response<hyper::body::Incoming>,
    info: &RequestInfo,
) -> Result<Response<hyper::body::Incoming>, ApiError> {
    let code = response.status();
    if (200..=206).contains(&code.as_u16()) {
        return Ok(response);
    }
    let content = Limited::new(response.into_body(), ERROR_TEXT_BYTES).collect().await;
    let content = content.map(|content| content.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&content).trim().to_owned();
    Err(match code {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(text),
        StatusCode::NOT_FOUND => {
            let message = format!(
                "the server could not find the requested resource ( pods/log {})",
                info.name
            );
            let mut error = ApiError::new(404, "NotFound", message).about("", "pods/log", &info.name);
            error.causes.push(super::status::Cause {
                kind: "UnexpectedServerResponse".to_owned(),
                message: text,
                field: String::new(),
            });
            error
        }
        code => ApiError::new(code.as_u16(), "", text).about("", "pods/log", &info.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_methods_open_connections() {
        let path = "/api/v1/namespaces/a/pods/p/exec";
        for (method, opens) in [
            (Method::GET, true),
            (Method::POST, true),
            (Method::HEAD, false),
            (Method::PUT, false),
            (Method::PATCH, false),
            (Method::DELETE, false),
        ] {
            let info = RequestInfo::parse(&method, path, &Query::default());
            let request = Request::builder()
                .method(&method)
                .uri(path)
                .body(body::empty())
                .unwrap();
            assert_eq!(connects(&info, &request), opens, "{method}");
        }
    }
}
