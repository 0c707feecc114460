//! Flow schemas and priority levels at work: which request waits where (control-plane contract §8).
//!
//! Owns the present configuration: made anew from the stored objects when they change ([`follow`]), taken by each request as one
//! snapshot, so that a change meanwhile loses nobody. What each level may have is shared out anew every [`PERIOD`]. Levels keep those
//! who wait across changes; one that is deleted stays, with its share, until nobody is in it any more.

use super::allocation::{Bounds, share_out};
use super::counters::{FlowCounters, FlowMetrics};
use super::level::{Detail, Level, LevelView};
use super::schema::{Classifier, FlowSchema};
use super::spec::LevelSpec;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::state::ServerState;
use crate::apiserver::user::User;
use crate::resource::field::text;
use crate::resource::flow_defaults::{GROUP, LEVELS, SCHEMAS, flow_schemas, is_mandatory, priority_levels};
use crate::store::Revision;
use crate::store::window::{Snapshot, Stored};
use http::HeaderValue;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// All places: upstream's 400 reads and 200 writes (contract §8), for which this server has no flags.
pub(super) const SEATS: usize = 600;
/// How often places are shared out anew, as upstream.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Changes are followed this often at most.
const PAUSE: Duration = Duration::from_millis(100);

/// What a request of a schema is told and waits for.
pub(in crate::apiserver) struct Flow {
    pub(super) schema: Arc<FlowSchema>,
    pub(super) level: Arc<Level>,
    /// Those of the schema and of its level, if they are stored.
    pub(in crate::apiserver) uids: [Option<HeaderValue>; 2],
    counters: OnceLock<Arc<FlowCounters>>,
}

impl Flow {
    pub(super) fn counters(&self, metrics: &FlowMetrics) -> &FlowCounters {
        self.counters
            .get_or_init(|| metrics.of(&self.schema.name, &self.level.name))
    }

    /// The same, if a request has come.
    pub(super) fn made_counters(&self) -> Option<&FlowCounters> {
        self.counters.get().map(|counters| &**counters)
    }
}

/// One configuration.
#[derive(Default)]
struct Configuration {
    classifier: Classifier,
    /// In the classifier's order.
    flows: Vec<Arc<Flow>>,
    /// By name, those that are about to end as well.
    levels: BTreeMap<Arc<str>, Arc<Level>>,
}

/// The objects a configuration was made of.
#[derive(Clone, Default)]
struct Sources {
    /// By storage key.
    schemas: BTreeMap<Arc<str>, (Revision, Arc<FlowSchema>)>,
    /// Revisions, uids and specs by name.
    levels: BTreeMap<Arc<str>, (Revision, String, LevelSpec)>,
    /// The last common fraction of the levels' targets, if places have been shared out.
    fraction: Option<f64>,
}

/// See the module.
pub(super) struct Fairness {
    pub(super) origin: Instant,
    current: RwLock<Arc<Configuration>>,
    /// Held by whoever makes the next configuration.
    sources: Mutex<Sources>,
    pub(super) metrics: FlowMetrics,
}

impl Fairness {
    /// With the mandatory objects alone.
    pub(super) fn new() -> Self {
        let fairness = Self {
            origin: Instant::now(),
            current: RwLock::default(),
            sources: Mutex::default(),
            metrics: FlowMetrics::default(),
        };
        fairness.configure_from(&mut fairness.sources(), Sources::default());
        fairness
    }

    fn current(&self) -> Arc<Configuration> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flow of a request.
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> Option<Arc<Flow>> {
        // Taken and let go: schemas are not matched under the lock.
        let current = self.current();
        let found = current.classifier.classify(user, info);
        current.flows.get(found).map(Arc::clone)
    }

