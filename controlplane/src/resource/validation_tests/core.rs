//! Endpoints, persistent volumes and their claims.

use super::*;

#[test]
fn endpoints() {
    let subset = |subset: Value| json!({"subsets": [subset]});
    let base = subset(json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}));
    let address = |ip: &str| subset(json!({"addresses": [{"ip": ip}]}));
    rows(
        strategy("", "v1", "Endpoints"),
        &base,
        &[
            (
                address("127.0.0.1"),
                &[
                    "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, \
               ::1/128)",
                ],
            ),
            (
                address("169.254.1.1"),
                &[
                    "subsets[0].addresses[0].ip: Invalid value: \"169.254.1.1\": may not be in the link-local range \
               (169.254.0.0/16, fe80::/10)",
                ],
            ),
            (
                address("0.0.0.0"),
                &["subsets[0].addresses[0].ip: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)"],
            ),
            (
                address("ff02::1"),
                &[
                    "subsets[0].addresses[0].ip: Invalid value: \"ff02::1\": may not be in the link-local multicast range \
               (224.0.0.0/24, ff02::/10)",
                ],
            ),
            (
                subset(json!({"ports": [{"port": 0}]})),
                &[
                    "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                    "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                subset(json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1, "name": "a"}, {"port": 2}]})),
                &["subsets[0].ports[1].name: Required value"],
            ),
        ],
    );
}

#[test]
fn claims() {
    let base = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    rows(
        strategy("", "v1", "PersistentVolumeClaim"),
        &base,
        &[(
            json!({"spec": {"dataSource": {"kind": "", "name": "x"}}}),
            &[
                "spec.dataSource.kind: Required value",
                "spec.dataSource: Invalid value: \"\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            ],
        )],
    );
}

#[test]
fn volumes() {
    let base =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}});
    rows(
        strategy("", "v1", "PersistentVolume"),
        &base,
        &[
            (
                json!({"spec": {"hostPath": {"path": "/a/../b"}}}),
                &["spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
            ),
            (
                json!({"spec": {"hostPath": {"path": "//"}, "persistentVolumeReclaimPolicy": "Recycle"}}),
                &["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"],
            ),
            (
                json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}),
                &[
                    "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term",
                ],
            ),
            (
                json!({"spec": {"hostPath": null, "local": {"path": "/a"}}}),
                &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
            ),
        ],
    );
}
