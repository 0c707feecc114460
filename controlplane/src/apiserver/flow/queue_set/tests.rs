//! Queues by order and a clock that is passed in.

use super::*;
use proptest::prelude::*;

const QUEUING: Queuing = Queuing {
    queues: 128,
    hand_size: 6,
    length: 50,
};

fn hash(name: &str) -> u64 {
    super::super::level::flow_hash("schema", name)
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Everybody who waits or is worked on, with whom he is.
#[derive(Default)]
struct World {
    held: Vec<(String, Held)>,
    waiting: BTreeMap<Ticket, (String, usize)>,
}

impl World {
    fn arrive(&mut self, set: &mut QueueSet, user: &str, seats: usize, now: Duration) -> Option<Reason> {
        let (offer, turns) = set.arrive(hash(user), user, seats, now);
        self.take(turns);
        match offer {
            Offer::Enter(held) => self.held.push((user.to_owned(), held)),
            Offer::Wait(ticket, queue) => drop(self.waiting.insert(ticket, (user.to_owned(), queue))),
            Offer::Refuse(reason) => return Some(reason),
        }
        None
    }

    fn take(&mut self, turns: Vec<Turn>) {
        for turn in turns {
            let (user, _) = self.waiting.remove(&turn.ticket).unwrap();
            self.held.push((user, turn.held));
        }
    }

    /// The oldest is answered.
    fn answer(&mut self, set: &mut QueueSet, now: Duration) {
        let (_, held) = self.held.remove(0);
        let turns = set.leave(&held, now);
        self.take(turns);
    }

    fn working(&self, user: &str) -> usize {
        self.held.iter().filter(|(own, _)| own == user).count()
    }
}

#[test]
fn hands_are_different_queues_and_any_of_them() {
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..2_000_u64 {
        let (hand, size) = hand(hash(&number.to_string()), 16, 4);
        let cards: std::collections::BTreeSet<usize> = hand[..size].iter().copied().collect();
        assert_eq!(cards.len(), 4, "{hand:?}");
        assert!(cards.iter().all(|card| *card < 16));
        seen.extend(cards);
    }
    assert_eq!(seen.len(), 16);
    assert_eq!(hand(7, 1, 1), ([0; HAND_MAX], 1));
    assert_eq!(hand(u64::MAX, 3, 8).1, 3, "no more than there are");
}

/// The elephant has a thousand requests in line before each mouse comes with one: all mice are served within a few turns.
#[test]
fn an_elephant_does_not_starve_mice() {
    let mut set = QueueSet::new(false, Some(QUEUING), 4);
    let mut world = World::default();
    let mut refused = 0;
    for _ in 0..1_000 {
        refused += usize::from(world.arrive(&mut set, "elephant", 1, at(0)).is_some());
    }
    assert_eq!(world.working("elephant"), 2, "half of the places");
    assert_eq!(refused, 1_000 - 2 - 6 * 50, "its hand's queues are full");
    let mice: Vec<String> = (0..20).map(|number| format!("mouse{number}")).collect();
    let mut served = 0;
    for (step, mouse) in mice.iter().enumerate() {
        let now = at(10 * step as u64);
        assert_eq!(world.arrive(&mut set, mouse, 1, now), None);
        for _ in 0..4 {
            served += usize::from(world.working(mouse) > 0);
            if world.working(mouse) > 0 {
                break;
            }
            world.answer(&mut set, now);
        }
    }
    assert_eq!(served, 20);
}

/// Two flows with always something to do, one of which has requests ten times as long: they get the same time.
#[test]
fn flows_get_the_same_time_whatever_their_requests_cost() {
    let mut set = QueueSet::new(
        false,
        Some(Queuing {
            length: 1_000,
            ..QUEUING
        }),
        1,
    );
    let mut world = World::default();
    let mut time = BTreeMap::from([("short", 0), ("long", 0)]);
    for _ in 0..600 {
        world.arrive(&mut set, "short", 1, at(0));
        world.arrive(&mut set, "long", 1, at(0));
    }
    let mut now = 0;
    for _ in 0..500 {
        let user = world.held[0].0.clone();
        let took = if user == "long" { 100 } else { 10 };
        now += took;
        *time.get_mut(user.as_str()).unwrap() += took;
        world.answer(&mut set, at(now));
    }
    let (short, long) = (time["short"], time["long"]);
    // One request in each of a hand's queues.
    assert!(short.abs_diff(long) <= 6 * 110, "{time:?}");
}

#[test]
fn what_is_wide_waits_until_there_is_room_and_is_not_passed() {
    let mut set = QueueSet::new(false, Some(QUEUING), 4);
    let mut world = World::default();
    for user in ["a", "b"] {
        world.arrive(&mut set, user, 2, at(0));
    }
    world.arrive(&mut set, "wide", 4, at(0));
    world.arrive(&mut set, "narrow", 1, at(0));
    assert_eq!((set.executing(), set.waiting(), set.demand()), (2, 2, 9));
    world.answer(&mut set, at(1));
    assert_eq!(set.seats(), 2, "two are free, four are wanted");
    world.answer(&mut set, at(2));
    assert_eq!(world.working("wide"), 1);
    world.answer(&mut set, at(3));
    assert_eq!(world.working("narrow"), 1);
    // Wider than the level: alone.
    world.answer(&mut set, at(4));
    world.arrive(&mut set, "x", 10, at(5));
    assert_eq!((world.working("x"), set.is_idle()), (1, false));
}

#[test]
fn queues_are_bounded_and_rejecting_levels_have_none() {
    let mut set = QueueSet::new(
        false,
        Some(Queuing {
            queues: 1,
            hand_size: 1,
            length: 2,
        }),
        1,
    );
    let mut world = World::default();
    let told: Vec<_> = (0..5).map(|_| world.arrive(&mut set, "a", 1, at(0))).collect();
    assert_eq!(
        told,
        [None, None, None, Some(Reason::QueueFull), Some(Reason::QueueFull)]
    );
    let mut set = QueueSet::new(false, None, 2);
    let mut world = World::default();
    let told: Vec<_> = ["a", "b", "c"]
        .map(|user| world.arrive(&mut set, user, 1, at(0)))
        .into();
    assert_eq!(told, [None, None, Some(Reason::ConcurrencyLimit)]);
    let mut set = QueueSet::new(true, None, 1);
    let mut world = World::default();
    for _ in 0..1_000 {
        assert_eq!(world.arrive(&mut set, "a", 10, at(0)), None);
    }
    assert_eq!((set.executing(), set.seats()), (1_000, 10_000));
}

#[test]
fn another_configuration_loses_nobody() {
    let mut set = QueueSet::new(false, Some(QUEUING), 1);
    let mut world = World::default();
    for number in 0..100 {
        world.arrive(&mut set, &format!("u{number}"), 1, at(0));
    }
    let turns = set.configure(
        Some(Queuing {
            queues: 1,
            hand_size: 1,
            length: 1,
        }),
        3,
        at(1),
    );
    world.take(turns);
    assert_eq!((set.executing(), set.waiting()), (3, 97));
    let turns = set.configure(None, 2, at(2));
    world.take(turns);
    assert_eq!(set.executing(), 3, "nobody is sent away");
    while !world.held.is_empty() {
        world.answer(&mut set, at(3));
        assert!(set.executing() <= 3);
    }
    assert!(set.is_idle() && world.waiting.is_empty() && set.queues.is_empty() && set.users.is_empty());
}

proptest! {
    #[test]
    fn the_limit_holds_and_nobody_is_forgotten(
        limit in 1..8_usize,
        steps in proptest::collection::vec((0..4_u8, 0..6_u8, 1..4_usize), 1..200),
    ) {
        let mut set = QueueSet::new(false, Some(Queuing { queues: 4, hand_size: 2, length: 5 }), limit);
        let mut world = World::default();
        for (step, (what, user, seats)) in steps.into_iter().enumerate() {
            let now = at(step as u64);
            match what {
                0 | 1 => drop(world.arrive(&mut set, &format!("u{user}"), seats, now)),
                2 if !world.held.is_empty() => world.answer(&mut set, now),
                3 => if let Some((ticket, (_, queue))) = world.waiting.pop_first() {
                    let turns = set.give_up(queue, ticket, now);
                    world.take(turns);
                },
                _ => {}
            }
            let seats: usize = world.held.iter().map(|(_, held)| held.seats).sum();
            prop_assert_eq!((set.seats(), set.executing(), set.waiting()), (seats, world.held.len(), world.waiting.len()));
            prop_assert!(seats <= limit || world.held.len() == 1);
            prop_assert!(!world.held.is_empty() || world.waiting.is_empty(), "somebody goes on");
        }
        while !world.held.is_empty() {
            world.answer(&mut set, at(1_000));
        }
        prop_assert!(set.is_idle() && set.queues.is_empty() && set.users.is_empty() && set.demand() == 0);
    }
}
