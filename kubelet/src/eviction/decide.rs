//! Which pods outgrow their limits on local storage (kubelet contract §10). Pure.

use crate::host::usage::TreeUsage;
use crate::pod_object;
use k8s_openapi::api::core::v1::{Pod, Volume};
use proto::api::quantity::Quantity;
use proto::api::resources::{parse_list, pod_limits};
use std::collections::BTreeMap;

/// The resource containers are limited in.
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// What a pod may use of the node's storage.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Limits {
    /// Of emptyDirs, in spec order.
    pub(super) volumes: Vec<(String, Quantity)>,
    /// Of everything together.
    pub(super) pod: Option<Quantity>,
    /// Of what regular containers write outside of volumes.
    pub(super) containers: Vec<(String, Quantity)>,
}

/// What it uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Used {
    /// Its volumes on disk.
    pub(super) volumes: BTreeMap<String, TreeUsage>,
    /// What containers wrote into their own layers, bytes.
    pub(super) layers: BTreeMap<String, u64>,
    /// Their logs.
    pub(super) logs: BTreeMap<String, TreeUsage>,
    /// Files the kubelet made for the pod.
    pub(super) files: TreeUsage,
    /// Whether layers are on another file system than the kubelet's directory; nothing while that is not known.
    pub(super) images_apart: Option<bool>,
}

impl Limits {
    /// A pod's limits. Nothing for pods that are never evicted: those of files and URLs, which would only come again, their mirrors,
    /// and critical ones.
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = pod_object::spec(pod);
        if pod_object::is_critical(pod) {
            return Self::default();
        }
        let is_set = |limit: &Quantity| !limit.is_zero() && !limit.is_negative();
        let volumes = spec.volumes.iter().flatten().filter_map(|volume| {
            let limit = Quantity::of(volume.empty_dir.as_ref()?.size_limit.as_ref()?);
            is_set(&limit).then(|| (volume.name.clone(), limit))
        });
        let containers = spec.containers.iter().filter_map(|container| {
            let limits = parse_list(container.resources.as_ref()?.limits.as_ref());
            let limit = limits.get(EPHEMERAL_STORAGE).filter(|limit| is_set(limit))?;
            Some((container.name.clone(), *limit))
        });
        Self {
            volumes: volumes.collect(),
            pod: pod_limits(spec).get(EPHEMERAL_STORAGE).copied(),
            containers: containers.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty() && !self.limits_containers()
    }

    /// Whether anything but volumes is limited.
    pub(super) fn limits_containers(&self) -> bool {
        self.pod.is_some() || !self.containers.is_empty()
    }

    /// Whether it matters how much the volume takes up.
    pub(super) fn measures(&self, volume: &Volume) -> bool {
        self.volumes.iter().any(|(name, _)| *name == volume.name) || (self.pod.is_some() && is_on_disk(volume))
    }
}

impl Used {
    /// Whether it may be more.
    pub(super) fn is_incomplete(&self) -> bool {
        let trees = self.volumes.values().chain(self.logs.values());
        self.files.incomplete || trees.into_iter().any(|usage| usage.incomplete)
    }
}

/// Whether what is in the volume counts as the pod's local storage.
pub(super) fn is_on_disk(volume: &Volume) -> bool {
    let is_default = |medium: &Option<String>| medium.as_deref().unwrap_or_default().is_empty();
    volume.config_map.is_some() || volume.empty_dir.as_ref().is_some_and(|dir| is_default(&dir.medium))
}

fn is_over(bytes: u64, limit: Quantity) -> bool {
    i64::try_from(bytes).unwrap_or(i64::MAX) > limit.value()
}

fn shown(limit: Quantity) -> String {
    limit.to_api().0
}

/// Why the pod must end, as upstream's signal and in its words; nothing if it keeps its limits.
pub(super) fn exceeded(pod: &Pod, limits: &Limits, used: &Used) -> Option<(&'static str, String)> {
    let by = |signal| move |message| (signal, message);
    let of_volume = || volume_exceeded(limits, used).map(by("emptydirfs.limit"));
    let of_pod = || pod_exceeded(pod, limits, used).map(by("ephemeralpodfs.limit"));
    let of_container = || container_exceeded(limits, used).map(by("ephemeralcontainerfs.limit"));
    of_volume().or_else(of_pod).or_else(of_container)
}

