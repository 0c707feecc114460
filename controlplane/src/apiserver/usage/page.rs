//! Reads a kubelet's `/metrics/resource` (kubelet contract §13): what the node and its containers had used when. Pure.
//!
//! A page is believed whole or not at all: one that ends in the middle of a line, or has a line that is none, is an error. Points that
//! lack a part are left out, as metrics-server leaves them out.

use std::collections::BTreeMap;

/// Counters are seconds, and points have nanoseconds.
const NANOS: f64 = 1e9;
/// Beyond these a number is no time of this world, and no amount: both fit into 64 bits in any unit used here.
const MILLIS_MAX: f64 = 253_402_300_799_000.0;
const AMOUNT_MAX: f64 = 9.0e18;

/// What something had used at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// When, in milliseconds since the epoch, by the clock of its node.
    pub(super) at_ms: i64,
    /// When it began to count, likewise; 0 where that is not known.
    pub(super) start_ms: i64,
    /// CPU time since then, in nanoseconds.
    pub(super) cpu_nanos: u64,
    /// Working set, in bytes.
    pub(super) memory: u64,
}

/// The containers of a pod, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodPoints {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    /// Sorted by name.
    pub(super) containers: Vec<(Box<str>, Point)>,
}

/// What one page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) node: Option<Point>,
    /// Sorted by namespace and name; only pods of which every container is known.
    pub(super) pods: Vec<PodPoints>,
}

/// Why a page is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageError {
    /// It is no text.
    #[error("the page is no text")]
    Text,
    /// It ends within a line.
    #[error("the page is cut off")]
    CutOff,
    /// A line that is no sample.
    #[error("line {0} is no sample")]
    Line(usize),
}

/// A point of which parts are known.
#[derive(Clone, Copy, Default)]
struct Parts {
    at_ms: Option<i64>,
    start_ms: i64,
    cpu_nanos: u64,
    memory: u64,
}

impl Parts {
    /// A part that is zero is absent: what has just ended, or has not been looked at yet, is shown so by kubelets.
    fn whole(self) -> Option<Point> {
        let at_ms = self.at_ms.filter(|_| self.cpu_nanos > 0 && self.memory > 0)?;
        Some(Point {
            at_ms,
            start_ms: self.start_ms,
            cpu_nanos: self.cpu_nanos,
            memory: self.memory,
        })
    }
}

#[derive(Clone, Copy)]
enum Family {
    NodeCpu,
    NodeMemory,
    Cpu,
    Memory,
    Start,
}

fn family(name: &str) -> Option<Family> {
    Some(match name {
        "node_cpu_usage_seconds_total" => Family::NodeCpu,
        "node_memory_working_set_bytes" => Family::NodeMemory,
        "container_cpu_usage_seconds_total" => Family::Cpu,
        "container_memory_working_set_bytes" => Family::Memory,
        "container_start_time_seconds" => Family::Start,
        _ => return None,
    })
}

/// One sample: its labels in braces (or nothing), its value, and its time in milliseconds.
struct Sample<'a> {
    labels: &'a str,
    value: f64,
    at_ms: Option<i64>,
}

fn sample(rest: &str) -> Option<Sample<'_>> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => inner.split_at(end_of_labels(inner)?),
        None => ("", rest),
    };
    let mut words = rest.strip_prefix('}').unwrap_or(rest).split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let at_ms = match words.next() {
        None => None,
        Some(word) => Some(word.parse::<f64>().ok()?),
    };
    let is_alone = words.next().is_none();
    let at_ms = at_ms.filter(|ms| (1.0..=MILLIS_MAX).contains(ms)).map(|ms| ms as i64);
    is_alone.then_some(Sample { labels, value, at_ms })
}

/// Where the closing brace stands that is in no value.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The value of a label; empty where there is none. Names in a cluster need no escapes: what has one is nobody's name.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (own, after) = rest.split_once("=\"")?;
        let end = after.find('"')?;
        let value = &after[..end];
        if own.trim_start_matches(',').trim() == name {
            return (!value.is_empty() && !value.contains('\\')).then_some(value);
        }
        rest = &after[end + 1..];
    }
}

/// The number times a unit, if it is an amount at all. The nearest one: a decimal fraction is rarely whole once it is binary.
fn amount(value: f64, unit: f64) -> Option<u64> {
    let scaled = (value * unit).round();
    (0.0..=AMOUNT_MAX).contains(&scaled).then_some(scaled as u64)
}

type Containers<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, Parts>>;

/// Reads a page.
///
/// # Errors
/// See [`PageError`].
pub(super) fn read(bytes: &[u8]) -> Result<Page, PageError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PageError::Text)?;
    if !text.ends_with('\n') {
        return Err(PageError::CutOff);
    }
    let mut node = Parts::default();
    let mut pods = Containers::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let end = line.find(['{', ' ']).ok_or(PageError::Line(number + 1))?;
        let Some(family) = family(&line[..end]) else {
            continue;
        };
        let sample = sample(&line[end..]).ok_or(PageError::Line(number + 1))?;
        match family {
            Family::NodeCpu | Family::NodeMemory => note(&mut node, family, &sample),
            _ => {
                let names = ["namespace", "pod", "container"].map(|name| label(sample.labels, name));
                let [Some(namespace), Some(pod), Some(container)] = names else {
                    return Err(PageError::Line(number + 1));
                };
                let of_pod = pods.entry((namespace, pod)).or_default();
                note(of_pod.entry(container).or_default(), family, &sample);
            }
        }
    }
    Ok(Page {
        node: node.whole(),
        pods: pods.into_iter().filter_map(whole_pod).collect(),
    })
}

fn note(parts: &mut Parts, family: Family, sample: &Sample<'_>) {
    match family {
        Family::NodeCpu | Family::Cpu => {
            parts.cpu_nanos = amount(sample.value, NANOS).unwrap_or_default();
            // Rates are of CPU, so its time is the point's.
            parts.at_ms = sample.at_ms;
        }
        Family::NodeMemory | Family::Memory => parts.memory = amount(sample.value, 1.0).unwrap_or_default(),
        Family::Start => {
            let start = Some(sample.value * 1e3).filter(|ms| (0.0..=MILLIS_MAX).contains(ms));
            parts.start_ms = start.unwrap_or_default() as i64;
        }
    }
}

fn whole_pod(((namespace, name), containers): ((&str, &str), BTreeMap<&str, Parts>)) -> Option<PodPoints> {
    let points = containers
        .into_iter()
        .map(|(container, parts)| Some((container.into(), parts.whole()?)));
    Some(PodPoints {
        namespace: namespace.into(),
        name: name.into(),
        containers: points.collect::<Option<Vec<_>>>()?,
    })
}

#[cfg(test)]
mod tests;
