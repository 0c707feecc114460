//! The pages of `metricsBindAddress`: `/metrics`, `/healthz`, `/proxyMode`, `/configz`.

use super::Metrics;
use crate::http::{Answer, Handler, Request};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// What the kernel counts time by, in a second, in `/proc`.
const TICKS: f64 = 100.0;
/// Bytes of a page of memory as `/proc` counts them.
const PAGE_BYTES: f64 = 4096.0;

/// What the pages show.
pub struct Page {
    /// What is counted.
    pub metrics: Metrics,
    /// The configuration in effect.
    pub config: Value,
    /// The version reported.
    pub version: &'static str,
}

/// What answers on `metricsBindAddress`.
pub fn handler(page: Page) -> Handler {
    Arc::new(move |request: &Request| match request.path.as_str() {
        "/metrics" => Answer {
            kind: "text/plain; version=0.0.4; charset=utf-8",
            headers: Vec::new(),
            ..Answer::text(
                200,
                page.metrics.text() + &build(page.version) + &process(&Proc::read()),
            )
        },
        "/healthz" => Answer::text(200, "ok"),
        "/proxyMode" => Answer::text(200, "nftables"),
        "/configz" => Answer::json(200, json!({"kubeproxy.config.k8s.io": page.config}).to_string()),
        _ => Answer::not_found(),
    })
}

/// `kubernetes_build_info` of a version such as v1.36.2.
fn build(version: &str) -> String {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!(
        "# HELP kubernetes_build_info [BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git \
         tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.\n\
         # TYPE kubernetes_build_info gauge\nkubernetes_build_info{{build_date=\"\",compiler=\"rustc\",git_commit=\"\",\
         git_tree_state=\"\",git_version=\"{version}\",go_version=\"\",major=\"{major}\",minor=\"{minor}\",platform=\"linux/{}\"}} 1\n",
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    )
}

/// What `/proc` says of this process.
struct Proc {
    stat: String,
    statm: String,
    machine: String,
    open_files: usize,
}

impl Proc {
    fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            stat: read("/proc/self/stat"),
            statm: read("/proc/self/statm"),
            machine: read("/proc/stat"),
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }
}

/// The metrics every program of upstream's has of its process.
fn process(of: &Proc) -> String {
    // Behind the program's name, which may hold anything, in parentheses.
    let fields: Vec<f64> = of.stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| {
        rest.split(' ').map(|word| word.trim().parse().unwrap_or(0.0)).collect()
    });
    let field = |at: usize| fields.get(at).copied().unwrap_or(0.0);
    let pages: f64 = of
        .statm
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0);
    let boot = of
        .machine
        .lines()
        .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    let mut out = String::new();
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            (field(11) + field(12)) / TICKS,
        ),
        (
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            of.open_files as f64,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            pages * PAGE_BYTES,
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            boot.unwrap_or(0.0) + field(19) / TICKS,
        ),
    ] {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let of = Proc {
            stat: format!(
                "7 (a) b (c) S 1 {} 250 50 {} 12345 {}",
                "0 ".repeat(9).trim(),
                "0 ".repeat(6).trim(),
                "0 0"
            ),
            statm: "999 10 1 1 0 1 0\n".to_owned(),
            machine: "cpu 1\nbtime 1700000000\n".to_owned(),
            open_files: 9,
        };
        let text = process(&of);
        for line in [
            "process_cpu_seconds_total 3\n",
            "process_open_fds 9\n",
            "process_resident_memory_bytes 40960\n",
            "process_start_time_seconds 1700000123.45\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let nothing = Proc {
            stat: String::new(),
            statm: String::new(),
            machine: String::new(),
            open_files: 0,
        };
        assert!(process(&nothing).contains("process_start_time_seconds 0\n"));
    }

    #[tokio::test]
    async fn pages_are_served_over_a_socket() {
        let stop = tokio_util::sync::CancellationToken::new();
        let listener = crate::http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = Page {
            metrics: Metrics::new(&["IPv4"], jiff::Timestamp::UNIX_EPOCH),
            config: json!({"mode": "nftables"}),
            version: "v1.36.2",
        };
        tokio::spawn(crate::http::serve(listener, handler(page), stop.clone()));
        let get = async |path: &str| crate::testing::get(address, path).await;
        assert_eq!(get("/healthz").await, (200, "ok".to_owned()));
        assert_eq!(get("/proxyMode").await, (200, "nftables".to_owned()));
        let config = r#"{"kubeproxy.config.k8s.io":{"mode":"nftables"}}"#;
        assert_eq!(get("/configz").await, (200, config.to_owned()));
        assert_eq!(get("/debug/pprof/").await.0, 404);
        let (head, body) = crate::testing::get_whole(address, "/metrics").await;
        assert!(
            head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"),
            "{head}"
        );
        assert!(
            body.contains("git_version=\"v1.36.2\",go_version=\"\",major=\"1\",minor=\"36\""),
            "{body}"
        );
        assert!(
            body.contains("kubeproxy_sync_proxy_rules_service_changes_total 0\n"),
            "{body}"
        );
        stop.cancel();
    }
}
