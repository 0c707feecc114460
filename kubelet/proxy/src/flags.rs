//! The command line, as typed. Every flag upstream's kube-proxy has is in one table: which field of the configuration it sets, what
//! of the program's own it says, or that it has no effect here. Pure.

mod table;

use crate::config::VERSION;
use crate::duration;
use client::ordered::CollectOrdered;
use serde_json::{Map, Value, json};
use table::{FLAGS, Flag, Kind, Target};

/// What was typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// Flags without a configuration field, by name.
    own: Map<String, Value>,
    /// Configuration fields to set: dotted path, value and the flag, in the order given.
    pub(crate) fields: Vec<(&'static str, Value, &'static str)>,
    /// Names of flags given that have no effect.
    pub(crate) inert: Vec<&'static str>,
    /// What upstream says of deprecated flags that were given.
    pub deprecations: Vec<String>,
}

impl Flags {
    /// The text of a flag that has no configuration field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.own.get(name).and_then(Value::as_str)
    }

    /// The number of such a flag.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.own.get(name).and_then(Value::as_i64)
    }

    /// The truth of such a flag; false when it was not given.
    pub fn bool(&self, name: &str) -> bool {
        self.own.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Whether a flag sets that field of the configuration, whatever to.
    pub fn sets(&self, field: &str) -> bool {
        self.fields.iter().any(|(path, ..)| *path == field)
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

/// Reads a command line (without the program's name), as pflag does.
///
/// # Errors
/// It asks for help or the version, or something in it is wrong.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Flags, FlagsEnd> {
    let mut flags = Flags::default();
    let mut mistakes = Vec::new();
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let Some((name, given)) = split(&word) else {
            if !word.is_empty() && word != "--" {
                mistakes.push(format!("\"kube-proxy\" does not take any arguments, got {word:?}"));
            }
            continue;
        };
        match (name.as_str(), given.as_deref()) {
            ("help" | "h", _) => return Err(FlagsEnd::Print(help())),
            ("version", None | Some("true" | "raw")) => {
                return Err(FlagsEnd::Print(format!("Kubernetes {VERSION}\n")));
            }
            ("version", Some(_)) => continue,
            _ => {}
        }
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            mistakes.push(format!("unknown flag: --{name}"));
            continue;
        };
        let text = match (given, flag.kind) {
            (Some(text), _) => text,
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => match words.next() {
                Some(text) => text,
                None => {
                    mistakes.push(format!("flag needs an argument: --{name}"));
                    break;
                }
            },
        };
        match value(flag.kind, &text) {
            Ok(value) => take(&mut flags, flag, value),
            Err(why) => mistakes.push(format!("invalid argument {text:?} for \"--{name}\" flag: {why}")),
        }
    }
    if mistakes.is_empty() {
        Ok(flags)
    } else {
        Err(FlagsEnd::Mistakes(mistakes))
    }
}

/// A flag's name, as upstream normalises it (`--some_flag` is `--some-flag`), and its value if it is in the same word.
fn split(word: &str) -> Option<(String, Option<String>)> {
    let body = word.strip_prefix("--").filter(|body| !body.is_empty());
    let (name, value) = match (body, word.strip_prefix('-').filter(|rest| !rest.is_empty())) {
        (Some(body), _) => match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        },
        // One letter, its value behind it: -v=4, -v4.
        (None, Some(short)) if !short.starts_with('-') => {
            let end = short.char_indices().nth(1).map_or(short.len(), |(at, _)| at);
            let rest = Some(&short[end..]).filter(|rest| !rest.is_empty());
            (&short[..end], rest.map(|rest| rest.strip_prefix('=').unwrap_or(rest)))
        }
        _ => return None,
    };
    Some((name.replace('_', "-"), value.map(str::to_owned)))
}

fn take(flags: &mut Flags, flag: &'static Flag, value: Value) {
    if let Some(instead) = flag.deprecated_for {
        flags.deprecations.push(format!(
            "Flag --{} has been deprecated, This flag is deprecated and will be removed in a future release. Please use --{instead} instead.",
            flag.name
        ));
    }
    match flag.target {
        Target::Own => {
            flags.own.insert(flag.name.to_owned(), value);
        }
        Target::Inert => flags.inert.push(flag.name),
        Target::Field(path) => {
            // Lists given twice add up; of anything else the last one counts.
            let before = flags.fields.iter_mut().find(|(before, ..)| *before == path);
            match (before, value) {
                (Some((_, Value::Array(list), _)), Value::Array(more)) => list.extend(more),
                (Some((_, Value::Object(map), _)), Value::Object(more)) => map.extend(more),
                (Some((_, before, _)), value) => *before = value,
                (None, value) => flags.fields.push((path, value, flag.name)),
            }
        }
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "t" | "T" | "TRUE" | "True" => Ok(true),
        "false" | "0" | "f" | "F" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is not a truth value")),
    }
}

/// What the text of a flag means.
fn value(kind: Kind, text: &str) -> Result<Value, String> {
    let words = || text.split(',').map(str::trim).filter(|word| !word.is_empty());
    match kind {
        Kind::Bool => truth(text).map(Value::from),
        Kind::Int => {
            let number = text.parse::<i32>();
            number
                .map(Value::from)
                .map_err(|_| "not a whole number of 32 bits".to_owned())
        }
        Kind::Float => {
            let number = text.parse::<f64>();
            number.map(Value::from).map_err(|_| "not a number".to_owned())
        }
        Kind::Text => Ok(Value::from(text)),
        Kind::Time => duration::parse(text).map(|nanos| duration::text(nanos).into()),
        Kind::List => Ok(words().map(Value::from).collect()),
        Kind::Gates => words()
            .map(|word| match word.split_once('=') {
                Some((gate, text)) => Ok((gate.to_owned(), truth(text)?.into())),
                None => Err(format!("{word:?} is not of the form key=value")),
            })
            .collect_ordered::<Result<Map<_, _>, _>>()
            .map(Value::Object),
        Kind::Modules => words()
            .map(|word| {
                let pair = word.split_once('=');
                let pair = pair.and_then(|(files, verbosity)| Some((files, verbosity.parse::<i32>().ok()?)));
                let (files, verbosity) = pair.ok_or_else(|| format!("{word:?} is not of the form pattern=N"))?;
                Ok(json!({"filePattern": files, "verbosity": verbosity}))
            })
            .collect(),
    }
}

fn help() -> String {
    let mut text =
        "The Kubernetes network proxy of a node, over nf_tables.\n\nUsage:\n  kube-proxy [flags]\n\nFlags:\n"
            .to_owned();
    for flag in FLAGS {
        let what = match flag.target {
            Target::Own => flag.help,
            Target::Field(path) => path,
            Target::Inert => "accepted, without effect",
        };
        text.push_str(&format!("      --{:<36} {what}\n", flag.name));
    }
    text
}

#[cfg(test)]
mod tests;