    /// Works by the stored objects from now on. What has not changed is not read again.
    pub(super) fn configure(&self, schemas: &Snapshot, levels: &Snapshot) {
        let mut known = self.sources();
        let read_schema = |(key, stored): (&Arc<str>, &Arc<Stored>)| {
            let same = known
                .schemas
                .get(key)
                .filter(|(revision, _)| *revision == stored.revision);
            let schema = same.map_or_else(
                || Arc::new(FlowSchema::obeyed(&stored.tree())),
                |(_, same)| Arc::clone(same),
            );
            (Arc::clone(key), (stored.revision, schema))
        };
        let read_level = |(key, stored): (&Arc<str>, &Arc<Stored>)| {
            let name = key.rsplit('/').next().unwrap_or_default();
            let same = known
                .levels
                .get_key_value(name)
                .filter(|(_, (revision, ..))| *revision == stored.revision);
            if let Some((name, same)) = same {
                return (Arc::clone(name), same.clone());
            }
            let object = stored.tree();
            let uid = text(&object, &["metadata", "uid"]).to_owned();
            (
                Arc::from(name),
                (stored.revision, uid, LevelSpec::obeyed(name, &object)),
            )
        };
        let next = Sources {
            schemas: schemas.objects.iter().map(read_schema).collect(),
            levels: levels.objects.iter().map(read_level).collect(),
            fraction: known.fraction,
        };
        self.configure_from(&mut known, next);
    }

    /// As the objects say, and the mandatory ones where they are missing.
    fn configure_from(&self, sources: &mut Sources, mut next: Sources) {
        let name = |object: &Value| text(object, &["metadata", "name"]).to_owned();
        for object in priority_levels().iter().filter(|object| is_mandatory(&name(object))) {
            let level = next.levels.entry(name(object).into());
            level.or_insert_with(|| (0, String::new(), LevelSpec::read(object)));
        }
        let mut schemas: Vec<Arc<FlowSchema>> = next.schemas.values().map(|(_, schema)| Arc::clone(schema)).collect();
        // One that names no level is passed over.
        schemas.retain(|schema| next.levels.contains_key(schema.level.as_str()));
        for object in flow_schemas().iter().filter(|object| is_mandatory(&name(object))) {
            if !schemas.iter().any(|schema| *schema.name == *name(object)) {
                schemas.push(Arc::new(FlowSchema::read(object)));
            }
        }
        let before = self.current();
        let levels = self.levels(&before, &next);
        let classifier = Classifier::new(schemas);
        let old: BTreeMap<&str, &Arc<Flow>> = before.flows.iter().map(|flow| (&*flow.schema.name, flow)).collect();
        let flows = classifier.schemas().iter().filter_map(|schema| {
            let (level, (_, level_uid, _)) = (
                levels.get(schema.level.as_str())?,
                next.levels.get(schema.level.as_str())?,
            );
            let uid = |uid: &str| HeaderValue::from_str(uid).ok().filter(|_| !uid.is_empty());
            let uids = [uid(&schema.uid), uid(level_uid)];
            let same = old
                .get(&*schema.name)
                .filter(|old| Arc::ptr_eq(&old.schema, schema) && Arc::ptr_eq(&old.level, level) && old.uids == uids);
            Some(same.map_or_else(
                || {
                    Arc::new(Flow {
                        schema: Arc::clone(schema),
                        level: Arc::clone(level),
                        uids,
                        counters: OnceLock::new(),
                    })
                },
                |same| Arc::clone(same),
            ))
        });
        let flows: Vec<Arc<Flow>> = flows.collect();
        debug_assert_eq!(flows.len(), classifier.schemas().len(), "every schema has its level");
        let current = Configuration {
            classifier,
            flows,
            levels,
        };
        let current = Arc::new(current);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&current);
        drop(old);
        drop(before);
        self.forget(&current);
        if next.fraction.is_some() {
            // By what was wanted in the last period: other bounds are no reason to take back what is borrowed.
            next.fraction = Some(share_again(&current, false));
        }
        *sources = next;
    }

    /// The levels with their shares: those there were, new ones, and those that are about to end.
    fn levels(&self, before: &Configuration, next: &Sources) -> BTreeMap<Arc<str>, Arc<Level>> {
        let ending = before
            .levels
            .iter()
            .filter(|(name, level)| !next.levels.contains_key(*name) && !has_ended(level));
        let ending: BTreeMap<&Arc<str>, LevelSpec> = ending.map(|(name, level)| (name, level.spec())).collect();
        let wanted = next.levels.iter().map(|(name, (.., spec))| (name, spec, false));
        let ending = ending.iter().map(|(name, spec)| (*name, spec, true));
        let all: Vec<(&Arc<str>, &LevelSpec, bool)> = wanted.chain(ending).collect();
        let shares = all.iter().map(|(_, spec, _)| spec.shares).sum();
        let levels = all.into_iter().map(|(name, spec, is_ending)| {
            let bounds = Bounds::of(spec, SEATS, shares);
            let level = match before.levels.get(name) {
                Some(level) => {
                    level.configure(spec, bounds, is_ending);
                    Arc::clone(level)
                }
                None => Arc::new(Level::new(name, self.origin, spec, bounds)),
            };
            (Arc::clone(name), level)
        });
        levels.collect()
    }

    /// Nothing is counted any more for schemas that are gone, or use another level, once none of their requests is left.
    fn forget(&self, current: &Configuration) {
        let labels = |flow: &Arc<Flow>| (Arc::clone(&flow.schema.name), Arc::clone(&flow.level.name));
        self.metrics.retain(&current.flows.iter().map(labels).collect());
    }

    /// A period is over: places are shared out by what the levels could have used. What has ended meanwhile goes.
    pub(super) fn adjust(&self) {
        let mut sources = self.sources();
        if self.current().levels.values().any(has_ended) {
            let next = sources.clone();
            self.configure_from(&mut sources, next);
        }
        let current = self.current();
        self.forget(&current);
        sources.fraction = Some(share_again(&current, true));
    }

    /// What the levels have now.
    pub(super) fn views(&self, detail: Detail) -> Vec<LevelView> {
        let current = self.current();
        current.levels.values().map(|level| level.view(detail)).collect()
    }

    /// Adds what is counted to `registry`.
    pub(super) fn register(&self, registry: &mut Registry) {
        let fraction = self.sources().fraction.unwrap_or_default();
        self.metrics.register(registry, &self.views(Detail::Numbers), fraction);
    }
}

