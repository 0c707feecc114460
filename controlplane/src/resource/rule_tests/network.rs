//! Networking, discovery, coordination and RBAC.

use super::*;

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

#[test]
fn endpoint_slices() {
    let slice = Good::new(
        "discovery.k8s.io",
        "endpointslices",
        "a",
        json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
            "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}),
    );
    slice.refuses(vec![
        (
            "/endpoints/0/addresses/0",
            json!("x"),
            &format!("endpoints[0].addresses[0]: Invalid value: \"x\": {ADDRESS}"),
        ),
        (
            "/endpoints/0/addresses/0",
            json!("2001:db8::1"),
            "endpoints[0].addresses[0]: Invalid value: \"2001:db8::1\": must be an IPv4 address",
        ),
        (
            "/endpoints/0/addresses/0",
            json!("127.0.0.1"),
            "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            "/endpoints/0/addresses",
            json!(vec!["10.0.0.1"; 101]),
            "endpoints[0].addresses: Too many: 101: must have at most 100 items",
        ),
        (
            "/endpoints",
            json!(vec![json!({}); 1001]),
            "endpoints: Too many: 1001: must have at most 1000 items",
        ),
        (
            "/ports",
            json!(vec![json!({}); 20_001]),
            "ports: Too many: 20001: must have at most 20000 items",
        ),
        ("/ports/1/name", json!("a"), "ports[1].name: Duplicate value: \"a\""),
        (
            "/ports/0/protocol",
            json!("X"),
            "ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (
            "/endpoints/0/hints",
            json!({"forZones": vec![json!({"name": "a"}); 9]}),
            "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items",
        ),
        (
            "/endpoints/0/hints",
            json!({"forNodes": [{"name": "a"}, {"name": "a"}]}),
            "endpoints[0].hints.forNodes[1].name: Duplicate value: \"a\"",
        ),
    ]);
    for (pointer, value) in [
        ("/endpoints/0/hostname", "A_B"),
        ("/endpoints/0/nodeName", "A_B"),
        ("/ports/0/name", "A_B"),
        ("/ports/0/appProtocol", "a b"),
    ] {
        assert_eq!(slice.told(&[(pointer, json!(value))]).len(), 1, "{pointer}");
    }
    let told = slice.told_of_update(&[("/addressType", json!("FQDN")), ("/endpoints", json!([]))], "");
    assert_eq!(told, ["addressType: Invalid value: \"FQDN\": field is immutable"]);
    slice.leaves_alone(("/endpoints/0/addresses/0", json!("x")));
}

#[test]
fn network_policies() {
    let policy = Good::new(
        "networking.k8s.io",
        "networkpolicies",
        "a",
        json!({"spec": {"ingress": [{}]}}),
    );
    let rule = |rule: Value| json!([rule]);
    policy.refuses(vec![
        (
            "/spec/policyTypes",
            json!(["X"]),
            "spec.policyTypes[0]: Unsupported value: \"X\": supported values: \"Ingress\", \"Egress\"",
        ),
        (
            "/spec/policyTypes",
            json!(["Ingress", "Egress", "Ingress"]),
            "spec.policyTypes: Invalid value: [\"Ingress\",\"Egress\",\"Ingress\"]: may not specify more than two policyTypes",
        ),
        (
            "/spec/ingress",
            rule(json!({"from": [{}]})),
            "spec.ingress[0].from[0]: Required value: must specify a peer",
        ),
        (
            "/spec/egress",
            rule(json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]})),
            "spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer",
        ),
        (
            "/spec/ingress",
            rule(json!({"from": [{"ipBlock": {"cidr": "x"}}]})),
            &format!("spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"x\": {RANGE}"),
        ),
        (
            "/spec/ingress",
            rule(json!({"from": [{"ipBlock": {"cidr": ""}}]})),
            "spec.ingress[0].from[0].ipBlock.cidr: Required value",
        ),
        (
            "/spec/ingress",
            rule(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]})),
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
        ),
        (
            "/spec/ingress",
            rule(json!({"ports": [{"port": 70000}]})),
            "spec.ingress[0].ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            "/spec/ingress",
            rule(json!({"ports": [{"port": 7, "endPort": 5}]})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 5: must be greater than or equal to `port`",
        ),
        (
            "/spec/ingress",
            rule(json!({"ports": [{"endPort": 5}]})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 5: may not be specified when `port` is not specified",
        ),
        (
            "/spec/ingress",
            rule(json!({"ports": [{"port": "http", "endPort": 5}]})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 5: may not be specified when `port` is non-numeric",
        ),
    ]);
    policy.leaves_alone(("/spec/ingress", json!([{"from": [{}]}])));
}