fn volume_exceeded(limits: &Limits, used: &Used) -> Option<String> {
    let over = |(name, limit): &&(String, Quantity)| used.volumes.get(name).is_some_and(|u| is_over(u.bytes, *limit));
    if let Some((name, limit)) = limits.volumes.iter().find(over) {
        let limit = shown(*limit);
        return Some(format!(
            "Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "
        ));
    }
    let uncountable = |(name, _): &&(String, Quantity)| used.volumes.get(name).is_some_and(|u| u.uncountable);
    let (name, limit) = limits.volumes.iter().find(uncountable)?;
    let limit = shown(*limit);
    Some(format!(
        "Usage of EmptyDir volume \"{name}\" cannot be counted, its directories are too deep: it is taken to exceed the limit \"{limit}\". "
    ))
}

fn pod_exceeded(pod: &Pod, limits: &Limits, used: &Used) -> Option<String> {
    let limit = limits.pod?;
    let volumes = pod_object::spec(pod).volumes.iter().flatten().filter(|v| is_on_disk(v));
    let mut in_volumes = TreeUsage::default();
    for usage in volumes.filter_map(|v| used.volumes.get(&v.name)) {
        in_volumes.add(*usage);
    }
    let logs = used.logs.values().map(|usage| usage.bytes);
    let others = logs.chain(used.layers.values().copied()).chain([used.files.bytes]);
    let total = others.fold(in_volumes.bytes, u64::saturating_add);
    let limit_shown = shown(limit);
    if is_over(total, limit) {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit_shown}. "
        ));
    }
    in_volumes.uncountable.then(|| {
        format!(
            "Pod ephemeral local storage usage cannot be counted, directories in its volumes are too deep: it is taken to exceed the total limit of containers {limit_shown}. "
        )
    })
}

