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
        self.arrive_in(set, user, user, seats, now)
    }

    /// In a flow that several users have.
    fn arrive_in(&mut self, set: &mut QueueSet, flow: &str, user: &str, seats: usize, now: Duration) -> Option<Reason> {
        let (offer, turns) = set.arrive(hash(flow), user, seats, now);
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

/// Fifty users of one flow have as much in line as its queues hold, before each mouse comes with one: all mice are served within a
/// few turns. None of the fifty has half of the level: queues and virtual time alone keep room.
#[test]
fn a_herd_does_not_starve_mice() {
    let mut set = QueueSet::new(false, Some(QUEUING), 4);
    let mut world = World::default();
    let mut refused = 0;
    for number in 0..1_000 {
        let user = format!("elephant{}", number % 50);
        refused += usize::from(world.arrive_in(&mut set, "herd", &user, 1, at(0)).is_some());
    }
    assert_eq!(refused, 1_000 - 4 - 6 * 50, "its hand's queues are full");
    let mut now = 0;
    for number in 0..20 {
        let mouse = format!("mouse{number}");
        assert_eq!(world.arrive(&mut set, &mouse, 1, at(now)), None);
        let mut turns = 0;
        while world.working(&mouse) == 0 {
            now += 10;
            turns += 1;
            world.answer(&mut set, at(now));
        }
        assert!(turns <= 8, "{mouse} waits for {turns} turns");
    }
}

/// One user of a flow reads nothing and asks on and on: he has half of the places and half of the flow's queues, and the flow's other
/// users find the rest, at once as long as places are free.
#[test]
fn who_has_his_half_leaves_room_to_others_of_his_flow() {
    let mut set = QueueSet::new(false, Some(QUEUING), 98);
    let mut world = World::default();
    for _ in 0..1_000 {
        world.arrive_in(&mut set, "", "runaway", 1, at(0));
    }
    assert_eq!((world.working("runaway"), set.waiting()), (49, 6 * 25));
    for number in 0..49 {
        assert_eq!(world.arrive_in(&mut set, "", &format!("u{number}"), 1, at(1)), None);
    }
    assert_eq!(
        (set.executing(), set.waiting()),
        (98, 6 * 25),
        "nobody waits for a free place"
    );
    let told: Vec<_> = (0..151)
        .map(|number| world.arrive_in(&mut set, "", &format!("v{number}"), 1, at(2)))
        .collect();
    assert!(told[..150].iter().all(Option::is_none));
    assert_eq!(told[150], Some(Reason::QueueFull), "places and queues are full");
    // A queue that somebody filled before he had his half.
    let one = Queuing {
        queues: 1,
        hand_size: 1,
        length: 4,
    };
    let mut set = QueueSet::new(false, Some(one), 4);
    let mut world = World::default();
    for user in ["a", "a", "b", "b", "runaway", "runaway", "runaway", "runaway"] {
        assert_eq!(world.arrive_in(&mut set, "", user, 1, at(0)), None);
    }
    for _ in 0..4 {
        world.answer(&mut set, at(1));
    }
    assert_eq!((world.working("runaway"), set.waiting()), (2, 2));
    for (user, expected) in [
        ("runaway", Some(Reason::QueueFull)),
        ("x", None),
        ("y", None),
        ("z", None),
    ] {
        assert_eq!(world.arrive_in(&mut set, "", user, 1, at(2)), expected, "{user}");
    }
    assert_eq!((set.executing(), set.waiting()), (4, 3));
}

/// Who is kept back by his half of the level has no more than his turn when others come.
#[test]
fn no_credit_is_saved_up_while_somebody_has_his_half() {
    let mut set = QueueSet::new(false, Some(QUEUING), 4);
    let mut world = World::default();
    let mut now = 0;
    let fill = |set: &mut QueueSet, world: &mut World, now: u64| {
        for user in ["elephant", "a", "b"] {
            while world.waiting.values().filter(|(own, _)| own == user).count() < 60 {
                if world.arrive(set, user, 1, at(now)).is_some() {
                    break;
                }
            }
        }
    };
    // The others' requests wait one by one in a single queue each: they go on twice as fast as the elephant's six queues.
    for _ in 0..2_000 {
        fill(&mut set, &mut world, now);
        now += 10;
        world.answer(&mut set, at(now));
    }
    for number in 0..60 {
        world.arrive(&mut set, &format!("u{number}"), 1, at(now));
    }
    let mut of_elephant = 0;
    for _ in 0..60 {
        now += 10;
        let before = world.held.len() - 1;
        world.answer(&mut set, at(now));
        of_elephant += world.held[before..]
            .iter()
            .filter(|(user, _)| user == "elephant")
            .count();
    }
    assert!(of_elephant <= 15, "{of_elephant} of 60");
}

#[test]
fn idle_queues_are_dealt_evenly() {
    let mut set = QueueSet::new(false, Some(QUEUING), 4);
    let mut high = 0;
    for number in 0..600 {
        let (offer, _) = set.arrive(hash(&number.to_string()), "a", 1, at(0));
        let Offer::Enter(held) = offer else { panic!("{offer:?}") };
        high += usize::from(held.queue.unwrap() >= 64);
        set.leave(&held, at(0));
    }
    assert!((250..350).contains(&high), "{high} of 600");
}

#[test]
fn a_level_without_places_lets_nobody_in() {
    let mut set = QueueSet::new(false, Some(QUEUING), 0);
    let mut world = World::default();
    assert_eq!(world.arrive(&mut set, "a", 1, at(0)), None);
    assert_eq!((set.executing(), set.waiting()), (0, 1));
    let turns = set.configure(Some(QUEUING), 1, at(1));
    world.take(turns);
    assert_eq!((set.executing(), set.waiting()), (1, 0));
    let mut set = QueueSet::new(false, None, 0);
    assert_eq!(world.arrive(&mut set, "a", 1, at(0)), Some(Reason::ConcurrencyLimit));
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
        [
            None,
            None,
            Some(Reason::QueueFull),
            Some(Reason::QueueFull),
            Some(Reason::QueueFull)
        ],
        "who has his half fills half of a queue"
    );
    let told: Vec<_> = ["b", "c"].map(|user| world.arrive(&mut set, user, 1, at(0))).into();
    assert_eq!(told, [None, Some(Reason::QueueFull)]);
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

    /// Levels change between queues, other queues and none, and their places, while requests come and go.
    #[test]
    fn whatever_is_configured_meanwhile_counts_agree(
        steps in proptest::collection::vec((0..6_u8, 0..6_u8, 1..4_usize), 1..300),
    ) {
        let mut set = QueueSet::new(false, None, 3);
        let mut world = World::default();
        for (step, (what, user, seats)) in steps.into_iter().enumerate() {
            let now = at(step as u64);
            match what {
                0..=2 => drop(world.arrive(&mut set, &format!("u{user}"), seats, now)),
                3 if !world.held.is_empty() => world.answer(&mut set, now),
                4 => if let Some((ticket, (_, queue))) = world.waiting.pop_first() {
                    let turns = set.give_up(queue, ticket, now);
                    world.take(turns);
                },
                5 => {
                    let queues = usize::from(user);
                    let queuing = Queuing { queues, hand_size: queues.min(2), length: 3 };
                    let turns = set.configure((queues > 0).then_some(queuing), seats * 2, now);
                    world.take(turns);
                }
                _ => {}
            }
            let held = || world.held.iter().map(|(_, held)| held);
            let in_queues = held().filter(|held| held.queue.is_some());
            let queues = || set.queues.values();
            prop_assert_eq!(queues().map(|queue| queue.executing).sum::<usize>(), in_queues.clone().count());
            prop_assert_eq!(queues().map(|queue| queue.seats).sum::<usize>(), in_queues.map(|held| held.seats).sum::<usize>());
            prop_assert_eq!(queues().map(Queue::len).sum::<usize>(), world.waiting.len());
            prop_assert_eq!(queues().map(|queue| queue.wanted).sum::<usize>(), set.wanted);
            let seats: usize = held().map(|held| held.seats).sum();
            prop_assert_eq!((set.seats(), set.executing(), set.waiting()), (seats, world.held.len(), world.waiting.len()));
            prop_assert!(!world.held.is_empty() || world.waiting.is_empty(), "somebody goes on");
        }
        while !world.held.is_empty() {
            world.answer(&mut set, at(1_000));
        }
        prop_assert!(set.is_idle() && set.queues.is_empty() && set.users.is_empty() && set.demand() == 0);
    }
}
