//! Which plugins a profile runs, by what it enables and disables. Pure.

use crate::scheduler::plugin::{Plugin, Point};
use crate::scheduler::profile::Profile;
use serde::Deserialize;

/// Upstream's plugins that nothing here stands for yet.
const UNSUPPORTED: [&str; 5] = [
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "DynamicResources",
];
/// Those that run in every profile.
const NEEDED: [Plugin; 3] = [Plugin::SchedulingGates, Plugin::PrioritySort, Plugin::DefaultBinder];
const WEIGHT_MAX: i64 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    weight: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Set {
    #[serde(default)]
    enabled: Vec<Entry>,
    #[serde(default)]
    disabled: Vec<Entry>,
}

/// What a profile says of plugins.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plugins {
    #[serde(default)]
    multi_point: Set,
    #[serde(default)]
    pre_enqueue: Set,
    #[serde(default)]
    queue_sort: Set,
    #[serde(default)]
    pre_filter: Set,
    #[serde(default)]
    filter: Set,
    #[serde(default)]
    post_filter: Set,
    #[serde(default)]
    pre_score: Set,
    #[serde(default)]
    score: Set,
    #[serde(default)]
    reserve: Set,
    #[serde(default)]
    permit: Set,
    #[serde(default)]
    pre_bind: Set,
    #[serde(default)]
    bind: Set,
    #[serde(default)]
    post_bind: Set,
}

fn named(field: &str, name: &str) -> Result<Plugin, String> {
    if UNSUPPORTED.contains(&name) {
        return Err(format!("{field}: plugin {name} is not supported yet"));
    }
    let found = Plugin::ALL.into_iter().find(|plugin| plugin.name() == name);
    found.ok_or_else(|| format!("{field}: plugin {name:?} does not exist"))
}

/// One [`Set`] with its names understood.
struct Choice {
    enabled: Vec<(Plugin, Option<i64>)>,
    disabled: Vec<Plugin>,
    disables_all: bool,
}

impl Set {
    fn read(&self, field: &str) -> Result<Choice, String> {
        let mut choice = Choice {
            enabled: Vec::new(),
            disabled: Vec::new(),
            disables_all: false,
        };
        for (index, entry) in self.enabled.iter().enumerate() {
            let at = format!("{field}.enabled[{index}]");
            let plugin = named(&at, &entry.name)?;
            if choice.enabled.iter().any(|(known, _)| *known == plugin) {
                return Err(format!("{at}: plugin {} is enabled twice", entry.name));
            }
            let weight = entry.weight.filter(|weight| *weight != 0);
            if weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
                return Err(format!("{at}.weight: must be in the range [1, {WEIGHT_MAX}]"));
            }
            choice.enabled.push((plugin, weight));
        }
        for (index, entry) in self.disabled.iter().enumerate() {
            let at = format!("{field}.disabled[{index}]");
            match entry.name.as_str() {
                "*" => choice.disables_all = true,
                name => choice.disabled.push(named(&at, name)?),
            }
        }
        Ok(choice)
    }

    fn is_empty(&self) -> bool {
        self.enabled.is_empty() && self.disabled.is_empty()
    }
}

impl Choice {
    /// The list of one point after this choice; `first` puts what is enabled before the rest.
    fn over(&self, before: Vec<(Plugin, i64)>, point: Point, first: bool) -> Vec<(Plugin, i64)> {
        let enabled = self
            .enabled
            .iter()
            .filter(|(plugin, _)| plugin.points().contains(&point));
        let own: Vec<(Plugin, i64)> = enabled.map(|(plugin, weight)| (*plugin, weight.unwrap_or(1))).collect();
        let stays = |plugin: Plugin| !self.disables_all && !self.disabled.contains(&plugin);
        let mut rest: Vec<(Plugin, i64)> = before.into_iter().filter(|(plugin, _)| stays(*plugin)).collect();
        if first {
            rest.retain(|(plugin, _)| own.iter().all(|(known, _)| known != plugin));
            return own.into_iter().chain(rest).collect();
        }
        for (plugin, weight) in own {
            match rest.iter_mut().find(|(known, _)| *known == plugin) {
                Some(known) => known.1 = weight,
                None => rest.push((plugin, weight)),
            }
        }
        rest
    }
}

impl Plugins {
    /// Makes the profile run what this says.
    pub(super) fn apply(&self, profile: &mut Profile) -> Result<(), String> {
        self.refuse_points()?;
        let everywhere = self.multi_point.read("multiPoint")?;
        let at = |field: &str, set: &Set, point: Point| -> Result<Vec<(Plugin, i64)>, String> {
            let choice = set.read(field)?;
            if let Some((plugin, _)) = choice.enabled.iter().find(|(p, _)| !p.points().contains(&point)) {
                return Err(format!("{field}.enabled: plugin {} does nothing there", plugin.name()));
            }
            let all = Plugin::ALL
                .into_iter()
                .filter(|plugin| plugin.points().contains(&point));
            let defaults = all.map(|plugin| (plugin, plugin.weight())).collect();
            Ok(choice.over(everywhere.over(defaults, point, false), point, true))
        };
        let needed = [
            at("preEnqueue", &self.pre_enqueue, Point::PreEnqueue)?,
            at("queueSort", &self.queue_sort, Point::QueueSort)?,
            at("bind", &self.bind, Point::Bind)?,
        ];
        for plugin in NEEDED {
            if !needed.iter().flatten().any(|(known, _)| *known == plugin) {
                return Err(format!("plugin {} cannot be disabled", plugin.name()));
            }
        }
        let filters = at("filter", &self.filter, Point::Filter)?;
        profile.filters = filters.into_iter().map(|(plugin, _)| plugin).collect();
        profile.preempts = !at("postFilter", &self.post_filter, Point::PostFilter)?.is_empty();
        profile.scores = at("score", &self.score, Point::Score)?;
        Ok(())
    }

    /// Points that no plugin can be chosen for by itself.
    fn refuse_points(&self) -> Result<(), String> {
        for (field, set, instead) in [
            ("preFilter", &self.pre_filter, "filter"),
            ("preScore", &self.pre_score, "score"),
        ] {
            if !set.is_empty() {
                return Err(format!(
                    "{field}: is done with {instead} here; choose plugins at {instead} or multiPoint"
                ));
            }
        }
        for (field, set) in [
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("postBind", &self.post_bind),
        ] {
            if !set.is_empty() {
                return Err(format!("{field}: no plugin does anything there"));
            }
        }
        Ok(())
    }
}
