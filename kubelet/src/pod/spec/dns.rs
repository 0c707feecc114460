//! A pod's resolver configuration (kubelet contract §6, DNS).

use super::{NodeContext, ResolvConf};
use crate::reason;
use k8s_openapi::api::core::v1::Pod;
use proto::cri;

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARS_MAX: usize = 2048;
const SEARCH_ENTRY_MAX: usize = 253;

/// Something the user should hear about, as an event on the pod: (reason, message).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsWarning {
    /// `MissingClusterDNS` or `DNSConfigForming`.
    pub reason: &'static str,
    /// The event's text.
    pub message: String,
}

enum Policy {
    Cluster,
    Host,
    Nothing,
}

fn push_new(list: &mut Vec<String>, items: impl IntoIterator<Item = String>) {
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

fn pod_format(pod: &Pod) -> String {
    format!(
        "{}_{}({})",
        pod.metadata.name.as_deref().unwrap_or_default(),
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.uid.as_deref().unwrap_or_default()
    )
}

/// The pod's resolver configuration, and warnings to raise as events; `node` is what `resolvConf` says now, empty without one.
pub fn dns_config(pod: &Pod, ctx: &NodeContext, node: &ResolvConf) -> (cri::DnsConfig, Vec<DnsWarning>) {
    let spec = pod.spec.clone().unwrap_or_default();
    let host_network = spec.host_network == Some(true);
    let mut warnings = Vec::new();
    let policy = match spec.dns_policy.as_deref() {
        Some("None") => Policy::Nothing,
        Some("Default") => Policy::Host,
        Some("ClusterFirstWithHostNet") => Policy::Cluster,
        _ if host_network => Policy::Host,
        _ => Policy::Cluster,
    };
    let mut conf = match policy {
        Policy::Nothing => ResolvConf::default(),
        Policy::Host => of_the_node(ctx, node),
        Policy::Cluster if ctx.cluster_dns.is_empty() => {
            let wanted = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
            warnings.push(DnsWarning {
                reason: reason::event::MISSING_CLUSTER_DNS,
                message: format!("pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using {wanted:?} policy. Falling back to \"Default\" policy.", pod_format(pod)),
            });
            of_the_node(ctx, node)
        }
        Policy::Cluster => cluster_first(pod, ctx, node),
    };
    if let Some(extra) = &spec.dns_config {
        push_new(&mut conf.nameservers, extra.nameservers.iter().flatten().cloned());
        push_new(&mut conf.searches, extra.searches.iter().flatten().cloned());
        for option in extra.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            conf.options.retain(|o| o.split(':').next() != Some(name.as_str()));
            conf.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name,
            });
        }
    }
    limit(&mut conf, &mut warnings);
    let config = cri::DnsConfig {
        servers: conf.nameservers,
        searches: conf.searches,
        options: conf.options,
    };
    (config, warnings)
}

fn of_the_node(ctx: &NodeContext, node: &ResolvConf) -> ResolvConf {
    match &ctx.resolv_conf {
        Some(_) => node.clone(),
        None => ResolvConf::loopback(ctx.host_ips.texts().first().is_some_and(|ip| ip.contains(':'))),
    }
}

fn cluster_first(pod: &Pod, ctx: &NodeContext, node: &ResolvConf) -> ResolvConf {
    let mut searches = Vec::new();
    if !ctx.cluster_domain.is_empty() {
        let domain = &ctx.cluster_domain;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        searches.push(format!("{namespace}.svc.{domain}"));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    push_new(&mut searches, node.searches.iter().cloned());
    ResolvConf {
        nameservers: ctx.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".into()],
    }
}

fn limit(conf: &mut ResolvConf, warnings: &mut Vec<DnsWarning>) {
    if conf.nameservers.len() > NAMESERVERS_MAX {
        conf.nameservers.truncate(NAMESERVERS_MAX);
        warnings.push(DnsWarning {
            reason: reason::event::DNS_CONFIG_FORMING,
            message: format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
                conf.nameservers.join(" ")
            ),
        });
    }
    let before = conf.searches.len();
    conf.searches.retain(|s| s.len() <= SEARCH_ENTRY_MAX);
    conf.searches.truncate(SEARCHES_MAX);
    while conf.searches.join(" ").len() > SEARCH_CHARS_MAX {
        conf.searches.pop();
    }
    if conf.searches.len() < before {
        warnings.push(DnsWarning {
            reason: reason::event::DNS_CONFIG_FORMING,
            message: format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
                conf.searches.join(" ")
            ),
        });
    }
}

