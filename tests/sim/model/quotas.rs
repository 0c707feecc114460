//! Quotas: nothing is made that would use more of a namespace than its quota gives.

use super::capacity::thousandths;
use super::pods::is_terminal;
use super::{World, name};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is judged: a quota's name for it, and where its objects are.
const COUNTED: [(&str, &str); 2] = [("pods", "/registry/pods/"), ("configmaps", "/registry/configmaps/")];
const CPU: &str = "requests.cpu";

/// What a namespace uses of what is judged, in thousandths. `now`: pods that had to end before count no more.
pub fn used(objects: &BTreeMap<String, Value>, space: &str, now: &str) -> BTreeMap<&'static str, i64> {
    let mut used = BTreeMap::from([(CPU, 0)]);
    for (resource, path) in COUNTED {
        let prefix = format!("{path}{space}/");
        let all = objects
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix));
        let counts = |object: &Value| {
            let ends = object["metadata"]["deletionTimestamp"].as_str();
            !is_terminal(object) && ends.is_none_or(|ends| ends > now)
        };
        let all: Vec<&Value> = all.map(|(_, object)| object).filter(|object| counts(object)).collect();
        used.insert(resource, 1000 * i64::try_from(all.len()).unwrap_or(i64::MAX));
        if resource == "pods" {
            let containers = all
                .iter()
                .filter_map(|pod| pod["spec"]["containers"].as_array())
                .flatten();
            let cpu = containers.filter_map(|c| thousandths(c["resources"]["requests"]["cpu"].as_str()?));
            used.insert(CPU, cpu.sum());
        }
    }
    used
}

/// Judges an object that has just been made.
pub fn judge(world: &World<'_>, key: &str, made: &Value) -> Vec<String> {
    let Some((of, _)) = COUNTED.iter().find(|(_, path)| key.starts_with(path)) else {
        return Vec::new();
    };
    let space = made["metadata"]["namespace"].as_str().unwrap_or_default();
    let prefix = format!("/registry/resourcequotas/{space}/");
    let mut told = Vec::new();
    for quota in world.under(&prefix).filter(|quota| quota["status"]["hard"].is_object()) {
        let now = made["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        for (resource, amount) in used(world.objects, space, now) {
            let concerns = resource == *of || (resource == CPU && *of == "pods");
            let hard = quota["spec"]["hard"][resource].as_str().and_then(thousandths);
            if let Some(hard) = hard.filter(|hard| concerns && amount > *hard) {
                let name = name(made);
                told.push(format!(
                    "{name} exceeds the quota of {space}: {resource} {amount} of {hard} (thousandths)"
                ));
            }
        }
    }
    told
}
