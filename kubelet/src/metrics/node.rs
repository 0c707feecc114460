//! The node and this kubelet on it: names, versions, how long its start took, how long its certificates last.

use super::labels::{Number, Numbers, label, number, numbers};
use crate::cgroup::Reservation;
use crate::config::VERSION;
use jiff::Timestamp;
use prometheus_client::registry::Registry;

/// From this version on upstream's kubelet needs a runtime that tells its configuration (KEP-4033).
const RUNTIME_CONFIG_NEEDED: &str = "1.37.0";

/// What there is to tell of the node. Cheap to clone.
#[derive(Clone)]
pub struct NodeMetrics {
    cgroup_version: Number,
    losing_support: Numbers,
    startup: Number,
    before_kubelet: Number,
    before_registration: Number,
    registration: Number,
    after_registration: Number,
    client_certificate: Number,
    server_certificate: Number,
    shutdown_began: Number,
    shutdown_ended: Number,
    memory_min: Numbers,
    memory_low: Numbers,
}

impl NodeMetrics {
    pub(super) fn register(registry: &mut Registry, node: &str) -> Self {
        let r = registry;
        let names: Numbers = numbers(r, "kubelet_node_name", "The node's name, always 1");
        names.get_or_create(&label("node", node.to_owned())).set(1.0);
        let builds: Numbers = numbers(r, "kubernetes_build_info", "What is running, always 1");
        builds.get_or_create(&build()).set(1.0);
        let duration = |r: &mut Registry, part: &str, help: &str| {
            number(r, &format!("kubelet_node_startup_{part}duration_seconds"), help)
        };
        let new = Self {
            cgroup_version: number(r, "kubelet_cgroup_version", "The version of the node's cgroups"),
            losing_support: numbers(
                r,
                "kubelet_cri_losing_support",
                "The version of Kubernetes from which on the runtime would not be supported any more",
            ),
            startup: duration(r, "", "Time from the machine's start to the node's being ready"),
            before_kubelet: duration(r, "pre_kubelet_", "Time from the machine's start to the kubelet's"),
            before_registration: duration(
                r,
                "pre_registration_",
                "Time from the kubelet's start to its first try to register the node",
            ),
            registration: duration(r, "registration_", "Time that registering the node took"),
            after_registration: duration(
                r,
                "post_registration_",
                "Time from the node's registration to its being ready",
            ),
            client_certificate: number(
                r,
                "kubelet_certificate_manager_client_ttl_seconds",
                "What is left of the client certificate's life; infinite without one",
            ),
            server_certificate: number(
                r,
                "kubelet_certificate_manager_server_ttl_seconds",
                "What is left of the serving certificate's life; infinite without one from the cluster",
            ),
            shutdown_began: number(
                r,
                "kubelet_graceful_shutdown_start_time_seconds",
                "When the node's last shutdown began, in seconds since 1970; 0 if none is known",
            ),
            shutdown_ended: number(
                r,
                "kubelet_graceful_shutdown_end_time_seconds",
                "When the pods of the node's last shutdown had ended, in seconds since 1970; 0 before that",
            ),
            memory_min: numbers(
                r,
                "kubelet_memory_qos_node_memory_min_bytes",
                "Memory that is kept for Guaranteed pods and never reclaimed",
            ),
            memory_low: numbers(
                r,
                "kubelet_memory_qos_node_memory_low_bytes",
                "Memory that is kept for Burstable pods and reclaimed last",
            ),
        };
        new.client_certificate.set(f64::INFINITY);
        new.server_certificate.set(f64::INFINITY);
        new
    }

    /// Tells which version the node's cgroups are of.
    pub fn cgroups(&self, is_v2: bool) {
        self.cgroup_version.set(if is_v2 { 2.0 } else { 1.0 });
    }

    /// Tells how much memory is kept for pods; shown from then on.
    pub fn memory_kept(&self, kept: Reservation) {
        for (number, bytes) in [(&self.memory_min, kept.min), (&self.memory_low, kept.low)] {
            #[expect(clippy::cast_precision_loss, reason = "amounts of memory are below 2^53")]
            number.get_or_create(&Vec::new()).set(bytes as f64);
        }
    }

    /// Tells that the runtime does not say which cgroup driver it uses, as it must from this version on.
    pub fn runtime_is_old(&self) {
        let of = label("version", RUNTIME_CONFIG_NEEDED);
        self.losing_support.get_or_create(&of).set(1.0);
    }

    /// Tells when the last shutdown began, and when its pods had ended.
    pub fn shutdown(&self, began: Option<Timestamp>, ended: Option<Timestamp>) {
        let seconds = |time: Option<Timestamp>| time.map_or(0.0, |time| time.as_duration().as_secs_f64());
        self.shutdown_began.set(seconds(began));
        self.shutdown_ended.set(seconds(ended));
    }

    /// Tells how long certificates last, in seconds from now, where there are any.
    pub fn certificates(&self, client: Option<f64>, server: Option<f64>) {
        self.client_certificate.set(client.unwrap_or(f64::INFINITY));
        self.server_certificate.set(server.unwrap_or(f64::INFINITY));
    }

    /// Tells when the machine and the kubelet started, when the node was first tried to be registered and was, and when it was ready:
    /// seconds since 1970.
    pub fn startup(&self, booted: f64, started: f64, tried: f64, registered: f64, ready: f64) {
        self.before_kubelet.set(started - booted);
        self.before_registration.set(tried - started);
        self.registration.set(registered - tried);
        self.after_registration.set(ready - registered);
        self.startup.set(ready - booted);
    }
}

fn build() -> super::labels::Labels {
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let mut next = || numbers.next().unwrap_or_default().to_owned();
    let (major, minor) = (next(), next());
    vec![
        ("major", major.into()),
        ("minor", minor.into()),
        ("git_version", VERSION.into()),
        // Of builds of Go, which this is none of; there, because queries group by them.
        ("git_commit", String::new().into()),
        ("git_tree_state", String::new().into()),
        ("build_date", String::new().into()),
        ("go_version", String::new().into()),
        ("compiler", "rustc".to_owned().into()),
        ("platform", format!("linux/{}", crate::node::architecture()).into()),
    ]
}
