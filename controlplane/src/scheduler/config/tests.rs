use super::*;
use crate::scheduler::plugin::Plugin;
use crate::scheduler::profile::{Resource, SpreadDefaults, Strategy};

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn parse(text: &str) -> Result<SchedulerConfig, String> {
    SchedulerConfig::parse(&format!("{HEAD}{text}"))
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(parse(""), Ok(SchedulerConfig::default()));
    assert_eq!(parse("profiles: [{}]\n"), Ok(SchedulerConfig::default()));
    let profile = &SchedulerConfig::default().profiles[0];
    let weights: Vec<(&str, i64)> = profile
        .scores
        .iter()
        .map(|(plugin, weight)| (plugin.name(), *weight))
        .collect();
    let upstream = [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ];
    assert_eq!(weights, upstream);
}

#[test]
fn leader_election_may_be_said_in_part() {
    let config = parse("leaderElection: {leaderElect: true, leaseDuration: 1m, resourceName: mine}\n").unwrap();
    let expected = ElectionWords {
        is_on: Some(true),
        lease: Some(Duration::from_secs(60)),
        name: Some("mine".to_owned()),
        ..ElectionWords::default()
    };
    assert_eq!(config.election, expected);
}

#[test]
fn profiles_choose_plugins_and_weights() {
    let text = "
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  percentageOfNodesToScore: 100
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}, {name: DefaultPreemption}]
    score:
      disabled: [{name: TaintToleration}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
    filter:
      disabled: [{name: NodePorts}]
";
    let config = parse(text).unwrap();
    assert_eq!(config.backoff.first, Duration::from_secs(2));
    assert_eq!(config.backoff.cap, Duration::from_secs(20));
    let [first, packed] = config.profiles.as_slice() else {
        panic!("two profiles")
    };
    assert_eq!((first.percentage, packed.percentage), (30, 100));
    assert_eq!(packed.name, "packed");
    assert!(first.preempts && !packed.preempts);
    let has = |plugin| {
        packed
            .scores
            .iter()
            .find(|(known, _)| *known == plugin)
            .map(|(_, weight)| *weight)
    };
    assert_eq!(has(Plugin::NodeResourcesFit), Some(5));
    assert_eq!(has(Plugin::TaintToleration), None);
    assert_eq!(has(Plugin::ImageLocality), None);
    assert_eq!(has(Plugin::InterPodAffinity), Some(2));
    assert!(!packed.filters.contains(&Plugin::NodePorts));
    assert!(
        packed.filters.contains(&Plugin::TaintToleration),
        "only its score is left out"
    );
    let alone = parse(
        "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: SchedulingGates}, {name: PrioritySort}, \
         {name: DefaultBinder}, {name: NodeResourcesFit}]}}}]\n",
    );
    let alone = &alone.unwrap().profiles[0];
    assert_eq!(alone.filters, [Plugin::NodeResourcesFit]);
    assert_eq!(alone.scores, [(Plugin::NodeResourcesFit, 1)]);
    assert!(!alone.preempts);
}

