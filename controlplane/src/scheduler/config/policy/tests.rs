use super::*;
use crate::scheduler::profile::Resource;

fn parse(fields: &str) -> Result<Policy, String> {
    let comma = if fields.is_empty() { "" } else { ", " };
    Policy::parse(&format!(r#"{{"kind": "Policy", "apiVersion": "v1"{comma}{fields}}}"#))
}

fn profile(fields: &str) -> Profile {
    let mut policy = parse(fields).expect(fields);
    assert_eq!(policy.config.profiles.len(), 1, "{fields}");
    policy.config.profiles.remove(0)
}

const ALWAYS: [Plugin; 2] = [Plugin::NodeUnschedulable, Plugin::TaintToleration];

#[test]
fn without_lists_the_defaults_run() {
    let profile = profile("");
    assert_eq!(
        profile.filters,
        [
            Plugin::NodeUnschedulable,
            Plugin::NodeResourcesFit,
            Plugin::NodeName,
            Plugin::NodePorts,
            Plugin::NodeAffinity,
            Plugin::TaintToleration,
            Plugin::PodTopologySpread,
            Plugin::InterPodAffinity,
        ]
    );
    assert_eq!(
        profile.scores,
        [
            (Plugin::NodeResourcesBalancedAllocation, 1),
            (Plugin::PodTopologySpread, 2),
            (Plugin::ImageLocality, 1),
            (Plugin::InterPodAffinity, 1),
            (Plugin::NodeResourcesFit, 1),
            (Plugin::NodeAffinity, 1),
            (Plugin::TaintToleration, 1),
        ]
    );
    assert_eq!((profile.args, profile.preempts), (Args::default(), true));
}

#[test]
fn with_empty_lists_only_the_mandatory_run() {
    let profile = profile(r#""predicates": [], "priorities": []"#);
    assert_eq!(profile.filters, ALWAYS);
    assert_eq!(profile.scores, []);
}

#[test]
fn every_predicate_is_its_plugins() {
    let with = |plugins: &[Plugin]| {
        let mut all = vec![Plugin::NodeUnschedulable];
        plugins.iter().for_each(|plugin| add(&mut all, *plugin));
        let late = [Plugin::PodTopologySpread, Plugin::InterPodAffinity];
        let at = all.iter().position(|plugin| late.contains(plugin)).unwrap_or(all.len());
        if !all.contains(&Plugin::TaintToleration) {
            all.insert(at, Plugin::TaintToleration);
        }
        all
    };
    let table: [(&str, &[Plugin]); 14] = [
        ("CheckNodeUnschedulable", &[]),
        (
            "GeneralPredicates",
            &[
                Plugin::NodeResourcesFit,
                Plugin::NodeName,
                Plugin::NodePorts,
                Plugin::NodeAffinity,
            ],
        ),
        ("HostName", &[Plugin::NodeName]),
        ("PodFitsHostPorts", &[Plugin::NodePorts]),
        ("PodFitsPorts", &[Plugin::NodePorts]),
        ("MatchNodeSelector", &[Plugin::NodeAffinity]),
        ("PodFitsResources", &[Plugin::NodeResourcesFit]),
        ("PodToleratesNodeTaints", &[]),
        ("CheckNodeCondition", &[]),
        ("CheckNodeMemoryPressure", &[]),
        ("CheckNodeDiskPressure", &[]),
        ("CheckNodePIDPressure", &[]),
        ("EvenPodsSpread", &[Plugin::PodTopologySpread]),
        ("MatchInterPodAffinity", &[Plugin::InterPodAffinity]),
    ];
    for (name, plugins) in table {
        let filters = profile(&format!(r#""predicates": [{{"name": "{name}"}}]"#)).filters;
        assert_eq!(filters, with(plugins), "{name}");
    }
    // In their own order, whatever the file's is.
    let mixed =
        r#""predicates": [{"name": "MatchInterPodAffinity"}, {"name": "PodFitsResources"}, {"name": "HostName"}]"#;
    let expected = [
        Plugin::NodeUnschedulable,
        Plugin::NodeName,
        Plugin::NodeResourcesFit,
        Plugin::TaintToleration,
        Plugin::InterPodAffinity,
    ];
    assert_eq!(profile(mixed).filters, expected);
}

#[test]
fn every_priority_is_its_plugin_with_its_weight() {
    let one = |name: &str| profile(&format!(r#""priorities": [{{"name": "{name}", "weight": 7}}]"#));
    let table = [
        ("LeastRequestedPriority", Plugin::NodeResourcesFit),
        ("MostRequestedPriority", Plugin::NodeResourcesFit),
        ("BalancedResourceAllocation", Plugin::NodeResourcesBalancedAllocation),
        ("SelectorSpreadPriority", Plugin::PodTopologySpread),
        ("ServiceSpreadingPriority", Plugin::PodTopologySpread),
        ("EvenPodsSpreadPriority", Plugin::PodTopologySpread),
        ("InterPodAffinityPriority", Plugin::InterPodAffinity),
        ("NodeAffinityPriority", Plugin::NodeAffinity),
        ("TaintTolerationPriority", Plugin::TaintToleration),
        ("ImageLocalityPriority", Plugin::ImageLocality),
    ];
    for (name, plugin) in table {
        let profile = one(name);
        assert_eq!(profile.scores, [(plugin, 7)], "{name}");
        let most = name == "MostRequestedPriority";
        assert_eq!(profile.args.fit.strategy == Strategy::MostAllocated, most, "{name}");
        // Pods without constraints of their own are spread only where somebody asks for that.
        let spreads = ["SelectorSpreadPriority", "ServiceSpreadingPriority"].contains(&name);
        assert_eq!(profile.args.spread == SpreadDefaults::System, spreads, "{name}");
    }
    assert_eq!(one("EqualPriority").scores, []);
}

#[test]
fn two_priorities_of_one_plugin_have_one_weight() {
    let spread = |selector: i64, even: i64| {
        profile(&format!(
            r#""priorities": [{{"name": "SelectorSpreadPriority", "weight": {selector}}}, {{"name": "EvenPodsSpreadPriority", "weight": {even}}}]"#
        ))
    };
    assert_eq!(spread(9, 2).scores, [(Plugin::PodTopologySpread, 2)]);
    assert_eq!(spread(1, 5).scores, [(Plugin::PodTopologySpread, 5)]);
    let twice = r#""priorities": [{"name": "ImageLocalityPriority", "weight": 1}, {"name": "ImageLocalityPriority", "weight": 3}]"#;
    assert_eq!(profile(twice).scores, [(Plugin::ImageLocality, 3)]);
}

#[test]
fn a_ratio_of_ones_own_is_scaled() {
    let profile = profile(
        r#""priorities": [{"name": "Mine", "weight": 4, "argument": {"requestedToCapacityRatioArguments": {
            "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            "resources": [{"name": "example.com/gpu", "weight": 3}, {"name": "cpu"}]}}}]"#,
    );
    assert_eq!(profile.scores, [(Plugin::NodeResourcesFit, 4)]);
    let expected = Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)]);
    assert_eq!(profile.args.fit.strategy, expected);
    let resources = vec![(Resource::Scalar("example.com/gpu".to_owned()), 3), (Resource::Cpu, 1)];
    assert_eq!(profile.args.fit.resources, resources);
}

#[test]
fn weights_and_extenders_of_old() {
    let policy = parse(
        r#""hardPodAffinitySymmetricWeight": 10, "extenders": [{"urlPrefix": "http://127.0.0.1:1/x", "apiVersion": "v1",
            "filterVerb": "filter", "preemptVerb": "preempt", "prioritizeVerb": "score", "weight": 2, "enableHttps": false,
            "httpTimeout": 30000000000, "nodeCacheCapable": true,
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}]}]"#,
    )
    .expect("a policy");
    let [extender] = policy.config.extenders.as_slice() else {
        panic!("one extender");
    };
    assert_eq!(
        (extender.filter.as_str(), extender.preempt.as_str()),
        ("filter", "preempt")
    );
    assert_eq!((extender.timeout.as_secs(), extender.weight), (30, 2));
    let args = &policy.config.profiles[0].args;
    assert_eq!(args.hard_pod_affinity_weight, 10);
    assert_eq!(args.fit.ignored, ["example.com/gpu"]);
    assert_eq!(
        profile(r#""hardPodAffinitySymmetricWeight": 0"#)
            .args
            .hard_pod_affinity_weight,
        1
    );
}

#[test]
fn what_does_nothing_here_is_told_by_field() {
    let policy = parse(
        r#""predicates": [{"name": "HostName"}, {"name": "NoDiskConflict"}, {"name": "CheckVolumeBinding"}],
           "priorities": [{"name": "NodePreferAvoidPodsPriority", "weight": 10000}]"#,
    )
    .expect("a policy");
    let fields: Vec<&str> = policy
        .warnings
        .iter()
        .filter_map(|warning| warning.split(": ").next())
        .collect();
    assert_eq!(
        fields,
        ["predicates[1].name", "predicates[2].name", "priorities[0].name"]
    );
    assert_eq!(policy.config.profiles[0].scores, []);
    assert!(parse("").expect("a policy").warnings.is_empty());
}

#[test]
fn mistakes_name_their_field() {
    let predicate = |words: &str| format!(r#""predicates": [{{"name": "HostName"}}, {words}]"#);
    let priority = |words: &str| format!(r#""priorities": [{{"name": "EqualPriority", "weight": 1}}, {words}]"#);
    let ratio = |words: &str| {
        priority(&format!(
            r#"{{"name": "r", "weight": 1, "argument": {{"requestedToCapacityRatioArguments": {words}}}}}"#
        ))
    };
    let table = [
        (predicate(r#"{"name": "Hostname"}"#), r#"predicates[1].name: predicate type not found for "Hostname""#),
        (predicate(r#"{"name": "CheckNodeLabelPresence"}"#), "predicates[1].name"),
        (predicate(r#"{"name": "CheckServiceAffinity"}"#), "predicates[1].name"),
        (
            predicate(r#"{"name": "x", "argument": {"labelsPresence": {"labels": ["a"], "presence": true}}}"#),
            "predicates[1].argument.labelsPresence",
        ),
        (
            predicate(r#"{"name": "x", "argument": {"serviceAffinity": {"labels": ["a"]}}}"#),
            "predicates[1].argument.serviceAffinity",
        ),
        (predicate(r#"{"name": "x", "argument": {}}"#), "predicates[1].argument: exactly 1"),
        (predicate(r#"{"name": "HostName", "weight": 1}"#), "weight"),
        (priority(r#"{"name": "x", "weight": 1}"#), r#"priorities[1].name: priority type not found for "x""#),
        (priority(r#"{"name": "ImageLocalityPriority"}"#), "priorities[1].weight"),
        (priority(r#"{"name": "ImageLocalityPriority", "weight": -1}"#), "priorities[1].weight"),
        (
            priority(r#"{"name": "ImageLocalityPriority", "weight": 1000001}"#),
            "priorities[1].weight",
        ),
        (
            priority(r#"{"name": "x", "weight": 1, "argument": {"labelPreference": {"label": "a", "presence": true}}}"#),
            "priorities[1].argument.labelPreference",
        ),
        (
            priority(r#"{"name": "x", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "a"}}}"#),
            "priorities[1].argument.serviceAntiAffinity",
        ),
        (
            priority(r#"{"name": "x", "weight": 1, "argument": {}}"#),
            "priorities[1].argument: exactly 1",
        ),
        (
            priority(r#"{"name": "RequestedToCapacityRatio", "weight": 1}"#),
            "priorities[1].argument.requestedToCapacityRatioArguments",
        ),
        (
            r#""priorities": [{"name": "LeastRequestedPriority", "weight": 1}, {"name": "MostRequestedPriority", "weight": 1}]"#
                .to_owned(),
            "priorities[1].name: MostRequestedPriority",
        ),
        (
            ratio(r#"{"shape": []}"#),
            "priorities[1].argument.requestedToCapacityRatioArguments.shape",
        ),
        (
            ratio(r#"{"shape": [{"utilization": 0, "score": 11}]}"#),
            "priorities[1].argument.requestedToCapacityRatioArguments.shape[0].score",
        ),
        (
            ratio(r#"{"shape": [{"utilization": 0, "score": 1}], "resources": [{"name": "cpu", "weight": 101}]}"#),
            "priorities[1].argument.requestedToCapacityRatioArguments.resources[0].weight",
        ),
        (
            r#""hardPodAffinitySymmetricWeight": 101"#.to_owned(),
            "hardPodAffinitySymmetricWeight",
        ),
        (
            r#""hardPodAffinitySymmetricWeight": -1"#.to_owned(),
            "hardPodAffinitySymmetricWeight",
        ),
        (
            r#""alwaysCheckAllPredicates": true"#.to_owned(),
            "alwaysCheckAllPredicates",
        ),
        (r#""extenders": [{"urlPrefix": "x"}]"#.to_owned(), "extenders[0].urlPrefix"),
        (r#""predicate": []"#.to_owned(), "predicate"),
    ];
    for (fields, part) in table {
        let error = parse(&fields).expect_err(&fields);
        assert!(error.contains(part), "{fields}: {error}");
    }
    for other in [
        r#"{"kind": "Policy", "apiVersion": "v2"}"#,
        r#"{"kind": "KubeSchedulerConfiguration", "apiVersion": "v1"}"#,
    ] {
        assert!(
            Policy::parse(other).expect_err(other).contains("want v1 Policy"),
            "{other}"
        );
    }
}
