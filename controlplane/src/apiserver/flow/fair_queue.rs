//! One limit shared fairly by users: who may go in now, who waits, who is sent away. Pure.
//!
//! What is limited is counted in units that the owner gives a meaning (requests, kilobytes). No user has more than a share, so that
//! there is always some for others; of those who wait the user who has least is let in first, and then who came first. Queues are
//! bounded, and when all places to wait are taken the user who waits with most requests gives way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most requests of one user that wait (upstream's queue length).
pub(in crate::apiserver) const WAITING_OF_USER: usize = 50;
/// Most requests that wait.
pub(in crate::apiserver) const WAITING_MAX: usize = 1024;

/// A request for at most this part of the room (64 KiB of bodies, no request's place) does not wait behind large ones.
const SMALL: usize = 1024;

/// Somebody who waits.
pub(super) type Ticket = u64;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It may go on.
    Enter,
    /// It waits, and in place of `instead` if all places were taken: that one is sent away.
    Wait { ticket: Ticket, instead: Option<Ticket> },
    /// It is to come back later.
    Refuse,
}

/// Who has what of one limit, and who waits for it.
pub(super) struct FairQueue {
    units: usize,
    units_of_user: usize,
    taken: usize,
    users: BTreeMap<Arc<str>, UserShare>,
    waiting: usize,
    next_ticket: Ticket,
}

/// What one user has.
#[derive(Default)]
struct UserShare {
    taken: usize,
    /// Ticket and units, the oldest first.
    waiting: VecDeque<(Ticket, usize)>,
}

/// The request that is let in next.
struct Candidate {
    user: Arc<str>,
    /// What its user has already.
    taken: usize,
    /// What it takes.
    cost: usize,
}

impl FairQueue {
    /// A limit of `units`, of which one user may have `units_of_user`.
    pub(super) fn new(units: usize, units_of_user: usize) -> Self {
        Self {
            units,
            units_of_user,
            taken: 0,
            users: BTreeMap::new(),
            waiting: 0,
            next_ticket: 0,
        }
    }

    /// Units taken now.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// What is counted for somebody who wants `units`: never more than one user may have.
    pub(super) fn cost(&self, units: usize) -> usize {
        units.min(self.units_of_user)
    }

