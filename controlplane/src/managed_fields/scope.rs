//! Which fields a request can change, and so come to own: not the status through the main endpoint, nor the spec through `status`,
//! nor what only the server sets. Pure; the table is upstream's reset fields (control-plane contract §2.5).

use crate::resource::Kind;

type Path = &'static [&'static str];

/// Any step of a path.
const ANY: &str = "*";

/// What nobody ever owns.
const NEVER: &[Path] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "clusterName"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
];

/// The fields an endpoint can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// If there are any: only these, and what is below them.
    only: &'static [Path],
    /// Not these, nor what is below them.
    reset: &'static [Path],
    /// Nor these.
    never: &'static [Path],
}

impl Scope {
    /// Everything but what nobody owns.
    pub const WHOLE: Self = Self {
        only: &[],
        reset: &[],
        never: NEVER,
    };

    /// Every field there is.
    pub(super) const EVERYTHING: Self = Self {
        never: &[],
        ..Self::WHOLE
    };

    /// Of the endpoint of a kind; `subresource` is empty for the main one.
    pub fn of(kind: &Kind, subresource: &str) -> Self {
        let (only, reset): (&'static [Path], &'static [Path]) = match subresource {
            "" if kind.subresource("status").is_some() => (&[], &[&["status"]]),
            "status" if kind.strategy.status_keeps_metadata() => (&[&["status"]], &[]),
            "status" => (&[&["metadata"], &["status"]], status_reset(&kind.group, &kind.plural)),
            "approval" => (&[&["metadata"], &["status"]], &[&["status", "certificate"]]),
            "finalize" => (&[], &[&["status"]]),
            "ephemeralcontainers" => (&[&["spec", "ephemeralContainers"]], &[]),
            "resize" => (
                &[
                    &["spec", "containers", ANY, "resizePolicy"],
                    &["spec", "containers", ANY, "resources"],
                    &["spec", "initContainers", ANY, "resizePolicy"],
                    &["spec", "initContainers", ANY, "resources"],
                    &["spec", "resources"],
                ],
                &[],
            ),
            _ => (&[], &[]),
        };
        Self {
            only,
            reset,
            ..Self::WHOLE
        }
    }

    /// The scope at the root of an object.
    pub(super) fn root(self) -> At {
        let excluded = self.never.len() + self.reset.len();
        At {
            scope: self,
            depth: 0,
            excluding: (1 << excluded) - 1,
            including: (1 << self.only.len()) - 1,
            is_inside: self.only.is_empty(),
        }
    }

    fn excluded(self, index: usize) -> Path {
        let mut all = self.never.iter().chain(self.reset);
        all.nth(index).copied().unwrap_or(&[])
    }

    fn included(self, index: usize) -> Path {
        self.only.get(index).copied().unwrap_or(&[])
    }
}

/// A scope as seen from one node of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    scope: Scope,
    depth: usize,
    /// The exclusions, by bit, that the path to the node is the beginning of.
    excluding: u32,
    /// The same of what alone is included.
    including: u32,
    /// Whether the node itself, and all that is not excluded below it, is in the scope.
    is_inside: bool,
}

impl At {
    /// The scope at a step below the node (the name of a field, or [`ANY`] for members of lists); `None` if it ends there.
    pub(super) fn down(self, step: &str) -> Option<Self> {
        if self.is_inside && self.excluding == 0 {
            return Some(self);
        }
        let depth = self.depth;
        let (excluding, is_excluded) = narrowed(self.excluding, |i| self.scope.excluded(i), depth, step);
        let (including, is_included) = narrowed(self.including, |i| self.scope.included(i), depth, step);
        let is_inside = self.is_inside || is_included;
        if is_excluded || !(is_inside || including != 0) {
            return None;
        }
        Some(Self {
            depth: depth + 1,
            excluding,
            including,
            is_inside,
            ..self
        })
    }

    /// The scope at a member of a list.
    pub(super) fn member(self) -> Option<Self> {
        self.down(ANY)
    }

    /// Whether the node itself is in the scope.
    pub(super) fn is_inside(self) -> bool {
        self.is_inside
    }
}

/// Of the paths that are left, those that go on with the step; and whether one ends with it.
fn narrowed(left: u32, path: impl Fn(usize) -> Path, depth: usize, step: &str) -> (u32, bool) {
    let (mut kept, mut ends) = (0, false);
    let mut rest = left;
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let path = path(index);
        if path.get(depth).is_some_and(|own| *own == step || *own == ANY) {
            kept |= 1 << index;
            ends |= path.len() == depth + 1;
        }
    }
    (kept, ends)
}

/// What of the metadata and the status `status` leaves as it was, of kinds whose labels and the like it may change.
fn status_reset(group: &str, plural: &str) -> &'static [Path] {
    match (group, plural) {
        ("", "pods") => &[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        ("apps", "deployments") => &[&["metadata", "labels"]],
        ("certificates.k8s.io", "certificatesigningrequests") => &[&["status", "conditions"]],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    fn admits(scope: Scope, path: &str) -> bool {
        let steps: Vec<&str> = path.split('.').collect();
        let end = steps.iter().try_fold(scope.root(), |at, step| at.down(step));
        end.is_some_and(At::is_inside)
    }

    #[test]
    fn endpoints_own_what_they_can_change() {
        let kind = |group: &str, kind: &str| Registry::built_in().by_gvk(group, "v1", kind).expect("built in");
        let (pod, deployment, map) = (kind("", "Pod"), kind("apps", "Deployment"), kind("", "ConfigMap"));
        let attachment = kind("storage.k8s.io", "VolumeAttachment");
        let main = Scope::of(pod, "");
        let table = [
            (main, "spec.nodeName", true),
            (main, "metadata.labels.a", true),
            (main, "metadata.name", false),
            (main, "status.phase", false),
            (main, "apiVersion", false),
            (Scope::of(map, ""), "status", true),
            (Scope::of(pod, "status"), "status.phase", true),
            (Scope::of(pod, "status"), "metadata.ownerReferences", false),
            (Scope::of(pod, "status"), "metadata.annotations.a", true),
            (Scope::of(pod, "status"), "spec", false),
            (Scope::of(deployment, "status"), "metadata.labels", false),
            (Scope::of(attachment, "status"), "metadata.labels", false),
            (Scope::of(attachment, "status"), "status.attached", true),
            (Scope::of(pod, "ephemeralcontainers"), "spec", false),
            (
                Scope::of(pod, "ephemeralcontainers"),
                "spec.ephemeralContainers.a.image",
                true,
            ),
            (Scope::of(pod, "resize"), "spec.containers.a.resources.limits", true),
            (Scope::of(pod, "resize"), "spec.containers.a.image", false),
            (Scope::of(pod, "resize"), "spec.containers.a", false),
        ];
        for (scope, path, expected) in table {
            assert_eq!(admits(scope, path), expected, "{path} of {scope:?}");
        }
    }
}
