//! The scheduler's policy file, from the flag to the profile.

use super::*;
use crate::scheduler::plugin::Plugin;

fn read(text: &str) -> Result<SchedulerConfig, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.json");
    std::fs::write(&path, text).unwrap();
    let flag = format!("--policy-config-file={}", path.display());
    let config = Config::resolve(&flags::parse([flag])).unwrap();
    scheduler_config(&config, false).map_err(|error| error.to_string())
}

#[test]
fn a_policy_file_is_read_and_a_mistake_names_flag_file_and_field() {
    let policy = |priority: &str| {
        read(&format!(
            r#"{{"kind": "Policy", "apiVersion": "v1", "priorities": [{{"name": "{priority}", "weight": 3}}]}}"#
        ))
    };
    let config = policy("MostRequestedPriority").unwrap();
    assert_eq!(config.profiles[0].scores, [(Plugin::NodeResourcesFit, 3)]);
    let error = policy("Nope").unwrap_err();
    for part in ["policy-config-file", "policy.json", "priorities[0].name"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
