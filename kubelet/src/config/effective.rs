//! The whole configuration as `/configz` shows it: what was written over every default. Pure.

use serde_json::{Map, Value};

/// Upstream's defaults with a configuration file (kubelet contract §1).
const DEFAULTS: &str = r#"{
  "enableServer": true, "syncFrequency": "1m0s", "fileCheckFrequency": "20s", "httpCheckFrequency": "20s",
  "address": "0.0.0.0", "port": 10250, "healthzPort": 10248, "healthzBindAddress": "127.0.0.1",
  "authentication": {"x509": {}, "webhook": {"enabled": true, "cacheTTL": "2m0s"}, "anonymous": {"enabled": false}},
  "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"}},
  "registryPullQPS": 5, "registryBurst": 10, "eventRecordQPS": 50, "eventBurst": 100, "enableDebuggingHandlers": true,
  "oomScoreAdj": -999, "streamingConnectionIdleTimeout": "4h0m0s", "nodeStatusUpdateFrequency": "10s",
  "nodeStatusReportFrequency": "5m0s", "nodeLeaseDurationSeconds": 40, "imageMinimumGCAge": "2m0s", "imageMaximumGCAge": "0s",
  "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "volumeStatsAggPeriod": "1m0s", "cgroupsPerQOS": true,
  "cgroupDriver": "cgroupfs", "cpuManagerPolicy": "none", "cpuManagerReconcilePeriod": "10s", "memoryManagerPolicy": "None",
  "topologyManagerPolicy": "none", "topologyManagerScope": "container", "runtimeRequestTimeout": "2m0s",
  "hairpinMode": "promiscuous-bridge", "maxPods": 110, "podPidsLimit": -1, "resolvConf": "/etc/resolv.conf",
  "cpuCFSQuota": true, "cpuCFSQuotaPeriod": "100ms", "nodeStatusMaxImages": 50, "maxOpenFiles": 1000000,
  "contentType": "application/vnd.kubernetes.protobuf", "kubeAPIQPS": 50, "kubeAPIBurst": 100, "serializeImagePulls": true,
  "evictionHard": {"imagefs.available": "15%", "imagefs.inodesFree": "5%", "memory.available": "100Mi",
    "nodefs.available": "10%", "nodefs.inodesFree": "5%"},
  "evictionPressureTransitionPeriod": "5m0s", "mergeDefaultEvictionSettings": false, "enableControllerAttachDetach": true,
  "makeIPTablesUtilChains": true, "iptablesMasqueradeBit": 14, "iptablesDropBit": 15, "failSwapOn": true, "failCgroupV1": true,
  "memorySwap": {}, "containerLogMaxSize": "10Mi", "containerLogMaxFiles": 5, "containerLogMaxWorkers": 1,
  "containerLogMonitorInterval": "10s", "configMapAndSecretChangeDetectionStrategy": "Watch", "enforceNodeAllocatable": ["pods"],
  "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "podLogsDir": "/var/log/pods",
  "enableSystemLogHandler": true, "enableSystemLogQuery": false, "enableProfilingHandler": true, "enableDebugFlagsHandler": true,
  "seccompDefault": false, "memoryThrottlingFactor": 0.9, "memoryReservationPolicy": "None", "registerNode": true,
  "localStorageCapacityIsolation": true, "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
  "crashLoopBackOff": {"maxContainerRestartPeriod": "5m0s"}, "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
  "userNamespaces": {"idsPerPod": 65536}, "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s",
  "logging": {"format": "text", "flushFrequency": "5s", "verbosity": 0,
    "options": {"text": {"infoBufferSize": "0"}, "json": {"infoBufferSize": "0"}}}
}"#;

/// What is different without a configuration file.
const LEGACY: &str = r#"{
  "authentication": {"webhook": {"enabled": false}, "anonymous": {"enabled": true}},
  "authorization": {"mode": "AlwaysAllow"}, "readOnlyPort": 10255, "evictionHard": null
}"#;

/// What holds: the written fields over the defaults. A written zero duration means the default.
pub(super) fn effective(written: &Map<String, Value>, from_file: bool) -> Value {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut tree = parse(DEFAULTS);
    if !from_file {
        json_patch::merge(&mut tree, &parse(LEGACY));
    }
    let defaults = tree["evictionHard"].clone();
    for (field, value) in written {
        lay(&mut tree, field, value);
    }
    if tree["mergeDefaultEvictionSettings"] == true {
        let mut hard = match defaults {
            Value::Object(_) => defaults,
            _ => parse(DEFAULTS)["evictionHard"].take(),
        };
        if let (Some(hard), Some(own)) = (
            hard.as_object_mut(),
            written.get("evictionHard").and_then(Value::as_object),
        ) {
            hard.extend(own.clone());
        }
        tree["evictionHard"] = hard;
    }
    tree["kind"] = Value::from("KubeletConfiguration");
    tree["apiVersion"] = Value::from("kubelet.config.k8s.io/v1beta1");
    tree
}

fn lay(tree: &mut Value, field: &str, value: &Value) {
    // Maps of the user's own keys are replaced as a whole, structures field by field.
    let structure = matches!(
        field,
        "authentication"
            | "authorization"
            | "x509"
            | "webhook"
            | "anonymous"
            | "logging"
            | "crashLoopBackOff"
            | "userNamespaces"
            | "options"
    );
    match value {
        Value::Object(fields) if structure => {
            if !tree[field].is_object() {
                tree[field] = Value::Object(Map::new());
            }
            for (inner, value) in fields {
                lay(&mut tree[field], inner, value);
            }
        }
        Value::Null => {}
        Value::String(text) if matches!(text.as_str(), "" | "0s" | "0") && tree.get(field).is_some() => {}
        value => tree[field] = value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(written: Value, from_file: bool) -> Value {
        effective(written.as_object().expect("an object"), from_file)
    }

    #[test]
    fn what_is_written_lies_over_the_defaults() {
        let shown = of(
            json!({"port": 5, "syncFrequency": "0s", "authentication": {"anonymous": {"enabled": true}},
                "evictionHard": {"pid.available": "5%"}}),
            true,
        );
        assert_eq!(
            (shown["port"].as_i64(), shown["syncFrequency"].as_str()),
            (Some(5), Some("1m0s"))
        );
        assert_eq!(shown["authentication"]["webhook"]["enabled"], true);
        assert_eq!(shown["authentication"]["anonymous"]["enabled"], true);
        assert_eq!(shown["evictionHard"], json!({"pid.available": "5%"}));
        assert_eq!(shown["kind"], "KubeletConfiguration");
        let merged = of(
            json!({"mergeDefaultEvictionSettings": true, "evictionHard": {"memory.available": "5%"}}),
            true,
        );
        let hard = &merged["evictionHard"];
        assert_eq!(
            (hard["memory.available"].as_str(), hard["imagefs.available"].as_str()),
            (Some("5%"), Some("15%"))
        );
    }

    #[test]
    fn without_a_file_the_older_defaults_hold() {
        let shown = of(json!({}), false);
        assert_eq!(
            (shown["readOnlyPort"].as_i64(), shown["authorization"]["mode"].as_str()),
            (Some(10255), Some("AlwaysAllow"))
        );
        assert!(shown.get("evictionHard").is_none());
    }
}
