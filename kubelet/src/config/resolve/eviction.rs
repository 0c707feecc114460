//! When pods must go because the node runs short (kubelet contract §1, §10).

use super::Reader;
use crate::config::{KubeletConfiguration, duration};
use crate::eviction::threshold::{Amount, Rules, Signal, Threshold};
use client::ordered::CollectOrdered;
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is kept free where nothing else is said, with a configuration file.
const DEFAULT_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];
const TRANSITION: Duration = Duration::from_secs(300);

type Texts = BTreeMap<String, String>;

/// The hard thresholds as they hold: what is written, the defaults, or both.
fn hard(written: &KubeletConfiguration, from_file: bool) -> Texts {
    let defaults = || -> Texts {
        DEFAULT_HARD
            .map(|(signal, amount)| (signal.to_owned(), amount.to_owned()))
            .into()
    };
    let merges = written.merge_default_eviction_settings.unwrap_or(false);
    match &written.eviction_hard {
        Some(own) if merges => defaults().into_iter().chain(own.clone()).collect_ordered(),
        Some(own) => own.clone(),
        None if from_file || merges => defaults(),
        None => Texts::new(),
    }
}

/// What stands for each signal in a field; what cannot be read is a mistake that names both.
fn each<T>(
    reader: &mut Reader,
    field: &str,
    texts: Option<&Texts>,
    read: impl Fn(&str) -> Result<Option<T>, String>,
) -> BTreeMap<Signal, T> {
    let mut found = BTreeMap::new();
    for (name, text) in texts.into_iter().flatten() {
        let Some(signal) = Signal::parse(name) else {
            reader.wrong(field, format!("unsupported eviction signal {name}"));
            continue;
        };
        match read(text) {
            Ok(Some(value)) => drop(found.insert(signal, value)),
            Ok(None) => {}
            Err(why) => reader.wrong(field, format!("{name}: {why}")),
        }
    }
    found
}

/// A threshold's amount; nothing of one that is switched off.
fn amount(text: &str) -> Result<Option<Amount>, String> {
    let Some(number) = text.strip_suffix('%') else {
        return match Quantity::parse(text) {
            Ok(amount) if amount.is_negative() || amount.is_zero() => {
                Err(format!("eviction threshold must be positive: {text}"))
            }
            Ok(amount) => Ok(Some(Amount::Quantity(amount))),
            Err(_) => Err(format!("{text:?} is not a quantity")),
        };
    };
    match number.parse::<f32>() {
        Ok(percent) if percent < 0.0 => Err(format!("eviction percentage threshold must be >= 0%: {text}")),
        Ok(percent) if percent > 100.0 => Err(format!("eviction percentage threshold must be <= 100%: {text}")),
        Ok(percent) if percent.is_nan() => Err(format!("{text:?} is not a percentage between 0% and 100%")),
        Ok(_) if matches!(text, "0%" | "100%") => Ok(None),
        Ok(percent) => Ok(Some(Amount::Percent(percent))),
        Err(_) => Err(format!("{text:?} is not a percentage between 0% and 100%")),
    }
}

/// A minimum reclaim.
fn reclaim(text: &str) -> Result<Option<Amount>, String> {
    let Some(number) = text.strip_suffix('%') else {
        return match Quantity::parse(text) {
            Ok(amount) if amount.is_negative() => Err(format!("negative eviction minimum reclaim specified: {text}")),
            Ok(amount) => Ok(Some(Amount::Quantity(amount))),
            Err(_) => Err(format!("{text:?} is not a quantity")),
        };
    };
    match number.parse::<f32>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Some(Amount::Percent(percent))),
        Ok(_) => Err(format!(
            "eviction percentage minimum reclaim must be positive and at most 100%: {text}"
        )),
        Err(_) => Err(format!("{text:?} is not a percentage")),
    }
}

/// Whether a soft threshold is only met once the hard one is.
fn is_beneath(soft: Amount, hard: Amount) -> bool {
    match (soft, hard) {
        (Amount::Quantity(soft), Amount::Quantity(hard)) => soft < hard,
        (Amount::Percent(soft), Amount::Percent(hard)) => soft < hard,
        // Which is more is only known of a machine.
        _ => false,
    }
}

