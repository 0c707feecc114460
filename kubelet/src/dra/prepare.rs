//! What a pod's claims go through before its sandbox is made, and after its containers have stopped. One pod at a time works with a claim,
//! so that letting go of it never meets preparing it.

use super::claim::{self, Claim, Reference, Wanted};
use super::driver::Driver;
use super::state::{Name, Prepared, Release};
use super::{Dra, DraError, answer};
use crate::pod_object;
use client::ordered::Arrange;
use k8s_openapi::api::core::v1::Pod;
use proto::dra::v1 as pb;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tonic::Status;

/// How long the API server may take to tell of a claim.
const FETCH: Duration = Duration::from_secs(10);
/// The most claims of one pod: each is read from the API server before the pod begins.
const CLAIMS_MAX: usize = 64;

/// Who works with which claims.
#[derive(Default)]
pub(super) struct Turns(Mutex<BTreeMap<Name, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits until these claims are nobody else's. They are taken in order, so that no two wait for each other.
    async fn take(&self, names: impl Iterator<Item = Name>) -> Vec<OwnedMutexGuard<()>> {
        let mut names: Vec<Name> = names.collect();
        names.arrange();
        names.dedup();
        let mut held = Vec::new();
        for name in names {
            let turn = {
                let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
                turns.entry(name).or_default().clone()
            };
            held.push(turn.lock_owned().await);
        }
        held
    }
}

impl Dra {
    /// Has the drivers prepare what a pod is to use. What is prepared already is not asked for again.
    ///
    /// # Errors
    /// A claim cannot be used, or a driver cannot prepare it. What was begun is let go of with the pod.
    pub async fn prepare(&self, pod: &Pod) -> Result<(), DraError> {
        let begun = Instant::now();
        let prepared = self.prepare_all(pod).await;
        self.metrics
            .handled("PrepareResources", prepared.is_ok(), begun.elapsed());
        prepared
    }

    async fn prepare_all(&self, pod: &Pod) -> Result<(), DraError> {
        // Everything that can be wrong is looked at first: what was never asked of a driver need not be let go of.
        let mut all = Vec::new();
        let mut drivers: BTreeMap<String, Arc<Driver>> = BTreeMap::new();
        for reference in some(pod, claim::references(pod)?)? {
            let claim = self.fetch(pod_object::namespace(pod), &reference).await?;
            let wanted = claim::wanted(pod, &reference, &claim)?;
            for name in wanted.drivers.keys() {
                drivers.insert(name.clone(), self.drivers.get(name)?);
            }
            all.push(wanted);
        }
        let _turns = self.turns.take(all.iter().map(key)).await;
        let uid = pod_object::uid(pod);
        self.let_go_of_moved(uid.as_str(), &all).await?;
        let asked = self.change(|claims| {
            let mut asked: Vec<&Wanted> = Vec::new();
            for wanted in &all {
                let news = claims.refer(uid.as_str(), wanted)?;
                if news && asked.iter().all(|other| other.uid != wanted.uid) {
                    asked.push(wanted);
                }
            }
            Ok(asked)
        })?;
        // Whatever happens from here on, the next kubelet knows whom to ask to let go.
        self.keep().await?;
        for (name, driver) in &drivers {
            let batch: Vec<&Wanted> = asked
                .iter()
                .copied()
                .filter(|wanted| wanted.drivers.contains_key(name))
                .collect();
            if batch.is_empty() {
                continue;
            }
            let requested = batch.iter().map(|wanted| message(&key(wanted), &wanted.uid)).collect();
            let answer = driver.prepare(requested).await;
            let names = batch.iter().map(|wanted| wanted.name.as_str());
            let answer = answer.map_err(|status| failed("NodePrepareResources", name, names, &status))?;
            let given = answer::prepared(name, &batch, answer.claims)?;
            self.change(|claims| {
                let mut given = given.into_iter();
                given.try_for_each(|(claim, devices)| claims.give(&claim, name, devices))
            })?;
        }
        if !asked.is_empty() {
            self.change(|claims| asked.iter().for_each(|wanted| claims.done(&key(wanted))));
        }
        self.keep().await
    }

    /// Has the drivers let go of what a pod used, unless others use it still. That this is not on disk yet holds up nobody: what fills the
    /// disk may be the pod's own, and goes after this. It is written later ([`super::reconcile`]); a kubelet that does not know of it asks
    /// the drivers once more.
    ///
    /// # Errors
    /// A driver cannot, or is not there: it is to be tried again.
    pub async fn unprepare(&self, pod: &str) -> Result<(), DraError> {
        let begun = Instant::now();
        let done = self.unprepare_all(pod).await;
        self.metrics
            .handled("UnprepareResources", done.is_ok(), begun.elapsed());
        done
    }

