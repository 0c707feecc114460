//! The text of a pod's `/etc/hosts` (kubelet contract §6).

use super::{NodeContext, sandbox};
use k8s_openapi::api::core::v1::Pod;

const HOST_NETWORK_HEADER: &str = "# Kubernetes-managed hosts file (host network).\n";
const HEADER: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The hosts file of a pod with these addresses; `None` when none is to be made (no address yet, not on the host network).
/// `node` is the node's own file as it is now: what pods on its network get.
pub fn hosts_file(pod: &Pod, pod_ips: &[String], ctx: &NodeContext, node: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mut text = if spec.host_network == Some(true) {
        format!("{HOST_NETWORK_HEADER}{node}")
    } else if pod_ips.is_empty() {
        return None;
    } else {
        let (host, domain) = sandbox::host_and_domain(pod, ctx);
        let mut text = HEADER.to_owned();
        for ip in pod_ips {
            match &domain {
                Some(domain) => text.push_str(&format!("{ip}\t{host}.{domain}\t{host}\n")),
                None => text.push_str(&format!("{ip}\t{host}\n")),
            }
        }
        text
    };
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default();
            text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, pod};
    use super::*;

    #[test]
    fn plain_pod() {
        let text = hosts_file(&pod("{}"), &["10.1.0.5".into()], &context(), "127.0.0.1 node\n").expect("a file");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with("fe00::2\tip6-allrouters\n10.1.0.5\tweb\n"), "{text}");
    }

    #[test]
    fn subdomain_and_aliases() {
        let spec = r#"{"subdomain":"sub","hostAliases":[{"ip":"1.2.3.4","hostnames":["a","b"]}]}"#;
        let text = hosts_file(
            &pod(spec),
            &["10.1.0.5".into(), "fd00::5".into()],
            &context(),
            "127.0.0.1 node\n",
        )
        .expect("a file");
        assert!(
            text.ends_with(
                "10.1.0.5\tweb.sub.shop.svc.cluster.local\tweb\nfd00::5\tweb.sub.shop.svc.cluster.local\tweb\n\
                 \n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn host_network_copies_the_nodes_file_and_no_address_makes_none() {
        let text = hosts_file(&pod(r#"{"hostNetwork":true}"#), &[], &context(), "127.0.0.1 node\n").expect("a file");
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"
        );
        assert_eq!(hosts_file(&pod("{}"), &[], &context(), "127.0.0.1 node\n"), None);
    }
}