/// Whether a level was to end, and nobody is in it any more.
fn has_ended(level: &Arc<Level>) -> bool {
    level.is_quiescing() && level.is_over()
}

/// Gives the levels their places by what they claim, anew if a period is over. Gives the common fraction of their targets.
fn share_again(current: &Configuration, is_over: bool) -> f64 {
    let (mut total, mut exempt) = (0, 0.0);
    let mut claims = Vec::new();
    for level in current.levels.values() {
        let claim = level.claim(is_over);
        total += level.nominal();
        match level.spec().is_exempt {
            // It takes what it wants; the others share the rest.
            true => exempt += claim.target.max(claim.lower),
            false => claims.push((level, claim)),
        }
    }
    let lowest: f64 = claims.iter().map(|(_, claim)| claim.lower).sum();
    let rest = (total as f64 - exempt).max(lowest);
    let only: Vec<_> = claims.iter().map(|(_, claim)| *claim).collect();
    let (fraction, given) = share_out(rest, &only);
    for ((level, _), places) in claims.iter().zip(given) {
        // In range: no more than the server's places.
        level.set_limit(places.round() as usize);
    }
    fraction
}

/// Follows the stored objects, and shares places out, for as long as the server lives.
pub(in crate::apiserver) async fn follow(state: Arc<ServerState>) {
    let windows = [SCHEMAS, LEVELS].map(|plural| state.reader().window_of(GROUP, plural));
    let [Some(schemas), Some(levels)] = windows else { return };
    let (mut schemas_changed, mut levels_changed) = (schemas.changes(), levels.changes());
    let mut next = Instant::now() + PERIOD;
    loop {
        // Seen first, read second: what changes in between is read again.
        schemas_changed.borrow_and_update();
        levels_changed.borrow_and_update();
        state.flow().fairness().configure(&schemas.cached(), &levels.cached());
        tokio::time::sleep(PAUSE).await;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next) => {
                    state.flow().fairness().adjust();
                    next += PERIOD;
                }
                _ = schemas_changed.changed() => break,
                _ = levels_changed.changed() => break,
            }
        }
    }
}

/// Works by what is stored; before the first request.
pub(in crate::apiserver) fn begin(state: &ServerState) {
    let windows = [SCHEMAS, LEVELS].map(|plural| state.reader().window_of(GROUP, plural));
    if let [Some(schemas), Some(levels)] = windows {
        state.flow().fairness().configure(&schemas.cached(), &levels.cached());
    }
}