#[test]
fn plugins_are_told_their_arguments() {
    let text = "
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      kind: NodeResourcesFitArgs
      apiVersion: kubescheduler.config.k8s.io/v1
      ignoredResources: [example.com/foo]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}, {name: example.com/gpu}]
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 7, ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: pool, operator: In, values: [a]}]
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 50, minCandidateNodesAbsolute: 7}
";
    let args = parse(text).unwrap().profiles.remove(0).args;
    assert_eq!(args.fit.ignored, ["example.com/foo"]);
    assert_eq!(
        args.fit.strategy,
        Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)])
    );
    let gpu = Resource::Scalar("example.com/gpu".into());
    assert_eq!(args.fit.resources, [(Resource::Cpu, 3), (gpu, 1)]);
    assert_eq!(args.hard_pod_affinity_weight, 7);
    assert!(args.ignore_preferred_terms_of_existing_pods);
    assert_eq!(args.spread, SpreadDefaults::List(vec![("rack".into(), 2, true)]));
    assert!(args.added_affinity.is_some());
    assert_eq!(args.candidates, (50, 7));
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let plugin = |name: &str, args: &str| format!("profiles: [{{pluginConfig: [{{name: {name}, args: {args}}}]}}]\n");
    let plugins = |text: &str| format!("profiles: [{{plugins: {text}}}]\n");
    let table = [
        ("nodes: 3\n".to_owned(), "nodes"),
        ("parallelism: 4\n".to_owned(), "parallelism"),
        ("clientConnection: {qps: 5}\n".to_owned(), "clientConnection"),
        (
            "leaderElection: {leaseDuration: 15}\n".to_owned(),
            "leaderElection.leaseDuration: \"15\"",
        ),
        (
            "leaderElection: {renewDeadline: 20s}\n".to_owned(),
            "renew-deadline must be less",
        ),
        (
            "leaderElection: {resourceLock: endpoints}\n".to_owned(),
            "leaderElection.resourceLock",
        ),
        (
            "leaderElection: {resourceName: ''}\n".to_owned(),
            "leaderElection.resourceName",
        ),
        ("leaderElection: {leader: true}\n".to_owned(), "leader"),
        ("percentageOfNodesToScore: 101\n".to_owned(), "percentageOfNodesToScore"),
        ("podInitialBackoffSeconds: 0\n".to_owned(), "podInitialBackoffSeconds"),
        (
            "podInitialBackoffSeconds: 4294967296\n".to_owned(),
            "podInitialBackoffSeconds: must be at most 4294967295",
        ),
        (
            "podMaxBackoffSeconds: 9223372036854775807\n".to_owned(),
            "podMaxBackoffSeconds: must be at most 4294967295",
        ),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n".to_owned(),
            "podMaxBackoffSeconds",
        ),
        ("profiles: [{}, {}]\n".to_owned(), "profiles[1].schedulerName"),
        (
            "profiles: [{schedulerName: ''}]\n".to_owned(),
            "profiles[0].schedulerName",
        ),
        (
            plugins("{filter: {enabled: [{name: Nope}]}}"),
            "profiles[0].plugins.filter.enabled[0]",
        ),
        (
            plugins("{score: {disabled: [{name: VolumeBinding}]}}"),
            "VolumeBinding is not supported",
        ),
        (plugins("{filter: {enabled: [{name: ImageLocality}]}}"), "ImageLocality"),
        (
            plugins("{queueSort: {disabled: [{name: '*'}]}}"),
            "PrioritySort cannot be disabled",
        ),
        (
            plugins("{multiPoint: {disabled: [{name: DefaultBinder}]}}"),
            "DefaultBinder cannot be disabled",
        ),
        (
            plugins("{preFilter: {disabled: [{name: NodePorts}]}}"),
            "plugins.preFilter",
        ),
        (plugins("{permit: {enabled: [{name: NodePorts}]}}"), "plugins.permit"),
        (
            plugins("{score: {enabled: [{name: ImageLocality, weight: -1}]}}"),
            "score.enabled[0].weight",
        ),
        (plugin("NodeName", "{}"), "pluginConfig[0].name"),
        (plugin("NodeResourcesFit", "{scoring: 1}"), "scoring"),
        (plugin("NodeResourcesFit", "{kind: InterPodAffinityArgs}"), "args.kind"),
        (
            plugin("NodeResourcesFit", "{scoringStrategy: {type: Best}}"),
            "args.scoringStrategy.type",
        ),
        (
            plugin(
                "NodeResourcesFit",
                "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            ),
            "shape",
        ),
        (
            plugin("InterPodAffinity", "{hardPodAffinityWeight: 101}"),
            "args.hardPodAffinityWeight",
        ),
        (
            plugin("PodTopologySpread", "{defaultingType: Some}"),
            "args.defaultingType",
        ),
        (
            plugin("NodeAffinity", "{addedAffinity: {required: 1}}"),
            "args.addedAffinity",
        ),
        (
            plugin("DefaultPreemption", "{minCandidateNodesPercentage: -1}"),
            "args.minCandidateNodesPercentage",
        ),
    ];
    for (text, named) in table {
        let error = parse(&text).expect_err(&text);
        assert!(error.contains(named), "{text}: {error}");
    }
    assert!(
        SchedulerConfig::parse("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n")
            .is_err()
    );
}
