//! Rolling: how many pods of the new and the old templates there may be at this moment.

use super::{View, available, scale, size};
use crate::controller::amount::{Round, narrow, resolve};
use crate::controller::write::Write;
use crate::planted;
use k8s_openapi::api::apps::v1::ReplicaSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether any replica set is meant to have pods.
pub fn any_active(sets: &[Arc<ReplicaSet>]) -> bool {
    sets.iter().any(|rs| size(rs) > 0)
}

/// (surge, unavailable): never both zero.
fn fences(view: &View<'_>) -> (i32, i32) {
    let rolling = view.spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let surge = resolve(rolling.and_then(|r| r.max_surge.as_ref()), view.wanted(), Round::Up);
    let unavailable = resolve(
        rolling.and_then(|r| r.max_unavailable.as_ref()),
        view.wanted(),
        Round::Down,
    );
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// Pods allowed above the wanted number.
pub fn surge(view: &View<'_>) -> i32 {
    if view.recreates() { 0 } else { fences(view).0 }
}

/// Pods that may be unavailable during a rollout.
pub fn max_unavailable(view: &View<'_>) -> i32 {
    if view.recreates() || view.wanted() == 0 {
        0
    } else if planted::is(planted::Fault::UnavailableIgnored) {
        view.wanted()
    } else {
        fences(view).1.min(view.wanted())
    }
}

fn total(sets: &mut dyn Iterator<Item = &Arc<ReplicaSet>>) -> i64 {
    sets.map(|rs| i64::from(size(rs))).sum()
}

/// Pods that there may be, in all.
pub fn allowed(view: &View<'_>) -> i64 {
    i64::from(view.wanted()) + i64::from(surge(view))
}

/// The size of the new replica set that has `current` now: as large as the surge allows.
pub fn new_size(view: &View<'_>, current: i32) -> i32 {
    if view.recreates() {
        return view.wanted();
    }
    let room = allowed(view) - total(&mut view.all());
    if room <= 0 {
        current
    } else {
        let current = i64::from(current);
        narrow(current + room.min(i64::from(view.wanted()) - current))
    }
}

/// A step of a rolling update: the new replica set first, then the old ones.
pub fn roll(view: &View<'_>) -> Vec<Write> {
    let Some(new) = &view.new else { return vec![] };
    let have = size(new);
    let to = if have > view.wanted() {
        view.wanted()
    } else {
        new_size(view, have)
    };
    if to != have {
        return scale(view, new, to).into_iter().collect();
    }
    let sizes = shrink_old(view, new);
    view.old
        .iter()
        .filter_map(|rs| sizes.get(&Key::of(rs)).and_then(|to| scale(view, rs, *to)))
        .collect()
}

/// A replica set's name: enough to tell those of one deployment apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key(String);

impl Key {
    fn of(rs: &ReplicaSet) -> Self {
        Self(rs.metadata.name.clone().unwrap_or_default())
    }
}

/// New sizes of old replica sets: first pods that are not available anyway, then as many as availability allows.
fn shrink_old(view: &View<'_>, new: &ReplicaSet) -> BTreeMap<Key, i32> {
    let mut sizes: BTreeMap<Key, i32> = BTreeMap::new();
    if !any_active(&view.old) {
        return sizes;
    }
    let least = i64::from(view.wanted() - max_unavailable(view));
    let new_unavailable = i64::from(size(new)) - i64::from(available(new));
    let mut removable = total(&mut view.all()) - least - new_unavailable;
    if removable <= 0 {
        return sizes;
    }
    for rs in view.old.iter().filter(|rs| size(rs) > 0) {
        let have = i64::from(size(rs));
        let unhealthy = (have - i64::from(available(rs))).max(0).min(removable);
        if unhealthy > 0 {
            sizes.insert(Key::of(rs), narrow(have - unhealthy));
            removable -= unhealthy;
        }
    }
    // A status may be older than the last scaling: pods above the size are about to go and do not count.
    let available = view.all().map(|rs| i64::from(available(rs).min(size(rs))));
    let mut spare = available.sum::<i64>() - least;
    for rs in &view.old {
        let have = i64::from(sizes.get(&Key::of(rs)).copied().unwrap_or_else(|| size(rs)));
        let removed = have.min(spare);
        if removed > 0 {
            sizes.insert(Key::of(rs), narrow(have - removed));
            spare -= removed;
        }
    }
    sizes
}

/// A step of a Recreate: the old ones to nothing; when their pods are gone, the new one to full size.
pub fn recreate(view: &View<'_>) -> Vec<Write> {
    if any_active(&view.old) {
        return view
            .old
            .iter()
            .filter(|rs| size(rs) > 0)
            .filter_map(|rs| scale(view, rs, 0))
            .collect();
    }
    if view.old_pods_run {
        return vec![];
    }
    view.new
        .iter()
        .filter_map(|new| scale(view, new, view.wanted()))
        .collect()
}
