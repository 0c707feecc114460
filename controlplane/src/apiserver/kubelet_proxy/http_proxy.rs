//! `proxy` subresources: plain HTTP to a node's kubelet, a pod's port or a service's ready endpoint (control-plane contract §2.1).

use super::target::{ProxyId, Target, kubelet_of, proxy_id, proxyable};
use super::{Outcome, tunnel};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::{ApiServer, Body, body};
use http::header::UPGRADE;
use http::{Request, Response};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a node's name may take to look up.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);

/// Relays one request.
pub(super) async fn serve(
    tls: &Arc<rustls::ClientConfig>,
    server: &ApiServer,
    info: &RequestInfo,
    request: Request<Body>,
) -> Outcome {
    if request.headers().contains_key(UPGRADE) {
        return Err(ApiError::bad_request("upgrades are not supported yet for this request"));
    }
    let id = proxy_id(&info.name)?;
    server.reader().refresh().await.map_err(ApiError::internal)?;
    let path = backend_path(&request, !info.namespace.is_empty());
    let target = match info.resource.as_str() {
        "nodes" => node(tls, server, &id, path).await?,
        "pods" => pod(tls, server, &info.namespace, &id, path)?,
        _ => service(tls, server, &info.namespace, &id, path)?,
    };
    let (parts, content) = request.into_parts();
    let mut backend = Request::builder().method(parts.method).uri(target.path.as_str());
    if let Some(headers) = backend.headers_mut() {
        *headers = tunnel::forwarded(&parts.headers);
    }
    let backend = backend.body(content).map_err(ApiError::internal)?;
    let response = tunnel::send(&target, backend).await?;
    let (mut parts, content) = response.into_parts();
    parts.headers = tunnel::forwarded(&parts.headers);
    Ok(Response::from_parts(parts, body::boxed(content)))
}

/// What follows the subresource in the raw path, with the query.
fn backend_path(request: &Request<Body>, namespaced: bool) -> String {
    // /api/v1/namespaces/NS/pods/NAME/proxy or /api/v1/nodes/NAME/proxy, counted from the empty text before the first slash.
    let own_elements = if namespaced { 8 } else { 6 };
    let rest = request.uri().path().splitn(own_elements + 1, '/').nth(own_elements);
    let path = rest.unwrap_or_default();
    match request.uri().query() {
        Some(query) => format!("/{path}?{query}"),
        None => format!("/{path}"),
    }
}

/// A port of a node, most often its kubelet's. A node says itself where it is, so that is looked at before anything is sent there.
async fn node(
    tls: &Arc<rustls::ClientConfig>,
    server: &ApiServer,
    id: &ProxyId,
    path: String,
) -> Result<Target, ApiError> {
    let object = server.reader().get("", "nodes", "", &id.name);
    let object = object.ok_or_else(|| ApiError::not_found("", "nodes", &id.name))?;
    let mut target = kubelet_of(&id.name, &object, path, tls)?;
    target.addresses = proxyable_addresses(&target.host).await?;
    if !id.port.is_empty() {
        let port = number(&id.port)?;
        // Another port of the node is plain HTTP unless the scheme says otherwise; our certificate is for its kubelet alone.
        if port != target.port {
            target.tls = None;
            if id.https {
                return Err(ApiError::bad_request(
                    "https is supported for the kubelet's own port alone",
                ));
            }
        }
        target.port = port;
    }
    Ok(target)
}

/// The addresses of a host, all of which may be asked.
async fn proxyable_addresses(host: &str) -> Result<Vec<IpAddr>, ApiError> {
    let lookup = tokio::time::timeout(LOOKUP_DEADLINE, tokio::net::lookup_host((host, 0)));
    let found = match lookup.await {
        Ok(Ok(found)) => found.map(|address| address.ip()),
        Ok(Err(error)) => return Err(ApiError::bad_request(format!("lookup {host}: {error}"))),
        Err(_) => return Err(ApiError::bad_request(format!("lookup {host}: i/o timeout"))),
    };
    let addresses: Vec<IpAddr> = found.collect();
    if addresses.is_empty() {
        return Err(ApiError::bad_request("no addresses for hostname"));
    }
    for address in &addresses {
        proxyable(*address)?;
    }
    Ok(addresses)
}

fn number(port: &str) -> Result<u16, ApiError> {
    let port = port.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| ApiError::bad_request("invalid port in proxy request"))
}

