//! What a probe does, resolved for one container instance: which command, address and port. Pure.

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::time::Duration;

/// A check, ready to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Run a command in the container.
    Exec {
        /// The command and its arguments.
        command: Vec<String>,
    },
    /// Get an URL.
    Http(HttpCheck),
    /// Open a connection.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// Whether to speak TLS (unverified).
    pub tls: bool,
    /// Host name or address to dial.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// Headers of the probe, in order.
    pub headers: Vec<(String, String)>,
}

impl HttpCheck {
    /// The URL, as messages quote it.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", authority(&self.host, self.port), self.path)
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Why a probe cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It has no handler of a kind that is supported here.
    #[error("missing probe handler for container {0:?}")]
    NoHandler(String),
    /// Its port is out of range.
    #[error("invalid port number: {0}")]
    Port(String),
    /// Its port names none of the container's ports.
    #[error("port {0:?} not found in container {1:?}")]
    NoSuchPort(String, String),
    /// It dials the pod, which has no address yet.
    #[error("pod has no IP address")]
    NoAddress,
}

impl Check {
    /// The check a probe means for a container of a pod with that address.
    ///
    /// # Errors
    /// The probe cannot be carried out as it is written.
    pub fn of(probe: &Probe, container: &Container, pod_ip: Option<&str>) -> Result<Self, CheckError> {
        if let Some(exec) = &probe.exec {
            return Ok(Self::Exec {
                command: exec.command.clone().unwrap_or_default(),
            });
        }
        if let Some(get) = &probe.http_get {
            return http(get, container, pod_ip).map(Self::Http);
        }
        if let Some(tcp) = &probe.tcp_socket {
            let host = host_or_pod(tcp.host.as_deref(), pod_ip)?;
            return Ok(Self::Tcp {
                host,
                port: port(&tcp.port, container)?,
            });
        }
        Err(CheckError::NoHandler(container.name.clone()))
    }
}

fn http(get: &HTTPGetAction, container: &Container, pod_ip: Option<&str>) -> Result<HttpCheck, CheckError> {
    let path = get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let headers = get
        .http_headers
        .iter()
        .flatten()
        .map(|header| (header.name.clone(), header.value.clone()))
        .collect();
    Ok(HttpCheck {
        tls: get
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        host: host_or_pod(get.host.as_deref(), pod_ip)?,
        port: port(&get.port, container)?,
        path,
        headers,
    })
}

fn host_or_pod(host: Option<&str>, pod_ip: Option<&str>) -> Result<String, CheckError> {
    let host = host
        .filter(|host| !host.is_empty())
        .or(pod_ip.filter(|ip| !ip.is_empty()));
    host.map(str::to_owned).ok_or(CheckError::NoAddress)
}

fn port(wanted: &IntOrString, container: &Container) -> Result<u16, CheckError> {
    let in_range = |number: i32| u16::try_from(number).ok().filter(|port| *port > 0);
    match wanted {
        IntOrString::Int(number) => in_range(*number).ok_or_else(|| CheckError::Port(number.to_string())),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name));
            let number = named.map(|port| port.container_port).or_else(|| name.parse().ok());
            let number = number.ok_or_else(|| CheckError::NoSuchPort(name.clone(), container.name.clone()))?;
            in_range(number).ok_or_else(|| CheckError::Port(number.to_string()))
        }
    }
}

/// How long one check may take (default 1 s).
pub fn timeout(probe: &Probe) -> Duration {
    seconds(probe.timeout_seconds, 1)
}

/// The time between checks (default 10 s).
pub fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds, 10)
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(
        value
            .and_then(|v| u64::try_from(v).ok())
            .filter(|v| *v > 0)
            .unwrap_or(default),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn resolve(probe: Value, pod_ip: Option<&str>) -> Result<Check, String> {
        let probe: Probe = serde_json::from_value(probe).expect("a probe");
        let container: Container = serde_json::from_value(json!({
            "name": "web", "ports": [{"name": "http", "containerPort": 8080}],
        }))
        .expect("a container");
        Check::of(&probe, &container, pod_ip).map_err(|error| error.to_string())
    }

    #[test]
    fn probes_resolve_to_checks() {
        let url = |check: Result<Check, String>| match check {
            Ok(Check::Http(http)) => http.url(),
            Ok(Check::Tcp { host, port }) => format!("tcp {}", authority(&host, port)),
            Ok(Check::Exec { command }) => command.join(" "),
            Err(text) => text,
        };
        let cases = [
            (json!({"httpGet": {"port": "http"}}), "http://10.0.0.1:8080/"),
            (
                json!({"httpGet": {"port": 80, "path": "live?x=1", "scheme": "HTTPS"}}),
                "https://10.0.0.1:80/live?x=1",
            ),
            (
                json!({"httpGet": {"port": 80, "host": "::1", "path": "/"}}),
                "http://[::1]:80/",
            ),
            (json!({"tcpSocket": {"port": "8081"}}), "tcp 10.0.0.1:8081"),
            (json!({"exec": {"command": ["cat", "/x"]}}), "cat /x"),
            (
                json!({"httpGet": {"port": "nope"}}),
                "port \"nope\" not found in container \"web\"",
            ),
            (json!({"tcpSocket": {"port": 70000}}), "invalid port number: 70000"),
            (json!({}), "missing probe handler for container \"web\""),
        ];
        for (probe, expected) in cases {
            assert_eq!(url(resolve(probe.clone(), Some("10.0.0.1"))), expected, "{probe}");
        }
        assert_eq!(
            url(resolve(json!({"tcpSocket": {"port": 1}}), None)),
            "pod has no IP address"
        );
    }

    #[test]
    fn durations_have_the_api_defaults() {
        let probe: Probe = serde_json::from_value(json!({"timeoutSeconds": 0, "periodSeconds": 3})).expect("a probe");
        assert_eq!(
            (timeout(&probe), period(&probe)),
            (Duration::from_secs(1), Duration::from_secs(3))
        );
    }
}
