//! Which images are to go, in which order, and why the others stay. Pure.
//!
//! Order: the least lately used first, then the first detected (kubelet contract §10). What is used by a container, running or dead, or
//! wanted by a pod that has not ended, what is pinned and what is too young is never among them.
//!
//! Times are monotonic, since an instant of the caller's: a clock that is set makes no image old, and none young.

use crate::runtime::ImageInfo;
use client::ordered::Arrange;
use jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet};

/// When images go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `imageGCHighThresholdPercent`: from this usage on.
    pub high_percent: i64,
    /// `imageGCLowThresholdPercent`: down to this one.
    pub low_percent: i64,
    /// `imageMinimumGCAge`: what was detected later stays.
    pub youngest: SignedDuration,
    /// `imageMaximumGCAge`: what was not used for so long goes, however much is free; none is off.
    pub oldest: Option<SignedDuration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            youngest: SignedDuration::from_mins(2),
            oldest: None,
        }
    }
}

impl Rules {
    /// Whether nothing is ever collected by itself (kubelet contract §10).
    pub fn are_off(&self) -> bool {
        self.high_percent == 100 && self.oldest.is_none()
    }
}

/// How full a file system is, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub capacity: i64,
    /// Free for an ordinary user.
    pub available: i64,
}

/// What a file system that is too full needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// How much of it is used.
    pub percent: i64,
    /// How much has to be free, bytes.
    pub available: i64,
    /// How much more that is than now, bytes.
    pub bytes: i64,
}

/// What has to become free; nothing below the high mark.
///
/// # Errors
/// The file system has no size, as one that is not mounted has.
pub fn need(space: Space, rules: &Rules) -> Result<Option<Need>, &'static str> {
    let capacity = i128::from(space.capacity);
    if capacity <= 0 {
        return Err("invalid capacity 0 on image filesystem");
    }
    let free = i128::from(space.available).clamp(0, capacity);
    let percent = 100 - free * 100 / capacity;
    let wanted = capacity * i128::from(100 - rules.low_percent) / 100;
    let number = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
    Ok((percent >= i128::from(rules.high_percent)).then(|| Need {
        percent: number(percent),
        available: number(wanted),
        bytes: number((wanted - free).max(0)),
    }))
}

/// What uses images, by whatever names images have: ids, tags, digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used(pub BTreeSet<String>);

impl Used {
    /// Whether the image is used, by any of its names.
    pub fn has(&self, image: &ImageInfo) -> bool {
        let mut names = [&image.id]
            .into_iter()
            .chain(&image.repo_tags)
            .chain(&image.repo_digests);
        names.any(|name| self.0.contains(name))
    }
}

/// What is remembered of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// When it was found; nothing if it was here before.
    first: Option<SignedDuration>,
    /// When it was last found in use.
    used: Option<SignedDuration>,
}

/// What is remembered of the images that are here.
#[derive(Clone, Debug, Default)]
pub struct History {
    images: BTreeMap<String, Seen>,
    has_begun: bool,
}

impl History {
    /// Notes what is here and used now; what is gone is forgotten. What the first look finds was here before.
    pub fn note(&mut self, images: &[ImageInfo], used: &Used, now: SignedDuration) {
        let first = self.has_begun.then_some(now);
        self.has_begun = true;
        let known = std::mem::take(&mut self.images);
        for image in images {
            let seen = known.get(&image.id).copied();
            let mut seen = seen.unwrap_or(Seen { first, used: None });
            if used.has(image) {
                seen.used = Some(now);
            }
            self.images.insert(image.id.clone(), seen);
        }
    }

    /// Notes that an image was pulled then: it may have been gone since the last look, and is as one that was found and used then.
    pub fn pulled(&mut self, id: &str, at: SignedDuration) {
        let pulled = Seen {
            first: Some(at),
            used: Some(at),
        };
        self.images.insert(id.to_owned(), pulled);
    }

    /// Forgets an image that was removed: should it come back, that is another one.
    pub fn forget(&mut self, id: &str) {
        self.images.remove(id);
    }

    fn of(&self, image: &ImageInfo) -> Seen {
        self.images.get(&image.id).copied().unwrap_or_default()
    }
}

/// Why images stay: how many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// A container or a pod has them.
    pub used: usize,
    /// The runtime keeps them, or needs them for sandboxes.
    pub pinned: usize,
    /// They were detected a short while ago.
    pub young: usize,
}

/// Images that may go, in the order in which they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The ids.
    pub images: Vec<String>,
    /// Of the others.
    pub stay: Stay,
}

/// Chooses among the images of a look that was noted; `kept` are names of images that stay as if they were pinned.
pub fn choose(
    images: &[ImageInfo],
    history: &History,
    used: &Used,
    kept: &Used,
    rules: &Rules,
    now: SignedDuration,
) -> Choice {
    let mut choice = Choice::default();
    let mut free: Vec<(Seen, &str)> = Vec::new();
    for image in images {
        let seen = history.of(image);
        if image.pinned || kept.has(image) {
            choice.stay.pinned += 1;
        } else if used.has(image) {
            choice.stay.used += 1;
        } else if seen
            .first
            .is_some_and(|first| now.saturating_sub(first) < rules.youngest)
        {
            choice.stay.young += 1;
        } else {
            free.push((seen, &image.id));
        }
    }
    free.arrange_by_key(|(seen, id)| (seen.used, seen.first, *id));
    free.dedup_by_key(|(_, id)| *id);
    choice.images = free.into_iter().map(|(_, id)| id.to_owned()).collect();
    choice
}

/// Those of a choice that nobody used for longer than `imageMaximumGCAge`. An image counts from when it was last used or detected, and
/// nothing goes before this kubelet itself has run that long: it does not know what came before.
pub fn outdated(
    choice: &Choice,
    history: &History,
    rules: &Rules,
    ran: SignedDuration,
    now: SignedDuration,
) -> Vec<String> {
    let Some(oldest) = rules.oldest.filter(|oldest| ran > *oldest) else {
        return Vec::new();
    };
    let is_old = |id: &&String| {
        let seen = history.images.get(*id).copied().unwrap_or_default();
        seen.used
            .max(seen.first)
            .is_none_or(|last| now.saturating_sub(last) > oldest)
    };
    choice.images.iter().filter(is_old).cloned().collect()
}

/// What is told when too little became free: upstream's words, then why no more images went.
pub fn shortage(percent: i64, capacity: i64, freed: i64, stay: &Stay, failed: usize) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({percent}% of {} used). Failed to free sufficient space by \
         deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or \
         other data. Images that stay: {} in use, {} pinned, {} younger than imageMinimumGCAge, {failed} that could not be removed.",
        size(capacity),
        stay.used,
        stay.pinned,
        stay.young,
    )
}

/// A size as people read it, with one digit after the point.
fn size(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests;
