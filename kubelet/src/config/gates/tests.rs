//! What gates say, by name and by stage.

use super::*;
use serde_json::json;

#[test]
fn what_is_off_is_turned_on_by_its_gate_or_its_stage() {
    // Stop signals are alpha, quotas beta.
    for (gates, signals, quotas) in [
        (json!({}), false, false),
        (json!({"AllBeta": true}), false, true),
        (json!({"AllAlpha": true}), true, false),
        (json!({"AllAlpha": true, STOP_SIGNALS: false}), false, false),
        (json!({"AllBeta": true, FS_QUOTAS: false}), false, false),
        (json!({STOP_SIGNALS: true, FS_QUOTAS: true}), true, true),
    ] {
        let of = gates.as_object().expect("an object");
        assert_eq!((stop_signals(of), fs_quotas(of)), (signals, quotas), "{gates}");
    }
    assert_eq!(without_effect(&json!({STOP_SIGNALS: true, FS_QUOTAS: true})), json!({}));
}

#[test]
fn memory_is_kept_if_a_gate_says_so() {
    let off = Memory::default();
    for (gates, expected) in [
        (json!({}), off),
        (json!({"AllBeta": true}), off),
        (json!({"MemoryQoS": true}), Memory { qos: true, ..off }),
        (
            json!({"QOSReserved": true}),
            Memory {
                qos_reserved: true,
                ..off
            },
        ),
        (
            json!({"AllAlpha": true, "QOSReserved": false}),
            Memory { qos: true, ..off },
        ),
    ] {
        assert_eq!(memory(gates.as_object().expect("an object")), expected, "{gates}");
    }
}

#[test]
fn options_of_cpus_come_by_stage() {
    let read = |gates: Value| {
        let of = pinning(gates.as_object().expect("an object"));
        (of.options.alpha, of.options.beta, of.no_quota)
    };
    assert_eq!(read(json!({})), (false, true, true));
    assert_eq!(read(json!({"AllAlpha": true, "AllBeta": false})), (true, false, true));
    let own = json!({"AllAlpha": true, "CPUManagerPolicyAlphaOptions": false, "CPUManagerPolicyBetaOptions": false,
        "DisableCPUQuotaWithExclusiveCPUs": false});
    assert_eq!(read(own.clone()), (false, false, false));
    assert_eq!(without_effect(&own), json!({"AllAlpha": true}));
}

#[test]
fn graceful_shutdown_is_on_unless_a_gate_turns_it_off() {
    for (gates, on, by_priority) in [
        (json!({}), true, true),
        (json!({"AllBeta": false}), false, false),
        (json!({"GracefulNodeShutdown": false}), false, true),
        (json!({"AllBeta": false, "GracefulNodeShutdown": true}), true, false),
        (json!({"GracefulNodeShutdownBasedOnPodPriority": false}), true, false),
    ] {
        let tree = gates.as_object().expect("an object");
        assert_eq!(
            (graceful_shutdown(tree), shutdown_by_priority(tree)),
            (on, by_priority),
            "{gates}"
        );
    }
}

#[test]
fn tokens_for_plugins_are_on_unless_a_gate_turns_them_off() {
    for (gates, on) in [
        (json!({}), true),
        (json!({"AllBeta": false}), false),
        (
            json!({"AllBeta": false, "KubeletServiceAccountTokenForCredentialProviders": true}),
            true,
        ),
        (
            json!({"KubeletServiceAccountTokenForCredentialProviders": false}),
            false,
        ),
    ] {
        assert_eq!(provider_tokens(gates.as_object().expect("an object")), on, "{gates}");
    }
}

#[test]
fn unknown_and_locked_gates_are_refused() {
    let judge = |gates: Value| mistakes(gates.as_object().expect("an object"));
    assert!(judge(json!({"GracefulNodeShutdown": false, "AllAlpha": true, "NodeSwap": true})).is_empty());
    assert_eq!(
        judge(json!({"NodeSwap": false, "NoSuchGate": true})),
        [
            "featureGates: unrecognized feature gate: NoSuchGate",
            "featureGates: cannot set feature gate NodeSwap to false, feature is locked to true",
        ]
    );
}

#[test]
fn the_names_are_sorted_and_none_is_there_twice() {
    assert!(KNOWN.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(LOCKED_ON.iter().all(|name| KNOWN.binary_search(name).is_err()));
}
