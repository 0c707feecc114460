//! Places for connections over TLS. Strangers are many and cost nothing to pretend, so they have places that the client authority's own
//! never need: a handshake always begins, in place of the oldest of the address that has the most when there are too many, and who turns
//! out to be vouched for sits apart from all others. Never waits.

use super::share::{Share, Shares};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In their handshake.
    pub(super) handshakes: usize,
    /// In their handshake, of one address.
    pub(super) handshakes_of_address: usize,
    /// Whose clients have shown no certificate of the client authority.
    pub(super) strangers: usize,
    /// Of those, of one address.
    pub(super) of_address: usize,
    /// Whose clients have; when these are taken they count as strangers.
    pub(super) vouched_for: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshakes: 512,
            handshakes_of_address: 256,
            strangers: 1024,
            of_address: 256,
            vouched_for: 1024,
        }
    }
}

/// Places for connections.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    limits: Limits,
    handshakes: Arc<Mutex<Handshakes>>,
    strangers: Arc<Semaphore>,
    of_addresses: Shares<IpAddr>,
    vouched_for: Arc<Semaphore>,
}

/// A place of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share<IpAddr>>,
}

/// The handshakes under way, the oldest of each address first.
#[derive(Debug, Default)]
struct Handshakes {
    begun: u64,
    of: BTreeMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
}

/// A handshake under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Handshake {
    number: u64,
    of: IpAddr,
    displaced: CancellationToken,
    among: Arc<Mutex<Handshakes>>,
}

fn locked(handshakes: &Mutex<Handshakes>) -> MutexGuard<'_, Handshakes> {
    handshakes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handshakes {
    /// Ends the oldest of an address.
    fn displace(&mut self, of: IpAddr) {
        if let Some((_, oldest)) = self.of.get_mut(&of).and_then(VecDeque::pop_front) {
            oldest.cancel();
        }
    }

    fn remove(&mut self, of: IpAddr, number: u64) {
        let Some(own) = self.of.get_mut(&of) else { return };
        own.retain(|(other, _)| *other != number);
        if own.is_empty() {
            self.of.remove(&of);
        }
    }
}

impl Doors {
    /// With all places free.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            handshakes: Arc::default(),
            strangers: Arc::new(Semaphore::new(limits.strangers)),
            of_addresses: Shares::new(limits.of_address),
            vouched_for: Arc::new(Semaphore::new(limits.vouched_for)),
        }
    }

    /// A handshake begins, in place of another if there are too many.
    pub(super) fn begin(&self, of: IpAddr) -> Handshake {
        let mut all = locked(&self.handshakes);
        all.begun += 1;
        let (number, displaced) = (all.begun, CancellationToken::new());
        let own = all.of.entry(of).or_default();
        own.push_back((number, displaced.clone()));
        if own.len() > self.limits.handshakes_of_address {
            all.displace(of);
        } else if all.of.values().map(VecDeque::len).sum::<usize>() > self.limits.handshakes {
            let most = all.of.iter().max_by_key(|(_, own)| own.len()).map(|(of, _)| *of);
            most.into_iter().for_each(|of| all.displace(of));
        }
        drop(all);
        let among = self.handshakes.clone();
        Handshake {
            number,
            of,
            displaced,
            among,
        }
    }

    /// A place after the handshake; none when there are too many strangers.
    pub(super) fn seat(&self, of: IpAddr, vouched_for: bool) -> Option<Seat> {
        let apart = || self.vouched_for.clone().try_acquire_owned().ok();
        if let Some(permit) = vouched_for.then(apart).flatten() {
            return Some(Seat {
                _permit: permit,
                _share: None,
            });
        }
        let share = self.of_addresses.take(of)?;
        let permit = self.strangers.clone().try_acquire_owned().ok()?;
        Some(Seat {
            _permit: permit,
            _share: Some(share),
        })
    }
}

impl Handshake {
    /// Waits until another takes its place.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        locked(&self.among).remove(self.of, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors() -> Doors {
        Doors::new(Limits {
            handshakes: 5,
            handshakes_of_address: 3,
            strangers: 4,
            of_address: 3,
            vouched_for: 2,
        })
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_handshake_begins_in_place_of_the_oldest_of_who_has_the_most() {
        let doors = doors();
        let of =
            |last: u8, count: usize| -> Vec<Handshake> { (0..count).map(|_| doors.begin(address(last))).collect() };
        let gone = |all: &[Handshake]| all.iter().map(|h| h.displaced.is_cancelled()).collect::<Vec<_>>();
        let first = of(1, 4);
        assert_eq!(gone(&first), [true, false, false, false], "of its own address");
        let (second, third) = (of(2, 2), of(3, 1));
        assert_eq!(gone(&first), [true, true, false, false]);
        assert_eq!((gone(&second), gone(&third)), (vec![false; 2], vec![false]));
        drop((first, second, third));
        assert!(locked(&doors.handshakes).of.is_empty(), "nothing is left behind");
    }

    #[test]
    fn who_is_vouched_for_sits_apart() {
        let doors = doors();
        let strangers: Vec<_> = (0..4).map(|_| doors.seat(address(1), false)).collect();
        assert_eq!(strangers.iter().flatten().count(), 3, "one address leaves places");
        let other = doors.seat(address(2), false);
        assert!(
            other.is_some() && doors.seat(address(3), false).is_none(),
            "all are taken"
        );
        let own: Vec<_> = (0..3).map(|_| doors.seat(address(1), true)).collect();
        assert_eq!(own.iter().flatten().count(), 2);
        drop(strangers);
        assert!(doors.seat(address(1), true).is_some(), "then among the strangers");
    }
}
