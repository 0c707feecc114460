//! What is to be done about sockets that came, went, or did not register. Pure.

use super::sockets::Identity;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The first wait after a registration that failed; each further one waits twice as long.
const RETRY: Duration = Duration::from_secs(1);
/// The longest.
const RETRY_MAX: Duration = Duration::from_secs(120);

/// How far a socket's registration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is under way.
    Registering,
    /// It worked.
    Registered,
    /// It failed, and is tried again then.
    Failed {
        /// Counted from the registry's beginning.
        again: Duration,
    },
}

/// What is known of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The socket it is of: one made anew at the same place is another.
    pub(super) identity: Identity,
    /// How far it is.
    pub(super) state: State,
    /// Failures in a row.
    pub(super) failures: u32,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// These are gone, or others now: their plugins go first.
    pub(super) deregister: Vec<PathBuf>,
    /// These are to be registered.
    pub(super) register: Vec<PathBuf>,
    /// When to look again though nothing happens.
    pub(super) wake_at: Option<Duration>,
}

/// Decides what follows from what is there. A registration under way is waited for, whatever becomes of its socket meanwhile.
pub(super) fn plan(found: &BTreeMap<PathBuf, Identity>, known: &BTreeMap<PathBuf, Record>, now: Duration) -> Plan {
    let mut plan = Plan::default();
    for (path, record) in known {
        let is_same = found.get(path) == Some(&record.identity);
        if !is_same && record.state != State::Registering {
            plan.deregister.push(path.clone());
        }
    }
    for (path, identity) in found {
        match known.get(path) {
            None => plan.register.push(path.clone()),
            Some(record) if record.state == State::Registering => {}
            Some(record) if record.identity != *identity => plan.register.push(path.clone()),
            Some(record) => match record.state {
                State::Failed { again } if again <= now => plan.register.push(path.clone()),
                State::Failed { again } => plan.wake_at = Some(plan.wake_at.map_or(again, |at| at.min(again))),
                State::Registered | State::Registering => {}
            },
        }
    }
    plan
}

/// How long to wait after so many failures in a row.
pub(super) fn wait(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(7);
    (RETRY * 2_u32.pow(doublings)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn identity(inode: u64) -> Identity {
        Identity {
            inode,
            ..Identity::default()
        }
    }

    #[test]
    fn each_socket_is_registered_once_and_goes_with_its_file() {
        let (soon, past) = (NOW + RETRY, NOW - RETRY);
        let failed = |again| State::Failed { again };
        let none = || (0, 0, None);
        // What is there, what is known, and how many are deregistered and registered, and the wake-up.
        type Expected = (usize, usize, Option<Duration>);
        type Known = Option<(u64, State)>;
        let table: [(Option<u64>, Known, Expected); 12] = [
            (None, None, none()),
            (Some(1), None, (0, 1, None)),
            (Some(1), Some((1, State::Registering)), none()),
            (Some(2), Some((1, State::Registering)), none()),
            (None, Some((1, State::Registering)), none()),
            (Some(1), Some((1, State::Registered)), none()),
            (Some(2), Some((1, State::Registered)), (1, 1, None)),
            (None, Some((1, State::Registered)), (1, 0, None)),
            (Some(1), Some((1, failed(soon))), (0, 0, Some(soon))),
            (Some(1), Some((1, failed(past))), (0, 1, None)),
            // One made anew has not failed yet.
            (Some(2), Some((1, failed(soon))), (1, 1, None)),
            (None, Some((1, failed(soon))), (1, 0, None)),
        ];
        for (there, known, expected) in table {
            let path = || PathBuf::from("/s");
            let found = there.map(|inode| (path(), identity(inode))).into_iter().collect();
            let record = |(inode, state)| Record {
                identity: identity(inode),
                state,
                failures: 1,
            };
            let records = known.map(|known| (path(), record(known))).into_iter().collect();
            let planned = plan(&found, &records, NOW);
            let told = (planned.deregister.len(), planned.register.len(), planned.wake_at);
            assert_eq!(told, expected, "{there:?} {known:?}");
        }
    }

    #[test]
    fn waits_grow_up_to_a_bound() {
        let seconds: Vec<u64> = [1, 2, 3, 7, 8, 9, u32::MAX]
            .iter()
            .map(|n| wait(*n).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 64, 120, 120, 120]);
    }
}
