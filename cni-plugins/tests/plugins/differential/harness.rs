//! The two worlds, what can be seen of them, and the comparison.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::chained;
use crate::fixture::{Container, Host, call_in, files, merge};

pub(super) const REFERENCE: &str = "/usr/lib/cni";

/// A reference suite.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) bin_dir: String,
    /// Of version 1.2 or later.
    pub(super) newer: bool,
}

/// The suites there are; the absent ones are named.
pub(super) fn references(test: &str) -> Vec<Reference> {
    let newer = std::env::var("SKIFF_REFERENCE_PLUGINS").unwrap_or_default();
    let known = [(REFERENCE.to_owned(), false), (newer, true)].map(|(bin_dir, newer)| Reference { bin_dir, newer });
    let is_there = |reference: &Reference| {
        let found = Path::new(&reference.bin_dir).join("bridge").exists();
        if !found {
            let which = if reference.newer {
                "the newer suite (hack/reference-plugins)"
            } else {
                "Debian's package containernetworking-plugins"
            };
            eprintln!("SKIPPED {test} against {which}: it is not there");
        }
        found
    };
    known.into_iter().filter(is_there).collect()
}

/// What a call left, without what is random.
pub(super) struct Seen {
    pub(super) printed: String,
    pub(super) kernel: String,
    pub(super) stored: String,
}

/// One of the two worlds.
pub(super) struct World {
    pub(super) host: Host,
    pub(super) bin_dir: PathBuf,
    pub(super) container: Container,
}

impl World {
    pub(super) fn new(bin_dir: Option<&str>) -> Self {
        let host = Host::new();
        let bin_dir = bin_dir.map_or_else(|| host.bin_dir.clone(), PathBuf::from);
        Self {
            host,
            bin_dir,
            container: Container::new(),
        }
    }

    pub(super) fn variables(
        &self,
        command: &str,
        more: &BTreeMap<&'static str, String>,
    ) -> BTreeMap<&'static str, String> {
        let mut variables = self.host.variables(command, &self.container);
        variables.insert("CNI_CONTAINERID", "container-1".into());
        variables.insert("CNI_PATH", self.bin_dir.display().to_string());
        variables.extend(more.clone());
        variables
    }

    /// Makes a call; returns what it printed, and everything that can be seen afterwards, without what is random.
    pub(super) fn step(&self, command: &str, config: &Value, more: &BTreeMap<&'static str, String>) -> (Value, Seen) {
        let text = config.to_string().replace("DATA", &self.host.data_dir());
        let config: Value = serde_json::from_str(&text).unwrap();
        let output = call_in(
            &self.host.namespace,
            &self.bin_dir,
            &self.variables(command, more),
            &config,
        );
        let printed = String::from_utf8(output.stdout).unwrap();
        let parsed: Value = serde_json::from_str(&printed).unwrap_or(Value::String(printed));
        let printed = format!("{command}: {}\n{parsed:#}\n", output.status.success());
        let mut seen = String::new();
        for (place, namespace) in [("host", &self.host.namespace), ("container", &self.container.namespace)] {
            for arguments in [&["link"][..], &["addr"], &["route"], &["-6", "route"]] {
                let shown = namespace.ip(&[&["-o"], arguments].concat());
                let mut lines: Vec<&str> = shown.lines().collect();
                lines.sort_unstable();
                seen.push_str(&format!("{place} {arguments:?}\n{}\n", lines.join("\n")));
            }
        }
        seen.push_str(&chained::seen(self, config["type"].as_str().unwrap()));
        let data_dir = self.host.data_dir();
        let mut stored = String::new();
        for (path, content) in files(Path::new(&data_dir)) {
            let name = path.strip_prefix(&data_dir).unwrap();
            if !name.starts_with(".index") {
                let content = chained::stored(&path, content);
                stored.push_str(&format!("{} {content:?}\n", name.display()));
            }
        }
        let [printed, kernel, stored] = [printed, seen, stored].map(|text| self.normalise(&text));
        (
            parsed,
            Seen {
                printed,
                kernel,
                stored,
            },
        )
    }

    pub(super) fn normalise(&self, text: &str) -> String {
        let text = text
            .replace(&self.host.data_dir(), "DATA")
            .replace(&self.bin_dir.display().to_string(), "BIN")
            .replace(&self.container.namespace.name, "CONTAINER")
            .replace(&self.host.namespace.name, "HOST");
        let lines = text.lines().filter(|line| {
            // 1.1.1 prints an empty dns in 1.0.0, 1.9 does not. Link-local addresses and their routes follow the random
            // hardware address and appear when they like.
            !line.trim().is_empty()
                && !line.contains("\"dns\": {}")
                && !line.contains("fe80:")
                && !line.contains("ff00::/8")
        });
        let text = lines.map(normalise_line).collect::<Vec<_>>().join("\n");
        // Newer ones name both ends, and their decoder the embedded type.
        text.replace(
            r#"container veth name ( "eth0 ") peer provided ( "vethX ") already"#,
            "container veth name provided (eth0) already",
        )
        .replace("field NetConf.NetConf.", "field NetConf.")
    }
}

