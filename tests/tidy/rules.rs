//! The rules: pure functions from one file to what is wrong with it, each with samples it must fire on and samples it must pass.

mod deciding;

use deciding::DECIDING;

/// One file of ours.
pub struct Source {
    /// Its path in the repository.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether it is compiled for tests only.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let in_tests = ["/tests/", "/testing/"].iter().any(|part| self.path.contains(part));
        in_tests || self.path.starts_with("tests/") || name.ends_with("tests.rs") || name == "testing.rs"
    }

    /// Lines of code with their numbers, without comments and without what follows an inline module of tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let code = lines.take_while(|(_, line)| !line.starts_with("mod tests {") && !line.starts_with("mod test {"));
        code.filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(number, line)| (number + 1, line.split(" // ").next().unwrap_or_default()))
    }

    fn is_under(&self, places: &[&str]) -> bool {
        let under = |place: &&str| {
            let rest = self.path.strip_prefix(*place);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        places.iter().any(under)
    }

    /// Lines that contain one of the words.
    fn lines_with(&self, words: &[&str]) -> Vec<String> {
        let with = self
            .code()
            .filter(|(_, line)| words.iter().any(|word| contains_word(line, word)));
        with.map(|(number, line)| format!("line {number}: {}", line.trim()))
            .collect()
    }
}

/// Whether `word` stands in the line and is not the end or the beginning of a longer name.
fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        let ends_in_name = word.ends_with(|c: char| c.is_alphanumeric());
        !(is_part(before) || ends_in_name && is_part(after))
    })
}

/// A path and a text.
type Sample = (&'static str, &'static str);

pub struct Rule {
    pub name: &'static str,
    pub check: fn(&Source) -> Vec<String>,
    pub fires_on: &'static [Sample],
    pub passes: &'static [Sample],
}

/// Parts of the kubelet that workers use and that know nothing of pods' lives (design, dependencies point inward).
const LEAVES: [&str; 5] = [
    "kubelet/src/volume",
    "kubelet/src/cgroup",
    "kubelet/src/image",
    "kubelet/src/probe",
    "kubelet/src/runtime",
];

/// The longest a file may be, in lines.
const LINES_MAX: usize = 500;

/// What keeps a module out of the binaries that ship.
const GATES: [&str; 2] = ["#[cfg(test)]", "#[cfg(any(test, feature = \"test-util\"))]"];

/// Where names of metrics stand.
const METRICS: [&str; 4] = [
    "kubelet/src/metrics",
    "kubelet/src/server/metrics",
    "controlplane/src/metrics",
    "controlplane/src/apiserver/unstored/metrics",
];

/// How names of metrics begin, upstream and here.
const METRIC_PREFIXES: [&str; 6] = [
    "\"kubelet_",
    "\"apiserver_",
    "\"scheduler_",
    "\"workqueue_",
    "\"rest_client_",
    "\"etcd_",
];