    async fn unprepare_all(&self, pod: &str) -> Result<(), DraError> {
        let used = self.held().claims.of_pod(pod);
        if used.is_empty() {
            return Ok(());
        }
        let _turns = self.turns.take(used.iter().cloned()).await;
        let mut last: BTreeMap<Name, Prepared> = BTreeMap::new();
        self.change(|claims| {
            for name in &used {
                if let Release::Last(held) = claims.release(pod, name) {
                    last.insert(name.clone(), held);
                }
            }
        });
        let result = self.forget(last).await;
        if let Err(error) = self.keep().await {
            tracing::warn!(pod, %error, "that claims are let go of is not on disk yet");
        }
        result
    }

    /// Has claims let go of that were allocated anew since this pod had them prepared: the drivers they had before would keep their devices
    /// for a claim that nobody asks them about again, or give what is another's by now.
    async fn let_go_of_moved(&self, pod: &str, all: &[Wanted]) -> Result<(), DraError> {
        let moved = self.change(|claims| {
            let moved = all.iter().map(|wanted| claims.moved(pod, wanted));
            moved.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()
        })?;
        self.forget(moved.into_iter().collect()).await
    }

    /// Has all drivers of claims let go of them, and forgets those they let go of.
    ///
    /// # Errors
    /// A driver cannot. One that is not there holds up its own claims alone.
    async fn forget(&self, mut last: BTreeMap<Name, Prepared>) -> Result<(), DraError> {
        let mut batches: BTreeMap<String, Vec<(Name, String)>> = BTreeMap::new();
        for (name, held) in &last {
            for driver in held.drivers.keys() {
                let batch = batches.entry(driver.clone()).or_default();
                batch.push((name.clone(), held.uid.clone()));
            }
        }
        let mut result = Ok(());
        for (driver, batch) in &batches {
            if let Err(error) = self.let_go(driver, batch).await {
                batch.iter().for_each(|(claim, _)| drop(last.remove(claim)));
                result = result.and(Err(error));
            }
        }
        self.change(|claims| last.keys().for_each(|name| claims.remove(name)));
        result
    }

    /// Has one driver let go of claims, each with its UID.
    async fn let_go(&self, name: &str, claims: &[(Name, String)]) -> Result<(), DraError> {
        let driver = self.drivers.get(name)?;
        let requested = claims.iter().map(|(claim, uid)| message(claim, uid)).collect();
        let answer = driver.unprepare(requested).await;
        let names = claims.iter().map(|(claim, _)| claim.1.as_str());
        let answer = answer.map_err(|status| failed("NodeUnprepareResources", name, names, &status))?;
        let asked: Vec<(&str, &str)> = claims
            .iter()
            .map(|(claim, uid)| (uid.as_str(), claim.1.as_str()))
            .collect();
        answer::unprepared(name, &asked, &answer.claims)
    }

    /// Whether something is not on disk.
    pub(super) fn is_behind(&self) -> bool {
        let held = self.held();
        held.written < held.changed
    }

    pub(super) async fn keep_if_behind(&self) -> Result<(), DraError> {
        match self.is_behind() {
            true => self.keep().await,
            false => Ok(()),
        }
    }

    /// Reads a claim as it is now.
    async fn fetch(&self, namespace: &str, reference: &Reference) -> Result<Claim, DraError> {
        let told = |why: String| DraError::Fetch {
            name: reference.name.clone(),
            why,
        };
        let client = self.client.as_ref();
        let client = client.ok_or_else(|| told("there is no API server".to_owned()))?;
        let place = format!(
            "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{}",
            reference.name
        );
        let request = http::Request::get(place).body(Vec::new());
        let request = request.map_err(|error| told(error.to_string()))?;
        match tokio::time::timeout(FETCH, client.request::<Claim>(request)).await {
            Ok(Ok(claim)) => Ok(claim),
            Ok(Err(kube::Error::Api(status))) => Err(told(status.message.clone())),
            Ok(Err(error)) => Err(told(error.to_string())),
            Err(_) => Err(told("context deadline exceeded".to_owned())),
        }
    }
}

/// No more claims than are looked at. Some of them would be no use: containers would start without what they name.
fn some(pod: &Pod, references: Vec<Reference>) -> Result<Vec<Reference>, DraError> {
    if references.len() <= CLAIMS_MAX {
        return Ok(references);
    }
    let (namespace, name, count) = (pod_object::namespace(pod), pod_object::name(pod), references.len());
    Err(DraError::Claim(format!(
        "Pod {namespace}/{name} names {count} ResourceClaims, more than {CLAIMS_MAX}"
    )))
}

fn key(wanted: &Wanted) -> Name {
    (wanted.namespace.clone(), wanted.name.clone())
}

fn message((namespace, name): &Name, uid: &str) -> pb::Claim {
    pb::Claim {
        namespace: namespace.clone(),
        uid: uid.to_owned(),
        name: name.clone(),
    }
}

fn failed<'a>(call: &'static str, driver: &str, claims: impl Iterator<Item = &'a str>, status: &Status) -> DraError {
    DraError::Call {
        call,
        code: crate::runtime::code_name(status.code()),
        message: answer::cut(status.message()).to_owned(),
        driver: driver.to_owned(),
        claims: claims.collect::<Vec<_>>().join(", "),
    }
}
