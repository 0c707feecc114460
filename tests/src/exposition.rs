//! Metrics pages against upstream's list of metrics (`tests/metrics.tsv`), by name, type, stability, labels and buckets. Pure.
//!
//! The list says of each family when ours has it. What is missing, what differs and what upstream does not know are findings;
//! what waits for a part that is not built, or never comes, is told with its reason and is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// When ours has a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// On every node.
    Always,
    /// As soon as pods run.
    Busy,
    /// As soon as it happens.
    Once,
    /// On every node, and upstream has none of this name.
    Ours,
    /// Not at all, and why.
    Absent(String),
}

/// One family of upstream's.
#[derive(Clone, Debug)]
pub struct Expected {
    /// `/metrics` and so on.
    pub page: String,
    /// Its name, as samples have it.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// How its description begins; empty if it says nothing.
    pub stability: String,
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// Upper bounds, but the last, infinite one.
    pub buckets: Vec<String>,
    /// When ours has it.
    pub when: When,
}

/// Upstream's list, from its text.
///
/// # Panics
/// On a line that is none of the list's.
pub fn expected(list: &str) -> Vec<Expected> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(parse).collect()
}

fn parse(line: &str) -> Expected {
    let fields: Vec<&str> = line.split('\t').collect();
    let [page, name, kind, stability, labels, buckets, when] = fields[..] else {
        panic!("not seven fields: {line}");
    };
    let words = |text: &str| -> Vec<String> {
        match text {
            "-" => Vec::new(),
            text => text.split(',').map(str::to_owned).collect(),
        }
    };
    Expected {
        page: page.to_owned(),
        name: name.to_owned(),
        kind: kind.to_owned(),
        stability: stability.trim_start_matches('-').to_owned(),
        labels: words(labels).into_iter().collect(),
        buckets: words(buckets),
        when: match when {
            "always" => When::Always,
            "busy" => When::Busy,
            "once" => When::Once,
            "ours" => When::Ours,
            why => When::Absent(why.to_owned()),
        },
    }
}

/// One family of a page.
#[derive(Clone, Debug, Default)]
pub struct Found {
    kind: String,
    stability: String,
    labels: BTreeSet<String>,
    buckets: BTreeSet<String>,
    order: Vec<String>,
    samples: usize,
}

/// The families of a page, by name.
pub fn page(text: &str) -> BTreeMap<String, Found> {
    let mut families: BTreeMap<String, Found> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            let mark = help.strip_prefix('[').and_then(|help| help.split_once(']'));
            let family = families.entry(name.to_owned()).or_default();
            family.stability = mark.map(|(mark, _)| mark.to_owned()).unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            take_sample(&mut families, line);
        }
    }
    families
}

fn take_sample(families: &mut BTreeMap<String, Found>, line: &str) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let of_histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix))
        .find(|base| families.get(*base).is_some_and(|family| family.kind == "histogram"));
    let family = families.entry(of_histogram.unwrap_or(name).to_owned()).or_default();
    family.samples += 1;
    for (label, value) in labels(rest) {
        if label == "le" && of_histogram.is_some() {
            if value != "+Inf" && family.buckets.insert(value.clone()) {
                family.order.push(value);
            }
        } else {
            family.labels.insert(label);
        }
    }
}

/// The labels of a sample, from behind its name. Values may hold anything but bare quotes.
fn labels(rest: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Some(mut rest) = rest.strip_prefix('{') else {
        return found;
    };
    while let Some((name, behind)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = behind.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        found.push((name.to_owned(), behind[..end].to_owned()));
        rest = behind[end + 1..].trim_start_matches(',');
        if rest.starts_with('}') {
            break;
        }
    }
    found
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many families are as upstream's.
    pub agreed: usize,
    /// What is missing or differs, or is not upstream's.
    pub findings: Vec<String>,
    /// What is not there, and need not be yet: name and why.
    pub absent: Vec<(String, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} families are as upstream's", self.agreed)?;
        for finding in &self.findings {
            writeln!(f, "WRONG {finding}")?;
        }
        for (name, why) in &self.absent {
            writeln!(f, "absent {name} ({why})")?;
        }
        Ok(())
    }
}

