//! The ranges Services have their addresses from. Pure, but for who reads them and who is told.

use client::Informer;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use netlink::cidr::Cidr;
use std::time::Duration;

use super::of_node;
use crate::desired::disjoint;
use crate::settings::{DetectLocal, Settings};
use crate::told::Tell;

/// How long a start waits for them: what follows from them is a courtesy, and another API server may have none.
const KNOWN_MAX: Duration = Duration::from_secs(10);
/// The event of a node where a range of Services is not guarded; upstream guards it, and cuts the node off.
const UNGUARDED: &str = "ServiceRangeNotGuarded";
/// How many of each family are used, each of which a packet to no Service is compared with.
const RANGES_MAX: usize = 128;

/// Every range of every object, each once and none inside another, as upstream takes them: ready or not. What is beyond the bound is
/// told: its unused addresses are routed as any other's.
pub(super) fn ranges<'a>(objects: impl Iterator<Item = &'a ServiceCIDR>) -> Vec<Cidr> {
    let specs = objects.filter_map(|object| object.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.cidrs.iter().flatten());
    let all = texts
        .filter_map(|text| Cidr::parse(text).ok())
        .map(|range| range.network());
    let (v4, v6): (Vec<Cidr>, Vec<Cidr>) = all.partition(Cidr::is_v4);
    [bounded(disjoint(v4)), bounded(disjoint(v6))].concat()
}

fn bounded(mut ranges: Vec<Cidr>) -> Vec<Cidr> {
    if ranges.len() > RANGES_MAX {
        tracing::warn!(
            used = RANGES_MAX,
            known = ranges.len(),
            "more ranges of Services of one family than are guarded"
        );
        ranges.truncate(RANGES_MAX);
    }
    ranges
}

/// Apart: those of the ranges that may be guarded on a node of these settings, and those that may not. Whoever makes a range that has pods or
/// this node in it (`0.0.0.0/0` is one) would have every new connection to them dropped, those by which the node hears that the range is gone
/// again among them; upstream does just that.
fn apart(ranges: Vec<Cidr>, settings: &Settings) -> (Vec<Cidr>, Vec<Cidr>) {
    let pods: &[Cidr] = match &settings.detect_local {
        DetectLocal::Networks(networks) => networks,
        _ => &[],
    };
    let shares = |range: &Cidr, other: &Cidr| range.contains(&other.addr) || other.contains(&range.addr);
    ranges.into_iter().partition(|range| {
        let is_ours = settings.node_ips.iter().any(|ip| range.contains(ip));
        !is_ours && !pods.iter().any(|other| shares(range, other))
    })
}

/// Which ranges are guarded. Tells on the node which are not, once for as long as it is so.
pub(super) struct Guard {
    node: String,
    tell: Tell,
    /// Those that were not, the last time.
    told: Vec<Cidr>,
}

impl Guard {
    /// The guard of a node of this name, which told nothing yet.
    pub(super) fn new(node: &str, tell: &Tell) -> Self {
        Self {
            node: node.to_owned(),
            tell: tell.clone(),
            told: Vec::new(),
        }
    }

    /// Those of the ranges that are guarded on a node of these settings.
    pub(super) fn keep(&mut self, ranges: Vec<Cidr>, settings: &Settings) -> Vec<Cidr> {
        let (kept, left) = apart(ranges, settings);
        if left.iter().any(|range| !self.told.contains(range)) {
            let note = note(&left);
            tracing::warn!("{note}");
            (self.tell)(of_node(&self.node, true, UNGUARDED, &note));
        }
        self.told = left;
        kept
    }
}

fn note(left: &[Cidr]) -> String {
    let texts: Vec<String> = left.iter().map(Cidr::to_string).collect();
    format!(
        "ranges of ServiceCIDRs have addresses of pods or of this node, and packets to their unused addresses are not dropped: {}",
        texts.join(", ")
    )
}

/// The ranges known now.
pub(super) fn known(objects: &Informer<ServiceCIDR>) -> Vec<Cidr> {
    ranges(objects.list().iter().map(|object| &**object))
}

