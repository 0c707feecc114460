//! `PodSandboxConfig`.

use super::{NodeContext, ResolvConf, SpecError, dns, resources, security};
use crate::admission::sysctl;
use crate::pinning::Unbounded;
use crate::runtime::labels;
use crate::user_namespace::IdRange;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use proto::cri;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

/// Longest host name the kernel and RFC 1123 allow in one label.
const HOSTNAME_MAX: usize = 63;
/// Longest host name the kernel takes at all.
pub(super) const FQDN_MAX: usize = 64;

/// All containers that are part of the pod from its start: init containers, then regular ones.
pub(super) fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(spec.containers.iter())
}

/// Where a pod's container logs are: `<podLogsDir>/<ns>_<name>_<uid>`.
pub fn pod_log_directory(pod: &Pod, ctx: &NodeContext) -> PathBuf {
    let meta = &pod.metadata;
    ctx.pod_logs_dir.join(format!(
        "{}_{}_{}",
        meta.namespace.as_deref().unwrap_or("default"),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    ))
}

/// The pod's short host name and, when it has a subdomain, its domain.
pub(super) fn host_and_domain(pod: &Pod, ctx: &NodeContext) -> (String, Option<String>) {
    let spec = pod.spec.clone().unwrap_or_default();
    if let Some(name) = spec.hostname_override.filter(|n| !n.is_empty()) {
        return (name, None);
    }
    let name = spec
        .hostname
        .filter(|h| !h.is_empty())
        .or_else(|| pod.metadata.name.clone())
        .unwrap_or_default();
    let mut short: String = name.chars().take(HOSTNAME_MAX).collect();
    while short.ends_with(['-', '.']) {
        short.pop();
    }
    let domain = spec.subdomain.filter(|s| !s.is_empty()).map(|subdomain| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        format!("{subdomain}.{namespace}.svc.{}", ctx.cluster_domain)
    });
    (short, domain)
}

/// The host name inside the pod; empty for pods on the host network, which keep the node's.
pub fn hostname(pod: &Pod, ctx: &NodeContext) -> Result<String, SpecError> {
    let spec = pod.spec.as_ref();
    if spec.is_some_and(|s| s.host_network == Some(true)) {
        return Ok(String::new());
    }
    let (short, domain) = host_and_domain(pod, ctx);
    let wants_fqdn = spec.is_some_and(|s| s.set_hostname_as_fqdn == Some(true));
    match domain {
        Some(domain) if wants_fqdn => {
            let fqdn = format!("{short}.{domain}");
            if fqdn.len() > FQDN_MAX {
                return Err(SpecError::LongHostName(fqdn));
            }
            Ok(fqdn)
        }
        _ => Ok(short),
    }
}

fn port_mappings(spec: &PodSpec) -> Vec<cri::PortMapping> {
    let mut seen = BTreeSet::new();
    let mut mappings = Vec::new();
    for port in spec.containers.iter().flat_map(|c| c.ports.iter().flatten()) {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => cri::Protocol::Udp,
            Some("SCTP") => cri::Protocol::Sctp,
            _ => cri::Protocol::Tcp,
        } as i32;
        let host_ip = port.host_ip.clone().unwrap_or_default();
        let host_port = port.host_port.unwrap_or(0);
        if seen.insert((protocol, host_ip.clone(), host_port, port.container_port)) {
            mappings.push(cri::PortMapping {
                protocol,
                container_port: port.container_port,
                host_port,
                host_ip,
            });
        }
    }
    mappings
}

/// The sandbox of a pod's `attempt`-th try (0 first) in CRI terms.
///
/// `node` is what `resolvConf` says now, `ids` are those of a pod with users of its own, `unbounded` its containers that have CPUs alone.
pub fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    ctx: &NodeContext,
    node: &ResolvConf,
    ids: Option<IdRange>,
    unbounded: &Unbounded,
) -> Result<cri::PodSandboxConfig, SpecError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_else(|| "default".into());
    let uid = meta.uid.clone().unwrap_or_default();
    let mut sandbox_labels: HashMap<String, String> = meta.labels.clone().unwrap_or_default().into_iter().collect();
    sandbox_labels.insert(labels::POD_NAME.into(), name.clone());
    sandbox_labels.insert(labels::POD_NAMESPACE.into(), namespace.clone());
    sandbox_labels.insert(labels::POD_UID.into(), uid.clone());
    let (dns, _) = dns::dns_config(pod, ctx, node);
    Ok(cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        }),
        hostname: hostname(pod, ctx)?,
        log_directory: pod_log_directory(pod, ctx).to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: port_mappings(&spec),
        labels: sandbox_labels,
        annotations: meta.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(linux_config(pod, &spec, ctx, ids, unbounded)?),
        windows: None,
    })
}

