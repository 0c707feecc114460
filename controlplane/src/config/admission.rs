//! The flags that choose admission plugins (control-plane contract §7). Pure.

use super::Reader;
use crate::resource::service::NodePorts;

const ENABLE: &str = "enable-admission-plugins";
const DISABLE: &str = "disable-admission-plugins";

/// Whoever may write Services may not claim external IPs for them.
const DENY_EXTERNAL_IPS: &str = "DenyServiceExternalIPs";

/// Plugins that always run.
const ALWAYS: &[&str] = &[
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultTolerationSeconds",
    "NamespaceLifecycle",
    "NodeRestriction",
    "Priority",
    "ServiceAccount",
    "TaintNodesByCondition",
];

/// Plugins that run unless they are left out.
const LIMIT_RANGER: &str = "LimitRanger";
const RESOURCE_QUOTA: &str = "ResourceQuota";

/// Upstream's other plugins, which do not exist here yet: leaving them out is what happens anyway, asking for them is a mistake.
const MISSING: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "RuntimeClass",
    "StorageObjectInUseProtection",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// Which admission plugins run beside those that always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Whether Services get no new external IPs (DenyServiceExternalIPs); off by default, as upstream.
    pub deny_service_external_ips: bool,
    /// Whether LimitRanges are not obeyed (LimitRanger left out).
    pub without_limit_ranger: bool,
    /// Whether ResourceQuotas are not obeyed (ResourceQuota left out).
    pub without_resource_quota: bool,
    /// The range Services get node ports of.
    pub node_ports: NodePorts,
}

impl Reader<'_> {
    /// The plugins chosen by `--enable-admission-plugins` and `--disable-admission-plugins`, and the range of node ports.
    pub(super) fn admission(&mut self, node_ports: NodePorts) -> AdmissionConfig {
        let enabled = self.list(ENABLE).unwrap_or_default();
        let disabled = self.list(DISABLE).unwrap_or_default();
        for (flag, names) in [(ENABLE, &enabled), (DISABLE, &disabled)] {
            for name in names.iter().filter(|name| !is_known(name)) {
                self.mistakes.push(format!("{flag} plugin \"{name}\" is unknown"));
            }
        }
        let mut both: Vec<&str> = enabled
            .iter()
            .filter(|name| disabled.contains(name))
            .map(String::as_str)
            .collect();
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            let both = both.join(" ");
            self.mistakes
                .push(format!("[{both}] in {ENABLE} and {DISABLE} overlapped"));
        }
        for name in enabled.iter().filter(|name| MISSING.contains(&name.as_str())) {
            self.wrong(ENABLE, name, "this plugin is not supported yet");
        }
        for name in disabled.iter().filter(|name| ALWAYS.contains(&name.as_str())) {
            self.wrong(DISABLE, name, "this plugin always runs");
        }
        AdmissionConfig {
            deny_service_external_ips: enabled.iter().any(|name| name == DENY_EXTERNAL_IPS),
            without_limit_ranger: disabled.iter().any(|name| name == LIMIT_RANGER),
            without_resource_quota: disabled.iter().any(|name| name == RESOURCE_QUOTA),
            node_ports,
        }
    }
}

fn is_known(name: &str) -> bool {
    [DENY_EXTERNAL_IPS, LIMIT_RANGER, RESOURCE_QUOTA].contains(&name)
        || ALWAYS.contains(&name)
        || MISSING.contains(&name)
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, flags};

    fn resolve(words: &[&str]) -> Result<Config, Vec<String>> {
        Config::resolve(&flags::parse(words.iter().map(|word| (*word).to_owned())))
    }

    #[test]
    fn external_ips_are_denied_only_when_asked_for() {
        for (words, denied) in [
            (&[][..], false),
            (
                &["--enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs"][..],
                true,
            ),
            (
                &[
                    "--enable-admission-plugins=DenyServiceExternalIPs",
                    "--enable-admission-plugins=Priority",
                ][..],
                true,
            ),
            (&["--enable-admission-plugins="][..], false),
            (
                &["--disable-admission-plugins=DenyServiceExternalIPs,ResourceQuota,LimitRanger"][..],
                false,
            ),
        ] {
            assert_eq!(
                resolve(words).unwrap().admission.deny_service_external_ips,
                denied,
                "{words:?}"
            );
        }
    }

    #[test]
    fn limits_and_quotas_are_obeyed_unless_they_are_left_out() {
        for (words, left_out) in [
            (&[][..], (false, false)),
            (
                &["--enable-admission-plugins=LimitRanger,ResourceQuota"][..],
                (false, false),
            ),
            (&["--disable-admission-plugins=LimitRanger"][..], (true, false)),
            (&["--disable-admission-plugins=ResourceQuota"][..], (false, true)),
        ] {
            let config = resolve(words).unwrap().admission;
            assert_eq!(
                (config.without_limit_ranger, config.without_resource_quota),
                left_out,
                "{words:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_chosen_is_refused_by_name() {
        let mistakes = resolve(&[
            "--enable-admission-plugins=PodPreset,PodSecurity,Priority,DenyServiceExternalIPs",
            "--disable-admission-plugins=NodeRestriction,Nothing,DenyServiceExternalIPs",
        ])
        .unwrap_err();
        assert_eq!(
            mistakes,
            [
                "enable-admission-plugins plugin \"PodPreset\" is unknown",
                "disable-admission-plugins plugin \"Nothing\" is unknown",
                "[DenyServiceExternalIPs] in enable-admission-plugins and disable-admission-plugins overlapped",
                "invalid argument \"PodSecurity\" for \"--enable-admission-plugins\" flag: this plugin is not supported yet",
                "invalid argument \"NodeRestriction\" for \"--disable-admission-plugins\" flag: this plugin always runs",
            ]
        );
    }
}