/// Waits until they are, so that a start does not write everything twice; not for long, and not where the API server has none or
/// does not tell us.
pub(super) async fn first(objects: &Informer<ServiceCIDR>) -> Vec<Cidr> {
    let known_in_time = tokio::time::timeout(KNOWN_MAX, objects.synced_or_refused()).await;
    if !known_in_time.unwrap_or(false) {
        tracing::warn!(
            "ServiceCIDRs are not known: packets to unused addresses of Services are not dropped until they are"
        );
    }
    known(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::Told;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    fn object(cidrs: &[&str]) -> ServiceCIDR {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"cidrs": cidrs}})).unwrap()
    }

    #[test]
    fn ranges_are_of_all_objects_and_bounded() {
        let objects = [
            object(&["10.96.0.0/12", "fd00::/108"]),
            object(&["10.96.7.9/24", "nonsense"]),
            object(&["10.96.0.0/12"]),
            object(&["192.0.2.0/28"]),
            ServiceCIDR::default(),
        ];
        let found: Vec<String> = ranges(objects.iter()).iter().map(Cidr::to_string).collect();
        assert_eq!(found, ["10.96.0.0/12", "192.0.2.0/28", "fd00::/108"]);
        let many: Vec<ServiceCIDR> = (0..=255)
            .map(|number| object(&[&format!("10.{number}.0.0/17")]))
            .collect();
        assert_eq!(ranges(many.iter()).len(), RANGES_MAX);
        // Many of one family leave the other its own.
        let v6 = object(&["fd00::/108"]);
        let found = ranges(many.iter().chain([&v6]));
        assert_eq!(
            (found.len(), found.iter().any(|range| !range.is_v4())),
            (RANGES_MAX + 1, true)
        );
    }

    #[test]
    fn a_range_with_pods_or_this_node_in_it_cuts_nobody_off() {
        let parse = |texts: &[&str]| -> Vec<Cidr> { texts.iter().map(|text| Cidr::parse(text).unwrap()).collect() };
        let settings = Settings {
            detect_local: DetectLocal::Networks(parse(&["10.244.0.0/16", "fd01::/48"])),
            node_ips: vec!["192.0.2.7".parse().unwrap()],
            ..Settings::default()
        };
        let left = |texts: &[&str]| {
            let (kept, _) = apart(parse(texts), &settings);
            kept.iter().map(Cidr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left(&["10.96.0.0/12", "fd00::/108"]), ["10.96.0.0/12", "fd00::/108"]);
        assert_eq!(left(&["0.0.0.0/0", "::/0"]), [""; 0]);
        assert_eq!(
            left(&["10.244.7.0/24", "192.0.2.0/28", "10.96.0.0/12"]),
            ["10.96.0.0/12"]
        );
    }

    #[test]
    fn what_is_not_guarded_is_told_on_the_node_once_while_it_is_so() {
        let parse = |texts: &[&str]| -> Vec<Cidr> { texts.iter().map(|text| Cidr::parse(text).unwrap()).collect() };
        let settings = Settings {
            node_ips: vec!["192.0.2.7".parse().unwrap()],
            ..Settings::default()
        };
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let hears = told.clone();
        let tell: Tell = Arc::new(move |what| hears.lock().unwrap().push(what));
        let mut guard = Guard::new("n1", &tell);
        let mut notes = |texts: &[&str]| {
            guard.keep(parse(texts), &settings);
            let told = std::mem::take(&mut *told.lock().unwrap());
            assert!(
                told.iter()
                    .all(|told| (told.kind, told.reason, told.is_warning) == ("Node", UNGUARDED, true))
            );
            told.into_iter().map(|told| told.note).collect::<Vec<_>>()
        };
        assert_eq!(notes(&["10.96.0.0/12"]), [""; 0]);
        let told = notes(&["10.96.0.0/12", "192.0.2.0/28"]);
        assert!(told.len() == 1 && told[0].ends_with(": 192.0.2.0/28"), "{told:?}");
        // As often as the node says that it lives.
        assert_eq!(notes(&["10.96.0.0/12", "192.0.2.0/28"]), [""; 0]);
        assert_eq!(notes(&["192.0.2.0/28", "0.0.0.0/0"]).len(), 1);
        assert_eq!(notes(&[]), [""; 0]);
        assert_eq!(notes(&["0.0.0.0/0"]).len(), 1, "again");
    }
}
