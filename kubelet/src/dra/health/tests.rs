//! What is kept of what drivers tell, and for how long.

use super::*;

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

fn report(device: &str, state: State, message: &str, holds_seconds: i64) -> Report {
    Report {
        pool: "p".into(),
        device: device.into(),
        state,
        message: message.into(),
        holds_seconds,
    }
}

/// Instances of drivers that told nothing yet.
fn health(instances: &[(&str, u64)]) -> Health {
    let mut health = Health::default();
    for (driver, instance) in instances {
        health.begin(driver, *instance);
    }
    health
}

/// So many devices with messages of so many bytes.
fn many(count: usize, bytes: usize) -> Vec<Report> {
    let message = "x".repeat(bytes);
    let all = (0..count).map(|number| report(&number.to_string(), State::Healthy, &message, 60));
    all.collect()
}

/// What all that is kept of a driver takes, counted anew.
fn taken(health: &Health, driver: &str) -> usize {
    let known = &health.0[driver];
    let all: usize = known.devices.iter().map(|(place, device)| weight(place, device)).sum();
    assert_eq!(known.weight, all, "{driver}");
    all
}

#[test]
fn a_report_holds_for_its_time_and_only_changes_are_news() {
    let mut health = health(&[("d", 1)]);
    let well = || {
        vec![
            report("a", State::Healthy, "", 0),
            report("b", State::Unhealthy, "hot", 5),
        ]
    };
    let is_news = |health: &mut Health, reports, now| health.take("d", 1, reports, at(now)).news;
    assert!(is_news(&mut health, well(), 0));
    assert!(!is_news(&mut health, well(), 1), "the same again");
    assert_eq!(health.of("d", "p", "b", at(5)), (State::Unhealthy, Some("hot")));
    assert_eq!(health.of("d", "p", "c", at(5)), (State::Unknown, None));
    assert_eq!(health.of("e", "p", "a", at(5)), (State::Unknown, None));
    assert_eq!(health.next_expiry("d"), Some(at(6)));
    assert!(!health.expire("d", at(5)));
    assert!(health.expire("d", at(6)));
    assert_eq!(health.of("d", "p", "b", at(6)), (State::Unknown, None));
    assert_eq!(health.of("d", "p", "a", at(6)), (State::Healthy, None));
    assert_eq!(health.next_expiry("d"), Some(at(31)));
    // Another message of the same state is news.
    assert!(is_news(&mut health, vec![report("a", State::Healthy, "warm", -1)], 7));
    assert_eq!(health.next_expiry("d"), Some(at(37)));
    assert!(health.clear("d", 1));
    assert!(!health.clear("d", 1));
}

#[test]
fn an_old_instances_end_takes_nothing_back_that_the_new_one_told() {
    let mut health = health(&[("d", 1), ("d", 2)]);
    let told = |name: &str, message: &str| vec![report(name, State::Healthy, message, 60)];
    health.take("d", 1, told("a", "old"), at(0));
    health.take("d", 1, told("b", "old"), at(0));
    assert!(health.take("d", 2, told("a", "new"), at(1)).news);
    assert!(!health.take("d", 1, told("a", "old"), at(2)).news, "it is behind");
    assert_eq!(health.of("d", "p", "a", at(2)).1, Some("new"));
    assert!(health.clear("d", 1));
    assert_eq!(health.of("d", "p", "a", at(2)), (State::Healthy, Some("new")));
    assert_eq!(
        health.of("d", "p", "b", at(2)),
        (State::Unknown, None),
        "nobody else told of it"
    );
    assert!(!health.clear("d", 1));
    assert!(
        health.take("d", 1, told("a", "again"), at(61)).news,
        "what the new one told is over"
    );
    assert!(!health.clear("d", 2));
    assert!(health.clear("d", 1));
}

#[test]
fn what_holds_no_longer_is_unknown_though_nobody_forgot_it_and_news_when_it_is_told_again() {
    let mut health = health(&[("d", 1)]);
    let well = || vec![report("a", State::Healthy, "well", 5)];
    health.take("d", 1, well(), at(0));
    assert_eq!(health.of("d", "p", "a", at(4)), (State::Healthy, Some("well")));
    assert_eq!(health.of("d", "p", "a", at(5)), (State::Unknown, None));
    assert!(health.take("d", 1, well(), at(5)).news, "somebody may have seen it so");
    assert_eq!(health.of("d", "p", "a", at(5)), (State::Healthy, Some("well")));
}

