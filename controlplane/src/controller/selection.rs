//! Which controllers run: `--controllers`, in upstream's words. Pure.
//!
//! Source: upstream's `cmd/kube-controller-manager/names`. `*` is all that are on by default, `name` one that is on, `-name` one that is off; the first
//! word about a controller counts.

use std::collections::BTreeSet;

/// A controller's name and the one it had before; empty if it had none.
type Names = (&'static str, &'static str);

/// The default: all there are, but for what lends nodes' addresses to Services.
pub const DEFAULT: &str = "*,bootstrap-signer-controller,token-cleaner-controller";

/// Controllers that `*` does not mean.
const OFF_BY_DEFAULT: [&str; 3] = [
    "bootstrap-signer-controller",
    "service-lb-controller",
    "token-cleaner-controller",
];

/// The controllers there are.
const HERE: &[Names] = &[
    ("bootstrap-signer-controller", "bootstrapsigner"),
    ("certificatesigningrequest-approving-controller", "csrapproving"),
    ("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    ("certificatesigningrequest-signing-controller", "csrsigning"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    ("cronjob-controller", "cronjob"),
    ("daemonset-controller", "daemonset"),
    ("deployment-controller", "deployment"),
    ("disruption-controller", "disruption"),
    ("endpoints-controller", "endpoint"),
    ("endpointslice-controller", "endpointslice"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring"),
    ("garbage-collector-controller", "garbagecollector"),
    ("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    ("job-controller", "job"),
    (
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
    ),
    ("namespace-controller", "namespace"),
    ("node-ipam-controller", "nodeipam"),
    ("node-lifecycle-controller", "nodelifecycle"),
    ("pod-garbage-collector-controller", "podgc"),
    ("replicaset-controller", "replicaset"),
    ("replicationcontroller-controller", "replicationcontroller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("resourcequota-controller", "resourcequota"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", ""),
    ("service-lb-controller", "service"),
    ("serviceaccount-controller", "serviceaccount"),
    ("serviceaccount-token-controller", "serviceaccount-token"),
    ("statefulset-controller", "statefulset"),
    ("taint-eviction-controller", ""),
    ("token-cleaner-controller", "tokencleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished"),
    ("ttl-controller", "ttl"),
];

/// Upstream's controllers that are not here: to turn one off is to say what is so.
const MISSING: &[Names] = &[
    ("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    ("device-taint-eviction-controller", ""),
    ("ephemeral-volume-controller", "ephemeral-volume"),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", ""),
    ("node-route-controller", "route"),
    ("persistentvolume-attach-detach-controller", "attachdetach"),
    ("persistentvolume-binder-controller", "persistentvolume-binder"),
    ("persistentvolume-expander-controller", "persistentvolume-expander"),
    ("persistentvolume-protection-controller", "pv-protection"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection"),
    ("podcertificaterequest-cleaner-controller", ""),
    ("selinux-warning-controller", ""),
    ("storage-version-migrator-controller", ""),
    ("storageversion-garbage-collector-controller", "storage-version-gc"),
    ("validatingadmissionpolicy-status-controller", ""),
    ("volumeattributesclass-protection-controller", ""),
];

/// The controllers that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    on: BTreeSet<&'static str>,
}

impl Default for Selection {
    fn default() -> Self {
        let words: Vec<(bool, &str)> = DEFAULT.split(',').map(|name| (true, name)).collect();
        let names = HERE.iter().map(|(name, _)| *name);
        Self {
            on: names.filter(|name| is_enabled(name, &words)).collect(),
        }
    }
}

/// Whether there is a controller of that name.
pub fn is_known(name: &str) -> bool {
    HERE.iter().any(|(known, _)| *known == name)
}

/// Who the events of a controller are from, by upstream's names: mostly its service account.
pub fn component(controller: &str, account: &'static str) -> &'static str {
    match controller {
        "daemonset-controller" => "daemonset-controller",
        "disruption-controller" => "controllermanager",
        "endpointslice-controller" => "endpoint-slice-controller",
        "endpointslice-mirroring-controller" => "endpoint-slice-mirroring-controller",
        "node-ipam-controller" => "cidrAllocator",
        "resourceclaim-controller" => "resource_claim",
        "taint-eviction-controller" => "taint-eviction-controller",
        _ => account,
    }
}

fn canonical(names: &[Names], word: &str) -> Option<&'static str> {
    let found = names
        .iter()
        .find(|(name, old)| *name == word || (!old.is_empty() && *old == word));
    found.map(|(name, _)| *name)
}

/// What the words say of a controller.
fn is_enabled(controller: &str, words: &[(bool, &str)]) -> bool {
    let of_it = words.iter().find(|(_, name)| *name == controller);
    let has_star = words.contains(&(true, "*"));
    of_it.map_or(has_star && !OFF_BY_DEFAULT.contains(&controller), |(on, _)| *on)
}

impl Selection {
    /// Reads the flag's words.
    ///
    /// # Errors
    /// One text for each word that names no controller, or asks for one that is not here.
    pub fn parse(words: &[String]) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut read: Vec<(bool, &str)> = Vec::new();
        for word in words {
            let (is_on, name) = word
                .strip_prefix('-')
                .map_or((true, word.as_str()), |name| (false, name));
            match (canonical(HERE, name), canonical(MISSING, name)) {
                _ if word == "*" => read.push((true, "*")),
                (Some(name), _) => read.push((is_on, name)),
                (None, Some(_)) if !is_on => {}
                (None, Some(_)) => {
                    mistakes.push(format!("{name:?} is a controller of upstream's that is not here yet"))
                }
                (None, None) => mistakes.push(format!("{name:?} is not in the list of known controllers")),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let on = HERE
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| is_enabled(name, &read));
        Ok(Self { on: on.collect() })
    }

    /// Whether the controller of that name runs.
    pub fn has(&self, name: &str) -> bool {
        self.on.contains(name)
    }

    /// The controllers that do not run.
    pub fn off(&self) -> impl Iterator<Item = &'static str> + '_ {
        HERE.iter().map(|(name, _)| *name).filter(|name| !self.has(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(text: &str) -> Result<Vec<&'static str>, Vec<String>> {
        let words: Vec<String> = text.split(',').map(str::to_owned).collect();
        Selection::parse(&words).map(|selection| selection.off().collect())
    }

    #[test]
    fn words_turn_controllers_on_and_off() {
        let lb = "service-lb-controller";
        assert_eq!(off(DEFAULT), Ok(vec![lb]));
        assert_eq!(Selection::default().off().collect::<Vec<_>>(), [lb]);
        assert_eq!(off(&format!("service,{DEFAULT}")), Ok(vec![]));
        assert_eq!(off("*"), Ok(OFF_BY_DEFAULT.to_vec()), "as upstream");
        let table = [
            ("-deployment-controller", vec!["deployment-controller", lb]),
            ("-deployment", vec!["deployment-controller", lb]),
            (
                "-podgc,-garbagecollector",
                vec!["garbage-collector-controller", "pod-garbage-collector-controller", lb],
            ),
            ("deployment,-deployment-controller", vec![lb]),
            ("-attachdetach,-ttl-controller", vec![lb, "ttl-controller"]),
        ];
        for (words, expected) in table {
            assert_eq!(off(&format!("{words},{DEFAULT}")), Ok(expected), "{words}");
        }
        let alone = off("job,endpoint").unwrap();
        assert_eq!(alone.len(), HERE.len() - 2);
        assert!(!alone.contains(&"job-controller") && !alone.contains(&"endpoints-controller"));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let mistakes = off("*,-typo,nodes,attachdetach,").unwrap_err();
        let expected = [
            "\"typo\" is not in the list of known controllers",
            "\"nodes\" is not in the list of known controllers",
            "\"attachdetach\" is a controller of upstream's that is not here yet",
            "\"\" is not in the list of known controllers",
        ];
        assert_eq!(mistakes, expected);
    }

    #[test]
    fn events_are_from_whom_upstreams_are() {
        let table = [
            ("daemonset-controller", "daemon-set-controller", "daemonset-controller"),
            ("node-lifecycle-controller", "node-controller", "node-controller"),
            ("node-ipam-controller", "node-controller", "cidrAllocator"),
            (
                "taint-eviction-controller",
                "node-controller",
                "taint-eviction-controller",
            ),
            ("disruption-controller", "disruption-controller", "controllermanager"),
            ("job-controller", "job-controller", "job-controller"),
        ];
        for (controller, account, from) in table {
            assert!(is_known(controller), "{controller}");
            assert_eq!(component(controller, account), from, "{controller}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let all: Vec<&str> = HERE
            .iter()
            .chain(MISSING)
            .flat_map(|(name, old)| [*name, *old])
            .collect();
        let named: Vec<&&str> = all.iter().filter(|name| !name.is_empty()).collect();
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());
    }
}
