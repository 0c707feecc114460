//! Slices, made by systemd: the `systemd` cgroup driver (kubelet contract §7).
//!
//! Owns the units of the pod tree and what they are told. Never writes a cgroup file: what systemd has no property for, and
//! the exact values, the [hierarchy](super::Hierarchy) writes afterwards. Never stops a slice something still runs in.
//!
//! Talks to systemd's own socket, one connection for each change: a connection kept open would be sent every signal of the
//! machine, and a library for the whole of D-Bus is larger than this file's job (the figures are in ARCHITECTURE.md).

mod connection;

use super::{Values, limits};
use crate::dbus::message::{Call, Target, Value};
use connection::Connection;
pub use connection::SystemdError;
use std::path::PathBuf;

/// Where systemd itself answers root.
pub const SOCKET: &str = "/run/systemd/private";
/// systemd's object with the calls of its manager.
const MANAGER: Target = Target {
    destination: "",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// systemd keeps a quota as a whole percentage of a CPU: this many microseconds per second.
const PERCENT_US: i64 = 10_000;

/// A unit's property and its value.
type Property = (&'static str, Value);

/// The systemd that runs this machine. Its calls block; each has a deadline.
#[derive(Debug)]
pub struct Systemd {
    socket: PathBuf,
}

impl Systemd {
    /// The systemd that answers at `socket` ([`SOCKET`] outside tests); `None` when there is no such socket.
    pub fn find(socket: impl Into<PathBuf>) -> Option<Self> {
        let socket = socket.into();
        socket.exists().then_some(Self { socket })
    }

    /// Makes the slice with these limits, or gives them to one that is there.
    pub(super) fn ensure(&self, slice: &str, values: &Values, unified: bool) -> Result<(), SystemdError> {
        let resources = properties(values, unified);
        let mut connection = Connection::open(&self.socket)?;
        match connection.run_job(&start(slice, &resources, unified), slice) {
            Err(SystemdError::Refused { name, .. }) if name == UNIT_EXISTS => {
                connection.call(&update(slice, &resources)).map(|_| ())
            }
            other => other,
        }
    }

    /// Stops the slice, in which nothing may run any more, and waits until systemd has let go of it.
    pub(super) fn stop(&self, slice: &str) -> Result<(), SystemdError> {
        let mut connection = Connection::open(&self.socket)?;
        match connection.run_job(&stop(slice), slice) {
            Err(SystemdError::Refused { name, .. }) if name == NO_SUCH_UNIT => Ok(()),
            other => other,
        }
    }
}

/// The unit of a cgroup path: its last part.
pub(super) fn unit(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What systemd is told of these values. Pure.
fn properties(values: &Values, unified: bool) -> Vec<Property> {
    // systemd's "no limit" is the largest number; ours is any negative one.
    let amount = |value: i64| Value::Number(u64::try_from(value).unwrap_or(u64::MAX));
    let mut out = Vec::new();
    if let Some(shares) = values.cpu_shares {
        out.push(match unified {
            true => ("CPUWeight", amount(limits::cpu_weight(shares))),
            false => ("CPUShares", amount(shares)),
        });
    }
    if let Some((quota, period)) = values.cpu_quota {
        out.push(("CPUQuotaPerSecUSec", amount(quota_per_second(quota, period))));
        out.push(("CPUQuotaPeriodUSec", amount(period)));
    }
    if let Some(memory) = values.memory {
        out.push((if unified { "MemoryMax" } else { "MemoryLimit" }, amount(memory)));
    }
    for (name, kept) in [("MemoryMin", values.memory_min), ("MemoryLow", values.memory_low)] {
        out.extend(kept.filter(|_| unified).map(|kept| (name, amount(kept))));
    }
    if let Some(pids) = values.pids {
        out.push(("TasksMax", amount(pids)));
    }
    out
}

/// CPU time per second in microseconds, rounded up to what systemd can keep: rounded down, the slice would hold less than
/// a container in it may ask for. Negative without a limit.
fn quota_per_second(quota_us: i64, period_us: i64) -> i64 {
    if quota_us < 0 || period_us <= 0 {
        return -1;
    }
    let exact = quota_us.saturating_mul(1_000_000) / period_us;
    exact.saturating_add(PERCENT_US - 1) / PERCENT_US * PERCENT_US
}

/// A new slice. Without default dependencies, or shutting the machine down would stop pods before the kubelet can.
fn start(slice: &str, resources: &[Property], unified: bool) -> Call {
    let io = if unified { "IOAccounting" } else { "BlockIOAccounting" };
    let mut properties: Vec<Property> = vec![
        ("Description", Value::Text("Kubernetes pods".into())),
        ("DefaultDependencies", Value::Bool(false)),
    ];
    properties
        .extend(["CPUAccounting", "MemoryAccounting", "TasksAccounting", io].map(|name| (name, Value::Bool(true))));
    properties.extend_from_slice(resources);
    let mut call = Call::new(MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))");
    call.text(slice).text("replace").properties(&properties).no_structs();
    call
}

/// Other limits for a slice that is there, until the machine restarts, as a new one's are.
fn update(slice: &str, resources: &[Property]) -> Call {
    let mut call = Call::new(MANAGER, "SetUnitProperties", "sba(sv)");
    call.text(slice).bool(true).properties(resources);
    call
}

fn stop(slice: &str) -> Call {
    let mut call = Call::new(MANAGER, "StopUnit", "ss");
    call.text(slice).text("replace");
    call
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