    /// Somebody wants [`FairQueue::cost`] units.
    pub(super) fn offer(&mut self, user: &Arc<str>, cost: usize) -> Offer {
        let own = self.users.get(user);
        let own_taken = own.map_or(0, |own| own.taken);
        let own_waiting = own.map_or(0, |own| own.waiting.len());
        let fits = self.taken + cost <= self.units && own_taken + cost <= self.units_of_user;
        let is_next = self.first_in_line().is_none_or(|first| own_taken < first.taken);
        if fits && own_waiting == 0 && (is_next || self.is_small(cost)) {
            self.users.entry(Arc::clone(user)).or_default().taken += cost;
            self.taken += cost;
            return Offer::Enter;
        }
        if own_waiting >= WAITING_OF_USER {
            return Offer::Refuse;
        }
        let mut instead = None;
        if self.waiting >= WAITING_MAX {
            instead = self.send_away(own_waiting + 1);
            if instead.is_none() {
                return Offer::Refuse;
            }
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let own = self.users.entry(Arc::clone(user)).or_default();
        own.waiting.push_back((ticket, cost));
        self.waiting += 1;
        Offer::Wait { ticket, instead }
    }

    /// Too little to be what somebody large waits for: it passes him, so that one large request holds up nobody.
    fn is_small(&self, cost: usize) -> bool {
        cost <= self.units / SMALL
    }

    /// Takes the newest from the longest queue, if that is longer than `than`.
    fn send_away(&mut self, than: usize) -> Option<Ticket> {
        let longest = self.users.values_mut().max_by_key(|own| own.waiting.len())?;
        if longest.waiting.len() <= than {
            return None;
        }
        self.waiting -= 1;
        longest.waiting.pop_back().map(|(ticket, _)| ticket)
    }

    /// Who is let in next, though perhaps not yet: of those who wait and may have what they want, the one with least.
    fn first_in_line(&self) -> Option<Candidate> {
        if self.waiting == 0 {
            return None;
        }
        let mut best: Option<(usize, Ticket, &Arc<str>, usize)> = None;
        for (user, own) in &self.users {
            let Some(&(ticket, cost)) = own.waiting.front() else {
                continue;
            };
            if own.taken + cost > self.units_of_user {
                continue;
            }
            if best.is_none_or(|(taken, first, ..)| (own.taken, ticket) < (taken, first)) {
                best = Some((own.taken, ticket, user, cost));
            }
        }
        best.map(|(taken, _, user, cost)| Candidate {
            user: Arc::clone(user),
            taken,
            cost,
        })
    }

    /// Whether somebody could go on if this user had less: the user's own who wait, or others who may have more and find too
    /// little left.
    pub(super) fn wants_units_of(&self, user: &str) -> bool {
        let has_waiting = self.users.get(user).is_some_and(|own| !own.waiting.is_empty());
        has_waiting || self.first_in_line().is_some()
    }

    /// Somebody goes; gives who enters in his place, with their users and units.
    pub(super) fn leave(&mut self, user: &Arc<str>, cost: usize) -> Vec<(Ticket, Arc<str>, usize)> {
        self.taken -= cost;
        if let Some(own) = self.users.get_mut(user) {
            own.taken -= cost;
        }
        self.forget(user);
        self.admit()
    }

    /// Somebody does not want to wait any more; gives who enters because of it.
    pub(super) fn give_up(&mut self, user: &Arc<str>, ticket: Ticket) -> Vec<(Ticket, Arc<str>, usize)> {
        if let Some(own) = self.users.get_mut(user) {
            let before = own.waiting.len();
            own.waiting.retain(|(waiting, _)| *waiting != ticket);
            self.waiting -= before - own.waiting.len();
        }
        self.forget(user);
        self.admit()
    }

    fn forget(&mut self, user: &Arc<str>) {
        if self
            .users
            .get(user)
            .is_some_and(|own| own.taken == 0 && own.waiting.is_empty())
        {
            self.users.remove(user);
        }
    }

    /// A small one at the front of its queue that fits.
    fn small_in_line(&self) -> Option<Candidate> {
        self.users.iter().find_map(|(user, own)| {
            let &(_, cost) = own.waiting.front()?;
            let fits = self.taken + cost <= self.units && own.taken + cost <= self.units_of_user;
            (fits && self.is_small(cost)).then(|| Candidate {
                user: Arc::clone(user),
                taken: own.taken,
                cost,
            })
        })
    }

    fn admit(&mut self) -> Vec<(Ticket, Arc<str>, usize)> {
        let mut entered = Vec::new();
        loop {
            let first = self
                .first_in_line()
                .filter(|first| self.taken + first.cost <= self.units);
            let Some(Candidate { user, cost, .. }) = first.or_else(|| self.small_in_line()) else {
                break;
            };
            let Some(own) = self.users.get_mut(&user) else { break };
            let Some((ticket, _)) = own.waiting.pop_front() else {
                break;
            };
            own.taken += cost;
            self.taken += cost;
            self.waiting -= 1;
            entered.push((ticket, user, cost));
        }
        entered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn a_flood_leaves_room_and_the_next_turn_to_others() {
        let mut queue = FairQueue::new(4, 3);
        let (a, b, c) = (user("a"), user("b"), user("c"));
        for _ in 0..3 {
            assert_eq!(queue.offer(&a, 1), Offer::Enter);
        }
        for ticket in 0..50 {
            assert_eq!(queue.offer(&a, 1), Offer::Wait { ticket, instead: None });
        }
        assert_eq!(queue.offer(&a, 1), Offer::Refuse, "its queue is full");
        assert_eq!(queue.offer(&b, 1), Offer::Enter, "the flood cannot have all of it");
        assert_eq!(
            queue.offer(&c, 1),
            Offer::Wait {
                ticket: 50,
                instead: None
            }
        );
        assert_eq!(queue.leave(&a, 1), [(50, user("c"), 1)], "who has nothing goes first");
        assert_eq!(queue.leave(&a, 1), [(0, user("a"), 1)]);
    }

    #[test]
    fn when_all_places_are_taken_the_longest_queue_gives_way() {
        let mut queue = FairQueue::new(1, 1);
        assert_eq!(queue.offer(&user("first"), 1), Offer::Enter);
        let mut last = 0;
        'full: for number in 0.. {
            for _ in 0..WAITING_OF_USER {
                let Offer::Wait { ticket, instead: None } = queue.offer(&user(&format!("u{number:02}")), 1) else {
                    panic!("there is a place");
                };
                last = ticket;
                if queue.waiting == WAITING_MAX {
                    break 'full;
                }
            }
        }
        let Offer::Wait { ticket, instead } = queue.offer(&user("new"), 1) else {
            panic!("a new user is never sent away by a flood");
        };
        assert!(ticket > last && instead.is_some());
        assert_eq!(queue.waiting, WAITING_MAX);
    }

    #[test]
    fn what_is_too_large_for_one_user_counts_as_all_he_may_have() {
        let mut queue = FairQueue::new(8, 4);
        let cost = queue.cost(1_000);
        assert_eq!(queue.offer(&user("a"), cost), Offer::Enter);
        assert_eq!(queue.offer(&user("b"), cost), Offer::Enter);
        assert!(matches!(queue.offer(&user("c"), 1), Offer::Wait { .. }));
    }

    #[test]
    fn who_waits_for_his_own_wants_nothing_of_others() {
        let mut queue = FairQueue::new(8, 4);
        let (a, b, c) = (user("a"), user("b"), user("c"));
        assert_eq!(queue.offer(&a, 4), Offer::Enter);
        assert_eq!(queue.offer(&b, 2), Offer::Enter);
        assert!(!queue.wants_units_of("a"));
        assert!(matches!(queue.offer(&a, 1), Offer::Wait { .. }));
        assert!(queue.wants_units_of("a"));
        assert!(!queue.wants_units_of("b"), "a has all a user may have");
        assert!(matches!(queue.offer(&c, 3), Offer::Wait { .. }));
        assert!(queue.wants_units_of("b"), "there is too little for c");
    }

    #[test]
    fn small_requests_pass_a_large_one_that_waits() {
        let mut room = FairQueue::new(4096, 3072);
        let (a, b, c) = (user("a"), user("b"), user("c"));
        assert_eq!(room.offer(&a, 3000), Offer::Enter);
        assert!(matches!(room.offer(&b, 3000), Offer::Wait { .. }));
        assert_eq!(room.offer(&c, 4), Offer::Enter, "it fits beside what is there");
        assert!(matches!(room.offer(&user("d"), 5), Offer::Wait { .. }), "in its turn");
        assert_eq!(
            room.offer(&user("e"), 1_000),
            Offer::Wait {
                ticket: 2,
                instead: None
            }
        );
        let entered: Vec<usize> = room.leave(&a, 3000).into_iter().map(|(.., cost)| cost).collect();
        assert_eq!(entered, [3000, 5, 1_000]);
    }

    proptest! {
        /// Whatever comes, goes and gives up: never too much inside, nobody lost, nobody waits for whom there is queue.
        #[test]
        fn the_limits_hold_and_nobody_is_forgotten(steps in prop::collection::vec((0u8..4, 0usize..5, 1usize..5, any::<prop::sample::Index>()), 1..300)) {
            let mut queue = FairQueue::new(10, 6);
            let mut inside: Vec<(Arc<str>, usize)> = Vec::new();
            let mut waiting: BTreeMap<Ticket, Arc<str>> = BTreeMap::new();
            for (what, who, units, index) in steps {
                let who = user(&format!("u{who}"));
                let entered = match what {
                    0 | 1 => {
                        let cost = queue.cost(units);
                        match queue.offer(&who, cost) {
                            Offer::Enter => inside.push((who, cost)),
                            Offer::Wait { ticket, instead } => {
                                waiting.insert(ticket, who);
                                prop_assert!(instead.is_none());
                            }
                            Offer::Refuse => prop_assert!(waiting.values().filter(|one| **one == who).count() == WAITING_OF_USER),
                        }
                        Vec::new()
                    }
                    2 if !inside.is_empty() => {
                        let (user, cost) = inside.swap_remove(index.index(inside.len()));
                        queue.leave(&user, cost)
                    }
                    3 if !waiting.is_empty() => {
                        let ticket = *waiting.keys().nth(index.index(waiting.len())).unwrap();
                        let user = waiting.remove(&ticket).unwrap();
                        queue.give_up(&user, ticket)
                    }
                    _ => Vec::new(),
                };
                for (ticket, user, cost) in entered {
                    prop_assert_eq!(waiting.remove(&ticket), Some(Arc::clone(&user)));
                    inside.push((user, cost));
                }
                let taken: usize = inside.iter().map(|(_, cost)| cost).sum();
                prop_assert_eq!(queue.taken(), taken);
                prop_assert!(taken <= 10);
                for number in 0..5 {
                    let own: usize = inside.iter().filter(|(user, _)| **user == *format!("u{number}")).map(|(_, cost)| cost).sum();
                    prop_assert!(own <= 6);
                }
                prop_assert_eq!(queue.waiting, waiting.len());
                if let Some(first) = queue.first_in_line() {
                    prop_assert!(queue.taken() + first.cost > 10, "somebody waits beside queue for him");
                }
            }
            while let Some((user, cost)) = inside.pop() {
                for (ticket, user, cost) in queue.leave(&user, cost) {
                    waiting.remove(&ticket);
                    inside.push((user, cost));
                }
            }
            prop_assert!(waiting.is_empty() && queue.users.is_empty());
        }
    }
}
