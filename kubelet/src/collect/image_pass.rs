//! One pass over the images: looks at what is here and used, removes what [`super::images`] chooses.
//!
//! Owns what is remembered of images. One pass at a time. What is used is asked anew before each removal, because removing takes
//! time and pods start meanwhile; how much became free is measured, because images share layers.

use super::Freed;
use super::images::{self, Choice, History, Space, Stay, Used};
use crate::events::Severity;
use crate::host::machine;
use crate::host::{FileWork, WorkError};
use crate::image::{Images, reference};
use crate::parts::Parts;
use crate::pod_object;
use crate::reason::event;
use crate::runtime::{ImageInfo, RuntimeError};
use client::ordered::CollectOrdered;
use jiff::SignedDuration;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Tells how full the file system is that a path is on.
pub type Measure = Arc<dyn Fn(&Path) -> Space + Send + Sync>;

/// How long a file system may take to answer.
const MEASURE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a file system is given to show what a removal freed, if it shows less than half of it at once.
const SETTLE: Duration = Duration::from_secs(1);
/// The key of all measurements: one at a time.
const MEASURING: &str = "image file system";

/// By the kernel's figures.
pub fn by_statvfs() -> Measure {
    Arc::new(|path| {
        let disk = machine::disk(path);
        Space {
            capacity: disk.capacity,
            available: disk.available,
        }
    })
}

/// Why a pass did not do all of its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("measure the image file system at {path}")]
    Measure { path: PathBuf, source: WorkError },
    /// What is wrong with the file system, in upstream's words.
    #[error("{0}")]
    Capacity(&'static str),
    /// Too little became free.
    #[error("{0}")]
    Shortage(String),
    /// Images could not be removed; with the first's reason.
    #[error("wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {first}")]
    Removal {
        wanted: i64,
        freed: i64,
        first: RuntimeError,
    },
}

/// Why an image goes, as its metric says.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Age,
    Space,
}