pub const RULES: &[Rule] = &[
    Rule {
        name: "leaves-know-no-pods",
        check: |source| match source.is_under(&LEAVES) {
            true => source.lines_with(&["crate::pod"]),
            false => Vec::new(),
        },
        fires_on: &[
            ("kubelet/src/volume/plan.rs", "use crate::pod::worker::Worker;\n"),
            ("kubelet/src/image.rs", "fn f(state: &crate::pod::State) {}\n"),
        ],
        passes: &[
            ("kubelet/src/pod/worker.rs", "use crate::pod::plan;\n"),
            ("kubelet/src/volume/plan.rs", "// not crate::pod\nuse crate::podium;\n"),
        ],
    },
    Rule {
        name: "deciding-modules-are-pure",
        check: |source| match source.is_under(&DECIDING) && !source.is_test() {
            true => source.lines_with(&["tokio", "tonic", "std::fs", "fs::"]),
            false => Vec::new(),
        },
        fires_on: &[
            ("kubelet/src/pod/plan/containers.rs", "use tokio::sync::watch;\n"),
            ("controlplane/src/patch.rs", "    std::fs::read(path)\n"),
            ("proto/src/api/taint.rs", "use tonic::Code;\n"),
        ],
        passes: &[
            ("kubelet/src/pod/worker.rs", "use tokio::sync::watch;\n"),
            ("kubelet/src/pod/plan/tests.rs", "use tokio::sync::watch;\n"),
            (
                "kubelet/src/pod/plan.rs",
                "fn f() {}\nmod tests {\n    use tokio::time;\n",
            ),
        ],
    },
    Rule {
        name: "resource-knows-no-apiserver",
        check: |source| match source.is_under(&["controlplane/src/resource"]) {
            true => source.lines_with(&["crate::apiserver"]),
            false => Vec::new(),
        },
        fires_on: &[(
            "controlplane/src/resource/field.rs",
            "use crate::apiserver::status::ApiError;\n",
        )],
        passes: &[(
            "controlplane/src/apiserver/verbs.rs",
            "use crate::apiserver::status::ApiError;\n",
        )],
    },
    Rule {
        name: "verbs-know-no-server",
        check: |source| match source.is_under(&["controlplane/src/apiserver/verbs"]) && !source.is_test() {
            true => source.lines_with(&["ApiServer", "apiserver::server", "super::server"]),
            false => Vec::new(),
        },
        fires_on: &[
            ("controlplane/src/apiserver/verbs.rs", "use super::{ApiServer, Body};\n"),
            (
                "controlplane/src/apiserver/verbs/list.rs",
                "use crate::apiserver::server::ApiServer;\n",
            ),
        ],
        passes: &[
            ("controlplane/src/apiserver/server.rs", "use super::verbs;\n"),
            (
                "controlplane/src/apiserver/verbs.rs",
                "use super::state::ServerState;\n",
            ),
            (
                "controlplane/src/apiserver/verbs/tests.rs",
                "use crate::apiserver::ApiServer;\n",
            ),
        ],
    },
    Rule {
        name: "files-are-short",
        check: |source| match source.text.lines().count() {
            lines if lines > LINES_MAX => vec![format!("{lines} lines, {LINES_MAX} may be")],
            _ => Vec::new(),
        },
        fires_on: &[("kubelet/src/new.rs", include_str!("long.sample"))],
        passes: &[("kubelet/src/new.rs", "fn f() {}\n")],
    },
    Rule {
        name: "selects-are-biased",
        check: |source| {
            let lines: Vec<(usize, &str)> = source.code().collect();
            let open = lines.windows(2).filter(|pair| pair[0].1.contains("select! {"));
            let unbiased = open.filter(|pair| pair[1].1.trim() != "biased;" && !pair[0].1.contains("biased;"));
            let unbiased = unbiased.filter(|_| !source.path.starts_with("tests/tidy/"));
            unbiased
                .map(|pair| format!("line {}: its first line is not `biased;`", pair[0].0))
                .collect()
        },
        fires_on: &[("kubelet/src/a.rs", "    tokio::select! {\n        _ = x => {}\n    }\n")],
        passes: &[(
            "kubelet/src/a.rs",
            "    tokio::select! {\n        biased;\n        _ = x => {}\n    }\n",
        )],
    },
    Rule {
        name: "blocking-work-begins-in-one-place",
        check: |source| {
            let daemons = ["kubelet/src/", "controlplane/src/", "proto/client/src/"];
            let is_of_daemon = daemons.iter().any(|crate_of| source.path.starts_with(crate_of));
            match is_of_daemon && !source.is_test() && source.path != "proto/client/src/blocking.rs" {
                true => source.lines_with(&["spawn_blocking", "tokio::fs"]),
                false => Vec::new(),
            }
        },
        fires_on: &[
            ("kubelet/src/a.rs", "    tokio::task::spawn_blocking(work).await\n"),
            ("kubelet/src/a.rs", "    tokio::fs::read(path).await\n"),
        ],
        passes: &[("kubelet/src/a.rs", "    client::blocking::spawn(work).await\n")],
    },
    Rule {
        name: "what-ships-holds-no-fakes",
        check: |source| {
            let declared = |line: &str| {
                ["mod fake;", "mod testing;"]
                    .iter()
                    .any(|module| line.ends_with(module))
            };
            let is_gate = |line: &str| GATES.contains(&line.trim());
            let lines: Vec<(usize, &str)> = source.code().collect();
            let open = lines.iter().enumerate().filter(|(_, (_, line))| declared(line.trim()));
            let open = open.filter(|(at, _)| *at == 0 || !is_gate(lines[at - 1].1));
            open.filter(|_| !source.path.starts_with("tests/"))
                .map(|(_, (number, line))| format!("line {number}: {}", line.trim()))
                .collect()
        },
        fires_on: &[
            ("kubelet/src/runtime.rs", "pub mod events;\npub mod fake;\n"),
            ("kubelet/src/pod.rs", "mod testing;\n"),
        ],
        passes: &[
            ("kubelet/src/pod.rs", "#[cfg(test)]\nmod testing;\n"),
            (
                "kubelet/src/runtime.rs",
                "#[cfg(any(test, feature = \"test-util\"))]\npub mod fake;\n",
            ),
        ],
    },
    Rule {
        name: "no-mod-rs",
        check: |source| match source.path.ends_with("/mod.rs") {
            true => vec!["is to be named after its module".to_owned()],
            false => Vec::new(),
        },
        fires_on: &[("kubelet/src/pod/mod.rs", "")],
        passes: &[("kubelet/src/pod.rs", "")],
    },
    Rule {
        name: "nothing-is-left-to-do",
        check: |source| match source.path.starts_with("tests/tidy/") {
            true => Vec::new(),
            false => source.lines_with(&["todo!", "unimplemented!", "#[ignore"]),
        },
        fires_on: &[
            ("kubelet/src/a.rs", "    todo!()\n"),
            ("kubelet/src/tests.rs", "#[ignore]\n"),
        ],
        passes: &[("kubelet/src/a.rs", "    // todo!() is not ours\n")],
    },
    Rule {
        name: "metric-names-stand-in-one-place",
        check: |source| {
            let is_of_daemon = source.path.starts_with("kubelet/src/") || source.path.starts_with("controlplane/src/");
            if !is_of_daemon || source.is_test() || source.is_under(&METRICS) {
                return Vec::new();
            }
            let named = source
                .code()
                .filter(|(_, line)| METRIC_PREFIXES.iter().any(|prefix| line.contains(prefix)))
                // A file's name, upstream's.
                .filter(|(_, line)| !line.contains("\"kubelet_internal_checkpoint\""));
            named
                .map(|(number, line)| format!("line {number}: {}", line.trim()))
                .collect()
        },
        fires_on: &[(
            "kubelet/src/pod/worker.rs",
            "    registry.register(\"kubelet_running_pods\", \"\", gauge);\n",
        )],
        passes: &[(
            "kubelet/src/metrics.rs",
            "    registry.register(\"kubelet_running_pods\", \"\", gauge);\n",
        )],
    },
    Rule {
        name: "flags-stand-in-the-table",
        check: |source| {
            let is_of_kubelet = source.path.starts_with("kubelet/src/") && !source.is_test();
            match is_of_kubelet && !source.is_under(&["kubelet/src/config"]) {
                true => source.lines_with(&["Arg::new(", "#[arg("]),
                false => Vec::new(),
            }
        },
        fires_on: &[("kubelet/src/node.rs", "    command.arg(Arg::new(\"node-ip\"))\n")],
        passes: &[(
            "kubelet/src/config/flags.rs",
            "    command.arg(Arg::new(\"node-ip\"))\n",
        )],
    },
    Rule {
        name: "reasons-stand-in-the-table",
        check: |source| {
            let is_of_kubelet = source.path.starts_with("kubelet/src/") && !source.is_test();
            if !is_of_kubelet || source.is_under(&["kubelet/src/reason"]) {
                return Vec::new();
            }
            let mut found = source.lines_with(&reasons());
            found.extend(literals_given_as_reason(source));
            found
        },
        fires_on: &[
            (
                "kubelet/src/pod/execute.rs",
                "    self.warn(subject, \"FailedMount\", message);\n",
            ),
            (
                "kubelet/src/admission/sysctl.rs",
                "const FORBIDDEN: &str = \"SysctlForbidden\";\n",
            ),
            (
                "kubelet/src/admission/decide.rs",
                "    return Err(rejection(\n        \"NewReason\",\n",
            ),
            (
                "kubelet/src/node/status.rs",
                "    condition(\"NewPressure\", false, message)\n",
            ),
            (
                "kubelet/src/pod/execute.rs",
                "    recorder.pod(pod, Severity::Warning, \"NewReason\", message);\n",
            ),
            (
                "kubelet/src/pod/status.rs",
                "    reason: Some(\"NewReason\".to_owned()),\n",
            ),
        ],
        passes: &[
            (
                "kubelet/src/reason.rs",
                "pub const FAILED_MOUNT: &str = \"FailedMount\";\n",
            ),
            ("kubelet/src/pod/status/phase.rs", "    \"Failed\" => Phase::Failed,\n"),
            (
                "kubelet/src/admission/decide.rs",
                "    return Err(rejection(admission::NODE_NAME, \"some words\"));\n",
            ),
        ],
    },
];