fn pod(
    tls: &Arc<rustls::ClientConfig>,
    server: &ApiServer,
    namespace: &str,
    id: &ProxyId,
    path: String,
) -> Result<Target, ApiError> {
    let pod = server.reader().get("", "pods", namespace, &id.name);
    let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", &id.name))?;
    let host = pod["status"]["podIP"].as_str().unwrap_or_default();
    if host.is_empty() {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let port = if id.port.is_empty() {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.filter_map(|container| container["ports"][0]["containerPort"].as_u64());
        u16::try_from(ports.next().unwrap_or(80)).map_err(ApiError::internal)?
    } else {
        number(&id.port)?
    };
    direct(tls, host, port, id.https, path)
}

fn service(
    tls: &Arc<rustls::ClientConfig>,
    server: &ApiServer,
    namespace: &str,
    id: &ProxyId,
    path: String,
) -> Result<Target, ApiError> {
    let reader = server.reader();
    let service = reader.get("", "services", namespace, &id.name);
    let service = service.ok_or_else(|| ApiError::not_found("", "services", &id.name))?;
    let unavailable = || {
        let text = format!("no endpoints available for service \"{}\"", id.name);
        ApiError::new(503, "ServiceUnavailable", text)
    };
    let port_name = service_port(&service, &id.port).ok_or_else(unavailable)?;
    let slices = reader.list("discovery.k8s.io", "endpointslices", namespace);
    let own = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == id.name.as_str());
    let mut ready: Vec<(String, u16)> = own.flat_map(|slice| addresses(slice, &port_name)).collect();
    ready.sort();
    let index = usize::try_from(server.random()).unwrap_or(0);
    let chosen = index.checked_rem(ready.len()).and_then(|index| ready.get(index));
    let (host, port) = chosen.ok_or_else(unavailable)?;
    direct(tls, host, *port, id.https, path)
}

/// The name (perhaps empty) of the service port meant: by name, by number, or the only one.
fn service_port(service: &Value, wanted: &str) -> Option<String> {
    let ports = service["spec"]["ports"].as_array()?;
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
    if wanted.is_empty() {
        return match ports.as_slice() {
            [only] => Some(name(only)),
            _ => ports.iter().map(name).find(String::is_empty),
        };
    }
    let by_number = wanted.parse::<u64>().ok();
    let found = ports
        .iter()
        .find(|port| name(port) == wanted || (by_number.is_some() && port["port"].as_u64() == by_number));
    found.map(name)
}

/// Ready addresses of a slice with the number of the named port.
fn addresses(slice: &Value, port_name: &str) -> Vec<(String, u16)> {
    let ports = slice["ports"].as_array().into_iter().flatten();
    let mut ports = ports.filter(|port| port["name"].as_str().unwrap_or_default() == port_name);
    let port = ports.find_map(|port| u16::try_from(port["port"].as_u64()?).ok());
    let Some(port) = port else { return Vec::new() };
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .filter_map(|endpoint| Some((endpoint["addresses"][0].as_str()?.to_owned(), port)))
        .collect()
}

/// A pod's or endpoint's address; never one of the control plane's own machine.
fn direct(
    tls: &Arc<rustls::ClientConfig>,
    host: &str,
    port: u16,
    https: bool,
    path: String,
) -> Result<Target, ApiError> {
    let address: IpAddr = host.parse().map_err(|_| ApiError::bad_request("address not allowed"))?;
    proxyable(address)?;
    let tls = https.then(|| without_identity(tls));
    Ok(Target {
        host: host.to_owned(),
        addresses: vec![address],
        port,
        path,
        tls,
    })
}

/// The same verification without our client certificate, which is for kubelets alone.
fn without_identity(tls: &Arc<rustls::ClientConfig>) -> Arc<rustls::ClientConfig> {
    let mut own = rustls::ClientConfig::clone(tls);
    own.client_auth_cert_resolver = Arc::new(NoIdentity);
    Arc::new(own)
}

#[derive(Debug)]
struct NoIdentity;

impl rustls::client::ResolvesClientCert for NoIdentity {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Parts;
    use crate::apiserver::gate::Open;
    use crate::store::memory::Memory;
    use http_body_util::BodyExt;
    use serde_json::json;