/// Compares a page's text with the list; of a busy node more is expected.
pub fn compare(list: &[Expected], of: &str, text: &str, busy: bool) -> Report {
    let found = page(text);
    let mut report = Report::default();
    let list: Vec<&Expected> = list.iter().filter(|expected| expected.page == of).collect();
    for expected in &list {
        let family = found.get(&expected.name).filter(|family| family.samples > 0);
        match (family, &expected.when) {
            (Some(_), When::Absent(why)) if !why.starts_with("never") => {
                let name = &expected.name;
                report
                    .findings
                    .push(format!("{of} {name}: is there, and the list says \"{why}\""));
            }
            (Some(family), _) => {
                let wrong = differences(expected, family);
                report.agreed += usize::from(wrong.is_empty());
                let told = wrong.into_iter().map(|why| format!("{of} {}: {why}", expected.name));
                report.findings.extend(told);
            }
            (None, When::Always | When::Ours) => report.findings.push(format!("{of} {}: is missing", expected.name)),
            (None, When::Busy) if busy => report.findings.push(format!("{of} {}: is missing", expected.name)),
            (None, When::Busy) => report.absent.push((expected.name.clone(), "no pods".to_owned())),
            (None, When::Once) => report
                .absent
                .push((expected.name.clone(), "has not happened".to_owned())),
            (None, When::Absent(why)) => report.absent.push((expected.name.clone(), why.clone())),
        }
    }
    let known: BTreeSet<&str> = list.iter().map(|expected| expected.name.as_str()).collect();
    let strangers = found.keys().filter(|name| !known.contains(name.as_str()));
    report
        .findings
        .extend(strangers.map(|name| format!("{of} {name}: upstream has no such metric")));
    report
}

fn differences(expected: &Expected, found: &Found) -> Vec<String> {
    let mut wrong = Vec::new();
    if found.kind != expected.kind {
        wrong.push(format!("is a {}, not a {}", found.kind, expected.kind));
    }
    if found.stability != expected.stability {
        wrong.push(format!("is marked {:?}, not {:?}", found.stability, expected.stability));
    }
    if found.labels != expected.labels {
        wrong.push(format!("has labels {:?}, not {:?}", found.labels, expected.labels));
    }
    let same = |(a, b): (&String, &String)| match (a.parse::<f64>(), b.parse::<f64>()) {
        // Numbers are written in more than one way, and some of upstream's are the results of multiplications.
        (Ok(a), Ok(b)) => (a - b).abs() <= b.abs() * 1e-12,
        _ => false,
    };
    let buckets = found.order.len() == expected.buckets.len() && found.order.iter().zip(&expected.buckets).all(same);
    if !buckets {
        wrong.push(format!("has buckets {:?}, not {:?}", found.order, expected.buckets));
    }
    wrong
}

/// The names the kubelet contract's section 13 has, written out: `a_{b,c}_d` are two, `{label}` at an end is none.
pub fn contract(section: &str) -> BTreeSet<String> {
    let text = section.split("## 13. Metrics").nth(1).unwrap_or_default();
    let text = text.split("\n---").next().unwrap_or_default();
    let mut names = BTreeSet::new();
    let bare = [
        "storage_operation_",
        "csi_operations_",
        "volume_manager_",
        "dra_",
        "kubernetes_",
        "rest_client_",
        "process_",
    ];
    for word in words(text) {
        for name in expand(&word) {
            let is_name = name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '*');
            let is_whole = is_name && !name.ends_with('_');
            if is_whole || matches!(name.as_str(), "evictions" | "preemptions") {
                let own = bare.iter().any(|prefix| name.starts_with(prefix));
                names.insert(if own { name } else { format!("kubelet_{name}") });
            }
        }
    }
    names
}

/// Words of a list, commas within braces and brackets not parting them.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut depth) = (Vec::new(), String::new(), 0_usize);
    for c in text.chars() {
        depth = match c {
            '{' | '[' => depth + 1,
            '}' | ']' => depth.saturating_sub(1),
            _ => depth,
        };
        if depth == 0 && (c == ',' || c == ';' || c == '.' || c.is_whitespace()) {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
    }
    words.push(word);
    let plain = |word: &String| {
        let word = word.trim_matches([':', '`', '(', ')']);
        word.trim_start_matches("**").trim_end_matches("**").to_owned()
    };
    words.iter().map(plain).collect()
}

/// All that a word with alternatives stands for.
fn expand(word: &str) -> Vec<String> {
    let optional = word
        .find('[')
        .and_then(|start| Some((start, start + word[start..].find(']')?)));
    if let Some((start, end)) = optional {
        let (head, inner, tail) = (&word[..start], &word[start + 1..end], &word[end + 1..]);
        return [String::new(), inner.to_owned()]
            .iter()
            .flat_map(|inner| expand(&format!("{head}{inner}{tail}")))
            .collect();
    }
    let Some(start) = word.find('{') else {
        return vec![word.to_owned()];
    };
    let Some(end) = word[start..].find('}').map(|length| start + length) else {
        return vec![word.to_owned()];
    };
    let (head, inner, tail) = (&word[..start], &word[start + 1..end], &word[end + 1..]);
    let is_label = tail.is_empty() && !head.ends_with('_');
    let choices = if is_label {
        vec![""]
    } else {
        inner.split(',').map(str::trim).collect()
    };
    choices
        .into_iter()
        .flat_map(|choice| expand(&format!("{head}{choice}{tail}")))
        .collect()
}