/// The table of the kubelet's reasons and condition types.
const REASON_TABLE: &str = include_str!("../../kubelet/src/reason.rs");

/// Words of the table that are something else in other places too: phases, gRPC codes, states.
const AMBIGUOUS: [&str; 7] = [
    "\"AppArmor\"",
    "\"DeadlineExceeded\"",
    "\"Failed\"",
    "\"Ready\"",
    "\"Started\"",
    "\"Terminated\"",
    "\"Unknown\"",
];

/// The table's words, in their quotes, that mean nothing else.
fn reasons() -> Vec<&'static str> {
    let values = REASON_TABLE.lines().filter_map(|line| {
        let (_, value) = line.trim().strip_prefix("pub const ")?.split_once(": &str = ")?;
        value.strip_suffix(';').filter(|value| value.starts_with('"'))
    });
    values.filter(|value| !AMBIGUOUS.contains(value)).collect()
}

/// Where a text that stands right there is given as a reason or a condition's type.
const GIVEN: [&str; 6] = [
    "rejection(\"",
    "condition(\"",
    "Severity::Warning,\"",
    "Severity::Normal,\"",
    "reason:\"",
    "reason:Some(\"",
];

fn literals_given_as_reason(source: &Source) -> Vec<String> {
    let code: String = source.code().flat_map(|(_, line)| line.chars()).collect();
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let given = GIVEN.iter().flat_map(|given| code.match_indices(given));
    given
        .filter(|(at, given)| !code[at + given.len()..].starts_with('"'))
        .map(|(at, given)| {
            let text: String = code[at + given.len()..].chars().take_while(|c| *c != '"').collect();
            format!("{given}{text}\" is given as it stands")
        })
        .collect()
}

/// Counts of tests and gaps that a page states: they are never right for long.
pub fn counts_stated(text: &str) -> Vec<String> {
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';', ':']))
        .collect();
    let is_number = |word: &str| {
        word.chars().all(|c| c.is_ascii_digit() || c == ',') && word.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is_number(word)) {
        match (words.get(at + 1).copied(), words.get(at + 2).copied()) {
            (Some(thing @ ("tests" | "gaps" | "cases")), _) => found.push(format!("{word} {thing}")),
            (Some(kind @ ("unit" | "known")), Some(thing @ ("tests" | "gaps"))) => {
                found.push(format!("{word} {kind} {thing}"));
            }
            _ => {}
        }
    }
    found
}

/// How many entries the list of known gaps has; nothing unless there is exactly one such heading.
pub fn gaps(text: &str) -> Option<usize> {
    let mut parts = text.split("\n## ").map(|part| part.trim_start_matches("## "));
    let mut listed = parts.by_ref().filter(|part| part.starts_with("Known gaps"));
    let (one, other) = (listed.next()?, listed.next());
    let entries = one.lines().filter(|line| line.starts_with("- "));
    other.is_none().then(|| entries.count())
}