/// Replaces random names and hardware addresses, and drops what is a matter of timing.
pub(super) fn normalise_line(line: &str) -> String {
    let words = line.split_inclusive([' ', '"', '@', ':', '\\']);
    let mut out = String::new();
    let mut skip = 0;
    for word in words {
        let bare = word.trim_end_matches([' ', '"', '@', ':', '\\']);
        let is_veth =
            bare.len() == 12 && bare.starts_with("veth") && bare[4..].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_byte = bare.len() == 2 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        if skip > 0 {
            skip -= 1;
        } else if is_veth {
            out.push_str(&word.replace(bare, "vethX"));
        } else if is_byte && word.ends_with(':') {
            // Six bytes of a hardware address; the last is closed by another delimiter.
            out.push_str("MAC ");
            skip = 5;
        } else {
            out.push_str(word);
        }
    }
    // The trailing comma of JSON before a dropped line, tentative flags, and the queue length, which 1.1.1 sets to none and
    // 1.9 leaves to the kernel.
    let out = out.trim_end_matches([',', ' ']).to_owned();
    let out = out.replace('\\', " ");
    let mut words = out.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "qlen" => drop(words.next()),
            // Whose a device is, which only ours say.
            "alias" => drop((words.next(), words.next())),
            // Whether a link without traffic has been noticed to be up or down yet.
            "tentative" | "linkdown" => {}
            "state" => drop(words.next()),
            word => kept.push(word.replace("NO-CARRIER,", "").replace(",LOWER_UP", "")),
        }
    }
    kept.join(" ")
}

/// A configuration, the versions it is tried with, further variables, and the calls.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) config: Value,
    pub(super) variables: BTreeMap<&'static str, String>,
    pub(super) steps: &'static [&'static str],
    /// What is done in both worlds before the first call.
    pub(super) prepare: fn(&World),
    /// Newer references do otherwise; the case says how.
    pub(super) old_only: bool,
    /// 1.1.1 does not know the keys.
    pub(super) newer_only: bool,
}

pub(super) const CYCLE: &[&str] = &["ADD", "CHECK", "DEL", "DEL"];
pub(super) const TWICE: &[&str] = &["ADD", "ADD", "DEL", "DEL"];

pub(super) fn bridge(name: &'static str, more: Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "diffnet", "type": "bridge", "bridge": "cnid0", "isGateway": true,
        "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.50.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut config, more);
    Case::new(name, config)
}

pub(super) fn host_local(name: &'static str, ipam: Value) -> Case {
    let mut config = json!({"type": "host-local", "dataDir": "DATA"});
    merge(&mut config, ipam);
    let config = json!({"cniVersion": "1.0.0", "name": "diffnet", "type": "host-local", "ipam": config});
    Case::new(name, config)
}

impl Case {
    /// The whole cycle, from an untouched world, compared with both references.
    pub(super) fn new(name: &'static str, config: Value) -> Self {
        Self {
            name,
            config,
            variables: BTreeMap::new(),
            steps: CYCLE,
            prepare: |_| {},
            old_only: false,
            newer_only: false,
        }
    }

    pub(super) fn with(mut self, key: &'static str, value: &str) -> Self {
        self.variables.insert(key, value.into());
        self
    }

    pub(super) fn steps(self, steps: &'static [&'static str]) -> Self {
        Self { steps, ..self }
    }

    pub(super) fn top(mut self, more: Value) -> Self {
        merge(&mut self.config, more);
        self
    }
}

/// Runs a case; returns the first difference, if there is one.
pub(super) fn run(case: &Case, reference: &Reference) -> Option<String> {
    let worlds = [World::new(Some(&reference.bin_dir)), World::new(None)];
    worlds.iter().for_each(case.prepare);
    let mut previous = [Value::Null, Value::Null];
    let mut failed = false;
    for (number, command) in case.steps.iter().enumerate() {
        let version = case.config["cniVersion"].as_str().unwrap_or_default().to_owned();
        let mut seen = Vec::new();
        for (world, previous) in worlds.iter().zip(&mut previous) {
            let mut config = case.config.clone();
            if *command != "ADD" && previous.is_object() && version.as_str() >= "0.4.0" {
                config["prevResult"] = previous.clone();
            }
            let (printed, state) = world.step(command, &config, &case.variables);
            if *command == "ADD" && printed.get("code").is_none() {
                *previous = printed;
            }
            seen.push(state);
        }
        failed |= number == 0 && seen[0].printed.starts_with("ADD: false");
        let mut pairs = vec![(&seen[0].printed, &seen[1].printed), (&seen[0].stored, &seen[1].stored)];
        // After an ADD that fails, the reference leaves a bridge and a half-made pair behind; we leave nothing.
        if !failed {
            pairs.push((&seen[0].kernel, &seen[1].kernel));
        }
        let newer = reference.newer;
        for (reference, ours) in pairs {
            if let Some((reference, ours)) = first_difference(reference, ours) {
                return Some(format!(
                    "{} step {number} ({command}), newer {newer}\n reference: {reference}\n ours:      {ours}\n",
                    case.name
                ));
            }
        }
    }
    None
}

/// The first pair of lines that differ.
pub(super) fn first_difference<'a>(left: &'a str, right: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut left, mut right) = (left.lines(), right.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (one, two) if one == two => {}
            (one, two) => return Some((one.unwrap_or("(nothing)"), two.unwrap_or("(nothing)"))),
        }
    }
}

/// Runs cases against every reference, four at a time.
pub(super) fn run_all(test: &str, cases: Vec<Case>) {
    let references = references(test);
    let pairs: Vec<(&Case, &Reference)> = references
        .iter()
        .flat_map(|reference| cases.iter().map(move |case| (case, reference)))
        .filter(|(case, reference)| {
            if reference.newer {
                !case.old_only
            } else {
                !case.newer_only
            }
        })
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let differences = std::sync::Mutex::new(Vec::new());
    let work = || {
        while let Some((case, reference)) = pairs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            differences.lock().unwrap().extend(run(case, reference));
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let differences = differences.into_inner().unwrap();
    assert!(differences.is_empty(), "\n{}", differences.join(""));
}
