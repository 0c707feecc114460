//! Which parts of the cluster's network this kubelet runs: flags of our own, all off unless given, because upstream has each
//! as a program beside the kubelet. Pure.

use super::Reader;
use crate::config::{Backend, ClusterNetwork, DnsConfig, Flags};
use netlink::cidr::Cidr;
use proxy::node_ports::{self, Ports};

const PROXY: &str = "service-proxy";
const PROXY_CONFIG: &str = "service-proxy-config";
const RESERVE: &str = "reserve-node-ports";
const DNS: &str = "cluster-dns-responder";
const AUTOPATH: &str = "cluster-dns-autopath";
const POLICIES: &str = "network-policies";
const BACKEND: &str = "pod-network-backend";
const RANGES: &str = "cluster-cidr";

/// The parts that are asked for. Each follows objects of the API server, and DNS needs addresses to answer on.
pub(super) fn read(reader: &mut Reader, flags: &Flags, dns: &DnsConfig) -> ClusterNetwork {
    let on = |name| flags.bool(name) == Some(true);
    let text = |name| flags.text(name).unwrap_or_default();
    let network = ClusterNetwork {
        proxy: on(PROXY),
        proxy_config: Some(text(PROXY_CONFIG)).filter(|path| !path.is_empty()).map(Into::into),
        reserve_node_ports: reserved(reader, text(RESERVE)),
        dns: on(DNS),
        autopath: on(AUTOPATH),
        policies: on(POLICIES),
        backend: backend(reader, text(BACKEND)),
        ranges: ranges(reader, text(RANGES)),
    };
    if text("kubeconfig").is_empty() {
        let asked = [PROXY, DNS, POLICIES].into_iter().filter(|name| on(name));
        for name in asked.chain(network.backend.map(|_| BACKEND)) {
            reader.wrong(
                &format!("--{name}"),
                "it follows objects of an API server, give --kubeconfig",
            );
        }
    }
    if network.dns && dns.cluster_dns.is_empty() {
        reader.wrong(&format!("--{DNS}"), "there is no address to answer on, give clusterDNS");
    }
    if network.reserve_node_ports.is_some() && !network.proxy {
        let why = format!("it is the Service proxy that reserves them, give --{PROXY}");
        reader.wrong(&format!("--{RESERVE}"), why);
    }
    if network.proxy_config.is_some() && !network.proxy {
        let why = format!("it is the Service proxy's, give --{PROXY}");
        reader.wrong(&format!("--{PROXY_CONFIG}"), why);
    }
    if network.autopath && !network.dns {
        reader.wrong(
            &format!("--{AUTOPATH}"),
            format!("it is a way of answering, give --{DNS}"),
        );
    }
    if network.backend.is_some() && network.ranges.is_empty() {
        let why = format!("--{RANGES} must say which addresses are pods'");
        reader.wrong(&format!("--{BACKEND}"), why);
    }
    network
}

fn reserved(reader: &mut Reader, text: &str) -> Option<Ports> {
    let ports = Some(text).filter(|text| !text.is_empty()).map(node_ports::parse)?;
    ports.map_err(|why| reader.wrong(&format!("--{RESERVE}"), why)).ok()
}

fn backend(reader: &mut Reader, text: &str) -> Option<Backend> {
    match text {
        "" => None,
        "vxlan" => Some(Backend::Vxlan),
        "host-gw" => Some(Backend::HostGw),
        other => {
            let why = format!("{other:?} is not supported: must be \"vxlan\" or \"host-gw\"");
            reader.wrong(&format!("--{BACKEND}"), why);
            None
        }
    }
}

/// One range of each family at most, as upstream's flag of this name.
fn ranges(reader: &mut Reader, text: &str) -> Vec<Cidr> {
    let mut ranges: Vec<Cidr> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match Cidr::parse(part) {
            Ok(range) if ranges.iter().any(|other| other.addr.is_ipv4() == range.addr.is_ipv4()) => {
                reader.wrong(
                    &format!("--{RANGES}"),
                    format!("{part} is a second range of its family"),
                );
            }
            Ok(range) => ranges.push(range),
            Err(error) => reader.wrong(&format!("--{RANGES}"), error),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags;
    use std::path::Path;

    fn judge(arguments: &[&str], addresses: &[&str]) -> Result<ClusterNetwork, Vec<String>> {
        let flags = flags::parse(arguments.iter().map(ToString::to_string)).expect("flags");
        let dns = DnsConfig {
            cluster_dns: addresses.iter().map(ToString::to_string).collect(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: None,
        };
        let mut reader = Reader::default();
        let network = read(&mut reader, &flags, &dns);
        match reader.mistakes.is_empty() {
            true => Ok(network),
            false => Err(reader.mistakes),
        }
    }

    #[test]
    fn nothing_runs_that_was_not_asked_for() {
        assert_eq!(judge(&[], &[]), Ok(ClusterNetwork::default()));
    }

    #[test]
    fn what_was_asked_for() {
        let found = judge(
            &[
                "--kubeconfig=/k",
                "--service-proxy",
                "--cluster-dns-responder",
                "--cluster-dns-autopath",
                "--network-policies",
                "--reserve-node-ports=30000-30009",
                "--service-proxy-config=/etc/proxy.yaml",
                "--pod-network-backend=host-gw",
                "--cluster-cidr=10.1.0.0/16,fd00::/48",
            ],
            &["10.96.0.10"],
        )
        .expect("valid");
        assert!(found.proxy && found.dns && found.autopath && found.policies);
        assert_eq!(found.backend, Some(Backend::HostGw));
        assert_eq!(found.ranges.len(), 2);
        assert_eq!(found.proxy_config.as_deref(), Some(Path::new("/etc/proxy.yaml")));
        assert_eq!(
            found.reserve_node_ports.map(|ports| ports.to_string()).as_deref(),
            Some("30000-30009")
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let mistakes = judge(
            &[
                "--service-proxy",
                "--cluster-dns-responder",
                "--pod-network-backend=ipip",
                "--cluster-cidr=10.1.0.0/16,10.2.0.0/16,x",
            ],
            &[],
        )
        .expect_err("mistakes")
        .join("\n");
        for part in [
            "--service-proxy: it follows objects of an API server",
            "--cluster-dns-responder: there is no address to answer on",
            "--pod-network-backend: \"ipip\" is not supported",
            "--cluster-cidr: 10.2.0.0/16 is a second range of its family",
            "--cluster-cidr: invalid CIDR address: x",
        ] {
            assert!(mistakes.contains(part), "{part}: {mistakes}");
        }
        let alone = judge(&["--cluster-dns-autopath"], &[]).expect_err("no responder");
        assert!(alone[0].contains("--cluster-dns-autopath: it is a way"), "{alone:?}");
        for (words, part) in [
            (
                &["--reserve-node-ports=1-2"][..],
                "--reserve-node-ports: it is the Service proxy",
            ),
            (
                &["--service-proxy-config=/etc/proxy.yaml"],
                "--service-proxy-config: it is the Service proxy's",
            ),
            (
                &["--kubeconfig=/k", "--service-proxy", "--reserve-node-ports=2-1"],
                "--reserve-node-ports: \"2-1\" is no port",
            ),
        ] {
            let mistakes = judge(words, &[]).expect_err("mistakes");
            assert!(mistakes.len() == 1 && mistakes[0].contains(part), "{mistakes:?}");
        }
        let without = judge(&["--kubeconfig=/k", "--pod-network-backend=vxlan"], &[]).expect_err("no ranges");
        assert!(without[0].contains("--cluster-cidr must say"), "{without:?}");
    }
}
