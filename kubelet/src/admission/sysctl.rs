//! Which sysctls a pod may set (kubelet contract §14, handler 3). Pure.
//!
//! Safe ones are those of a namespace of the pod's own that harm nobody else; more are let in by `allowedUnsafeSysctls`.

use super::decide::{Rejection, rejection};
use crate::reason::admission;
use k8s_openapi::api::core::v1::PodSpec;

const NAME_LENGTH_MAX: usize = 253;

/// Safe sysctls, and the first kernel that has each in a namespace.
const SAFE: &[(&str, (u32, u32))] = &[
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// A namespace that has sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    /// The namespace a sysctl, or all that begin so, are in.
    fn of(name: &str) -> Option<Self> {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if name == "kernel.sem" || begins(&["kernel.shm", "kernel.msg", "fs.mqueue."]) {
            Some(Self::Ipc)
        } else if begins(&["net."]) {
            Some(Self::Net)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        }
    }
}

/// What a node lets its pods set.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `allowedUnsafeSysctls`.
    pub allowed: Vec<String>,
    /// The kernel's version.
    pub kernel: (u32, u32),
}

impl Rules {
    /// Rules of a kernel of that release, such as `6.1.0-18-amd64`.
    pub fn new(allowed: Vec<String>, release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let kernel = (number(), number());
        Self { allowed, kernel }
    }

    fn allows(&self, name: &str) -> bool {
        let safe = SAFE.iter().any(|(safe, since)| *safe == name && self.kernel >= *since);
        safe || self.allowed.iter().any(|pattern| {
            let pattern = dotted(pattern);
            match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => pattern == name,
            }
        })
    }

    /// Refuses a pod that sets what it may not.
    pub fn judge(&self, spec: &PodSpec) -> Result<(), Rejection> {
        let context = spec.security_context.as_ref();
        let sysctls = context.and_then(|context| context.sysctls.as_ref());
        for sysctl in sysctls.into_iter().flatten() {
            let name = dotted(&sysctl.name);
            let shared = match Namespace::of(&name) {
                Some(Namespace::Ipc) if spec.host_ipc == Some(true) => Some(Namespace::Ipc),
                Some(Namespace::Net) if spec.host_network == Some(true) => Some(Namespace::Net),
                _ => None,
            };
            let why = if !self.allows(&name) {
                format!("{name:?} not allowlisted")
            } else if let Some(shared) = shared {
                format!("{name:?} not allowed with host {} enabled", shared.name())
            } else {
                continue;
            };
            let message = format!("forbidden sysctl: {why}");
            return Err(rejection(admission::SYSCTL_FORBIDDEN, &message));
        }
        Ok(())
    }
}

/// A name with dots between its parts, as pods are judged by it and the runtime is given it. One that is written with slashes
/// has dots inside its parts instead.
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// What is wrong with an item of `allowedUnsafeSysctls`.
pub fn pattern_mistake(pattern: &str) -> Option<String> {
    let body = pattern.strip_suffix('*').unwrap_or(pattern);
    let sound = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge) && part.chars().all(|c| edge(c) || matches!(c, '-' | '_')) && part.ends_with(edge)
    };
    let mut parts: Vec<&str> = body.split(['.', '/']).collect();
    // `net.core.*` ends in a separator; of `net.co*` the last part may end in anything.
    if body.len() < pattern.len() {
        parts.pop();
    }
    if pattern.len() > NAME_LENGTH_MAX || parts.is_empty() || !parts.into_iter().all(sound) {
        return Some(format!(
            "{pattern:?} is not the name of a sysctl, nor the beginning of one followed by *"
        ));
    }
    let known = Namespace::of(&dotted(body)).is_some();
    (!known).then(|| format!("the sysctls {pattern:?} are not known to be namespaced"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodSecurityContext, Sysctl};

    fn spec(name: &str) -> PodSpec {
        let sysctl = Sysctl {
            name: name.to_owned(),
            value: "1".to_owned(),
        };
        PodSpec {
            security_context: Some(PodSecurityContext {
                sysctls: Some(vec![sysctl]),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }
    }

    fn judge(rules: &Rules, spec: &PodSpec) -> String {
        rules.judge(spec).err().map(|why| why.message).unwrap_or_default()
    }

    #[test]
    fn safe_ones_and_allowed_ones_pass() {
        let rules = Rules::new(vec!["net.core.*".into(), "kernel/msgmax".into()], "6.1.0-18-amd64");
        for (name, expected) in [
            ("net.ipv4.tcp_syncookies", ""),
            ("net/ipv4/tcp_syncookies", ""),
            ("net.ipv4.tcp_rmem", ""),
            ("net.core.somaxconn", ""),
            ("kernel.msgmax", ""),
            ("kernel.msgmnb", "forbidden sysctl: \"kernel.msgmnb\" not allowlisted"),
            ("vm.swappiness", "forbidden sysctl: \"vm.swappiness\" not allowlisted"),
        ] {
            assert_eq!(judge(&rules, &spec(name)), expected, "{name}");
        }
        let old = Rules::new(Vec::new(), "4.14.5");
        assert!(
            !judge(&old, &spec("net.ipv4.tcp_rmem")).is_empty(),
            "not namespaced in 4.14"
        );
        assert_eq!(judge(&old, &PodSpec::default()), "");
    }

    #[test]
    fn the_nodes_own_namespaces_are_not_the_pods_to_set() {
        let rules = Rules::new(Vec::new(), "6.1");
        let net = PodSpec {
            host_network: Some(true),
            ..spec("net.ipv4.tcp_syncookies")
        };
        let refused = rules.judge(&net).expect_err("the node's");
        assert_eq!(refused.reason, "SysctlForbidden");
        assert_eq!(
            refused.message,
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"
        );
        let ipc = PodSpec {
            host_ipc: Some(true),
            ..spec("kernel.shm_rmid_forced")
        };
        assert!(judge(&rules, &ipc).ends_with("not allowed with host IPC enabled"));
    }

    #[test]
    fn patterns_are_names_of_namespaced_sysctls() {
        for sound in [
            "net.core.*",
            "net.ipv4.conf.eth0/1.x",
            "kernel.shm*",
            "kernel.sem",
            "net/core/somaxconn",
        ] {
            assert_eq!(pattern_mistake(sound), None, "{sound}");
        }
        for wrong in [
            "",
            "*",
            "vm.swappiness",
            "net.*.x",
            "net.Core.x",
            "fs.*",
            &"net.".repeat(80),
        ] {
            assert!(pattern_mistake(wrong).is_some(), "{wrong}");
        }
    }
}
