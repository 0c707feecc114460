use super::*;

fn told(lines: &str, standstill: Duration) -> Result<String, String> {
    told_by(lines, standstill, Instant::now() + WHOLE)
}

fn told_by(lines: &str, standstill: Duration, end: Instant) -> Result<String, String> {
    wait_for_all(&mut lines.as_bytes(), "1f", (standstill, end)).map_err(|error| error.to_string())
}

#[test]
fn what_is_noted_was_said_whole_and_of_the_move_that_began() {
    let told = |lines| told(lines, Duration::MAX);
    assert_eq!(
        told("still 1\nstill 1\narrived 1f they are in etcd\n"),
        Ok("1f they are in etcd".to_owned())
    );
    for (lines, why) in [
        ("", "ended before its end"),
        ("still 1\n", "ended before its end"),
        // What a kill cuts off.
        ("arrived ", "ended before its end"),
        ("arrived 1f they are in", "ended before its end"),
        ("arrived \n", "another move"),
        ("arrived 1f\n", "another move"),
        ("arrived 1f \n", "another move"),
        ("arrived 2f they are in etcd\n", "another move"),
        ("still\n", "not understood"),
        ("what\n", "not understood"),
    ] {
        let refused = told(lines).unwrap_err();
        assert!(
            refused.contains(why) && refused.ends_with("writes are taken again"),
            "{lines:?}: {refused}"
        );
    }
}

#[test]
fn who_gets_no_further_is_left() {
    let refused = told("still 1\nstill 2\nstill 2\narrived 1f x\n", Duration::ZERO).unwrap_err();
    assert!(refused.starts_with("the move gets no further"), "{refused}");
    let refused = told_by("still 1\nstill 2\n", WHOLE, Instant::now()).unwrap_err();
    assert!(refused.starts_with("the move takes too long"), "{refused}");
    assert!(told("still 1\nstill 2\nstill 3\narrived 1f x\n", Duration::ZERO).is_ok());
}

#[test]
fn a_line_has_an_end_and_a_greatest_length() {
    assert_eq!(line(&mut "a b\nc".as_bytes()).unwrap(), "a b");
    assert!(line(&mut "c".as_bytes()).is_err());
    assert!(line(&mut "".as_bytes()).is_err());
    let long = "x".repeat(LINE_MAX as usize) + "\n";
    assert!(line(&mut long.as_bytes()).is_err(), "it is cut off");
}
