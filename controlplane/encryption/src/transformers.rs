//! Which values are written and read how: the configuration, looked up by resource.
//!
//! Owns the lookup's order: the resource, all of its group, everything; entries that name the same resource count as one.

use crate::config::{Entry, GroupResource};
use crate::kms::Kms;
use crate::metrics::Metrics;
use crate::provider::{Provider, Providers};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How often plugins are asked how they are.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The same after one was not well.
pub const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub struct Transformers {
    by_resource: HashMap<GroupResource, Providers>,
    plugins: Vec<Arc<Kms>>,
}

impl Transformers {
    /// As the entries say; what they do is counted. Plugins are not asked yet.
    pub fn new(entries: &[Entry], metrics: &Arc<Metrics>) -> Self {
        let mut made = Self::default();
        for entry in entries {
            let provider = |one| Arc::new(Provider::new(one, metrics));
            let providers: Vec<_> = entry.providers.iter().map(provider).collect();
            for provider in &providers {
                if let Provider::Kms(kms) = &**provider {
                    made.plugins.push(Arc::clone(kms));
                }
            }
            for resource in &entry.resources {
                let known = made.by_resource.entry(resource.clone());
                let known = known.or_insert_with(|| Providers::new(metrics));
                known.all.extend(providers.iter().map(Arc::clone));
            }
        }
        made
    }

    /// Whether there are plugins, which have to be looked at.
    pub fn has_plugins(&self) -> bool {
        !self.plugins.is_empty()
    }

    /// Asks every plugin how it is, and takes up the key it writes with. To be called before anything is written, and again every
    /// [`LOOK_EVERY`].
    ///
    /// # Errors
    /// What is wrong with the first that is not well; the others have been asked.
    pub async fn look(&self) -> Result<(), String> {
        let looks = self.plugins.iter().map(|plugin| plugin.look());
        futures::future::join_all(looks).await.into_iter().collect()
    }

    /// Whether anything is written otherwise than in clear.
    pub fn is_empty(&self) -> bool {
        self.by_resource.is_empty()
    }

    /// What is said of a resource; `None` if nothing is.
    pub(crate) fn of(&self, group: &str, resource: &str) -> Option<Providers> {
        let named = |group: &str, resource: &str| GroupResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
        };
        let names = [(group, resource), (group, "*"), ("*", "*")];
        let mut found = names
            .iter()
            .filter_map(|(group, resource)| self.by_resource.get(&named(group, resource)));
        Some(found.next()?.of(&named(group, resource)))
    }
}