#[test]
fn ingresses() {
    let service = json!({"service": {"name": "s", "port": {"number": 80}}});
    let path = json!({"path": "/x", "pathType": "Exact", "backend": service});
    let ingress = Good::new(
        "networking.k8s.io",
        "ingresses",
        "a",
        json!({"spec": {"defaultBackend": service, "rules": [{"host": "a.b", "http": {"paths": [path]}}], "tls": [{}]}}),
    );
    let backend = "/spec/rules/0/http/paths/0/backend";
    ingress.refuses(vec![
        (
            "/spec/rules/0/host",
            json!("1.2.3.4"),
            "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
        ),
        (
            "/spec/rules/0/http/paths",
            json!([]),
            "spec.rules[0].http.paths: Required value",
        ),
        (
            "/spec/rules/0/http/paths/0/path",
            json!("/a//b"),
            "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
        ),
        (
            "/spec/rules/0/http/paths/0/path",
            json!("/a/.."),
            "spec.rules[0].http.paths[0].path: Invalid value: \"/a/..\": cannot end with '/..'",
        ),
        (
            backend,
            json!({}),
            "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
        ),
        (
            "/spec/defaultBackend/resource",
            json!({"kind": "a", "name": "b"}),
            "spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends",
        ),
        (
            "/spec/defaultBackend",
            json!({"resource": {"kind": "", "name": "b"}}),
            "spec.defaultBackend.resource.kind: Required value",
        ),
        (
            "/spec/defaultBackend/service/port",
            json!({}),
            "spec.defaultBackend: Required value: port name or number is required",
        ),
        (
            "/spec/defaultBackend/service/port",
            json!({"number": 1, "name": "x"}),
            "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number",
        ),
        (
            "/spec/defaultBackend/service/port/number",
            json!(70000),
            "spec.defaultBackend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            "/spec/defaultBackend/service/name",
            json!(""),
            "spec.defaultBackend.service.name: Required value",
        ),
    ]);
    for (pointer, value) in [
        ("/spec/tls/0/hosts", json!(["Bad_"])),
        ("/spec/tls/0/secretName", json!("Bad_")),
        ("/spec/ingressClassName", json!("Bad_")),
        ("/spec/rules/0/host", json!("*.*.a")),
    ] {
        assert_eq!(ingress.told(&[(pointer, value)]).len(), 1, "{pointer}");
    }
    let annotated = json!({"kubernetes.io/ingress.class": "b"});
    let told = ingress.told(&[
        ("/metadata/annotations", annotated),
        ("/spec/ingressClassName", json!("c")),
    ]);
    let why = "annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are specified";
    assert_eq!(told, [why]);
    let status = json!({"loadBalancer": {"ingress": [{"ip": "x", "hostname": "1.2.3.4"}]}});
    let told = ingress.told_of_update(&[("/status", status)], "status");
    let why = "must be a DNS name, not an IP address";
    assert_eq!(
        told,
        [
            format!("status.loadBalancer.ingress[0].ip: Invalid value: \"x\": {ADDRESS}"),
            format!("status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": {why}")
        ]
    );
    ingress.leaves_alone(("/spec/rules/0/host", json!("1.2.3.4")));
}

#[test]
fn ingress_classes() {
    let class = Good::new(
        "networking.k8s.io",
        "ingressclasses",
        "a",
        json!({"spec": {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n"}}}),
    );
    class.refuses(vec![
        ("/spec/controller", json!(""), "spec.controller: Required value"),
        (
            "/spec/controller",
            json!("bad"),
            "spec.controller: Invalid value: \"bad\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "/spec/controller",
            json!(format!("a/{}", "b".repeat(249))),
            "spec.controller: Too long: may not be more than 250 bytes",
        ),
        (
            "/spec/parameters/kind",
            json!(""),
            "spec.parameters.kind: Required value",
        ),
        (
            "/spec/parameters/name",
            json!("a/b"),
            "spec.parameters.name: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            "/spec/parameters/scope",
            json!("Namespace"),
            "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
        ),
        (
            "/spec/parameters/namespace",
            json!("a"),
            "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
        ),
        (
            "/spec/parameters/scope",
            json!("X"),
            "spec.parameters.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespace\"",
        ),
    ]);
    class.keeps(vec![(
        "/spec/controller",
        json!("a.b/d"),
        "spec.controller: Invalid value: \"a.b/d\": field is immutable",
    )]);
}

#[test]
fn service_ranges_and_addresses() {
    let cidr = Good::new(
        "networking.k8s.io",
        "servicecidrs",
        "a",
        json!({"spec": {"cidrs": ["10.0.0.0/16"]}}),
    );
    cidr.refuses(vec![
        ("/spec/cidrs", json!([]), "spec.cidrs: Required value: at least one CIDR required"),
        (
            "/spec/cidrs",
            json!(["x"]),
            &format!("spec.cidrs[0]: Invalid value: \"x\": {RANGE}"),
        ),
        (
            "/spec/cidrs",
            json!(["10.0.0.0/16", "11.0.0.0/16"]),
            "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"11.0.0.0/16\"]: may specify no more than one IP for each IP family, \
             i.e 192.168.0.0/24 and 2001:db8::/64",
        ),
        (
            "/spec/cidrs",
            json!(["a", "b", "c"]),
            "spec.cidrs: Invalid value: {\"cidrs\":[\"a\",\"b\",\"c\"]}: may only hold up to 2 values",
        ),
    ]);
    cidr.keeps(vec![
        ("/spec/cidrs", json!(["10.0.0.0/16", "2001:db8::/64"]), ""),
        (
            "/spec/cidrs",
            json!(["10.1.0.0/16"]),
            "spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable",
        ),
        (
            "/spec/cidrs",
            json!([]),
            "spec.cidrs: Invalid value: []: field is immutable",
        ),
    ]);
    let parent = json!({"resource": "services", "namespace": "a", "name": "b"});
    let address = Good::new(
        "networking.k8s.io",
        "ipaddresses",
        "10.0.0.1",
        json!({"spec": {"parentRef": parent}}),
    );
    address.refuses(vec![
        (
            "/metadata/name",
            json!("x"),
            &format!("metadata.name: Invalid value: \"x\": {ADDRESS}"),
        ),
        ("/spec/parentRef", Value::Null, "spec.parentRef: Required value"),
        (
            "/spec/parentRef/resource",
            json!(""),
            "spec.parentRef.resource: Required value",
        ),
        (
            "/spec/parentRef/namespace",
            json!("a%"),
            "spec.parentRef.namespace: Invalid value: \"a%\": may not contain '%'",
        ),
    ]);
    let told = address.told_of_update(&[("/spec/parentRef/name", json!("c"))], "");
    assert!(told[0].ends_with("field is immutable"), "{told:?}");
}

#[test]
fn leases() {
    let lease = Good::new(
        "coordination.k8s.io",
        "leases",
        "a",
        json!({"spec": {"leaseDurationSeconds": 1}}),
    );
    lease.refuses(vec![
        (
            "/spec/leaseDurationSeconds",
            json!(0),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "/spec/leaseTransitions",
            json!(-1),
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/spec/strategy",
            json!("x"),
            "spec.strategy.strategy: Unsupported value: \"x\": supported values: \"OldestEmulationVersion\"",
        ),
        (
            "/spec/preferredHolder",
            json!("x"),
            "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
        ),
    ]);
    assert_eq!(lease.told(&[("/spec/strategy", json!("a.b/c d"))]).len(), 1);
    lease.leaves_alone(("/spec/leaseDurationSeconds", json!(0)));
}

#[test]
fn bindings_of_roles() {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "a"},
        "subjects": [{"kind": "ServiceAccount", "name": "b", "namespace": "c"}]});
    let narrow = Good::new(group, "rolebindings", "a", binding.clone());
    let wide = Good::new(group, "clusterrolebindings", "a", binding);
    assert_eq!(narrow.told(&[("/subjects/0/namespace", Value::Null)]), [""; 0]);
    wide.refuses(vec![
        (
            "/subjects/0/namespace",
            Value::Null,
            "subjects[0].namespace: Required value",
        ),
        (
            "/roleRef/name",
            json!("a/b"),
            "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
        ),
    ]);
    assert_eq!(wide.told(&[("/subjects/0/name", json!("A_"))]).len(), 1);
}
