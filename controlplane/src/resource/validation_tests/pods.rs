//! Pods and the templates that make them.

use super::*;

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    crate::patch::merge_patch_tree(&mut container, &fields);
    json!({"spec": {"containers": [container]}})
}

fn base() -> Value {
    json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn resources() {
    let asked = |resources: Value| container(json!({"resources": resources}));
    let path = "spec.containers[0].resources";
    let table: &[(Value, &[&str])] = &[
        (
            asked(json!({"requests": {"example.com/x": "1"}})),
            &["{path}.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        (
            asked(json!({"limits": {"hugepages-2Mi": "2Mi"}})),
            &["{path}: Forbidden: HugePages require cpu or memory"],
        ),
        (
            asked(json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}})),
            &[
                "{path}.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                "{path}.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of \
                 hugepages-2Mi",
            ],
        ),
        (
            asked(json!({"requests": {"pods": "1"}})),
            &["{path}.requests[pods]: Invalid value: \"pods\": must be a standard resource for containers"],
        ),
        (
            asked(json!({"limits": {"example.com/x": "1500m"}})),
            &[
                "{path}.limits[example.com/x]: Invalid value: \"1500m\": must be an integer",
                "{path}.requests[example.com/x]: Invalid value: \"1500m\": must be an integer",
            ],
        ),
        (
            asked(json!({"claims": [{"name": "a"}]})),
            &["{path}.claims[0]: Not found: \"a\": must be one of the names in pod.spec.resourceClaims which is empty"],
        ),
        (
            json!({"spec": {"resources": {"limits": {"ephemeral-storage": "1Gi"}}}}),
            &[
                "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
                 \"cpu\", \"hugepages-\", \"memory\"",
                "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
                 \"cpu\", \"hugepages-\", \"memory\"",
            ],
        ),
        (
            json!({"spec": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}}),
            &["spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        ),
    ];
    for (patch, want) in table {
        let want: Vec<String> = want.iter().map(|line| line.replace("{path}", path)).collect();
        assert_eq!(said(strategy("", "v1", "Pod"), &base(), patch), want, "{patch}");
    }
}

#[test]
fn claims_profiles_hooks_and_annotations() {
    let spec = |spec: Value| json!({"spec": spec});
    let noted = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let secured = |context: Value| container(json!({"securityContext": context}));
    let context = "spec.containers[0].securityContext";
    let localhost =
        format!("{context}.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'");
    let kind = format!("{context}.appArmorProfile.type: Required value: type is required when appArmorProfile is set");
    let file = format!(
        "{context}.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"
    );
    rows(
        strategy("", "v1", "Pod"),
        &base(),
        &[
            (
                spec(json!({"resourceClaims": [{"name": "a"}]})),
                &[
                    "spec.resourceClaims[0]: Invalid value: {\"name\":\"a\"}: must specify one of: `resourceClaimName`, \
               `resourceClaimTemplateName`",
                ],
            ),
            (
                spec(
                    json!({"resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "x"}]}),
                ),
                &["spec.resourceClaims[1].name: Duplicate value: \"a\""],
            ),
            (
                secured(json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}})),
                &[&localhost],
            ),
            (secured(json!({"appArmorProfile": {}})), &[&kind]),
            (secured(json!({"appArmorProfile": {"type": "Localhost"}})), &[&file]),
            (
                container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 100}}}})),
                &[
                    "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 100: must be non-negative and less than \
               terminationGracePeriodSeconds (30)",
                ],
            ),
            (
                container(json!({"envFrom": [{"prefix": "a=", "configMapRef": {"name": "x"}}]})),
                &[
                    "spec.containers[0].envFrom[0].prefix: Invalid value: \"a=\": a valid environment variable name must consist \
               only of printable ASCII characters other than '=' (e.g. 'my.env-name',  or 'MY_ENV.NAME', regex used for \
               validation is '[ -<>-~]+')",
                ],
            ),
            (
                spec(json!({"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "-1"}}]})),
                &["spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
            ),
            (
                spec(json!({"volumes": [{"name": "a", "gitRepo": {"repository": ""}}]})),
                &["spec.volumes[0].gitRepo.repository: Required value"],
            ),
            (
                spec(json!({"dnsPolicy": "None"})),
                &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
            ),
            (
                noted("seccomp.security.alpha.kubernetes.io/pod", "x"),
                &[
                    "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be a valid seccomp \
               profile",
                ],
            ),
            (
                noted("container.apparmor.security.beta.kubernetes.io/d", "bad"),
                &[
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]: Invalid value: \"d\": container not \
                 found",
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]: Invalid value: \"bad\": invalid \
                 AppArmor profile name: \"bad\"",
                ],
            ),
            (
                noted("kubernetes.io/config.mirror", "x"),
                &[
                    "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod \
               annotation is set",
                ],
            ),
            (
                noted("controller.kubernetes.io/pod-deletion-cost", "01"),
                &[
                    "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"01\": must be a 32bit \
               integer",
                ],
            ),
        ],
    );
}

#[test]
fn stateful_sets() {
    let base = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let rolling = |fields: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": fields}}});
    rows(
        strategy("apps", "v1", "StatefulSet"),
        &base,
        &[
            (
                json!({"spec": {"ordinals": {"start": -1}}}),
                &["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                rolling(json!({"partition": -1})),
                &["spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                rolling(json!({"maxUnavailable": 0})),
                &["spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0"],
            ),
            (
                json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}}}),
                &[
                    "spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
                ],
            ),
        ],
    );
    let named = said(
        strategy("apps", "v1", "StatefulSet"),
        &base,
        &json!({"spec": {"serviceName": "Bad_Name"}}),
    );
    assert!(
        named.len() == 1
            && named[0].starts_with("spec.serviceName: Invalid value: \"Bad_Name\": a lowercase RFC 1123 label"),
        "{named:?}"
    );
    let empty = said(
        strategy("apps", "v1", "StatefulSet"),
        &base,
        &json!({"spec": {"selector": {"matchLabels": null}}}),
    );
    assert_eq!(
        empty,
        ["spec.selector: Invalid value: {}: empty selector is invalid for statefulset"]
    );
}