/// What pods would miss of the node's own search list, three of whose places may be the cluster's; nothing if it fits.
pub fn search_limit_exceeded(node: &ResolvConf, path: &std::path::Path, cluster_domain: &str) -> Option<String> {
    let path = path.display();
    let most = SEARCHES_MAX - if cluster_domain.is_empty() { 0 } else { 3 };
    if node.searches.len() > most {
        return Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
        ));
    }
    if node.searches.iter().any(|search| search.len() > SEARCH_ENTRY_MAX) {
        return Some(format!(
            "Resolv.conf file \"{path}\" contains a search path which length is more than allowed {SEARCH_ENTRY_MAX} chars!"
        ));
    }
    (node.searches.join(" ").len() > SEARCH_CHARS_MAX).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {SEARCH_CHARS_MAX} chars!"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, pod, resolver};
    use super::*;

    fn check(spec: &str, servers: &[&str], searches: &[&str], options: &[&str]) {
        let (config, _) = dns_config(&pod(spec), &context(), &resolver());
        assert_eq!(config.servers, servers, "{spec}");
        assert_eq!(config.searches, searches, "{spec}");
        assert_eq!(config.options, options, "{spec}");
    }

    const CLUSTER: &[&str] = &[
        "shop.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
        "example.org",
    ];

    #[test]
    fn policies() {
        check("{}", &["10.96.0.10"], CLUSTER, &["ndots:5"]);
        check(
            r#"{"hostNetwork":true,"dnsPolicy":"ClusterFirst"}"#,
            &["192.0.2.1"],
            &["example.org"],
            &["timeout:1"],
        );
        check(
            r#"{"hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet"}"#,
            &["10.96.0.10"],
            CLUSTER,
            &["ndots:5"],
        );
        check(
            r#"{"dnsPolicy":"Default"}"#,
            &["192.0.2.1"],
            &["example.org"],
            &["timeout:1"],
        );
        check(
            r#"{"dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1"],"searches":["x"],"options":[{"name":"edns0"}]}}"#,
            &["1.1.1.1"],
            &["x"],
            &["edns0"],
        );
        check(
            r#"{"dnsConfig":{"nameservers":["10.96.0.10","8.8.8.8"],"options":[{"name":"ndots","value":"2"}]}}"#,
            &["10.96.0.10", "8.8.8.8"],
            CLUSTER,
            &["ndots:2"],
        );
    }

    #[test]
    fn no_cluster_dns_warns_and_falls_back() {
        let mut ctx = context();
        ctx.cluster_dns.clear();
        let (config, warnings) = dns_config(&pod("{}"), &ctx, &resolver());
        assert_eq!(config.servers, vec!["192.0.2.1"]);
        assert_eq!(warnings[0].reason, "MissingClusterDNS");
        assert_eq!(
            warnings[0].message,
            "pod: \"web_shop(u-1)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy."
        );
    }

    #[test]
    fn without_a_file_the_node_itself_is_asked_and_the_cluster_searches_nothing_more() {
        let none = ResolvConf::default();
        for (ip, server) in [("192.0.2.10", "127.0.0.1"), ("2001:db8::1", "::1")] {
            let mut ctx = context();
            ctx.resolv_conf = None;
            ctx.host_ips = crate::host::addresses::HostIps::fixed(vec![ip.parse().expect("an address")]);
            let (config, _) = dns_config(&pod(r#"{"dnsPolicy":"Default"}"#), &ctx, &none);
            assert_eq!(
                (config.servers, config.searches),
                (vec![server.into()], vec![".".into()])
            );
            let (config, _) = dns_config(&pod("{}"), &ctx, &none);
            assert_eq!(config.searches, CLUSTER[..3]);
        }
    }

    #[test]
    fn limits_cut_and_warn() {
        let (config, warnings) = dns_config(
            &pod(r#"{"dnsConfig":{"nameservers":["1.1.1.1","2.2.2.2","3.3.3.3"]}}"#),
            &context(),
            &resolver(),
        );
        assert_eq!(config.servers, vec!["10.96.0.10", "1.1.1.1", "2.2.2.2"]);
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].reason, "DNSConfigForming");
    }

    #[test]
    fn a_search_list_of_the_node_that_pods_cannot_have_is_told() {
        let conf = |searches: Vec<String>| ResolvConf {
            searches,
            ..ResolvConf::default()
        };
        let told = |searches: Vec<String>, domain: &str| {
            search_limit_exceeded(&conf(searches), std::path::Path::new("/r"), domain)
        };
        let many = |count: usize, length: usize| vec!["a".repeat(length); count];
        assert_eq!(told(many(29, 3), "cluster.local"), None);
        assert_eq!(told(many(32, 3), ""), None);
        let domains = "Resolv.conf file '/r' contains search line consisting of more than 29 domains!";
        assert_eq!(told(many(30, 3), "cluster.local").as_deref(), Some(domains));
        assert!(told(many(1, 254), "").is_some_and(|text| text.contains("more than allowed 253 chars")));
        assert!(told(many(20, 200), "").is_some_and(|text| text.contains("more than allowed 2048 chars")));
    }
}
