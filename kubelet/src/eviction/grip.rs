//! Holds the kubelet's own program in memory while little is left. Pages of programs are among the first that the kernel takes, and to end
//! a pod the kubelet then had to wait for the disk at every step, longer than the kernel waits before it kills somebody itself.

use client::memory;
use tokio::task::JoinHandle;

/// The program is held as soon as no more than this is left above a threshold, bytes.
const NEAR: i64 = 256 << 20;
/// It is let go of once more than this is.
const FAR: i64 = 2 * NEAR;

/// The hold.
#[derive(Debug, Default)]
pub(super) struct Grip {
    held: bool,
    /// It may wait for the disk.
    doing: Option<JoinHandle<()>>,
}

impl Grip {
    /// Tightens or loosens it by how much is left above the next threshold. Must be called inside a tokio runtime.
    pub(super) fn follow(&mut self, above: Option<i64>) {
        if self.doing.as_ref().is_some_and(|doing| !doing.is_finished()) {
            return;
        }
        let wanted = is_wanted(self.held, above);
        if wanted == self.held {
            return;
        }
        self.held = wanted;
        self.doing = Some(client::blocking::spawn(move || {
            if let Err(error) = memory::hold(wanted) {
                tracing::warn!(%error, "the kubelet's program may leave memory when that gets short");
            }
        }));
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

/// Whether the program is to be held. Without a threshold nothing is done when memory is short.
fn is_wanted(held: bool, above: Option<i64>) -> bool {
    let reach = if held { FAR } else { NEAR };
    above.is_some_and(|above| above <= reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_near_a_threshold_and_until_far_above_it() {
        for (held, above, wanted) in [
            (false, None, false),
            (true, None, false),
            (false, Some(NEAR + 1), false),
            (false, Some(NEAR), true),
            (false, Some(-1), true),
            (true, Some(NEAR + 1), true),
            (true, Some(FAR), true),
            (true, Some(FAR + 1), false),
        ] {
            assert_eq!(is_wanted(held, above), wanted, "{held} {above:?}");
        }
    }
}
