//! What a kubelet may send, and what is made of it.

use super::*;

const WHOLE: &str = "# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time\n\
    # TYPE container_cpu_usage_seconds_total counter\n\
    container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\"} 1.5 1700000000123\n\
    container_cpu_usage_seconds_total{container=\"d\",namespace=\"a\",pod=\"p\"} 2 1700000000124\n\
    container_memory_working_set_bytes{container=\"c\",namespace=\"a\",pod=\"p\"} 4.096e+06 1700000000999\n\
    container_memory_working_set_bytes{container=\"d\",namespace=\"a\",pod=\"p\"} 1 1700000000999\n\
    container_start_time_seconds{container=\"c\",namespace=\"a\",pod=\"p\"} 1.69e9\n\
    container_swap_usage_bytes{container=\"c\",namespace=\"a\",pod=\"p\"} 0\n\
    node_cpu_usage_seconds_total 100.25 1700000000000\n\
    node_memory_working_set_bytes 5e9 1700000000000\n\
    pod_cpu_usage_seconds_total{namespace=\"a\",pod=\"p\"} 3\n\
    scrape_error 0\n";

fn point(at_ms: i64, start_ms: i64, cpu_nanos: u64, memory: u64) -> Point {
    Point {
        at_ms,
        start_ms,
        cpu_nanos,
        memory,
    }
}

#[test]
fn a_page_is_read() {
    let page = read(WHOLE.as_bytes()).unwrap();
    let node = point(1_700_000_000_000, 0, 100_250_000_000, 5_000_000_000);
    assert_eq!(page.node, Some(node));
    let containers = vec![
        (
            "c".into(),
            point(1_700_000_000_123, 1_690_000_000_000, 1_500_000_000, 4_096_000),
        ),
        ("d".into(), point(1_700_000_000_124, 0, 2_000_000_000, 1)),
    ];
    let pod = PodPoints {
        namespace: "a".into(),
        name: "p".into(),
        containers,
    };
    assert_eq!(page.pods, [pod]);
}

/// What is written with nanoseconds is read as these: a rate must not depend on the moment.
#[test]
fn no_nanosecond_is_lost() {
    for nanos in (0..2000).map(|step: u64| 1_000_000_000 + step * 10_010_001) {
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let page = format!("node_cpu_usage_seconds_total {seconds}.{rest:09} 5\nnode_memory_working_set_bytes 1 5\n");
        let node = read(page.as_bytes()).unwrap().node;
        assert_eq!(node, Some(point(5, 0, nanos, 1)));
    }
}

/// Whatever a page is cut to, it is an error or, at the end of a line, a page with less in it: never another number.
#[test]
fn a_page_that_is_cut_off_is_not_believed() {
    let whole = read(WHOLE.as_bytes()).unwrap();
    for end in 0..WHOLE.len() {
        let cut = &WHOLE.as_bytes()[..end];
        match read(cut) {
            Err(error) => assert_eq!(error, PageError::CutOff, "{end}"),
            Ok(page) => {
                assert_eq!(cut.last(), Some(&b'\n'), "{end}");
                assert!(page.node.is_none() || page.node == whole.node, "{end}");
                let known = page.pods.iter().flat_map(|pod| &pod.containers);
                for (name, point) in known {
                    let wanted = whole.pods[0].containers.iter().find(|(own, _)| own == name).unwrap();
                    assert_eq!(point.cpu_nanos, wanted.1.cpu_nanos, "{end}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_sample_spoils_the_page() {
    for (line, wrong) in [
        ("node_cpu_usage_seconds_total", true),
        ("node_cpu_usage_seconds_total x", true),
        ("node_cpu_usage_seconds_total 1 2 3", true),
        ("node_cpu_usage_seconds_total 1 x", true),
        ("container_cpu_usage_seconds_total 1", true),
        ("container_cpu_usage_seconds_total{container=\"c\"} 1 1", true),
        (
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\" 1 1",
            true,
        ),
        (
            "container_cpu_usage_seconds_total{container=\"\",namespace=\"a\",pod=\"p\"} 1 1",
            true,
        ),
        (
            "container_cpu_usage_seconds_total{container=\"c\\\"}\",namespace=\"a\",pod=\"p\"} 1 1",
            true,
        ),
        (
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\",} 1 1",
            false,
        ),
        ("anything else at all", false),
        ("anything{else=\"at} all", false),
    ] {
        let page = read(format!("{line}\n").as_bytes());
        let expected = if wrong { Err(PageError::Line(1)) } else { Ok(()) };
        assert_eq!(page.map(drop), expected, "{line}");
    }
    assert_eq!(read(b"\xff\n").map(drop), Err(PageError::Text));
    assert_eq!(read(b"").map(drop), Err(PageError::CutOff));
}

/// A node lies about times and amounts: what cannot be is no point, and nothing overflows.
#[test]
fn lying_numbers_are_no_points() {
    for (value, at) in [
        ("NaN", "1700000000000"),
        ("-1", "1700000000000"),
        ("+Inf", "1700000000000"),
        ("1e300", "1700000000000"),
        ("0", "1700000000000"),
        ("1", "0"),
        ("1", "-5"),
        ("1", "1e300"),
        ("1", "NaN"),
        ("1", "9223372036854775807"),
        ("1", ""),
    ] {
        let page = format!("node_cpu_usage_seconds_total {value} {at}\nnode_memory_working_set_bytes 1 {at}\n");
        assert_eq!(read(page.as_bytes()).map(|page| page.node), Ok(None), "{value} {at}");
    }
    let labels = "{container=\"c\",namespace=\"a\",pod=\"p\"}";
    let page = format!(
        "container_cpu_usage_seconds_total{labels} 1 5\ncontainer_memory_working_set_bytes{labels} 1 5\n\
         container_start_time_seconds{labels} 1e300 5\n"
    );
    let page = read(page.as_bytes()).unwrap();
    assert_eq!(page.pods[0].containers[0].1, point(5, 0, 1_000_000_000, 1));
}

#[test]
fn a_pod_of_which_a_container_is_not_known_is_left_out() {
    let one = |container: &str| {
        let labels = format!("{{container=\"{container}\",namespace=\"a\",pod=\"p\"}}");
        format!("container_cpu_usage_seconds_total{labels} 1 5\ncontainer_memory_working_set_bytes{labels} 1 5\n")
    };
    let page = |text: String| read(text.as_bytes()).unwrap().pods.len();
    assert_eq!(page(one("c") + &one("d")), 1);
    let ended = "container_cpu_usage_seconds_total{container=\"e\",namespace=\"a\",pod=\"p\"} 1 5\n";
    assert_eq!(page(one("c") + ended), 0);
}
