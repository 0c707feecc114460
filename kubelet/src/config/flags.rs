//! The command line, as typed. Every flag upstream's kubelet has is in one table: which field of the configuration it sets, or that
//! it has no effect here yet. Pure.

mod table;
mod value;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use table::Kind::{Bool, Gates, Headers, List, Modules, Pairs, Taints, Thresholds};
use table::{FLAGS, Target};
use value::value;

/// What was typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// Flags without a configuration field, by name, as text.
    own: Map<String, Value>,
    /// Configuration fields to set over the file: dotted path and value, in table order.
    pub fields: Vec<(&'static str, Value)>,
    /// Every flag given, as it is shown: headers, which may be secrets, are masked.
    pub shown: BTreeMap<String, String>,
    /// Names of flags given that have no effect.
    pub inert: Vec<&'static str>,
    /// Names of flags given that a configuration file should say.
    pub deprecated: Vec<&'static str>,
}

impl Flags {
    /// What upstream says of the flags given that a configuration file should say.
    pub fn deprecations(&self) -> impl Iterator<Item = String> {
        self.deprecated.iter().map(|name| {
            format!(
                "Flag --{name} has been deprecated, This parameter should be set via the config file specified by the Kubelet's \
                 --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
            )
        })
    }

    /// Whether a flag sets that field of the configuration, whatever to.
    pub fn sets(&self, field: &str) -> bool {
        self.fields.iter().any(|(path, _)| *path == field)
    }

    /// The text of a flag that has no configuration field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.own.get(name).and_then(Value::as_str)
    }

    /// The number of such a flag.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.own.get(name).and_then(Value::as_i64)
    }

    /// The truth of such a flag.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.own.get(name).and_then(Value::as_bool)
    }

    /// The pairs of such a flag.
    pub fn pairs(&self, name: &str) -> Option<&Map<String, Value>> {
        self.own.get(name).and_then(Value::as_object)
    }
}

/// Why the command line gives no flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagsEnd {
    /// `--help` or `--version`: print this and end well.
    Print(String),
    /// Mistakes, all of them.
    Mistakes(Vec<String>),
}

fn command() -> Command {
    let mut command = Command::new("kubelet")
        .about("Kubernetes node agent")
        .version(crate::config::VERSION)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .arg(
            Arg::new("version")
                .long("version")
                .action(ArgAction::Version)
                .help("print the version"),
        );
    for flag in FLAGS {
        let mut arg = Arg::new(flag.name)
            .long(flag.name)
            .action(ArgAction::Append)
            .help(match flag.target {
                Target::Field(path) => path,
                Target::Own | Target::Inert => flag.help,
            });
        if flag.kind == Bool {
            arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
        } else {
            arg = arg.allow_hyphen_values(true);
        }
        if flag.name == "v" {
            arg = arg.short('v');
        }
        command = command.arg(arg.help_heading(flag.heading()));
    }
    command
}

/// `--some_flag=x` is `--some-flag=x`, as upstream normalises it.
fn normalise(word: String) -> String {
    let Some(body) = word.strip_prefix("--") else {
        return word;
    };
    // The one truth that is asked for and not set.
    if body == "version=true" {
        return "--version".to_owned();
    }
    match body.split_once('=') {
        Some((name, value)) => format!("--{}={value}", name.replace('_', "-")),
        None => format!("--{}", body.replace('_', "-")),
    }
}

/// Reads a command line (without the program's name).
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Flags, FlagsEnd> {
    let words = std::iter::once("kubelet".to_owned()).chain(args.into_iter().map(normalise));
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return Err(explain(&error)),
    };
    let mut flags = Flags::default();
    let mut mistakes = Vec::new();
    for flag in FLAGS {
        let Some(texts) = matches.get_many::<String>(flag.name) else {
            continue;
        };
        if flag.is_deprecated() {
            flags.deprecated.push(flag.name);
        }
        let texts: Vec<&str> = texts.map(String::as_str).collect();
        // Lists given twice add up; of anything else the last one counts.
        let text = match flag.kind {
            List | Pairs | Taints | Headers | Gates | Thresholds | Modules => texts.join(","),
            _ => texts.last().copied().unwrap_or_default().to_owned(),
        };
        let shown = if flag.kind == Headers {
            "<masked>"
        } else {
            text.as_str()
        };
        flags.shown.insert(flag.name.to_owned(), shown.to_owned());
        match (value(flag.kind, &text), flag.target) {
            (Err(why), _) => mistakes.push(format!("invalid argument {text:?} for \"--{}\" flag: {why}", flag.name)),
            (Ok(value), Target::Own) => {
                flags.own.insert(flag.name.to_owned(), value);
            }
            (Ok(value), Target::Field(path)) => flags.fields.push((path, value)),
            (Ok(_), Target::Inert) => flags.inert.push(flag.name),
        }
    }
    if mistakes.is_empty() {
        Ok(flags)
    } else {
        Err(FlagsEnd::Mistakes(mistakes))
    }
}

