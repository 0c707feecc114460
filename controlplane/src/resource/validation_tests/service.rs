//! Services.

use super::*;

#[test]
fn services() {
    let rules = strategy("", "v1", "Service");
    let base = json!({"spec": {"ports": [{"port": 80}]}});
    let spec = |spec: Value| json!({"spec": spec});
    let only = "Forbidden: may only be used when `type` is 'LoadBalancer'";
    let balanced_only = [
        format!("spec.allocateLoadBalancerNodePorts: {only}"),
        format!("spec.loadBalancerClass: {only}"),
    ];
    let balanced_only: Vec<&str> = balanced_only.iter().map(String::as_str).collect();
    rows(
        rules,
        &base,
        &[
            (
                spec(json!({"externalTrafficPolicy": "Local"})),
                &[
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
                ],
            ),
            (
                spec(json!({"type": "NodePort", "externalTrafficPolicy": "Odd"})),
                &["spec.externalTrafficPolicy: Unsupported value: \"Odd\": supported values: \"Cluster\", \"Local\""],
            ),
            (
                spec(json!({"healthCheckNodePort": 30000})),
                &[
                    "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and \
               `externalTrafficPolicy` is 'Local'",
                ],
            ),
            (
                spec(json!({"trafficDistribution": "X"})),
                &[
                    "spec.trafficDistribution: Unsupported value: \"X\": supported values: \"PreferClose\", \"PreferSameNode\", \
               \"PreferSameZone\"",
                ],
            ),
            (
                spec(json!({"loadBalancerSourceRanges": ["x"]})),
                &[
                    "spec.LoadBalancerSourceRanges[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or \
                 2001:db8::/64)",
                    "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                spec(json!({"allocateLoadBalancerNodePorts": true, "loadBalancerClass": "a/b"})),
                &balanced_only,
            ),
            (
                spec(json!({"ipFamilies": ["IPv9", "IPv9"]})),
                &[
                    "spec.ipFamilies[0]: Unsupported value: \"IPv9\": supported values: \"IPv4\", \"IPv6\"",
                    "spec.ipFamilies[1]: Unsupported value: \"IPv9\": supported values: \"IPv4\", \"IPv6\"",
                    "spec.ipFamilies[1]: Duplicate value: \"IPv9\"",
                ],
            ),
            (
                spec(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]})),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                ],
            ),
            (
                spec(json!({"clusterIP": "None", "clusterIPs": ["None", "10.0.0.1"]})),
                &["spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.1\"]: 'None' must be the first and only value"],
            ),
            (
                spec(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]})),
                &[
                    "spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP \
               family",
                ],
            ),
            (
                spec(json!({"externalIPs": ["127.0.0.1"]})),
                &[
                    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                ],
            ),
            (
                spec(json!({"type": "ExternalName", "externalName": "a.b", "ipFamilyPolicy": "SingleStack"})),
                &["spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services"],
            ),
        ],
    );
}

#[test]
fn a_service_keeps_its_first_address_and_leaves_what_another_type_had() {
    let rules = strategy("", "v1", "Service");
    let service = |spec: Value| {
        let mut service = json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}});
        crate::patch::merge_patch_tree(&mut service, &json!({"spec": spec}));
        rules.default(&mut service);
        service
    };
    let old = service(json!({}));
    let other = service(json!({"ipFamilies": ["IPv6", "IPv4"]}));
    assert_eq!(
        lines(rules.validate_update(&other, &old, "")),
        [
            "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
            "spec.ipFamilies[0]: Invalid value: [\"IPv6\",\"IPv4\"]: may not change once set",
        ]
    );
    let two = service(
        json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "PreferDualStack"}),
    );
    let one = service(json!({"ipFamilyPolicy": "PreferDualStack"}));
    assert_eq!(
        lines(rules.validate_update(&one, &two, "")),
        [
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the \
             secondary clusterIP",
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the \
             secondary ipFamily",
        ]
    );
    let balanced = service(
        json!({"type": "LoadBalancer", "loadBalancerClass": "a/b", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30000}),
    );
    let mut plain = balanced.clone();
    plain["spec"]["type"] = json!("ClusterIP");
    rules.prepare_update(&mut plain, &balanced, "");
    assert_eq!(lines(rules.validate_update(&plain, &balanced, "")), [] as [&str; 0]);
}