impl Reason {
    fn label(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

/// Collects the images of one kubelet.
pub(super) struct ImageCollector {
    parts: Arc<Parts>,
    images: Images,
    rules: images::Rules,
    /// Images that stay whatever the runtime says of them.
    kept: Used,
    measure: Measure,
    files: FileWork,
    /// What the history's times count from.
    begun: Instant,
    history: Mutex<History>,
}

/// What was there at one look.
struct Look {
    images: Vec<ImageInfo>,
    choice: Choice,
}

/// What came of removals.
#[derive(Default)]
struct Removed {
    images: usize,
    freed: i64,
    failed: usize,
    first: Option<RuntimeError>,
    /// Images that were chosen and are used by now.
    used: usize,
}

impl ImageCollector {
    pub(super) fn new(
        parts: Arc<Parts>,
        images: Images,
        rules: images::Rules,
        sandbox_image: Option<String>,
        measure: Measure,
    ) -> Self {
        let kept = sandbox_image.into_iter().flat_map(|name| names(&name));
        Self {
            parts,
            images,
            rules,
            kept: Used(kept.collect_ordered()),
            measure,
            files: FileWork::new(MEASURE_DEADLINE),
            begun: Instant::now(),
            history: Mutex::default(),
        }
    }

    /// Notes which images are here and used.
    pub(super) async fn detect(&self) -> Result<(), PassError> {
        self.look(&mut *self.history.lock().await).await?;
        Ok(())
    }

    /// Removes what is too old, then, above the high mark, what is needed to get to the low one. `ran` is for how long this kubelet
    /// has noted what is used.
    pub(super) async fn collect(&self, ran: Duration) -> Result<(), PassError> {
        let mut history = self.history.lock().await;
        let mut look = self.look(&mut history).await?;
        if self.rules.are_off() {
            return Ok(());
        }
        let ran = SignedDuration::try_from(ran).unwrap_or(SignedDuration::MAX);
        let old = images::outdated(
            &look.choice,
            &history,
            &self.rules,
            ran,
            self.since_begun(Instant::now()),
        );
        if !old.is_empty() {
            let removed = self.remove(&mut history, &look, &old, Reason::Age, None, None).await?;
            look = self.look(&mut history).await?;
            if let Some(first) = removed.first {
                let (wanted, freed) = (0, removed.freed);
                return Err(PassError::Removal { wanted, freed, first });
            }
        }
        let Some(path) = self.file_system().await? else {
            return Ok(());
        };
        let space = self.space(&path).await?;
        let need = images::need(space, &self.rules).map_err(|why| self.invalid(why))?;
        let Some(need) = need else { return Ok(()) };
        let (percent, bytes) = (need.percent, need.bytes);
        tracing::info!(
            percent,
            bytes,
            "the image file system is over its high mark, removing unused images"
        );
        let order = look.choice.images.clone();
        let removed = self
            .remove(
                &mut history,
                &look,
                &order,
                Reason::Space,
                Some(&path),
                Some(need.available),
            )
            .await?;
        if let Some(first) = removed.first {
            let (wanted, freed) = (need.bytes, removed.freed);
            return Err(PassError::Removal { wanted, freed, first });
        }
        if self.space(&path).await?.available >= need.available {
            return Ok(());
        }
        let stay = Stay {
            used: look.choice.stay.used + removed.used,
            ..look.choice.stay
        };
        let message = images::shortage(need.percent, space.capacity, removed.freed, &stay, removed.failed);
        self.warn(event::FREE_DISK_SPACE_FAILED, message.clone());
        Err(PassError::Shortage(message))
    }

    /// Removes everything that may go.
    pub(super) async fn delete_unused(&self) -> Result<Freed, PassError> {
        let mut history = self.history.lock().await;
        let look = self.look(&mut history).await?;
        let path = self.file_system().await?;
        let order = look.choice.images.clone();
        let removed = self
            .remove(&mut history, &look, &order, Reason::Space, path.as_deref(), None)
            .await?;
        match removed.first {
            Some(first) => Err(PassError::Removal {
                wanted: i64::MAX,
                freed: removed.freed,
                first,
            }),
            None => Ok(Freed {
                images: removed.images,
                bytes: removed.freed,
            }),
        }
    }

    async fn look(&self, history: &mut History) -> Result<Look, PassError> {
        let images = self.parts.runtime.list_images().await?;
        let used = self.used().await?;
        let now = self.since_begun(Instant::now());
        for (name, at) in self.images.take_pulled() {
            let named = Used([name].into());
            for image in images.iter().filter(|image| named.has(image)) {
                history.pulled(&image.id, self.since_begun(at));
            }
        }
        history.note(&images, &used, now);
        let choice = images::choose(&images, history, &used, &self.kept, &self.rules, now);
        Ok(Look { images, choice })
    }

    fn since_begun(&self, at: Instant) -> SignedDuration {
        let since = at.saturating_duration_since(self.begun);
        SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX)
    }

    /// What uses images now: containers in every state, pods that have not ended (their containers, and volumes that are images), and
    /// pods that were just given one and have no container of it yet.
    async fn used(&self) -> Result<Used, PassError> {
        let containers = self.parts.runtime.list_containers(None).await?;
        let mut used = Used(
            containers
                .into_iter()
                .map(|container| container.image)
                .collect_ordered(),
        );
        for pod in self.parts.pods.list() {
            if !pod.ended {
                let wanted = pod_object::images(&pod.pod).flat_map(names);
                used.0.extend(wanted);
            }
        }
        used.0.extend(self.images.given_lately());
        Ok(used)
    }

    /// Removes images one after another until so much is free; goes on past failures. Where it cannot be told any more what is used, it
    /// ends as if that image could not be removed: what was removed before counts.
    async fn remove(
        &self,
        history: &mut History,
        look: &Look,
        order: &[String],
        reason: Reason,
        path: Option<&Path>,
        until: Option<i64>,
    ) -> Result<Removed, PassError> {
        let mut removed = Removed::default();
        let done = self
            .remove_each(history, look, (order, reason), (path, until), &mut removed)
            .await;
        if removed.images > 0 {
            // Who may use an image is forgotten with it: should it come back, that is another one.
            self.images.forget_gone().await;
        }
        match done {
            Err(PassError::Runtime(error)) if removed.images > 0 => {
                removed.first.get_or_insert(error);
                Ok(removed)
            }
            done => done.map(|()| removed),
        }
    }

    async fn remove_each(
        &self,
        history: &mut History,
        look: &Look,
        (order, reason): (&[String], Reason),
        (path, until): (Option<&Path>, Option<i64>),
        removed: &mut Removed,
    ) -> Result<(), PassError> {
        let mut available = match path {
            Some(path) => self.space(path).await?.available,
            None => 0,
        };
        let before = available;
        for id in order {
            if until.is_some_and(|until| available >= until) {
                break;
            }
            let Some(image) = look.images.iter().find(|image| image.id == *id) else {
                continue;
            };
            if self.used().await?.has(image) {
                removed.used += 1;
                continue;
            }
            match self.parts.runtime.remove_image(id).await {
                Ok(()) => {
                    history.forget(id);
                    self.parts.metrics.runtime.image_collected(reason.label());
                    removed.images += 1;
                    if let Some(path) = path {
                        available = self.settled(path, available, image.size).await?;
                        removed.freed = (available - before).max(0);
                    }
                    let (names, size) = (image.repo_tags.join(" "), image.size);
                    tracing::info!(
                        image = id,
                        names,
                        size,
                        reason = reason.label(),
                        "removed an unused image"
                    );
                }
                Err(error) => {
                    tracing::warn!(image = id, %error, "an unused image cannot be removed");
                    removed.failed += 1;
                    removed.first.get_or_insert(error);
                }
            }
        }
        Ok(())
    }

    /// What is free after the removal of an image of that size. Not every file system tells at once.
    async fn settled(&self, path: &Path, before: i64, size: u64) -> Result<i64, PassError> {
        let half = i64::try_from(size / 2).unwrap_or(i64::MAX);
        let available = self.space(path).await?.available;
        if available.saturating_sub(before) >= half {
            return Ok(available);
        }
        tokio::time::sleep(SETTLE).await;
        Ok(self.space(path).await?.available)
    }

    /// Where the runtime has its images; nothing where it does not tell.
    async fn file_system(&self) -> Result<Option<PathBuf>, PassError> {
        let told = self.parts.runtime.image_fs_info().await?;
        let id = told.image_filesystems.into_iter().next().and_then(|found| found.fs_id);
        Ok(id.map(|id| PathBuf::from(id.mountpoint)))
    }

    async fn space(&self, path: &Path) -> Result<Space, PassError> {
        let (measure, of) = (self.measure.clone(), path.to_owned());
        let measured = self.files.run(MEASURING, move || measure(&of)).await;
        measured.map_err(|source| PassError::Measure {
            path: path.to_owned(),
            source,
        })
    }

    fn invalid(&self, why: &'static str) -> PassError {
        self.warn(event::INVALID_DISK_CAPACITY, why.to_owned());
        PassError::Capacity(why)
    }

    fn warn(&self, reason: &str, message: String) {
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        recorder.node(node, Severity::Warning, reason, message);
    }
}

/// An image's name as it is written, and as the runtime has it.
fn names(name: &str) -> [String; 2] {
    [name.to_owned(), reference::full(name)]
}
