//! One family or two: what is given, what stays, what is refused.

use super::*;

/// Policy, families and addresses after a Service was given what it leaves out; or why not.
fn families(cluster: &str, spec: Value) -> Result<(Value, Value, Value), String> {
    let mut service = service(spec);
    if service["spec"]["ports"].is_null() {
        service["spec"]["ports"] = json!([{"port": 80}]);
    }
    given(cluster, &BTreeSet::new(), 0, &mut service)?;
    let spec = &service["spec"];
    Ok((
        spec["ipFamilyPolicy"].clone(),
        spec["ipFamilies"].clone(),
        spec["clusterIPs"].clone(),
    ))
}

#[test]
fn two_families_are_given_where_there_are_two() {
    const TWO: &str = "10.96.0.0/16,fd00::/112";
    const TURNED: &str = "fd00::/112,10.96.0.0/16";
    const ONE: &str = "10.96.0.0/16";
    let (v4, v6) = ("10.96.1.0", "fd00::100");
    let both = json!(["IPv4", "IPv6"]);
    for (cluster, spec, policy, families_wanted, addresses) in [
        (ONE, json!({}), "SingleStack", json!(["IPv4"]), json!([v4])),
        (TWO, json!({}), "SingleStack", json!(["IPv4"]), json!([v4])),
        (TURNED, json!({}), "SingleStack", json!(["IPv6"]), json!([v6])),
        (
            ONE,
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            "PreferDualStack",
            json!(["IPv4"]),
            json!([v4]),
        ),
        (
            TWO,
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            "PreferDualStack",
            both.clone(),
            json!([v4, v6]),
        ),
        (
            TWO,
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            "RequireDualStack",
            json!(["IPv6", "IPv4"]),
            json!([v6, v4]),
        ),
        (
            TWO,
            json!({"ipFamilies": ["IPv6"]}),
            "SingleStack",
            json!(["IPv6"]),
            json!([v6]),
        ),
        (
            TWO,
            json!({"clusterIP": "fd00::7"}),
            "SingleStack",
            json!(["IPv6"]),
            json!(["fd00::7"]),
        ),
        (
            TWO,
            json!({"ipFamilyPolicy": "PreferDualStack", "clusterIPs": ["fd00::7", "10.96.0.7"]}),
            "PreferDualStack",
            json!(["IPv6", "IPv4"]),
            json!(["fd00::7", "10.96.0.7"]),
        ),
        (
            ONE,
            json!({"clusterIP": "None"}),
            "RequireDualStack",
            both.clone(),
            json!(["None"]),
        ),
        (
            ONE,
            json!({"clusterIP": "None", "selector": {"a": "b"}}),
            "SingleStack",
            json!(["IPv4"]),
            json!(["None"]),
        ),
        (
            TWO,
            json!({"clusterIP": "None", "selector": {"a": "b"}, "ipFamilyPolicy": "PreferDualStack"}),
            "PreferDualStack",
            both,
            json!(["None"]),
        ),
    ] {
        let wanted = (json!(policy), families_wanted, addresses);
        assert_eq!(families(cluster, spec.clone()), Ok(wanted), "{cluster} {spec}");
    }
}

#[test]
fn what_a_cluster_cannot_give_is_refused_in_upstreams_words() {
    const TWO: &str = "10.96.0.0/16,fd00::/112";
    const ONE: &str = "10.96.0.0/16";
    for (cluster, spec, why) in [
        (
            ONE,
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            ONE,
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            TWO,
            json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ),
        (
            TWO,
            json!({"clusterIPs": ["10.96.0.7", "fd00::7"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified",
        ),
    ] {
        assert_eq!(families(cluster, spec.clone()), Err(why.to_owned()), "{cluster} {spec}");
    }
}

#[test]
fn an_update_takes_and_releases_the_second_family() {
    let ranges: Ranges = "10.96.0.0/16,fd00::/112".parse().expect("ranges");
    let pool = Pool {
        families: &ranges.families(),
        ranges: ranges.all(),
        reserved: &[],
        is_taken: &|_| false,
    };
    let change = |old: &Value, patch: Value| {
        let mut new = old.clone();
        json_patch::merge(&mut new, &patch);
        Service.prepare_update(&mut new, old, "");
        fill_families(pool.families, &mut new, Some(old)).expect("possible");
        allocate(&pool, 0, &mut new, Some(old)).expect("room");
        let problems: Vec<String> = Service
            .validate_update(&new, old, "")
            .iter()
            .map(ToString::to_string)
            .collect();
        (new, problems)
    };
    let mut one = service(json!({"ports": [{"port": 80}]}));
    given("10.96.0.0/16", &BTreeSet::new(), 5, &mut one).expect("room");
    let (two, problems) = change(&one, json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(two["spec"]["clusterIPs"], json!(["10.96.1.5", "fd00::100"]));
    let (same, problems) = change(&two, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!((&same["spec"], problems), (&two["spec"], vec![]));
    let (back, problems) = change(&two, json!({"spec": {"ipFamilyPolicy": "SingleStack"}}));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        (&back["spec"]["clusterIPs"], &back["spec"]["ipFamilies"]),
        (&json!(["10.96.1.5"]), &json!(["IPv4"]))
    );
    let (_, problems) = change(
        &two,
        json!({"spec": {"clusterIPs": ["10.96.1.5"], "ipFamilies": ["IPv4"]}}),
    );
    assert!(
        problems[0].contains("must be set to 'SingleStack' when releasing the secondary"),
        "{problems:?}"
    );
    let (gone, problems) = change(
        &two,
        json!({"spec": {"type": "ExternalName", "externalName": "a.example"}}),
    );
    assert_eq!(problems, Vec::<String>::new());
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert!(gone["spec"][key].is_null(), "{key}");
    }
    assert_eq!(held_addresses(&gone), BTreeSet::new());
    let (again, problems) = change(&gone, json!({"spec": {"type": "ClusterIP", "externalName": null}}));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(again["spec"]["clusterIPs"], json!(["10.96.1.0"]));
}
