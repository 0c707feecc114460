//! Where a request goes: addresses, ports, paths and container names read from objects. Pure.

use crate::apiserver::request::Query;
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

/// Port of kubelets that do not say another.
const KUBELET_PORT: u64 = 10250;

/// A place to send a request to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Host name or address, without brackets.
    pub(super) host: String,
    /// What the host was found to be when it was allowed: nothing else is asked. Empty where the host is looked up when it is dialled.
    pub(super) addresses: Vec<IpAddr>,
    /// Port.
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
    /// TLS, or plain HTTP.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
}

/// The kubelet of a node.
pub(super) fn kubelet_of(
    name: &str,
    node: &Value,
    path: String,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<Target, ApiError> {
    let addresses = node["status"]["addresses"].as_array();
    let of_type = |wanted: &str| {
        let mut found = addresses
            .into_iter()
            .flatten()
            .filter(|address| address["type"] == wanted);
        found.find_map(|address| address["address"].as_str())
    };
    let host = ["InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname"]
        .into_iter()
        .find_map(of_type);
    let Some(host) = host else {
        return Err(ApiError::internal(format!(
            "no preferred addresses found for node {name}"
        )));
    };
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port.filter(|port| *port != 0).unwrap_or(KUBELET_PORT);
    let port = u16::try_from(port).map_err(|_| ApiError::internal(format!("node {name} has no valid kubelet port")))?;
    Ok(Target {
        host: host.to_owned(),
        addresses: Vec::new(),
        port,
        path,
        tls: Some(Arc::clone(tls)),
    })
}

/// Refuses what is no host of its own on a network: this machine itself under any name, and addresses that mean another machine on
/// each (Go's `IsGlobalUnicast`; CVE-2022-3294).
pub(super) fn proxyable(address: IpAddr) -> Result<(), ApiError> {
    // An IPv4 address may come as an IPv6 one.
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    match address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local {
        true => Err(ApiError::bad_request("address not allowed")),
        false => Ok(()),
    }
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// The container a request means: the only one if it names none.
pub(super) fn container(pod: &Value, pod_name: &str, wanted: &str) -> Result<String, ApiError> {
    let (main, init, ephemeral) = (
        names(pod, "containers"),
        names(pod, "initContainers"),
        names(pod, "ephemeralContainers"),
    );
    if !wanted.is_empty() {
        if [&main, &init, &ephemeral].iter().any(|list| list.contains(&wanted)) {
            return Ok(wanted.to_owned());
        }
        return Err(ApiError::bad_request(format!(
            "container {wanted} is not valid for pod {pod_name}"
        )));
    }
    if let [only] = main.as_slice() {
        return Ok((*only).to_owned());
    }
    let mut text = format!("a container name must be specified for pod {pod_name}");
    if !main.is_empty() {
        text.push_str(&format!(", choose one of: [{}]", main.join(" ")));
    }
    if !init.is_empty() {
        text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
    }
    if !ephemeral.is_empty() {
        text.push_str(&format!(
            " or one of the ephemeral containers: [{}]",
            ephemeral.join(" ")
        ));
    }
    Err(ApiError::bad_request(text))
}

/// Refuses log options that cannot be meant.
pub(super) fn check_log_options(query: &Query) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    for (key, least, why) in [
        ("sinceSeconds", 1, "must be greater than 0"),
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
    ] {
        let text = query.text(key);
        if text.is_empty() {
            continue;
        }
        match text.parse::<i64>() {
            Ok(number) if number >= least => {}
            Ok(number) => errors.push(FieldError::invalid(key, json!(number), why)),
            Err(_) => {
                let text = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
                return Err(ApiError::bad_request(text));
            }
        }
    }
    let since = query.text("sinceTime");
    // Old clients write what JSON has for no time.
    if !matches!(since, "" | "null") && since.parse::<jiff::Timestamp>().is_err() {
        let text = format!("parsing time {since:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {since:?}");
        return Err(ApiError::bad_request(text));
    }
    if !query.text("sinceSeconds").is_empty() && !query.text("sinceTime").is_empty() {
        errors.push(FieldError::forbidden(
            "",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid("", "PodLogOptions", "", errors))
    }
}

/// The kubelet's path of a container's log.
pub(super) fn log_path(namespace: &str, pod: &str, container: &str, query: &Query) -> String {
    let mut asked = Vec::new();
    for key in ["follow", "previous", "timestamps"] {
        if query.flag(key) {
            asked.push((key, "true".to_owned()));
        }
    }
    for key in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
        let text = query.text(key);
        if !text.is_empty() && (key, text) != ("sinceTime", "null") {
            asked.push((key, text.to_owned()));
        }
    }
    format!("/containerLogs/{namespace}/{pod}/{container}{}", encode(&asked))
}

/// The kubelet's path of `exec` or `attach`.
pub(super) fn exec_path(
    kind: &str,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
) -> Result<String, ApiError> {
    let mut asked = Vec::new();
    for (from, to) in [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ] {
        if query.flag(from) {
            asked.push((to, "1".to_owned()));
        }
    }
    if asked.is_empty() {
        let text = "you must specify at least one of stdin, stdout, stderr";
        return Err(ApiError::bad_request(text));
    }
    if kind == "exec" {
        let before = asked.len();
        asked.extend(query.all("command").map(|word| ("command", word.to_owned())));
        if asked.len() == before {
            return Err(ApiError::bad_request("you must specify a command to execute"));
        }
    }
    Ok(format!("/{kind}/{namespace}/{pod}/{container}{}", encode(&asked)))
}

/// The kubelet's path of a port-forward.
pub(super) fn port_forward_path(namespace: &str, pod: &str, query: &Query) -> String {
    let ports: Vec<(&str, String)> = query.all("ports").map(|port| ("port", port.to_owned())).collect();
    format!("/portForward/{namespace}/{pod}{}", encode(&ports))
}

/// A query string with its question mark; empty for no parameters.
fn encode(pairs: &[(&str, String)]) -> String {
    let text: Vec<String> = pairs
        .iter()
        .map(|(key, value)| format!("{key}={}", escape(value)))
        .collect();
    if text.is_empty() {
        String::new()
    } else {
        format!("?{}", text.join("&"))
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyId {
    pub(super) https: bool,
    pub(super) name: String,
    pub(super) port: String,
}

/// Reads the name of a proxy request.
pub(super) fn proxy_id(text: &str) -> Result<ProxyId, ApiError> {
    let parts: Vec<&str> = text.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
        _ => return Err(ApiError::bad_request(format!("invalid proxy request \"{text}\""))),
    };
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("invalid proxy request \"{text}\"")));
    }
    Ok(ProxyId {
        https: scheme == "https",
        name: name.to_owned(),
        port: port.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}})
    }

    #[test]
    fn containers_are_chosen_and_refused_as_upstream() {
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(container(&one, "p", "").unwrap(), "a");
        assert_eq!(container(&pod(), "p", "i").unwrap(), "i");
        assert_eq!(
            container(&pod(), "p", "").unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(
            container(&pod(), "p", "c").unwrap_err().message,
            "container c is not valid for pod p"
        );
    }

    #[test]
    fn paths_are_the_kubelets() {
        let query = Query::parse("stdin=true&stdout=1&command=sh&command=-c&command=echo%20a%26b&tty=false");
        assert_eq!(
            exec_path("exec", "ns", "p", "c", &query).unwrap(),
            "/exec/ns/p/c?input=1&output=1&command=sh&command=-c&command=echo%20a%26b"
        );
        assert_eq!(
            exec_path("attach", "ns", "p", "c", &query).unwrap(),
            "/attach/ns/p/c?input=1&output=1"
        );
        let log = Query::parse("follow=true&tailLines=5&sinceTime=2026-01-01T00:00:00Z&container=x&unknown=1");
        assert_eq!(
            log_path("ns", "p", "c", &log),
            "/containerLogs/ns/p/c?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5"
        );
        assert_eq!(
            port_forward_path("ns", "p", &Query::parse("ports=80")),
            "/portForward/ns/p?port=80"
        );
        assert!(exec_path("exec", "ns", "p", "c", &Query::parse("command=sh")).is_err());
        assert!(exec_path("exec", "ns", "p", "c", &Query::parse("stdout=true")).is_err());
    }

    #[test]
    fn log_options_are_checked() {
        for (query, code) in [("tailLines=-1", 422), ("limitBytes=0", 422), ("sinceSeconds=x", 400)] {
            assert_eq!(
                check_log_options(&Query::parse(query)).unwrap_err().code,
                code,
                "{query}"
            );
        }
        assert!(check_log_options(&Query::parse("tailLines=0&sinceSeconds=1")).is_ok());
        for (time, is_time) in [
            ("zz", false),
            ("2026-01-01", false),
            ("2026-01-01T00:00:00%2B01:00", true),
            ("null", true),
        ] {
            let checked = check_log_options(&Query::parse(&format!("sinceTime={time}")));
            assert_eq!(
                checked.map_err(|error| error.code),
                if is_time { Ok(()) } else { Err(400) },
                "{time}"
            );
        }
    }

    #[test]
    fn kubelets_are_found_by_internal_address_and_reported_port() {
        let tls = Arc::new(
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth(),
        );
        let node = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10350}}, "addresses": [
            {"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "192.0.2.1"}]}});
        let target = kubelet_of("n", &node, "/x".to_owned(), &tls).unwrap();
        assert_eq!((target.host.as_str(), target.port), ("192.0.2.1", 10350));
        let silent = json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}]}});
        assert_eq!(kubelet_of("n", &silent, String::new(), &tls).unwrap().port, 10250);
        assert!(kubelet_of("n", &json!({}), String::new(), &tls).is_err());
    }

    #[test]
    fn addresses_of_this_machine_and_of_none_are_not_asked() {
        for refused in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let error = proxyable(refused.parse().unwrap()).expect_err(refused);
            assert_eq!((error.code, &*error.message), (400, "address not allowed"), "{refused}");
        }
        for allowed in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(proxyable(allowed.parse().unwrap()).is_ok(), "{allowed}");
        }
    }

    #[test]
    fn proxy_names() {
        let id = |https, name: &str, port: &str| ProxyId {
            https,
            name: name.to_owned(),
            port: port.to_owned(),
        };
        assert_eq!(proxy_id("a").unwrap(), id(false, "a", ""));
        assert_eq!(proxy_id("a:80").unwrap(), id(false, "a", "80"));
        assert_eq!(proxy_id("https:a:web").unwrap(), id(true, "a", "web"));
        for wrong in ["ftp:a:1", "", "a:b:c:d"] {
            assert!(proxy_id(wrong).is_err(), "{wrong}");
        }
    }
}
