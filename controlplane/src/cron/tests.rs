use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn next(schedule: &str, zone: &str, after: &str) -> String {
    let schedule = Schedule::parse(schedule).unwrap();
    let found = schedule.next(at(after), &zone::find(zone).unwrap());
    found.map_or("never".to_owned(), |moment| moment.to_string())
}

#[test]
fn the_next_moment() {
    for (schedule, after, expected) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z"),
        ("*/15 * * * *", "2026-01-01T00:14:59Z", "2026-01-01T00:15:00Z"),
        ("*/35 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:35:00Z"),
        ("20-35/15 * * * *", "2026-01-01T00:21:00Z", "2026-01-01T00:35:00Z"),
        ("7/20 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T00:47:00Z"),
        ("30 4 * * *", "2026-01-31T04:30:00Z", "2026-02-01T04:30:00Z"),
        ("0 0 29 feb ?", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 31 2 *", "2026-01-01T00:00:00Z", "never"),
        // Days of month and of week: either, unless one is a star. 2026-01-05 is a Monday.
        ("0 0 13 * mon", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"),
        ("0 0 13 * *", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"),
        ("0 0 */2 * mon", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@every 1h30m", "2026-01-01T00:00:00.7Z", "2026-01-01T01:30:00Z"),
        ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
    ] {
        assert_eq!(next(schedule, "UTC", after), expected, "{schedule} after {after}");
    }
}

#[test]
fn clock_changes() {
    let new_york = "America/New_York";
    for (schedule, zone, after, expected) in [
        // 2:30 does not come on 8 March 2026.
        ("30 2 * * *", new_york, "2026-03-07T12:00:00Z", "2026-03-09T06:30:00Z"),
        ("0 3 * * *", new_york, "2026-03-08T05:00:00Z", "2026-03-08T07:00:00Z"),
        // 1:30 comes twice on 1 November 2026.
        ("30 1 * * *", new_york, "2026-11-01T00:00:00Z", "2026-11-01T05:30:00Z"),
        ("30 1 * * *", new_york, "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"),
        ("0 * * * *", new_york, "2026-11-01T05:59:00Z", "2026-11-01T06:00:00Z"),
        // Half an hour at Lord Howe: 1:45 comes twice on 5 April 2026.
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T12:00:00Z",
            "2026-04-04T14:45:00Z",
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:45:00Z",
            "2026-04-04T15:15:00Z",
        ),
        (
            "0 9 * * *",
            "Asia/Kolkata",
            "2026-01-01T00:00:00Z",
            "2026-01-01T03:30:00Z",
        ),
    ] {
        assert_eq!(
            next(schedule, zone, after),
            expected,
            "{schedule} in {zone} after {after}"
        );
    }
}

#[test]
fn what_is_no_schedule_says_why() {
    for (text, problem) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        (
            "x * * * *",
            "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        (
            "@every soon",
            "failed to parse duration @every soon: time: invalid duration \"soon\"",
        ),
        (
            "@every 5",
            "failed to parse duration @every 5: time: missing unit in duration \"5\"",
        ),
    ] {
        assert_eq!(Schedule::parse(text).unwrap_err(), problem, "{text}");
    }
}

#[test]
fn zones_are_known_by_their_exact_name() {
    for (name, known) in [
        ("UTC", true),
        ("Europe/Berlin", true),
        ("europe/berlin", false),
        ("Mars/Olympus", false),
        ("", false),
        ("../etc/passwd", false),
    ] {
        assert_eq!(zone::find(name).is_ok(), known, "{name}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn schedules() -> impl Strategy<Value = String> {
        let minute = prop_oneof![
            Just("*".to_owned()),
            (0..60_u8).prop_map(|m| m.to_string()),
            (1..40_u8).prop_map(|s| format!("*/{s}"))
        ];
        let hour = prop_oneof![Just("*".to_owned()), (0..24_u8).prop_map(|h| h.to_string())];
        let day = prop_oneof![Just("*".to_owned()), (1..29_u8).prop_map(|d| d.to_string())];
        let weekday = prop_oneof![Just("*".to_owned()), (0..7_u8).prop_map(|d| d.to_string())];
        (minute, hour, day, weekday).prop_map(|(m, h, d, w)| format!("{m} {h} {d} * {w}"))
    }

    proptest! {
        /// The next moment fits, and no whole minute in between does.
        #[test]
        fn nothing_is_skipped(text in schedules(), start in 1_700_000_000_i64..1_900_000_000, zone in 0..4_usize) {
            let zone = zone::find(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"][zone]).unwrap();
            let Ok(Schedule::Fields(fields)) = Schedule::parse(&text) else { panic!("{text}") };
            let after = Timestamp::from_second(start).unwrap();
            let fits = |moment: Timestamp| {
                let local = zone.to_datetime(moment);
                fields.fits(local.date()) && fields.hours.has(local.hour().cast_unsigned()) && fields.minutes.has(local.minute().cast_unsigned())
            };
            let found = Schedule::Fields(fields.clone()).next(after, &zone).unwrap();
            prop_assert!(found > after && fits(found));
            let mut minute = (start / 60 + 1) * 60;
            let mut looked = 0;
            while minute < found.as_second() && looked < 3000 {
                prop_assert!(!fits(Timestamp::from_second(minute).unwrap()), "{minute} fits, too");
                minute += 60;
                looked += 1;
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-@*?/,0-9a-z ]{0,40}") {
            let _ = Schedule::parse(&text).map(|schedule| schedule.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC));
        }
    }
}