pub(super) fn rules(
    reader: &mut Reader,
    written: &KubeletConfiguration,
    from_file: bool,
    enforces_pods: bool,
) -> Rules {
    let hard = each(reader, "evictionHard", Some(&hard(written, from_file)), amount);
    let soft = each(reader, "evictionSoft", written.eviction_soft.as_ref(), amount);
    let graces = written.eviction_soft_grace_period.as_ref();
    let graces = each(reader, "evictionSoftGracePeriod", graces, |text| {
        duration::parse(text).map(Some)
    });
    let reclaims = written.eviction_minimum_reclaim.as_ref();
    let reclaims = each(reader, "evictionMinimumReclaim", reclaims, reclaim);
    let mut thresholds = Vec::new();
    let mut add = |signal, amount, grace| {
        thresholds.push(Threshold {
            signal,
            amount,
            grace,
            reclaim: reclaims.get(&signal).copied(),
        });
    };
    for (signal, amount) in &hard {
        add(*signal, *amount, Duration::ZERO);
    }
    for (signal, amount) in &soft {
        let name = signal.as_str();
        match graces.get(signal) {
            Some(grace) => add(*signal, *amount, *grace),
            None => reader.wrong(
                "evictionSoft",
                format!("grace period must be specified for the soft eviction threshold {name}"),
            ),
        }
        if hard.get(signal).is_some_and(|hard| is_beneath(*amount, *hard)) {
            reader.wrong(
                "evictionSoft",
                format!("{name}: is less than the hard threshold (evictionHard), which would always be met first"),
            );
        }
    }
    // All pods together are limited to what is allocatable: before they reach that, pods go.
    if enforces_pods && let Some(amount) = hard.get(&Signal::MemoryAvailable) {
        thresholds.push(Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            amount: *amount,
            grace: Duration::ZERO,
            reclaim: reclaims.get(&Signal::MemoryAvailable).copied(),
        });
    }
    let transition = written.eviction_pressure_transition_period.as_deref();
    let grace = written.eviction_max_pod_grace_period;
    Rules {
        thresholds,
        transition: reader.time("evictionPressureTransitionPeriod", transition, TRANSITION),
        grace_seconds_max: reader.range(
            "evictionMaxPodGracePeriod",
            grace,
            0,
            i64::from(i32::MIN),
            i64::from(i32::MAX),
        ),
    }
}

