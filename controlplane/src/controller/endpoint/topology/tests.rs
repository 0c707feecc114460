use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(zone: &str, cpu: &str, more: Value) -> Arc<Node> {
    let mut value = json!({"metadata": {"labels": {ZONE: zone}}, "status": {"allocatable": {"cpu": cpu},
        "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch::merge(&mut value, &more);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn endpoint(zone: &str, hint: &str, is_ready: bool) -> Endpoint {
    let mut value = json!({"addresses": ["192.0.2.1"], "conditions": {"ready": is_ready}});
    if !zone.is_empty() {
        value["zone"] = json!(zone);
    }
    if !hint.is_empty() {
        value["hints"] = json!({"forZones": [{"name": hint}]});
    }
    serde_json::from_value(value).unwrap()
}

fn parts(parts: &[(&str, f64)]) -> Ratios {
    parts.iter().map(|(zone, part)| ((*zone).to_owned(), *part)).collect()
}

/// The hints, one letter an endpoint; `-` is none.
fn assigned(endpoints: &[Endpoint], ratios: Option<&Ratios>) -> Result<String, String> {
    let mut own = endpoints.to_vec();
    let given = assign(&mut own.iter_mut().collect::<Vec<_>>(), ratios);
    let text = own.iter().map(|endpoint| hinted(endpoint).unwrap_or("-")).collect();
    if given.is_err() {
        assert!(own.iter().all(|endpoint| endpoint.hints.is_none()));
    }
    given.map(|()| text)
}

#[test]
fn zones_have_the_part_of_the_cpus_that_their_ready_nodes_have() {
    let none = || json!({});
    let of = |nodes: &[Arc<Node>]| ratios(nodes).map(|ratios| ratios.into_iter().collect::<Vec<_>>());
    let two = [
        node("a", "3", none()),
        node("b", "500m", none()),
        node("b", "500m", none()),
    ];
    assert_eq!(of(&two).unwrap(), [("a".to_owned(), 0.75), ("b".to_owned(), 0.25)]);
    assert_eq!(of(&two[..1]), None, "one zone");
    assert_eq!(of(&[]), None);
    let with = |node| of(&[two[0].clone(), two[1].clone(), two[2].clone(), node]);
    assert_eq!(with(node("", "1", none())), None, "a node without zone");
    assert_eq!(with(node("a", "0", none())), None, "a node without CPUs");
    let away = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let leads = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    for apart in [away, leads] {
        assert_eq!(with(node("", "9", apart)), of(&two));
    }
}

#[test]
fn endpoints_are_for_their_own_zone_as_far_as_shares_allow() {
    let zones = |zones: &str| -> Vec<Endpoint> {
        zones
            .chars()
            .map(|zone| endpoint(&zone.to_string(), "", true))
            .collect()
    };
    let half = parts(&[("a", 0.5), ("b", 0.5)]);
    let thirds = parts(&[("a", 1.0 / 3.0), ("b", 1.0 / 3.0), ("c", 1.0 / 3.0)]);
    for (have, ratios, want) in [
        ("ab", &half, "ab"),
        ("aaaabbb", &half, "aaaabbb"),
        ("aaab", &half, "baab"),
        ("aaaa", &half, "bbaa"),
        ("aaabbc", &thirds, "caabbc"),
        ("aaaabb", &thirds, "ccaabb"),
    ] {
        assert_eq!(assigned(&zones(have), Some(ratios)), Ok(want.to_owned()), "{have}");
    }
    // What is there stays while it fits, also where it is not what would be given now.
    let kept = [
        endpoint("a", "b", true),
        endpoint("b", "a", true),
        endpoint("a", "", true),
        endpoint("b", "", true),
        endpoint("b", "b", false),
    ];
    assert_eq!(assigned(&kept, Some(&half)), Ok("baab-".to_owned()));
    let misplaced = [
        endpoint("a", "b", true),
        endpoint("a", "b", true),
        endpoint("b", "b", true),
        endpoint("b", "b", true),
    ];
    assert_eq!(assigned(&misplaced, Some(&half)), Ok("aabb".to_owned()));
}

#[test]
fn why_there_are_no_hints() {
    let half = parts(&[("a", 0.5), ("b", 0.5)]);
    let uneven = parts(&[("a", 0.05), ("b", 0.05), ("c", 0.9)]);
    let three = ["a", "b", "c"].map(|zone| endpoint(zone, zone, true));
    let node = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    let least = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 endpoints, 3 zones)";
    let zoneless = [endpoint("", "a", true), endpoint("a", "", true)];
    for (endpoints, ratios, why) in [
        (&three[..], None, node),
        (
            &three[..1],
            Some(&half),
            "Insufficient number of endpoints (1 endpoints, 2 zones)",
        ),
        (
            &three[..0],
            Some(&half),
            "Insufficient number of endpoints (0 endpoints, 2 zones)",
        ),
        (&three[..], Some(&uneven), least),
        (
            &zoneless[..],
            Some(&half),
            "One or more endpoints do not have a zone specified",
        ),
    ] {
        assert_eq!(assigned(endpoints, ratios), Err(why.to_owned()));
    }
}

proptest! {
    /// Whatever is there, giving hints again changes nothing.
    #[test]
    fn a_second_look_finds_nothing_to_do(
        have in proptest::collection::vec((0usize..3, 0usize..4, any::<bool>()), 0..30),
        cpus in (1u32..9, 1u32..9, 1u32..9),
    ) {
        let names = ["a", "b", "c", ""];
        let all = f64::from(cpus.0 + cpus.1 + cpus.2);
        let ratios = parts(&[("a", f64::from(cpus.0) / all), ("b", f64::from(cpus.1) / all), ("c", f64::from(cpus.2) / all)]);
        let mut endpoints: Vec<Endpoint> = have.iter().map(|(zone, hint, ready)| endpoint(names[*zone], names[*hint], *ready)).collect();
        let first = assign(&mut endpoints.iter_mut().collect::<Vec<_>>(), Some(&ratios));
        let before = endpoints.clone();
        prop_assert_eq!(&first, &assign(&mut endpoints.iter_mut().collect::<Vec<_>>(), Some(&ratios)));
        prop_assert_eq!(before, endpoints);
    }
}