/// Names of the contract that the list does not have. A `*` stands for anything.
pub fn uncovered(contract: &BTreeSet<String>, list: &[Expected]) -> Vec<String> {
    let has = |wanted: &String| {
        let (head, tail) = wanted.split_once('*').unwrap_or((wanted, ""));
        let fits = |name: &str| match wanted.contains('*') {
            true => name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail),
            false => name == wanted,
        };
        let of_upstream = |expected: &&Expected| expected.when != When::Ours;
        list.iter().filter(of_upstream).any(|expected| fits(&expected.name))
    };
    contract.iter().filter(|wanted| !has(wanted)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# c\n/m\ta_total\tcounter\tALPHA\tx\t-\talways\n/m\th\thistogram\t-\t-\t1,2.5\tbusy\n\
                        /m\tg\tgauge\t-\t-\t-\tlater: gates\n/m\to\tgauge\t-\t-\t-\tonce\n/n\tother\tgauge\t-\t-\t-\talways\n";
    const PAGE: &str = "# HELP a_total [ALPHA] A.\n# TYPE a_total counter\na_total{x=\"a,b=\\\"}\\\"\"} 1\n# HELP h H.\n# TYPE h histogram\n\
                        h_bucket{le=\"1\"} 0\nh_bucket{le=\"2.5\"} 0\nh_bucket{le=\"+Inf\"} 1\nh_sum 0.5\nh_count 1\n";

    #[test]
    fn a_page_as_upstreams_is_agreed_to() {
        let list = expected(LIST);
        let report = compare(&list, "/m", PAGE, true);
        assert_eq!((report.agreed, report.findings.as_slice()), (2, &[][..]), "{report}");
        let absent = [("g", "later: gates"), ("o", "has not happened")];
        let told: Vec<_> = report
            .absent
            .iter()
            .map(|(name, why)| (name.as_str(), why.as_str()))
            .collect();
        assert_eq!(told, absent);
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let list = expected(LIST);
        let busy = |page: &str| compare(&list, "/m", page, true).findings.join("\n");
        for (from, to, expected) in [
            (
                "a_total counter",
                "a_total gauge",
                "/m a_total: is a gauge, not a counter",
            ),
            ("[ALPHA]", "[BETA]", "/m a_total: is marked \"BETA\", not \"ALPHA\""),
            ("{x=", "{y=", "/m a_total: has labels {\"y\"}, not {\"x\"}"),
            (
                "le=\"2.5\"",
                "le=\"3\"",
                "/m h: has buckets [\"1\", \"3\"], not [\"1\", \"2.5\"]",
            ),
            (
                "h_sum 0.5\n",
                "h_sum 0.5\ng 1\n",
                "/m g: is there, and the list says \"later: gates\"",
            ),
            ("h_sum 0.5\n", "h_sum 0.5\nz 1\n", "/m z: upstream has no such metric"),
        ] {
            assert_eq!(busy(&PAGE.replace(from, to)), expected);
        }
        assert_eq!(busy(""), "/m a_total: is missing\n/m h: is missing");
        assert_eq!(compare(&list, "/m", "", false).findings, ["/m a_total: is missing"]);
    }

    #[test]
    fn the_contracts_list_is_written_out() {
        let text = "## 12. X\nnot_this\n## 13. Metrics that matter\nprefix `kubelet_`. **Node**: node_name, {a,b}_pods, \
                    started_{x,y}[_errors]_total, evictions{signal}, dra_[grpc_]seconds, rejections_total{reason}. Also rest_client_*.\n\n---\nnor_this";
        let found = contract(text);
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "dra_grpc_seconds",
                "dra_seconds",
                "kubelet_a_pods",
                "kubelet_b_pods",
                "kubelet_evictions",
                "kubelet_node_name",
                "kubelet_rejections_total",
                "kubelet_started_x_errors_total",
                "kubelet_started_x_total",
                "kubelet_started_y_errors_total",
                "kubelet_started_y_total",
                "rest_client_*",
            ]
        );
    }
}
