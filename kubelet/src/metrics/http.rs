//! `kubelet_http_*`: the requests the server's ports answer.
//!
//! Labels come from fixed sets, chosen before anybody is authenticated: whatever strangers send, there are at most
//! [`SERIES_MAX`] series of each metric (kubelet contract §13).

use super::labels::{Counters, DEFAULT_BUCKETS, Histograms, Numbers, counters, histograms, numbers};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// What any other method or path is called.
const OTHER: &str = "other";
const METHODS: &[&str] = &["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"];
const PATHS: &[&str] = &[
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
];
/// Paths whose requests last as long as the client likes. Upstream's list spells `portforward`, which no path has.
const LONG_RUNNING: &[&str] = &["attach", "debug", "exec"];
/// The most series there can be: methods, paths, and two ports.
#[cfg(test)]
const SERIES_MAX: usize = (METHODS.len() + 1) * (PATHS.len() + 1) * 2;
/// Which port a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 10250, where users are asked who they are.
    ReadWrite,
    /// 10255, where nobody is.
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Labels {
    method: &'static str,
    path: &'static str,
    server_type: &'static str,
    long_running: &'static str,
}

impl Labels {
    fn of(port: Port, method: &str, path: &str) -> Self {
        let path = one_of(PATHS, root(path));
        Self {
            method: one_of(METHODS, method),
            path,
            server_type: match port {
                Port::ReadWrite => "readwrite",
                Port::ReadOnly => "readonly",
            },
            long_running: if LONG_RUNNING.contains(&path) { "true" } else { "false" },
        }
    }

    fn shown(self) -> super::labels::Labels {
        vec![
            ("method", self.method.into()),
            ("path", self.path.into()),
            ("server_type", self.server_type.into()),
            ("long_running", self.long_running.into()),
        ]
    }
}

/// The first part of a path; of metrics, which have several endpoints, the first two.
fn root(path: &str) -> &str {
    let path = path.trim_matches('/');
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match (first, rest.split('/').next()) {
        ("metrics", Some(second)) if !second.is_empty() => &path[..first.len() + 1 + second.len()],
        _ => first,
    }
}

fn one_of(set: &[&'static str], word: &str) -> &'static str {
    set.iter().find(|known| **known == word).copied().unwrap_or(OTHER)
}

/// The metrics of one server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Requests {
    total: Counters,
    inflight: Numbers,
    durations: Histograms,
}

impl Requests {
    /// Adds them to a registry.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            total: counters(
                registry,
                "kubelet_http_requests",
                "Number of the http requests received since the server started",
            ),
            inflight: numbers(
                registry,
                "kubelet_http_inflight_requests",
                "Number of the inflight http requests",
            ),
            durations: histograms(
                registry,
                "kubelet_http_requests_duration_seconds",
                "Duration in seconds to serve http requests",
                DEFAULT_BUCKETS,
            ),
        }
    }

    /// Counts a request that begins.
    pub(super) fn begin(&self, port: Port, method: &str, path: &str) -> Begun {
        let labels = Labels::of(port, method, path).shown();
        self.total.get_or_create(&labels).inc();
        self.inflight.get_or_create(&labels).inc();
        Begun {
            requests: self.clone(),
            labels,
            at: Instant::now(),
        }
    }
}

/// A request under way; it ends when this is dropped.
pub struct Begun {
    requests: Requests,
    labels: super::labels::Labels,
    at: Instant,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let seconds = self.at.elapsed().as_secs_f64();
        self.requests.inflight.get_or_create(&self.labels).dec();
        self.requests.durations.get_or_create(&self.labels).observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).expect("text");
        text
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_make_no_series() {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        for number in 0..10_000 {
            drop(requests.begin(Port::ReadWrite, &format!("M{number}"), &format!("/p{number}/x")));
            drop(requests.begin(Port::ReadOnly, "GET", &format!("/metrics/m{number}")));
            drop(requests.begin(
                Port::ReadWrite,
                METHODS[number % METHODS.len()],
                &format!("/run/{number}"),
            ));
        }
        let text = text(&registry);
        let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
        let series = count("kubelet_http_requests_total{");
        assert_eq!(series, 2 + METHODS.len(), "{text}");
        assert!(series <= SERIES_MAX);
        assert_eq!(count("kubelet_http_inflight_requests{"), series);
        assert_eq!(count("kubelet_http_requests_duration_seconds_count{"), series);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_in_flight_until_it_is_dropped() {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        let begun = requests.begin(Port::ReadWrite, "POST", "/exec/ns/p/c");
        let labels = r#"{method="POST",path="exec",server_type="readwrite",long_running="true"}"#;
        assert!(text(&registry).contains(&format!("kubelet_http_inflight_requests{labels} 1")));
        drop(begun);
        let after = text(&registry);
        for line in [
            format!("kubelet_http_inflight_requests{labels} 0"),
            format!("kubelet_http_requests_total{labels} 1"),
            format!("kubelet_http_requests_duration_seconds_count{labels} 1"),
        ] {
            assert!(after.contains(&line), "{line} in {after}");
        }
    }

    #[test]
    fn paths_are_named_by_their_root() {
        for (path, expected) in [
            ("/pods", "pods"),
            ("/runningpods/", "runningpods"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics", "metrics"),
            ("/metrics/hello", OTHER),
            ("/containerLogs/ns/p/c", "containerLogs"),
            ("//", OTHER),
            ("", OTHER),
            ("/Pods", OTHER),
        ] {
            assert_eq!(Labels::of(Port::ReadOnly, "GET", path).path, expected, "{path}");
        }
    }
}
