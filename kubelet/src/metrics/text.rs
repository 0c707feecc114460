//! The text scrapers get: Prometheus' classic format (0.0.4), which upstream's kubelet answers with whatever is asked for. Pure.
//!
//! Our library writes OpenMetrics. The two differ in how counters are declared, in units and in the end mark.

/// Counters that upstream names without the suffix that OpenMetrics demands.
const WITHOUT_SUFFIX: &[&str] = &[
    "kubelet_container_aligned_compute_resources_count",
    "kubelet_container_aligned_compute_resources_failure_count",
    "kubelet_evictions",
    "kubelet_pleg_discard_events",
    "kubelet_pod_resources_endpoint_errors_get",
    "kubelet_pod_resources_endpoint_errors_get_allocatable",
    "kubelet_pod_resources_endpoint_errors_list",
    "kubelet_pod_resources_endpoint_requests_get",
    "kubelet_pod_resources_endpoint_requests_get_allocatable",
    "kubelet_pod_resources_endpoint_requests_list",
    "kubelet_preemptions",
];

/// Stability levels that are not the usual one (alpha), as upstream's descriptions of 1.36 begin with them.
const STABILITY: &[(&str, &str)] = &[
    ("kubelet_first_network_pod_start_sli_duration_seconds", "INTERNAL"),
    ("kubelet_image_volume_mounted_errors", "BETA"),
    ("kubelet_image_volume_mounted_succeed", "BETA"),
    ("kubelet_image_volume_requested", "BETA"),
    ("kubernetes_build_info", "BETA"),
    ("kubernetes_feature_enabled", "BETA"),
    ("kubernetes_healthcheck", "STABLE"),
    ("kubernetes_healthchecks", "STABLE"),
    ("prober_probe", "BETA"),
];

/// How stable a family is, by its name without `_total`.
fn stability(name: &str) -> &'static str {
    let other = STABILITY.iter().find(|(of, _)| *of == name);
    other.map_or("ALPHA", |(_, level)| level)
}

/// Brings OpenMetrics text into the classic format.
pub(super) fn classic(open: &str) -> String {
    let mut out = String::with_capacity(open.len() + 1024);
    let counters: Vec<&str> = open.lines().filter_map(declared_counter).collect();
    // Samples follow their own declaration.
    let mut bare = None;
    for line in open.lines() {
        if let Some(declaration) = line.strip_prefix("# ") {
            declare(&mut out, declaration, &counters);
            bare = declared_name(declaration).filter(|name| WITHOUT_SUFFIX.contains(name));
            continue;
        }
        let sample = bare.and_then(|name| line.strip_prefix(name)?.strip_prefix("_total").map(|rest| (name, rest)));
        match sample {
            Some((name, rest)) => out.extend([name, rest, "\n"]),
            None => write_sample(&mut out, line),
        }
    }
    out
}

/// Writes a sample with its numbers as the classic format has them: whole ones without a fraction.
fn write_sample(out: &mut String, line: &str) {
    let (series, value) = line.rsplit_once(' ').unwrap_or((line, ""));
    match series
        .split_once("le=\"")
        .and_then(|(head, rest)| Some((head, rest.split_once('"')?)))
    {
        Some((head, (bound, rest))) => out.extend([head, "le=\"", whole(bound), "\"", rest]),
        None => out.push_str(series),
    }
    out.extend([" ", whole(value), "\n"]);
}

fn whole(number: &str) -> &str {
    match number {
        "inf" => "+Inf",
        number => number.strip_suffix(".0").unwrap_or(number),
    }
}

fn declared_counter(line: &str) -> Option<&str> {
    let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
    (kind == "counter").then_some(name)
}

fn declared_name(declaration: &str) -> Option<&str> {
    let (_, rest) = declaration.split_once(' ')?;
    rest.split(' ').next()
}

/// Writes a declaration, without those the classic format does not have.
fn declare(out: &mut String, declaration: &str, counters: &[&str]) {
    let mut words = declaration.splitn(3, ' ');
    let (Some(what @ ("HELP" | "TYPE")), Some(name)) = (words.next(), words.next()) else {
        return;
    };
    let suffix = counters.contains(&name) && !WITHOUT_SUFFIX.contains(&name);
    let rest = words.next().unwrap_or_default();
    out.extend(["# ", what, " ", name, if suffix { "_total" } else { "" }, " "]);
    if what == "HELP" {
        out.extend(["[", stability(name), "] "]);
    }
    let untyped = what == "TYPE" && rest == "unknown";
    out.extend([if untyped { "untyped" } else { rest }, "\n"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_declared_as_they_are_sampled_and_nothing_else_is_there() {
        let open = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{x=\"a_requests\"} 1\n\
                    # HELP kubelet_pleg_discard_events Gone.\n# TYPE kubelet_pleg_discard_events counter\n\
                    kubelet_pleg_discard_events_total 0\n# HELP g G.\n# TYPE g gauge\n# UNIT g bytes\ng 2.0\n\
                    # TYPE h histogram\nh_bucket{le=\"1.0\",a=\"b\"} 0\nh_bucket{le=\"+Inf\",a=\"b\"} 1\nh_sum{a=\"b\"} 0.5\n# TYPE i gauge\ni inf\n# EOF\n";
        let expected = "# HELP a_requests_total [ALPHA] Requests.\n# TYPE a_requests_total counter\na_requests_total{x=\"a_requests\"} 1\n\
                        # HELP kubelet_pleg_discard_events [ALPHA] Gone.\n# TYPE kubelet_pleg_discard_events counter\n\
                        kubelet_pleg_discard_events 0\n# HELP g [ALPHA] G.\n# TYPE g gauge\ng 2\n\
                        # TYPE h histogram\nh_bucket{le=\"1\",a=\"b\"} 0\nh_bucket{le=\"+Inf\",a=\"b\"} 1\nh_sum{a=\"b\"} 0.5\n# TYPE i gauge\ni +Inf\n";
        assert_eq!(classic(open), expected);
    }
}
