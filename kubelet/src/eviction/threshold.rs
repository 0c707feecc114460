//! What may run short on a node, and from where on it does: signals and thresholds (kubelet contract §10). Pure.

use proto::api::quantity::{Format, Quantity};
use std::fmt;
use std::time::Duration;

/// Something of which the node may have too little, under upstream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory of the machine.
    MemoryAvailable,
    /// Memory of all pods together.
    AllocatableMemoryAvailable,
    /// Bytes of the kubelet's file system.
    NodeFsAvailable,
    /// Its inodes.
    NodeFsInodesFree,
    /// Bytes of the file system of images.
    ImageFsAvailable,
    /// Its inodes.
    ImageFsInodesFree,
    /// Bytes of the file system of containers' layers.
    ContainerFsAvailable,
    /// Its inodes.
    ContainerFsInodesFree,
    /// Process ids.
    PidAvailable,
}

/// A condition of the node that means that it runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Of disk.
    Disk,
    /// Of memory.
    Memory,
    /// Of process ids.
    Pid,
}

/// What is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Starved {
    /// Bytes of memory.
    Memory,
    /// Bytes of disk.
    EphemeralStorage,
    /// Inodes.
    Inodes,
    /// Process ids.
    Pids,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// Its name in configurations and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    /// What runs short where this does.
    pub fn starved(self) -> Starved {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Starved::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => Starved::EphemeralStorage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => Starved::Inodes,
            Self::PidAvailable => Starved::Pids,
        }
    }

    /// The node's condition where this runs short.
    pub fn condition(self) -> Condition {
        match self.starved() {
            Starved::Memory => Condition::Memory,
            Starved::EphemeralStorage | Starved::Inodes => Condition::Disk,
            Starved::Pids => Condition::Pid,
        }
    }
}

impl Starved {
    /// Its name in messages: a resource's, or one that is only used here.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }

    /// An amount of it, as messages tell it.
    pub fn amount(self, value: i64) -> Quantity {
        let format = match self {
            Self::Memory | Self::EphemeralStorage => Format::BinarySi,
            Self::Inodes | Self::Pids => Format::DecimalSi,
        };
        Quantity::from_units(value, format)
    }
}

/// An amount, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So much.
    Quantity(Quantity),
    /// Per hundred. Of single precision and divided as upstream's: a node's allocatable resources agree to the byte.
    Percent(f32),
}

impl Amount {
    /// How much that is of a capacity.
    pub fn of(self, capacity: i64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "as upstream rounds"
            )]
            Self::Percent(percent) => {
                let part = capacity as f64 * f64::from(percent / 100.0);
                Quantity::from_units(part as i64, Format::BinarySi)
            }
        }
    }
}

/// From where on the node runs short of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Of what.
    pub signal: Signal,
    /// Less than this must not be left.
    pub amount: Amount,
    /// For how long it may all the same; zero of a hard threshold.
    pub grace: Duration,
    /// How much more than the amount must be left before it is over.
    pub reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether it is acted on at once.
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// When pods must go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// What must be left.
    pub thresholds: Vec<Threshold>,
    /// How long the node's condition stays after what caused it is over (`evictionPressureTransitionPeriod`).
    pub transition: Duration,
    /// The longest grace of pods that go for a soft threshold, seconds (`evictionMaxPodGracePeriod`); negative leaves each its own.
    pub grace_seconds_max: i64,
}

impl Rules {
    /// How much of a capacity pods are not given, because they would have to go again: what a hard threshold keeps.
    pub fn kept_back(&self, signal: Signal, capacity: i64) -> i64 {
        let hard = self.thresholds.iter().filter(|t| t.is_hard() && t.signal == signal);
        hard.map(|threshold| threshold.amount.of(capacity).value())
            .max()
            .unwrap_or(0)
    }

    /// The rules without what was said of `containerfs` itself, which counts for nothing, before and after it is known where layers are.
    pub fn without_containers(mut self) -> Self {
        self.thresholds.retain(|threshold| !is_containers(threshold));
        self
    }

