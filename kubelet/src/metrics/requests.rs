//! `rest_client_*`: what the API server is asked and how it answers (kubelet contract §13).

use super::labels::{Buckets, Counters, Histograms, Labels, label};
use client::connect::{Observer, Request};
use prometheus_client::registry::Registry;

/// Seconds.
const DURATION_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Bytes.
const SIZE_BUCKETS: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// Counts requests to the API server. Cheap to clone; made before the client is, and registered with the kubelet's others.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    total: Counters,
    durations: Histograms,
    request_sizes: Histograms,
    response_sizes: Histograms,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let histograms = |buckets| Histograms::new_with_constructor(Buckets(buckets));
        Self {
            total: Counters::default(),
            durations: histograms(DURATION_BUCKETS),
            request_sizes: histograms(SIZE_BUCKETS),
            response_sizes: histograms(SIZE_BUCKETS),
        }
    }
}

impl RequestMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by status, method and host",
            self.total.clone(),
        );
        for (name, help, of) in [
            (
                "rest_client_request_duration_seconds",
                "Time until the API server's answer began, by verb and host; watches are not counted",
                &self.durations,
            ),
            (
                "rest_client_request_size_bytes",
                "Bytes of requests to the API server, by verb and host",
                &self.request_sizes,
            ),
            (
                "rest_client_response_size_bytes",
                "Bytes of the API server's answers that tell their length, by verb and host",
                &self.response_sizes,
            ),
        ] {
            registry.register(name, help, of.clone());
        }
    }

    /// What a client tells of its requests.
    pub fn observer(&self) -> Observer {
        let metrics = self.clone();
        Observer::new(move |request| metrics.take(request))
    }

    fn take(&self, request: &Request<'_>) {
        let code = match request.status {
            Some(status) => status.to_string(),
            None => "<error>".to_owned(),
        };
        let host = request.host.to_owned();
        let mut of = label("code", code);
        of.push(("method", request.method.into()));
        of.push(("host", host.clone().into()));
        self.total.get_or_create(&of).inc();
        let of: Labels = vec![("verb", request.method.into()), ("host", host.into())];
        if !request.is_watch {
            self.durations.get_or_create(&of).observe(request.took.as_secs_f64());
        }
        for (sizes, bytes) in [
            (&self.request_sizes, request.sent_bytes),
            (&self.response_sizes, request.received_bytes),
        ] {
            if let Some(bytes) = bytes {
                sizes.get_or_create(&of).observe(bytes as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use std::time::Duration;

    #[test]
    fn requests_are_counted_by_how_they_ended() {
        let metrics = RequestMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let observer = metrics.observer();
        let request = Request {
            method: "GET",
            host: "127.0.0.1:6443",
            status: Some(200),
            is_watch: false,
            took: Duration::from_millis(20),
            sent_bytes: Some(0),
            received_bytes: Some(300),
        };
        observer.tell(&request);
        observer.tell(&Request {
            status: None,
            is_watch: true,
            received_bytes: None,
            ..request
        });
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let of = r#"{verb="GET",host="127.0.0.1:6443"}"#;
        for line in [
            r#"rest_client_requests_total{code="200",method="GET",host="127.0.0.1:6443"} 1"#.to_owned(),
            r#"rest_client_requests_total{code="<error>",method="GET",host="127.0.0.1:6443"} 1"#.to_owned(),
            format!("rest_client_request_duration_seconds_count{of} 1"),
            format!("rest_client_request_size_bytes_count{of} 2"),
            format!("rest_client_response_size_bytes_sum{of} 300.0"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
