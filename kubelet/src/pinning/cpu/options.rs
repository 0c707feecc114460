//! The options of the static policy (`cpuManagerPolicyOptions`), and which of them a feature gate must let through. Pure.

use std::collections::BTreeMap;

/// What changes the static policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only whole cores are given.
    pub full_pcpus_only: bool,
    /// What needs several NUMA nodes takes as much from each.
    pub distribute_across_numa: bool,
    /// A socket's NUMA nodes are as good as one.
    pub align_by_socket: bool,
    /// As many cores as possible.
    pub distribute_across_cores: bool,
    /// Nothing of a pod runs on reserved CPUs.
    pub strict_reservation: bool,
    /// As few caches as possible.
    pub prefer_caches: bool,
}

/// Feature gates that let options through by their stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// `...PolicyAlphaOptions`.
    pub alpha: bool,
    /// `...PolicyBetaOptions`.
    pub beta: bool,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            alpha: false,
            beta: true,
        }
    }
}

/// How far an option is.
#[derive(Clone, Copy)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

struct Known(&'static str, Stage, fn(&mut Options) -> &mut bool);

const FULL: &str = "full-pcpus-only";
const NUMA: &str = "distribute-cpus-across-numa";
const CORES: &str = "distribute-cpus-across-cores";
const CACHES: &str = "prefer-align-cpus-by-uncorecache";

const KNOWN: &[Known] = &[
    Known(FULL, Stage::Stable, |of| &mut of.full_pcpus_only),
    Known(NUMA, Stage::Beta, |of| &mut of.distribute_across_numa),
    Known("align-by-socket", Stage::Alpha, |of| &mut of.align_by_socket),
    Known(CORES, Stage::Alpha, |of| &mut of.distribute_across_cores),
    Known("strict-cpu-reservation", Stage::Stable, |of| &mut of.strict_reservation),
    Known(CACHES, Stage::Stable, |of| &mut of.prefer_caches),
];

/// Reads the options.
///
/// # Errors
/// One is not known, not let through or no truth value, or two cannot be together; in upstream's words.
pub fn read(written: &BTreeMap<String, String>, stages: Stages) -> Result<Options, String> {
    let mut options = Options::default();
    for (name, value) in written {
        let known = KNOWN.iter().find(|known| known.0 == name);
        let Known(_, stage, field) = known.ok_or_else(|| format!("unknown CPU Manager Policy option: {name:?}"))?;
        let closed = match stage {
            Stage::Alpha if !stages.alpha => Some("Alpha"),
            Stage::Beta if !stages.beta => Some("Beta"),
            _ => None,
        };
        if let Some(stage) = closed {
            return Err(format!(
                "CPU Manager Policy {stage}-level Options not enabled, but option {name:?} provided"
            ));
        }
        *field(&mut options) = truth(value).ok_or_else(|| {
            format!("bad value for option {name:?}: strconv.ParseBool: parsing {value:?}: invalid syntax")
        })?;
    }
    for (first, second, both) in [
        (FULL, CORES, options.full_pcpus_only && options.distribute_across_cores),
        (
            NUMA,
            CORES,
            options.distribute_across_numa && options.distribute_across_cores,
        ),
        (CACHES, CORES, options.prefer_caches && options.distribute_across_cores),
        (CACHES, NUMA, options.prefer_caches && options.distribute_across_numa),
    ] {
        if both {
            return Err(format!(
                "static policy options {first} and {second} can not be used at the same time"
            ));
        }
    }
    Ok(options)
}

/// Truth as Go writes it.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_let_through_by_stage_and_not_against_each_other() {
        let alpha = Stages {
            alpha: true,
            ..Stages::default()
        };
        let none = Stages {
            alpha: false,
            beta: false,
        };
        for (written, stages, expected) in [
            (&[][..], none, Ok(Options::default())),
            (
                &[(FULL, "true"), ("strict-cpu-reservation", "1"), (NUMA, "False")],
                Stages::default(),
                Ok(Options {
                    full_pcpus_only: true,
                    strict_reservation: true,
                    ..Options::default()
                }),
            ),
            (
                &[(NUMA, "true")],
                none,
                Err(
                    "CPU Manager Policy Beta-level Options not enabled, but option \"distribute-cpus-across-numa\" provided",
                ),
            ),
            (
                &[("align-by-socket", "true")],
                Stages::default(),
                Err("CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided"),
            ),
            (
                &[("align-by-socket", "true")],
                alpha,
                Ok(Options {
                    align_by_socket: true,
                    ..Options::default()
                }),
            ),
            (
                &[("fast", "true")],
                alpha,
                Err("unknown CPU Manager Policy option: \"fast\""),
            ),
            (
                &[(FULL, "yes")],
                alpha,
                Err("bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"yes\": invalid syntax"),
            ),
            (
                &[(FULL, "true"), (CORES, "true")],
                alpha,
                Err(
                    "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
                ),
            ),
            (
                &[(CACHES, "true"), (NUMA, "true")],
                alpha,
                Err(
                    "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time",
                ),
            ),
        ] {
            let map = written
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            assert_eq!(
                read(&map.collect(), stages),
                expected.map_err(str::to_owned),
                "{written:?}"
            );
        }
    }
}