    /// The rules of a node whose containers' layers are in a certain place: what is left there must be as much as on the file system that
    /// this is. What was said of `containerfs` itself counts for nothing, as upstream.
    pub fn of_disks(&self, disks: Disks) -> Vec<Threshold> {
        let said = self.thresholds.iter().filter(|threshold| !is_containers(threshold));
        let follows = |signal| match (disks.layers_are_images(), signal) {
            (true, Signal::ImageFsAvailable) | (false, Signal::NodeFsAvailable) => Some(Signal::ContainerFsAvailable),
            (true, Signal::ImageFsInodesFree) | (false, Signal::NodeFsInodesFree) => {
                Some(Signal::ContainerFsInodesFree)
            }
            _ => None,
        };
        let derived = said.clone().filter_map(|threshold| {
            let signal = follows(threshold.signal)?;
            Some(Threshold { signal, ..*threshold })
        });
        said.copied().chain(derived).collect()
    }
}

fn is_containers(threshold: &Threshold) -> bool {
    matches!(
        threshold.signal,
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree
    )
}

/// Which file systems are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// Images are on another than the kubelet's directory.
    pub images_apart: bool,
    /// Containers' layers are on another than images.
    pub layers_apart: bool,
}

impl Disks {
    /// Whether layers lie with images, apart from the kubelet's directory.
    pub fn layers_are_images(self) -> bool {
        self.images_apart && !self.layers_apart
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => crate::reason::node::DISK_PRESSURE,
            Self::Memory => crate::reason::node::MEMORY_PRESSURE,
            Self::Pid => crate::reason::node::PID_PRESSURE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(signal: Signal, percent: f32) -> Threshold {
        Threshold {
            signal,
            amount: Amount::Percent(percent),
            grace: Duration::ZERO,
            reclaim: None,
        }
    }

    #[test]
    fn signals_have_names_resources_and_conditions() {
        for signal in Signal::ALL {
            assert_eq!(Signal::parse(signal.as_str()), Some(signal));
        }
        assert_eq!(Signal::parse("memory.free"), None);
        let of = |signal: Signal| (signal.starved().as_str(), signal.condition().to_string());
        assert_eq!(
            of(Signal::AllocatableMemoryAvailable),
            ("memory", "MemoryPressure".to_owned())
        );
        assert_eq!(of(Signal::ImageFsInodesFree), ("inodes", "DiskPressure".to_owned()));
        assert_eq!(
            of(Signal::ContainerFsAvailable),
            ("ephemeral-storage", "DiskPressure".to_owned())
        );
        assert_eq!(of(Signal::PidAvailable), ("pids", "PIDPressure".to_owned()));
    }

    /// What nodes of upstream's show: `allocatable` of 83873772Ki with 1Gi reserved is 76224326324.
    #[test]
    fn percentages_are_rounded_as_upstreams() {
        let capacity = 83_873_772 * 1024;
        let kept = Amount::Percent(10.0).of(capacity).value();
        assert_eq!(capacity - kept - (1 << 30), 76_224_326_324);
        assert_eq!(Amount::Percent(5.0).of(32_768).to_api().0, "1638");
    }

    #[test]
    fn what_pods_are_not_given_is_what_the_hard_threshold_keeps() {
        let mut rules = Rules::default();
        assert_eq!(rules.kept_back(Signal::MemoryAvailable, 1000), 0);
        rules.thresholds.push(threshold(Signal::MemoryAvailable, 50.0));
        rules.thresholds.push(Threshold {
            grace: Duration::from_secs(1),
            ..threshold(Signal::MemoryAvailable, 75.0)
        });
        assert_eq!(rules.kept_back(Signal::MemoryAvailable, 1000), 500);
        assert_eq!(rules.kept_back(Signal::NodeFsAvailable, 1000), 0);
    }

    #[test]
    fn layers_follow_the_file_system_they_are_on() {
        let rules = Rules {
            thresholds: vec![
                threshold(Signal::NodeFsAvailable, 10.0),
                threshold(Signal::ImageFsAvailable, 15.0),
                threshold(Signal::ImageFsInodesFree, 5.0),
                threshold(Signal::ContainerFsAvailable, 99.0),
            ],
            ..Rules::default()
        };
        let layers = |images_apart, layers_apart| -> Vec<(Signal, Amount)> {
            let disks = Disks {
                images_apart,
                layers_apart,
            };
            let all = rules.of_disks(disks);
            assert_eq!(all[..3], rules.thresholds[..3]);
            all[3..].iter().map(|t| (t.signal, t.amount)).collect()
        };
        let (bytes, inodes) = (Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree);
        assert_eq!(layers(false, false), [(bytes, Amount::Percent(10.0))]);
        assert_eq!(layers(true, true), [(bytes, Amount::Percent(10.0))]);
        let with_images = [(bytes, Amount::Percent(15.0)), (inodes, Amount::Percent(5.0))];
        assert_eq!(layers(true, false), with_images);
    }
}
