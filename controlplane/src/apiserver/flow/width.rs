//! How many places a request takes (control-plane contract §8, KEP-1040 "Support for LIST requests"). Pure.
//!
//! Lists and the state a watch begins with take one for each hundred objects that are looked at; everything is read from memory, so
//! none is counted twice, as upstream does of what it reads from etcd. Writes take one: what upstream adds for the watchers that
//! are told (final seats) is not counted, since telling them happens outside of the request here.

use crate::apiserver::request::{Query, RequestInfo};

/// Objects that are looked at for one place.
const OBJECTS: usize = 100;
/// Places one request takes at most.
pub(super) const SEATS_MAX: usize = 10;

/// The places one request of a level with queues takes at most, as upstream: a bit more than a seventh of the level's share, and so
/// few that a hand of queues can have one at work each.
pub(super) fn most_of(nominal: usize, hand_size: usize) -> usize {
    let part = (nominal * 15).div_ceil(100).min(nominal / hand_size.max(1));
    part.clamp(1, SEATS_MAX)
}

/// The places a request takes, of at most `most`; `stored` says how many objects the resource has.
pub(super) fn seats(info: &RequestInfo, query: &Query, most: usize, stored: impl FnOnce() -> usize) -> usize {
    let reads_many = info.is_resource && info.name.is_empty() && info.subresource.is_empty();
    let is_list = info.verb == "list" || (info.verb == "watch" && query.flag("sendInitialEvents"));
    if !reads_many || !is_list {
        return 1;
    }
    let stored = stored();
    let limit = query.text("limit").parse::<usize>().ok().filter(|limit| *limit > 0);
    let has_selector = !info.field_selector.is_empty() || !info.label_selector.is_empty();
    let objects = match limit {
        Some(limit) if !has_selector => stored.min(limit),
        // All of them may have to be looked at to find as many.
        _ => stored,
    };
    objects.div_ceil(OBJECTS).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_for_a_hundred_objects() {
        for (uri, stored, expected) in [
            ("/api/v1/pods", 0, 1),
            ("/api/v1/pods", 100, 1),
            ("/api/v1/pods", 101, 2),
            ("/api/v1/pods", 5_000, 10),
            ("/api/v1/pods?limit=500", 5_000, 5),
            ("/api/v1/pods?limit=500&labelSelector=a", 5_000, 10),
            ("/api/v1/pods?limit=0", 5_000, 10),
            ("/api/v1/pods?limit=-1", 300, 3),
            ("/api/v1/pods?fieldSelector=metadata.name%3Dx", 5_000, 1),
            ("/api/v1/namespaces/a/pods/x", 5_000, 1),
            ("/api/v1/pods?watch=1", 5_000, 1),
            ("/api/v1/pods?watch=1&sendInitialEvents=true", 5_000, 10),
            ("/apis", 5_000, 1),
        ] {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let query = Query::parse(query);
            let info = RequestInfo::parse(&http::Method::GET, path, &query);
            assert_eq!(seats(&info, &query, SEATS_MAX, || stored), expected, "{uri} {stored}");
        }
        assert_eq!(most_of(12, 8), 1, "a hand of queues has one each");
        assert_eq!([0, 1, 20, 49, 600].map(|nominal| most_of(nominal, 6)), [1, 1, 3, 8, 10]);
    }
}