fn linux_config(
    pod: &Pod,
    spec: &PodSpec,
    ctx: &NodeContext,
    ids: Option<IdRange>,
    unbounded: &Unbounded,
) -> Result<cri::LinuxPodSandboxConfig, SpecError> {
    let sysctls = spec
        .security_context
        .iter()
        .flat_map(|sc| sc.sysctls.iter().flatten())
        .map(|s| (sysctl::dotted(&s.name), s.value.clone()))
        .collect();
    let (resources, overhead) = resources::sandbox_resources(spec, ctx, unbounded);
    Ok(cri::LinuxPodSandboxConfig {
        cgroup_parent: ctx.cgroups.pod_parent(pod),
        security_context: Some(security::sandbox_security(spec, ids)?),
        sysctls,
        overhead: Some(overhead),
        resources: Some(resources),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, pod, resolver};
    use super::*;

    #[test]
    fn identity_labels_and_log_directory() {
        let config =
            sandbox_config(&pod("{}"), 2, &context(), &resolver(), None, &Unbounded::default()).expect("valid");
        assert_eq!(config.metadata.as_ref().map(|m| m.attempt), Some(2));
        assert_eq!(config.hostname, "web");
        assert_eq!(config.log_directory, "/var/log/pods/shop_web_u-1");
        assert_eq!(config.labels.get("app").map(String::as_str), Some("web"));
        assert_eq!(config.labels.get(labels::POD_UID).map(String::as_str), Some("u-1"));
        assert_eq!(config.annotations.get("note").map(String::as_str), Some("kept"));
        let linux = config.linux.expect("linux");
        assert_eq!(linux.cgroup_parent, "/kubepods/besteffort/podu-1");
    }

    #[test]
    fn sysctls_are_named_as_they_are_judged() {
        let spec = r#"{"securityContext":{"sysctls":[{"name":"net/ipv4/conf/eth0.100/arp_ignore","value":"1"},
            {"name":"net.ipv4.conf.eth0/100.arp_announce","value":"2"}]}}"#;
        let config =
            sandbox_config(&pod(spec), 0, &context(), &resolver(), None, &Unbounded::default()).expect("valid");
        let sysctls = config.linux.expect("linux").sysctls;
        let of = |name: &str| sysctls.get(name).map(String::as_str);
        assert_eq!(of("net.ipv4.conf.eth0/100.arp_ignore"), Some("1"), "{sysctls:?}");
        assert_eq!(of("net.ipv4.conf.eth0/100.arp_announce"), Some("2"));
    }

    #[test]
    fn hostnames() {
        let long = format!(r#"{{"hostname":"{}-----bbbb"}}"#, "a".repeat(60));
        for (spec, expected) in [
            ("{}", "web".to_owned()),
            (r#"{"hostname":"h"}"#, "h".to_owned()),
            (
                r#"{"hostname":"h","hostnameOverride":"o.example"}"#,
                "o.example".to_owned(),
            ),
            (r#"{"hostNetwork":true,"hostname":"h"}"#, String::new()),
            (
                r#"{"subdomain":"s","setHostnameAsFQDN":true}"#,
                "web.s.shop.svc.cluster.local".to_owned(),
            ),
            (r#"{"subdomain":"s"}"#, "web".to_owned()),
            (long.as_str(), "a".repeat(60)),
        ] {
            assert_eq!(hostname(&pod(spec), &context()), Ok(expected), "{spec}");
        }
        let too_long = format!(r#"{{"subdomain":"{}","setHostnameAsFQDN":true}}"#, "s".repeat(50));
        let error = hostname(&pod(&too_long), &context()).expect_err("too long");
        assert_eq!(
            error.to_string(),
            format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN web.{}.shop.svc.cluster.local is too long (64 characters is the max, 77 characters requested)",
                "s".repeat(50)
            )
        );
    }

    #[test]
    fn ports_are_taken_once() {
        let spec = r#"{"containers":[{"name":"a","ports":[{"containerPort":80,"hostPort":8080},{"containerPort":80,"hostPort":8080},{"containerPort":53,"protocol":"UDP"}]}]}"#;
        let config =
            sandbox_config(&pod(spec), 0, &context(), &resolver(), None, &Unbounded::default()).expect("valid");
        let ports: Vec<_> = config
            .port_mappings
            .iter()
            .map(|p| (p.protocol, p.container_port, p.host_port))
            .collect();
        assert_eq!(ports, vec![(0, 80, 8080), (1, 53, 0)]);
    }
}