#[test]
fn an_instance_that_is_gone_is_not_believed_and_nothing_of_it_is_left() {
    let mut health = health(&[("d", 1), ("d", 2)]);
    health.take("d", 1, many(2, 0), at(0));
    assert!(health.end("d", 1));
    assert_eq!(health.take("d", 1, many(2, 0), at(0)), Taken::default());
    assert_eq!(health.of("d", "p", "0", at(0)), (State::Unknown, None));
    assert!(health.take("d", 2, many(2, 0), at(0)).news, "it is there");
    // A stream that ends is begun again by the same instance.
    assert!(health.clear("d", 2));
    assert!(health.take("d", 2, many(2, 0), at(0)).news);
    assert!(health.end("d", 2));
    assert_eq!(health.take("d", 2, many(2, 0), at(0)), Taken::default());
    assert_eq!(health, Health::default());
}

#[test]
fn a_driver_that_tells_too_much_is_cut_short_and_that_is_told_once() {
    let mut health = health(&[("d", 1)]);
    let told = Taken { news: true, cut: true };
    assert_eq!(health.take("d", 1, many(10_000, 0), at(0)), told);
    let most = taken(&health, "d");
    assert!((DRIVER_BYTES_MAX - 1024..=DRIVER_BYTES_MAX).contains(&most), "{most}");
    // There is no room for words about one that is known; that it is ill counts all the same.
    let ill = || vec![report("0", State::Unhealthy, &"é".repeat(1000), 60)];
    let told = Taken { news: true, cut: false };
    assert_eq!(health.take("d", 1, ill(), at(0)), told);
    assert_eq!(health.of("d", "p", "0", at(0)), (State::Unhealthy, None));
    assert_eq!(taken(&health, "d"), most);
    health.clear("d", 1);
    assert_eq!(taken(&health, "d"), 0);
    health.take("d", 1, ill(), at(0));
    let (_, message) = health.of("d", "p", "0", at(0));
    let message = message.expect("a message");
    assert!(
        message.len() <= MESSAGE_BYTES_MAX && message.ends_with("é..."),
        "{message}"
    );
}

#[test]
fn a_message_that_was_cut_takes_no_more_than_what_is_left_of_it() {
    let cut = shortened("x".repeat(1 << 20));
    assert_eq!(cut.len(), MESSAGE_BYTES_MAX);
    assert!(cut.capacity() <= 2 * MESSAGE_BYTES_MAX, "{}", cut.capacity());
}

#[test]
fn what_all_drivers_tell_is_bounded_and_those_that_hoard_keep_nobody_out() {
    let names: Vec<String> = (0..DRIVERS_MAX).map(|number| format!("d{number}")).collect();
    let all: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut health = health(&all);
    let (modest, hoarders) = names.split_first().expect("some");
    for driver in hoarders {
        health.take(driver, 1, many(1_000, 1024), at(0));
        assert!(taken(&health, driver) <= DRIVER_BYTES_MAX);
    }
    // Each has its share, and no more is left for all.
    let few = many(10, 1024);
    assert_eq!(health.take(modest, 1, few, at(0)), Taken { news: true, cut: false });
    assert_eq!(health.of(modest, "p", "9", at(0)).0, State::Healthy);
    let together: usize = names.iter().map(|driver| taken(&health, driver)).sum();
    assert!(together <= TOGETHER_MAX, "{together}");
    assert!(health.take(modest, 1, many(20, 1024), at(0)).cut, "beyond its share");
    // What one that hoards gives back is there for others.
    health.end(&hoarders[0], 1);
    health.clear(modest, 1);
    health.take(modest, 1, many(20, 1024), at(0));
    assert!(taken(&health, modest) > SHARE_BYTES);
    assert_eq!(health.of(modest, "p", "19", at(0)).1.map(str::len), Some(1024));
}

#[test]
fn devices_that_no_claim_can_name_are_left_out() {
    let longest = ["x".repeat(63), "y".repeat(63), "z".repeat(63), "w".repeat(61)].join(".");
    for (pool, device, kept) in [
        ("node-1", "gpu-0", true),
        ("rack/node-1.example/0", "0", true),
        (&longest[..], &longest[..63], true),
        (&format!("{longest}w")[..], "0", false),
        (&format!("{}/a", &longest[..252])[..], "0", false),
        ("p", &"x".repeat(64)[..], false),
        ("", "0", false),
        ("p", "", false),
        ("p/", "0", false),
        ("P", "0", false),
        ("p", "a.b", false),
        ("p", "GPU", false),
    ] {
        let mut health = health(&[("d", 1)]);
        let told = Report {
            pool: pool.to_owned(),
            ..report(device, State::Healthy, "", 0)
        };
        let expected = Taken { news: kept, cut: !kept };
        assert_eq!(health.take("d", 1, vec![told], at(0)), expected, "{pool} {device}");
        assert_eq!(health.0["d"].devices.len(), usize::from(kept));
    }
}