fn explain(error: &clap::Error) -> FlagsEnd {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    match error.kind() {
        ErrorKind::DisplayHelp => FlagsEnd::Print(error.to_string()),
        ErrorKind::DisplayVersion => FlagsEnd::Print(format!("Kubernetes {}\n", crate::config::VERSION)),
        ErrorKind::UnknownArgument => {
            let word = context(clap::error::ContextKind::InvalidArg);
            FlagsEnd::Mistakes(vec![if word.starts_with('-') {
                format!("unknown flag: {word}")
            } else {
                format!("unknown command {word:?}")
            }])
        }
        _ => FlagsEnd::Mistakes(vec![error.to_string().lines().next().unwrap_or_default().to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> Result<Flags, FlagsEnd> {
        parse(args.iter().map(|s| (*s).to_owned()))
    }

    fn mistakes(args: &[&str]) -> Vec<String> {
        match given(args) {
            Err(FlagsEnd::Mistakes(list)) => list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn forms() {
        let flags = given(&[
            "--config=/a",
            "--root_dir",
            "/b",
            "-v",
            "4",
            "--fail-cgroupv1=false",
            "--register-node",
            "--node-labels=a=b,c=d",
            "--register-with-taints=k=v:NoSchedule,e:NoExecute",
            "--pod-max-pids=-1",
            "--cluster-dns=10.0.0.1,10.0.0.2",
            "--housekeeping-interval=10s",
            "--feature-gates=A=true,B=false",
            "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
            "--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi",
            "--vmodule=pleg=6,p*=4",
        ])
        .expect("flags");
        assert_eq!(
            (flags.text("config"), flags.text("root-dir"), flags.int("v")),
            (Some("/a"), Some("/b"), None)
        );
        assert_eq!(flags.pairs("node-labels").map(Map::len), Some(2));
        assert_eq!(flags.inert, vec!["housekeeping-interval"]);
        assert!(flags.deprecated.contains(&"cluster-dns") && !flags.deprecated.contains(&"v"));
        assert!(
            flags
                .deprecations()
                .all(|text| text.contains("has been deprecated, This parameter"))
        );
        let get = |path| {
            flags
                .fields
                .iter()
                .find(|(p, _)| *p == path)
                .map(|(_, v)| v.to_string())
        };
        assert_eq!(get("failCgroupV1").as_deref(), Some("false"));
        assert_eq!(get("logging.verbosity").as_deref(), Some("4"));
        assert_eq!(get("featureGates").as_deref(), Some(r#"{"A":true,"B":false}"#));
        assert_eq!(
            get("evictionHard").as_deref(),
            Some(r#"{"memory.available":"1Gi","nodefs.available":"5%"}"#)
        );
        assert_eq!(
            get("reservedMemory").as_deref(),
            Some(
                r#"[{"limits":{"hugepages-1Gi":"2Gi","memory":"1Gi"},"numaNode":0},{"limits":{"memory":"2Gi"},"numaNode":1}]"#
            )
        );
        assert_eq!(
            get("logging.vmodule").as_deref(),
            Some(r#"[{"filePattern":"pleg","verbosity":6},{"filePattern":"p*","verbosity":4}]"#)
        );
        assert_eq!(get("registerNode").as_deref(), Some("true"));
        assert_eq!(get("podPidsLimit").as_deref(), Some("-1"));
        assert_eq!(get("clusterDNS").as_deref(), Some(r#"["10.0.0.1","10.0.0.2"]"#));
        assert_eq!(
            get("registerWithTaints").as_deref(),
            Some(r#"[{"effect":"NoSchedule","key":"k","value":"v"},{"effect":"NoExecute","key":"e"}]"#)
        );
    }

    #[test]
    fn mistakes_are_named_all_at_once() {
        assert_eq!(mistakes(&["--no-such-flag"]), ["unknown flag: --no-such-flag"]);
        assert_eq!(mistakes(&["start"]), ["unknown command \"start\""]);
        assert_eq!(
            mistakes(&["--port=x", "--node-labels=y", "--register-with-taints=z"]),
            [
                "invalid argument \"y\" for \"--node-labels\" flag: \"y\" is not of the form key=value",
                "invalid argument \"x\" for \"--port\" flag: not a whole number",
                "invalid argument \"z\" for \"--register-with-taints\" flag: \"z\" is not of the form key=value:effect",
            ]
        );
    }

    #[test]
    fn no_flag_is_in_the_table_twice() {
        let mut names: Vec<_> = FLAGS.iter().map(|f| f.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
        command().debug_assert();
    }
}
