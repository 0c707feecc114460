//! Counting requests: what a request is to a counter, and the counters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

use crate::resource::Name;

/// Upstream's buckets of `apiserver_request_duration_seconds`, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// A request as counters know it; every text is one of a table's, or a name of a definition's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Upper-case: `LIST`, `POST`, `WATCH`, `APPLY`...
    pub verb: &'static str,
    /// API group, empty for core.
    pub group: Name,
    /// API version.
    pub version: Name,
    /// Plural resource name; empty for other paths.
    pub resource: Name,
    /// Subresource.
    pub subresource: &'static str,
    /// `resource` (one object), `namespace`, `cluster`, or empty for other paths.
    pub scope: &'static str,
    /// `All` for dry runs.
    pub dry_run: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Counted {
    code: u16,
    component: &'static str,
    dry_run: &'static str,
    group: Name,
    resource: Name,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: Name,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Timed {
    component: &'static str,
    dry_run: &'static str,
    group: Name,
    resource: Name,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: Name,
}

const COMPONENT: &str = "apiserver";

fn durations() -> Histogram {
    Histogram::new(BUCKETS)
}

#[derive(Debug)]
pub(super) struct Requests {
    total: Family<Counted, Counter>,
    durations: Family<Timed, Histogram, fn() -> Histogram>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            total: Family::default(),
            durations: Family::new_with_constructor(durations),
        }
    }
}

impl Requests {
    pub(super) fn answered(&self, request: &Request, code: u16, took: Duration) {
        let Request {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            dry_run,
        } = request.clone();
        let component = COMPONENT;
        let counted = Counted {
            code,
            component,
            dry_run,
            group: group.clone(),
            resource: resource.clone(),
            scope,
            subresource,
            verb,
            version: version.clone(),
        };
        self.total.get_or_create(&counted).inc();
        // How long a watch lasts says nothing about this server.
        if verb == "WATCH" {
            return;
        }
        let timed = Timed {
            component,
            dry_run,
            group,
            resource,
            scope,
            subresource,
            verb,
            version,
        };
        self.durations.get_or_create(&timed).observe(took.as_secs_f64());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_request",
            "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, \
             component, and HTTP response code",
            self.total.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, \
             scope and component",
            self.durations.clone(),
        );
    }
}