fn container_exceeded(limits: &Limits, used: &Used) -> Option<String> {
    let layers_count = !used.images_apart?;
    let over = |(name, limit): &&(String, Quantity)| {
        let layer = used.layers.get(name).filter(|_| layers_count).copied().unwrap_or(0);
        let logs = used.logs.get(name).map_or(0, |usage| usage.bytes);
        is_over(layer.saturating_add(logs), *limit)
    };
    let (name, limit) = limits.containers.iter().find(over)?;
    Some(format!(
        "Container {name} exceeded its local ephemeral storage limit \"{}\". ",
        shown(*limit)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;

    const SPEC: &str = r#"{"volumes":[{"name":"free","emptyDir":{}},{"name":"v","emptyDir":{"sizeLimit":"1Mi"}},
        {"name":"m","emptyDir":{"medium":"Memory"}},{"name":"s","secret":{"secretName":"s"}},{"name":"map","configMap":{"name":"c"}}],
        "containers":[{"name":"a","resources":{"limits":{"ephemeral-storage":"1000"}}},
            {"name":"b","resources":{"limits":{"ephemeral-storage":"2000"}}},{"name":"c"}]}"#;

    fn of_size(list: &[(&str, u64)]) -> BTreeMap<String, TreeUsage> {
        let usage = |bytes| TreeUsage {
            bytes,
            ..TreeUsage::default()
        };
        list.iter()
            .map(|(name, bytes)| ((*name).to_owned(), usage(*bytes)))
            .collect()
    }

    fn used(volumes: &[(&str, u64)], layers: &[(&str, u64)], logs: &[(&str, u64)], images_apart: Option<bool>) -> Used {
        Used {
            volumes: of_size(volumes),
            layers: layers
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes))
                .collect(),
            logs: of_size(logs),
            files: TreeUsage::default(),
            images_apart,
        }
    }

    #[test]
    fn each_limit_is_exceeded_by_its_own_use_and_told_in_upstreams_words() {
        const TOTAL: &str = "Pod ephemeral local storage usage exceeds the total limit of containers 3k. ";
        let a = Some("Container a exceeded its local ephemeral storage limit \"1k\". ");
        let here = Some(false);
        for (what, used, expected) in [
            ("nothing", used(&[], &[], &[], here), None),
            (
                "at its limit",
                used(&[("v", 1 << 20)], &[("a", 500)], &[("a", 500)], here),
                Some(TOTAL),
            ),
            (
                "the volume comes first",
                used(&[("v", (1 << 20) + 1)], &[("a", 5000)], &[], here),
                Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
            ),
            (
                "an unlimited volume counts",
                used(&[("free", 3001)], &[], &[], here),
                Some(TOTAL),
            ),
            (
                "so do a map, layers and logs",
                used(&[("map", 1000)], &[("c", 1000)], &[("c", 1001)], here),
                Some(TOTAL),
            ),
            (
                "memory and secrets do not",
                used(&[("m", 9000), ("s", 9000)], &[], &[], here),
                None,
            ),
            ("a layer", used(&[], &[("a", 1001)], &[], here), a),
            ("a layer and a log", used(&[], &[("a", 500)], &[("a", 501)], here), a),
            (
                "another's is not its own",
                used(&[], &[("c", 1500)], &[("b", 1500)], here),
                None,
            ),
            ("a layer elsewhere", used(&[], &[("a", 1001)], &[], Some(true)), None),
            (
                "a log, layers elsewhere",
                used(&[], &[("a", 9)], &[("a", 1001)], Some(true)),
                a,
            ),
            ("layers nobody knows where", used(&[], &[("a", 1001)], &[], None), None),
        ] {
            let pod = pod(SPEC);
            let found = exceeded(&pod, &Limits::of(&pod), &used).map(|(_, message)| message);
            assert_eq!(found.as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn a_volume_that_cannot_be_counted_is_taken_to_exceed_what_limits_it_and_the_message_says_so() {
        let pod = pod(SPEC);
        let told = |volume: &str, bytes| {
            let mut used = used(&[(volume, bytes)], &[], &[], Some(false));
            let usage = used.volumes.get_mut(volume).expect("there");
            (usage.incomplete, usage.uncountable) = (true, true);
            exceeded(&pod, &Limits::of(&pod), &used).map(|(_, message)| message)
        };
        let taken = "Usage of EmptyDir volume \"v\" cannot be counted, its directories are too deep: it is taken to exceed the limit \"1Mi\". ";
        assert_eq!(told("v", 1).as_deref(), Some(taken));
        let over = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        assert_eq!(told("v", 2 << 20).as_deref(), Some(over), "what was counted is enough");
        assert!(told("free", 1).is_some_and(|message| message.ends_with("total limit of containers 3k. ")));
        assert_eq!(told("m", 1), None, "memory is limited by itself");
        let mut partly = used(&[("v", 1)], &[], &[], Some(false));
        partly.volumes.get_mut("v").expect("there").incomplete = true;
        assert_eq!(
            exceeded(&pod, &Limits::of(&pod), &partly),
            None,
            "a count that ended early is a count"
        );
    }

    #[test]
    fn what_is_not_limited_or_never_evicted_has_no_limits() {
        let limits = Limits::of(&pod(SPEC));
        assert_eq!((limits.volumes.len(), limits.containers.len()), (1, 2));
        let measured = |name: &str| {
            let volumes = pod(SPEC).spec.and_then(|spec| spec.volumes).unwrap_or_default();
            volumes
                .iter()
                .any(|volume| volume.name == name && limits.measures(volume))
        };
        assert!(measured("free") && measured("v") && measured("map") && !measured("m") && !measured("s"));
        let limited =
            r#"{"priority":1999999999,"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1"}}],"containers":[]}"#;
        assert!(!Limits::of(&pod(limited)).is_empty());
        assert!(Limits::of(&pod(&limited.replace("\"1\"", "\"0\""))).is_empty());
        assert!(Limits::of(&pod(&limited.replace("1999999999", "2000000000"))).is_empty());
        for annotation in [pod_object::annotation::SOURCE, pod_object::annotation::MIRROR] {
            let mut pod = pod(limited);
            pod.metadata.annotations = Some([(annotation.to_owned(), "file".to_owned())].into());
            assert!(Limits::of(&pod).is_empty(), "{annotation}");
        }
    }
}