    fn tls() -> Arc<rustls::ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = config.with_root_certificates(rustls::RootCertStore::empty());
        Arc::new(config.with_no_client_auth())
    }

    async fn send(server: &ApiServer, method: &str, path: &str, object: Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let response = server
            .handle(None, request.body(body::full(object.to_string())).unwrap())
            .await;
        let (parts, content) = response.into_parts();
        let text = content.collect().await.unwrap().to_bytes();
        assert!(parts.status.is_success(), "{}", String::from_utf8_lossy(&text));
    }

    /// Who may write the status of a node or a pod must not have the control plane ask its own machine, with its own certificate.
    #[tokio::test]
    async fn a_node_leads_to_itself_and_never_to_the_control_plane() {
        let server = ApiServer::new(Parts {
            store: Arc::new(Memory::new()),
            clock: Arc::new(client::SystemClock),
            seed: 7,
            gate: Arc::new(Open),
        })
        .await
        .unwrap();
        let tls = tls();
        for (name, kind, address) in [
            ("loopback", "InternalIP", "127.0.0.1"),
            ("mapped", "InternalIP", "::ffff:127.0.0.1"),
            ("named", "Hostname", "localhost"),
            ("metadata", "InternalIP", "169.254.169.254"),
            ("honest", "InternalIP", "192.0.2.7"),
        ] {
            let object = json!({"metadata": {"name": name}, "status": {"addresses": [{"type": kind, "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}});
            send(&server, "POST", "/api/v1/nodes", object).await;
            server.reader().refresh().await.unwrap();
            for port in ["", "10250", "28080"] {
                let id = ProxyId {
                    https: false,
                    name: name.to_owned(),
                    port: port.to_owned(),
                };
                let target = node(&tls, &server, &id, "/x".to_owned()).await;
                if name == "honest" {
                    let target = target.unwrap();
                    assert_eq!(target.addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
                    assert_eq!(target.tls.is_some(), port != "28080");
                    continue;
                }
                let error = target.unwrap_err();
                assert_eq!(
                    (error.code, &*error.message),
                    (400, "address not allowed"),
                    "{name}:{port}"
                );
            }
        }
        let pods = "/api/v1/namespaces/a/pods";
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        send(&server, "POST", pods, pod).await;
        let id = proxy_id("p:28080").unwrap();
        for (address, is_asked) in [("::ffff:127.0.0.1", false), ("10.0.0.1", true)] {
            let mut object = Value::clone(&server.reader().get("", "pods", "a", "p").unwrap());
            object["kind"] = json!("Pod");
            object["apiVersion"] = json!("v1");
            object["status"]["podIP"] = json!(address);
            object["status"]["podIPs"] = json!([{"ip": address}]);
            send(&server, "PUT", &format!("{pods}/p/status"), object).await;
            server.reader().refresh().await.unwrap();
            let target = super::pod(&tls, &server, "a", &id, "/".to_owned());
            assert_eq!(
                target.map_err(|error| error.code).err(),
                (!is_asked).then_some(400),
                "{address}"
            );
        }
    }

    #[test]
    fn service_ports_are_found_by_name_number_or_being_the_only_one() {
        let service = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"name": "admin", "port": 8080}]}});
        assert_eq!(service_port(&service, "web").as_deref(), Some("web"));
        assert_eq!(service_port(&service, "8080").as_deref(), Some("admin"));
        assert_eq!(service_port(&service, ""), None);
        let single = json!({"spec": {"ports": [{"port": 80}]}});
        assert_eq!(service_port(&single, "").as_deref(), Some(""));
    }

    #[test]
    fn only_ready_addresses_serve() {
        let slice = json!({"ports": [{"name": "web", "port": 8080}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.2"]}]});
        assert_eq!(addresses(&slice, "web"), [("10.0.0.2".to_owned(), 8080)]);
        assert!(addresses(&slice, "admin").is_empty());
    }

    #[test]
    fn the_raw_path_is_passed_on() {
        let path = |uri: &str| {
            let request = Request::get(uri).body(body::empty()).unwrap();
            backend_path(&request, uri.contains("/namespaces/"))
        };
        assert_eq!(path("/api/v1/namespaces/proxy/pods/p:80/proxy"), "/");
        assert_eq!(
            path("/api/v1/namespaces/proxy/pods/p:80/proxy/a%20b/c?x=1"),
            "/a%20b/c?x=1"
        );
        assert_eq!(path("/api/v1/nodes/n/proxy/metrics/"), "/metrics/");
    }
}
