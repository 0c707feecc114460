//! When the kernel is given less because it has no room, again and again, and when as much as ever again. Pure.

use std::time::Duration;

use netlink::nft;
use nix::errno::Errno;
use tokio::time::Instant;

use crate::kernel::Error;
use crate::world::World;

/// From so many refusals for lack of room on, with no success between them, the kernel is given less with each.
const REFUSALS: u32 = 3;
/// How long it is given less, from its last refusal on.
const LOOSEN_PERIOD: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub(crate) struct Strain {
    /// In a row.
    refused: u32,
    loosen_at: Option<Instant>,
}

impl Strain {
    /// What came of telling the kernel: what is held of the world at most is halved, or all of it again. Less would not help against
    /// what is no lack of room, and would cost policies their rules.
    pub(crate) fn after(&mut self, outcome: &Result<(), Error>, now: Instant, world: &mut World) {
        match outcome {
            Ok(()) if self.take(now) => world.loosen(),
            Err(error) if lacks_room(error) && self.refuse(now) => world.tighten(),
            _ => {}
        }
    }

    /// The kernel has no room; returns whether it is to be given less.
    fn refuse(&mut self, now: Instant) -> bool {
        self.refused += 1;
        let is_to_tighten = self.refused >= REFUSALS;
        if is_to_tighten {
            self.loosen_at = Some(now + LOOSEN_PERIOD);
        }
        is_to_tighten
    }

    /// The kernel took what it was given; returns whether it is to be given as much as ever again.
    fn take(&mut self, now: Instant) -> bool {
        self.refused = 0;
        self.loosen_at.take_if(|at| *at <= now).is_some()
    }
}

/// Whether a batch was refused, or not even taken, because there was no room for it. Answers that do not fit are another matter: they are
/// many refusals, and those for want of memory are one.
fn lacks_room(error: &Error) -> bool {
    let Error::Rules(nft::Error::Commit(error)) = error else {
        return false;
    };
    let errno = match error {
        netlink::Error::Refused(errno) => *errno,
        netlink::Error::Send(error) => error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw),
        _ => return false,
    };
    matches!(
        errno,
        Errno::ENOMEM | Errno::ENOSPC | Errno::ENOBUFS | Errno::EMSGSIZE | Errno::ENFILE | Errno::E2BIG
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, PodId};
    use crate::spec::Policy;
    use client::Key;
    use serde_json::json;
    use std::io;

    fn refused(errno: Errno) -> Error {
        nft::Error::Commit(netlink::Error::Refused(errno)).into()
    }

    fn unsent(errno: Errno) -> Error {
        nft::Error::Commit(netlink::Error::Send(errno.into())).into()
    }

    #[test]
    fn only_some_errors_are_lack_of_room() {
        let received = |errno: Errno| nft::Error::Commit(netlink::Error::Receive(errno.into())).into();
        let listed = |errno| nft::Error::List(netlink::Error::Refused(errno)).into();
        let unopened = |errno: Errno| nft::Error::Open(netlink::Error::Open(errno.into())).into();
        let lacking = |errno| nft::Error::Lacks("maps".into(), netlink::Error::Refused(errno)).into();
        let nowhere = nft::Error::Commit(netlink::Error::Send(io::Error::other("x")));
        let rows: [(Error, bool); 24] = [
            (refused(Errno::ENOMEM), true),
            (refused(Errno::ENOSPC), true),
            (refused(Errno::ENOBUFS), true),
            (refused(Errno::EMSGSIZE), true),
            (refused(Errno::ENFILE), true),
            (refused(Errno::E2BIG), true),
            (unsent(Errno::EMSGSIZE), true),
            (unsent(Errno::ENOBUFS), true),
            (unsent(Errno::ENOMEM), true),
            (unsent(Errno::EPERM), false),
            (nowhere.into(), false),
            (refused(Errno::EPERM), false),
            (refused(Errno::ENOENT), false),
            (refused(Errno::EBUSY), false),
            (refused(Errno::EEXIST), false),
            (refused(Errno::EINVAL), false),
            (received(Errno::ENOBUFS), false),
            (received(Errno::EAGAIN), false),
            (listed(Errno::ENOMEM), false),
            (unopened(Errno::ENOBUFS), false),
            (lacking(Errno::ENOENT), false),
            (nft::Error::Contended.into(), false),
            (netlink::Error::Refused(Errno::ENOMEM).into(), false),
            (Error::Panicked, false),
        ];
        for (error, expected) in rows {
            assert_eq!(lacks_room(&error), expected, "{error:?}");
        }
    }

    /// Whether there is room for all of a world's policies now, as one that is told everything anew has it.
    fn has_room(world: &mut World) -> bool {
        let key = Key::new("d", "p");
        let rules = json!([{"ports": (0..1500).map(|at| json!({"port": 1000 + 2 * at})).collect::<Vec<_>>()}]);
        let policy =
            json!({"metadata": {"namespace": "d", "name": "p"}, "spec": {"podSelector": {}, "ingress": rules}});
        let policy = Policy::read(&serde_json::from_value(policy).unwrap());
        world.set_policy(key.clone(), Some(policy));
        world.take_change();
        let has_room = world.take_overfull().is_empty();
        world.set_policy(key, None);
        world.take_change();
        has_room
    }

    #[test]
    fn the_world_holds_less_while_there_is_no_room_and_only_then() {
        let (mut strain, mut world, begin) = (Strain::default(), World::new(), Instant::now());
        let pod = json!({"metadata": {"namespace": "d", "name": "web", "uid": "u"},
            "spec": {"nodeName": "n1", "containers": []}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        let pod = serde_json::from_value(pod).unwrap();
        world.set_pod(PodId::of(&pod), Some(Facts::of(&pod, "n1")));
        for _ in 0..20 {
            strain.after(&Err(refused(Errno::EPERM)), begin, &mut world);
        }
        assert!(has_room(&mut world), "it is no matter of room");
        for _ in 0..REFUSALS - 1 {
            strain.after(&Err(unsent(Errno::EMSGSIZE)), begin, &mut world);
            // Nor is it one that there is room.
            strain.after(&Err(refused(Errno::EPERM)), begin, &mut world);
        }
        assert!(has_room(&mut world));
        for _ in 0..6 {
            strain.after(&Err(refused(Errno::ENOMEM)), begin, &mut world);
        }
        assert!(!has_room(&mut world));
        strain.after(&Ok(()), begin, &mut world);
        assert!(!has_room(&mut world));
        strain.after(&Ok(()), begin + LOOSEN_PERIOD, &mut world);
        assert!(has_room(&mut world));
    }

    #[test]
    fn it_is_given_less_after_refusals_in_a_row_and_for_a_while() {
        let (mut strain, begin) = (Strain::default(), Instant::now());
        let later = begin + LOOSEN_PERIOD;
        assert!(!strain.refuse(begin) && !strain.refuse(begin));
        assert!(!strain.take(begin), "nothing was taken from it");
        assert!(!strain.refuse(begin) && !strain.refuse(begin) && strain.refuse(begin));
        let second = begin + Duration::from_secs(1);
        assert!(strain.refuse(second), "it is half of half then");
        assert!(!strain.take(second) && !strain.take(later));
        assert!(strain.take(second + LOOSEN_PERIOD));
        assert!(!strain.take(second + LOOSEN_PERIOD), "once");
    }
}
