use super::*;

#[test]
fn series_have_corednss_names() {
    let metrics = Metrics::default();
    metrics.name_zone("cluster.local.");
    let way = Way { tcp: true, v6: true };
    metrics.request(Source::Cluster, way, kind::AAAA, 40, true);
    metrics.request(Source::Forward, Way { tcp: false, v6: false }, 9999, 40, false);
    metrics.response(Source::Cluster, way, rcode::NX_DOMAIN, 120, Duration::from_micros(300));
    metrics.cache(Some(Sort::Denial));
    metrics.cache(None);
    metrics.cached(3, 4, 5);
    metrics.reject();
    let resolver = "192.0.2.1:53".parse().unwrap();
    metrics.asked(resolver, Some(0), Duration::from_millis(3));
    metrics.asked(resolver, None, Duration::from_millis(3));
    let mut text = String::new();
    metrics.render(&mut text);
    for line in [
        r#"coredns_dns_requests_total{server="dns://:53",zone="cluster.local.",view="",proto="tcp",family="2",type="AAAA"} 1"#,
        r#"coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="udp",family="1",type="other"} 1"#,
        r#"coredns_dns_do_requests_total{server="dns://:53",zone="cluster.local.",view=""} 1"#,
        r#"coredns_dns_responses_total{server="dns://:53",zone="cluster.local.",view="",rcode="NXDOMAIN",plugin="kubernetes"} 1"#,
        r#"coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone="cluster.local.",view="",le="0.00025"} 0"#,
        r#"coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone="cluster.local.",view="",le="0.0005"} 1"#,
        r#"coredns_dns_request_duration_seconds_count{server="dns://:53",zone="cluster.local.",view=""} 1"#,
        r#"coredns_dns_response_size_bytes_bucket{server="dns://:53",zone="cluster.local.",view="",proto="tcp",le="200"} 1"#,
        r#"coredns_cache_entries{type="success",server="dns://:53",zones=".",view=""} 3"#,
        r#"coredns_cache_hits_total{type="denial",server="dns://:53",zones=".",view=""} 1"#,
        r#"coredns_cache_requests_total{server="dns://:53",zones=".",view=""} 2"#,
        r#"coredns_cache_misses_total{server="dns://:53",zones=".",view=""} 1"#,
        r#"coredns_cache_evictions_total{server="dns://:53",zones=".",view=""} 5"#,
        r#"coredns_forward_requests_total{to="192.0.2.1:53"} 2"#,
        r#"coredns_forward_responses_total{rcode="NOERROR",to="192.0.2.1:53"} 1"#,
        r#"coredns_proxy_request_duration_seconds_count{proxy_name="forward",to="192.0.2.1:53",rcode="NOERROR"} 1"#,
        "coredns_forward_max_concurrent_rejects_total 1",
        "coredns_panics_total 0",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\n{text}");
    }
    metrics.keep_resolvers(|_| false);
    let mut text = String::new();
    metrics.render(&mut text);
    assert!(!text.contains("192.0.2.1"));
}

/// What the contract's list says of a name: type, labels and buckets.
#[test]
fn the_list_has_every_series() {
    let metrics = Metrics::default();
    metrics.name_zone("cluster.local.");
    let way = Way { tcp: true, v6: true };
    metrics.request(Source::Cluster, way, kind::AAAA, 40, true);
    metrics.response(Source::Cluster, way, rcode::NO_ERROR, 120, Duration::from_micros(300));
    metrics.cache(Some(Sort::Success));
    metrics.cached(1, 1, 1);
    metrics.asked("192.0.2.1:53".parse().unwrap(), Some(0), Duration::from_millis(3));
    let mut text = String::new();
    metrics.render(&mut text);
    let mut declared: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let list = include_str!("../../../../tests/metrics.tsv");
    let is_ours = |line: &&str| line.contains("\tcoredns_") || line.contains("\tskiff_dns_");
    for row in list.lines().filter(is_ours) {
        let [_, name, of_type, _, labels, buckets, _] =
            <[&str; 7]>::try_from(row.split('\t').collect::<Vec<_>>()).unwrap();
        let there = declared.iter().position(|line| *line == format!("{name} {of_type}"));
        declared.remove(there.unwrap_or_else(|| panic!("{name} {of_type} in {text}")));
        let of_name = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or("-");
            rest.starts_with(['{', ' ']) || (of_type == "histogram" && rest.starts_with("_bucket"))
        };
        let samples: Vec<&str> = text.lines().filter(of_name).collect();
        assert!(!samples.is_empty(), "{name} in {text}");
        for sample in &samples {
            let inner = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let pairs = inner.map(|(inner, _)| inner).unwrap_or_default().split("\",");
            let mut has: Vec<&str> = pairs.filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
            has.retain(|label| *label != "le");
            has.sort_unstable();
            let wanted: Vec<&str> = labels.split(',').filter(|label| *label != "-").collect();
            assert_eq!(has, wanted, "{sample}");
        }
        let bound = |line: &&str| line.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
        let mut bounds: Vec<f64> = samples
            .iter()
            .filter_map(bound)
            .filter(|bound| bound.is_finite())
            .collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let wanted: Vec<f64> = buckets.split(',').filter_map(|bound| bound.parse().ok()).collect();
        assert_eq!(bounds, wanted, "{name}");
    }
    assert!(declared.is_empty(), "not in the list: {declared:?}");
}