/// What is written and counts for nothing.
pub(in crate::config) fn warnings(written: &KubeletConfiguration) -> Vec<String> {
    let mut warnings = Vec::new();
    let names =
        |texts: &Option<Texts>| -> Vec<String> { texts.iter().flat_map(|texts| texts.keys().cloned()).collect() };
    for (field, texts) in [
        ("evictionHard", &written.eviction_hard),
        ("evictionSoft", &written.eviction_soft),
    ] {
        for name in names(texts).iter().filter(|name| name.starts_with("containerfs.")) {
            warnings.push(format!(
                "{field}: {name} is ignored: it follows nodefs or imagefs, wherever containers' layers are"
            ));
        }
    }
    let soft = names(&written.eviction_soft);
    for name in names(&written.eviction_soft_grace_period) {
        if !soft.contains(&name) {
            warnings.push(format!(
                "evictionSoftGracePeriod: {name} has no effect without a threshold in evictionSoft"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, resolve};
    use serde_json::{Value, json};

    fn resolved(tree: Value, from_file: bool) -> Result<Rules, Vec<String>> {
        let written = KubeletConfiguration::of(&tree);
        resolve(&written, &Flags::default(), from_file).map(|config| config.eviction)
    }

    /// Signals with their amounts; grace and reclaim where there are some.
    fn shown(rules: &Rules) -> Vec<String> {
        let text = |amount: Amount| match amount {
            Amount::Quantity(quantity) => quantity.to_api().0,
            Amount::Percent(percent) => format!("{percent}%"),
        };
        let all = rules.thresholds.iter().map(|threshold| {
            let grace = if threshold.is_hard() {
                String::new()
            } else {
                format!(" {:?}", threshold.grace)
            };
            let reclaim = threshold
                .reclaim
                .map(|amount| format!(" +{}", text(amount)))
                .unwrap_or_default();
            format!(
                "{}<{}{grace}{reclaim}",
                threshold.signal.as_str(),
                text(threshold.amount)
            )
        });
        all.collect()
    }

    const DEFAULTS: [&str; 6] = [
        "memory.available<100Mi",
        "nodefs.available<10%",
        "nodefs.inodesFree<5%",
        "imagefs.available<15%",
        "imagefs.inodesFree<5%",
        "allocatableMemory.available<100Mi",
    ];

    #[test]
    fn a_file_brings_the_defaults_and_some_keys_replace_or_join_them() {
        let of = |tree: Value, from_file| shown(&resolved(tree, from_file).expect("sound"));
        assert_eq!(of(json!({}), true), DEFAULTS);
        assert_eq!(of(json!({}), false), Vec::<String>::new());
        assert_eq!(of(json!({"evictionHard": {}}), true), Vec::<String>::new());
        assert_eq!(
            of(json!({"evictionHard": {"pid.available": "5%"}}), true),
            ["pid.available<5%"]
        );
        let merged = json!({"mergeDefaultEvictionSettings": true, "evictionHard": {"memory.available": "1Gi", "pid.available": "5%"}});
        let merged = of(merged, true);
        assert_eq!(merged.len(), 7);
        assert_eq!(merged[0], "memory.available<1Gi");
        assert_eq!(merged[1..5], DEFAULTS[1..5]);
        assert_eq!(merged[5..], ["pid.available<5%", "allocatableMemory.available<1Gi"]);
        let off = json!({"mergeDefaultEvictionSettings": true, "evictionHard": {"memory.available": "0%", "nodefs.available": "100%"}});
        assert_eq!(of(off, true), [DEFAULTS[2], DEFAULTS[3], DEFAULTS[4]]);
        let unenforced = json!({"enforceNodeAllocatable": ["none"], "evictionHard": {"memory.available": "1Gi"}});
        assert_eq!(of(unenforced, true), ["memory.available<1Gi"]);
    }

    #[test]
    fn soft_thresholds_have_a_grace_and_reclaims_go_with_both() {
        let rules = resolved(
            json!({"evictionHard": {"memory.available": "1Gi"}, "evictionSoft": {"memory.available": "2Gi"},
                "evictionSoftGracePeriod": {"memory.available": "1m30s"}, "evictionMinimumReclaim": {"memory.available": "5%"},
                "evictionPressureTransitionPeriod": "1m", "evictionMaxPodGracePeriod": 60}),
            true,
        )
        .expect("sound");
        let expected = [
            "memory.available<1Gi +5%",
            "memory.available<2Gi 90s +5%",
            "allocatableMemory.available<1Gi +5%",
        ];
        assert_eq!(shown(&rules), expected);
        assert_eq!((rules.transition.as_secs(), rules.grace_seconds_max), (60, 60));
        let zero = resolved(json!({"evictionPressureTransitionPeriod": "0s"}), true).expect("sound");
        assert_eq!(zero.transition, TRANSITION);
    }

    #[test]
    fn what_is_malformed_or_contradicts_is_refused_by_name() {
        for (tree, wrong) in [
            (
                json!({"evictionHard": {"memory.free": "1"}}),
                "evictionHard: unsupported eviction signal memory.free",
            ),
            (
                json!({"evictionHard": {"memory.available": "x"}}),
                "evictionHard: memory.available: \"x\" is not a quantity",
            ),
            (
                json!({"evictionHard": {"memory.available": "0"}}),
                "evictionHard: memory.available: eviction threshold must be positive: 0",
            ),
            (
                json!({"evictionHard": {"memory.available": "-1Mi"}}),
                "evictionHard: memory.available: eviction threshold must be positive",
            ),
            (
                json!({"evictionHard": {"nodefs.available": "101%"}}),
                "evictionHard: nodefs.available: eviction percentage threshold must be <= 100%",
            ),
            (
                json!({"evictionHard": {"nodefs.available": "-1%"}}),
                "evictionHard: nodefs.available: eviction percentage threshold must be >= 0%",
            ),
            (
                json!({"evictionHard": {"nodefs.available": "NaN%"}}),
                "evictionHard: nodefs.available: \"NaN%\" is not a percentage",
            ),
            (
                json!({"evictionSoft": {"pid.available": "5%"}}),
                "evictionSoft: grace period must be specified for the soft eviction threshold pid.available",
            ),
            (
                json!({"evictionSoft": {"memory.available": "50Mi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}),
                "evictionSoft: memory.available: is less than the hard threshold",
            ),
            (
                json!({"evictionSoftGracePeriod": {"memory.available": "soon"}}),
                "evictionSoftGracePeriod: memory.available: ",
            ),
            (
                json!({"evictionMinimumReclaim": {"memory.available": "-1"}}),
                "evictionMinimumReclaim: memory.available: negative",
            ),
            (
                json!({"evictionMinimumReclaim": {"memory.available": "0%"}}),
                "evictionMinimumReclaim: memory.available: eviction percentage",
            ),
            (
                json!({"evictionPressureTransitionPeriod": "x"}),
                "evictionPressureTransitionPeriod: ",
            ),
        ] {
            let mistakes = resolved(tree.clone(), true).expect_err("mistakes");
            assert!(
                mistakes.len() == 1 && mistakes[0].starts_with(wrong),
                "{tree}: {mistakes:?}"
            );
        }
    }

    #[test]
    fn what_counts_for_nothing_is_told() {
        let of = |tree: Value| warnings(&KubeletConfiguration::of(&tree));
        assert!(of(json!({"evictionHard": {"memory.available": "1Gi"}})).is_empty());
        let told = of(
            json!({"evictionHard": {"containerfs.available": "1Gi"}, "evictionSoftGracePeriod": {"pid.available": "1m"}}),
        );
        assert!(
            told[0].contains("evictionHard: containerfs.available")
                && told[1].contains("evictionSoftGracePeriod: pid.available"),
            "{told:?}"
        );
    }
}
