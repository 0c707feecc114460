//! Which servers there are to be, what starts and stops, and what each answers (contract cni.md §7.3). Pure.

use crate::http::Answer;
use crate::model::{ServiceName, Snapshot};
use std::collections::BTreeMap;

/// What one server is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// `healthCheckNodePort`.
    pub port: u16,
    /// Endpoints on this node.
    pub local_endpoints: usize,
}

/// Servers by Service.
pub type Wanted = BTreeMap<ServiceName, Check>;

/// What the Services ask for. Ports of one Service have the same pods: the one with most endpoints speaks for all.
pub fn wanted(snapshot: &Snapshot) -> Wanted {
    let mut wanted = Wanted::new();
    for (name, ports) in &snapshot.services {
        let checked = ports.iter().filter(|served| served.port.health_check_node_port != 0);
        for served in checked {
            let check = wanted.entry(name.as_ref().clone()).or_insert(Check {
                port: served.port.health_check_node_port,
                local_endpoints: 0,
            });
            check.local_endpoints = check.local_endpoints.max(served.local_endpoints);
        }
    }
    wanted
}

/// What must happen to the servers that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Those that end, first: one may hold the port another wants.
    pub(super) close: Vec<ServiceName>,
    /// Those that begin.
    pub(super) open: Vec<(ServiceName, u16)>,
}

/// From the ports that are served to those that are wanted.
pub(super) fn changes(running: &BTreeMap<ServiceName, u16>, wanted: &Wanted) -> Changes {
    let is_wanted = |name: &ServiceName, port: u16| wanted.get(name).is_some_and(|check| check.port == port);
    let close = running.iter().filter(|(name, port)| !is_wanted(name, **port));
    let open = wanted
        .iter()
        .filter(|(name, check)| running.get(name) != Some(&check.port));
    Changes {
        close: close.map(|(name, _)| name.clone()).collect(),
        open: open.map(|(name, check)| (name.clone(), check.port)).collect(),
    }
}

/// Upstream's answer, whatever is asked.
pub fn answer(name: &ServiceName, local_endpoints: usize, is_proxy_healthy: bool) -> Answer {
    let code = if local_endpoints != 0 && is_proxy_healthy {
        200
    } else {
        503
    };
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {:?},\n\t\t\"name\": {:?}\n\t}},\n\t\"localEndpoints\": {local_endpoints},\n\t\
         \"serviceProxyHealthy\": {is_proxy_healthy}\n}}",
        name.namespace, name.name
    );
    let mut answer = Answer::json(code, body);
    answer
        .headers
        .push(("X-Load-Balancing-Endpoint-Weight", local_endpoints.to_string()));
    answer
}
