//! What cluster DNS asks of this node's pods: whose addresses are known, so that nobody else counts as one of them, and which search path
//! a pod has, to answer it in one question. Owns what it last read of the node's resolv.conf. Certain or nothing: a pod whose resolver configuration is not the one every pod gets has no path here, and neither has
//! one that may have got another because the file has changed since.

use crate::parts::Parts;
use crate::pod::spec::{NodeContext, ResolvConf, dns_config};
use crate::pod::view::PodSnapshot;
use dns::{KnownSources, SearchPath, SearchPaths};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The option every pod gets (contract kubelet.md §6, DNS).
const NDOTS: (&str, usize) = ("ndots:5", 5);

/// What a file was like when it was read.
type Stamp = (SystemTime, u64);

/// The node's resolv.conf.
#[derive(Default)]
struct Known {
    stamp: Option<Stamp>,
    conf: ResolvConf,
    /// Since when its domains are these, as far as is known.
    since: Option<SystemTime>,
}

impl Known {
    /// Reads the file if it is another than it was; nothing known of one that cannot be read.
    fn refresh(&mut self, path: &PathBuf) {
        let file = std::fs::metadata(path);
        let stamp = file.and_then(|file| Ok((file.modified()?, file.len()))).ok();
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let text = stamp.and_then(|_| std::fs::read_to_string(path).ok());
        let conf = text.as_deref().map(ResolvConf::parse);
        self.take(stamp.zip(conf));
    }

    fn take(&mut self, read: Option<(Stamp, ResolvConf)>) {
        let Some((stamp, conf)) = read else {
            *self = Self::default();
            return;
        };
        if self.since.is_none() || self.conf.searches != conf.searches {
            self.since = Some(stamp.0);
        }
        (self.stamp, self.conf) = (Some(stamp), conf);
    }
}

/// What cluster DNS asks.
pub(super) fn paths(parts: &Arc<Parts>, resolv_conf: Option<PathBuf>) -> SearchPaths {
    let (parts, known) = (parts.clone(), Mutex::new(Known::default()));
    Arc::new(move |source| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match &resolv_conf {
            Some(path) => known.refresh(path),
            // Without a file there are no domains, and never were.
            None => known.since = Some(UNIX_EPOCH),
        }
        let pods = parts.pods.list();
        let snapshot = owner(&pods, source)?;
        path_of(&snapshot.pod, &snapshot.status, &parts.context, &known)
    })
}

/// The addresses this node knows: its own, and its pods'.
pub(super) fn known(parts: &Arc<Parts>) -> KnownSources {
    let parts = parts.clone();
    Arc::new(move || known_of(&parts.context.host_ips.current(), &parts.pods.list()))
}

fn known_of(own: &[IpAddr], pods: &[Arc<PodSnapshot>]) -> HashSet<IpAddr> {
    let living = pods.iter().filter(|pod| pod.active && !pod.ended);
    let theirs = living.flat_map(|pod| addresses(&pod.status));
    theirs.chain(own.iter().copied()).collect()
}

fn addresses(status: &PodStatus) -> impl Iterator<Item = IpAddr> {
    let many = status.pod_ips.iter().flatten().map(|ip| &ip.ip);
    many.chain(&status.pod_ip).filter_map(|text| text.parse().ok())
}

/// The pod that alone has this address.
fn owner(pods: &[Arc<PodSnapshot>], address: IpAddr) -> Option<&PodSnapshot> {
    let has = |pod: &&Arc<PodSnapshot>| pod.active && !pod.ended && addresses(&pod.status).any(|own| own == address);
    let mut owners = pods.iter().filter(has);
    let owner = owners.next()?;
    owners.next().is_none().then_some(owner)
}

/// The search path of a pod, if it is the one every pod of its namespace gets.
fn path_of(pod: &Pod, status: &PodStatus, context: &NodeContext, known: &Known) -> Option<SearchPath> {
    let spec = pod.spec.as_ref()?;
    let own = spec.dns_config.as_ref();
    let has_own = own.is_some_and(|own| own.searches.is_some() || own.options.is_some());
    if spec.host_network == Some(true) || has_own {
        return None;
    }
    // Its resolv.conf was made after this: of a file that is older it has the domains the file has now.
    let started = status.start_time.as_ref()?.0.as_second();
    let started = UNIX_EPOCH + Duration::from_secs(u64::try_from(started).ok()?);
    known.since.filter(|since| *since <= started)?;
    let (config, warnings) = dns_config(pod, context, &known.conf);
    let first = format!("{}.svc.{}", pod.metadata.namespace.as_deref()?, context.cluster_domain);
    let is_usual = config.searches.first() == Some(&first) && config.options == [NDOTS.0] && warnings.is_empty();
    is_usual.then_some(SearchPath {
        domains: config.searches,
        ndots: NDOTS.1,
    })
}

#[cfg(test)]
mod tests;
