//! Processes that stay in the cgroup of a pod nothing of which runs any more.
//!
//! A runtime that is killed while it starts a sandbox forgets what it had begun (containerd 1.6 leaves a `runc init` behind, which waits for
//! ever), and with a process in its cgroup a pod would never be gone. Upstream's kubelet kills what it finds there, too. Owns that one
//! kill, and the look at whether the process is still where it was found: a number may be another's by then.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt;
use std::sync::Arc;

/// Called with the process and the path of the pod's cgroup.
type Ends = dyn Fn(u32, &str) + Send + Sync;

/// How such a process is ended.
#[derive(Clone)]
pub(super) struct End(Arc<Ends>);

impl End {
    #[cfg(test)]
    pub(super) fn by(end: impl Fn(u32, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(end))
    }

    pub(super) fn call(&self, pid: u32, path: &str) {
        (self.0)(pid, path);
    }
}

impl Default for End {
    fn default() -> Self {
        Self(Arc::new(end))
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

fn end(pid: u32, path: &str) {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Ok(number) = i32::try_from(pid) else { return };
    if !is_in(&groups, path) {
        return;
    }
    tracing::warn!(
        pid,
        path,
        "killing a process that stays in the cgroup of a pod that has ended"
    );
    // One that ended meanwhile is ended.
    let _ = kill(Pid::from_raw(number), Signal::SIGKILL);
}

/// Whether a process of these cgroups (`/proc/PID/cgroup`) is in the pod's: by its name, since a path begins where the reader's namespace
/// does.
fn is_in(groups: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    !name.is_empty()
        && groups
            .lines()
            .any(|line| line.split(['/', ':']).any(|part| part == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_a_pods_cgroup_by_its_name_alone() {
        let groups = "5:pids:/skiff/kubepods/besteffort/podu-1/c\n0::/skiff/kubepods/besteffort/podu-1/c\n";
        assert!(is_in(groups, "/kubepods/besteffort/podu-1"));
        assert!(!is_in(groups, "/kubepods/besteffort/podu"));
        assert!(!is_in(groups, "/kubepods/besteffort/podu-11"));
        assert!(!is_in("", "/kubepods/besteffort/podu-1"));
        assert!(!is_in(groups, ""));
    }

    #[test]
    fn a_process_that_is_elsewhere_by_now_is_left_alone() {
        // This very process would end.
        end(std::process::id(), "/kubepods/besteffort/podu-1");
    }
}
