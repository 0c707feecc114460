//! What is asked of plugins for a pod: which devices they prefer, the allocation, and the word before a start (kubelet contract §8).

use super::Devices;
use super::answer::Extras;
use super::choice::Wanted;
use super::draft::{self, Asked, Plan};
use super::plugin::CallError;
use super::state::{Claim, Given, Refusal, Reuse, State};
use crate::id::PodUid;
use crate::pinning::hint::NumaMask;
use crate::pod_object;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::Pod;
use prost::Message;
use proto::device_plugin::ContainerAllocateResponse;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Why a container is not started with its devices.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It has none, and gets none.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody is there to be told of its start.
    #[error("endpoint not found in cache for a registered resource: {0}")]
    NoPlugin(String),
    /// Its plugin does not let it start.
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(CallError),
    /// What it has is not on disk.
    #[error(transparent)]
    Keep(#[from] super::KeepError),
}

/// One container's share under way.
struct Turn<'a> {
    pod: &'a str,
    asked: &'a Asked,
    near: Option<NumaMask>,
}

impl Devices {
    /// Gives a pod what was drafted for it, and has it on disk. Where that fails, what it has by then is whoever asked's to take
    /// back.
    ///
    /// # Errors
    /// Why the node cannot give it.
    pub async fn give(&self, plan: &Plan) -> Result<(), Refusal> {
        let mut reuse = Reuse::default();
        for asked in &plan.asked {
            let turn = Turn {
                pod: &plan.pod,
                asked,
                near: plan.near.get(&asked.container).copied(),
            };
            self.give_container(&turn, &mut reuse).await?;
        }
        self.kept().await.map_err(|error| Refusal::Call(error.to_string()))
    }

    /// Promises a pod what was drafted for it: nobody else is given that, until its plugins have been asked ([`Self::give`]) or it is taken
    /// back. A plugin may still prefer others.
    ///
    /// # Errors
    /// Somebody else has it by now.
    pub fn promise(&self, plan: &Plan) -> Result<(), Refusal> {
        let (mut held, mut reuse) = (self.0.held(), Reuse::default());
        for asked in &plan.asked {
            for (resource, count) in &asked.resources {
                let claim = Claim {
                    pod: &plan.pod,
                    container: &asked.container,
                    wanted: Wanted {
                        resource,
                        count: *count,
                        reuse: reuse.of(resource),
                        near: plan.near.get(&asked.container).copied(),
                    },
                };
                let ids = match held.state.is_met(claim)? {
                    true => given(&held.state, claim),
                    false => held.state.reserve(claim, &BTreeSet::new())?,
                };
                reuse.after(asked.kind, resource, &ids);
            }
        }
        Ok(())
    }

    async fn give_container(&self, turn: &Turn<'_>, reuse: &mut Reuse) -> Result<(), Refusal> {
        for (resource, count) in &turn.asked.resources {
            let ids = self.give_resource(turn, (resource, *count), reuse).await?;
            reuse.after(turn.asked.kind, resource, &ids);
        }
        Ok(())
    }

    async fn give_resource(
        &self,
        turn: &Turn<'_>,
        (resource, count): (&str, usize),
        reuse: &Reuse,
    ) -> Result<BTreeSet<String>, Refusal> {
        let claim = Claim {
            pod: turn.pod,
            container: &turn.asked.container,
            wanted: Wanted {
                resource,
                count,
                reuse: reuse.of(resource),
                near: turn.near,
            },
        };
        let (is_met, question, prefers) = self.look(|state| {
            let is_met = state.is_met(claim)?;
            let question = state.question(claim).unwrap_or_default();
            Ok::<_, Refusal>((is_met, question, state.options(resource).preferred))
        })?;
        if is_met {
            return Ok(self.look(|state| given(state, claim)));
        }
        let gone = || Refusal::NoPlugin(resource.to_owned());
        let plugin = self.plugin(resource).ok_or_else(gone)?;
        let call = |error: CallError| Refusal::Call(error.to_string());
        let preferred = match question.filter(|_| prefers) {
            Some(ask) => {
                let preferred = plugin.preferred(ask.available, ask.must, count).await;
                preferred.map_err(|error| Refusal::NotPreferred(error.to_string()))?
            }
            None => BTreeSet::new(),
        };
        let ids = self.0.held().state.reserve(claim, &preferred)?;
        let began = Instant::now();
        let answer = plugin.allocate(&ids).await;
        self.metrics().allocated(resource, began.elapsed());
        let mut held = self.0.held();
        match answer {
            Ok(answer) => {
                held.changed += 1;
                match held.state.answered(turn.pod, claim.container, resource, answer) {
                    true => Ok(ids),
                    // The pod went meanwhile.
                    false => Err(gone()),
                }
            }
            Err(error) => {
                held.state.unreserve(turn.pod, claim.container, resource);
                Err(call(error))
            }
        }
    }

    /// What a container is to start with for its devices. Plugins that want to be told of its start are. A container that has none
    /// though it asks for some gets them now: it was let in before its plugin was there, as upstream.
    ///
    /// # Errors
    /// It cannot start.
    pub async fn start(&self, uid: &PodUid, pod: &Pod, container: &str) -> Result<Extras, DeviceError> {
        let all = self.look(|state| draft::asked(pod, state));
        let Some(asked) = all.iter().find(|asked| asked.container == container) else {
            return Ok(Extras::default());
        };
        let has_all = |state: &State| {
            let has = |resource: &String| state.pods().get(uid.as_str(), container, resource).is_some();
            asked.resources.keys().all(has)
        };
        if !self.look(has_all) {
            let turn = Turn {
                pod: uid.as_str(),
                asked,
                near: None,
            };
            let mut reuse = self.look(|state| left_to(state, uid, &all, container));
            self.give_container(&turn, &mut reuse).await?;
        }
        for resource in asked.resources.keys() {
            self.tell_of_start(uid, container, resource).await?;
        }
        self.kept().await?;
        Ok(self.look(|state| extras(state, uid, container)))
    }

    async fn tell_of_start(&self, uid: &PodUid, container: &str, resource: &str) -> Result<(), DeviceError> {
        if !self.look(|state| state.options(resource).pre_start) {
            return Ok(());
        }
        let Some(plugin) = self.plugin(resource) else {
            return Err(DeviceError::NoPlugin(resource.to_owned()));
        };
        let ids = self.look(|state| {
            let given = state.pods().get(uid.as_str(), container, resource);
            given.map(Given::ids).unwrap_or_default()
        });
        plugin.pre_start(ids).await.map_err(DeviceError::PreStart)
    }
}

fn given(state: &State, claim: Claim<'_>) -> BTreeSet<String> {
    let given = state.pods().get(claim.pod, claim.container, claim.wanted.resource);
    given.map(Given::ids).unwrap_or_default()
}

/// What the containers before this one leave to it.
fn left_to(state: &State, uid: &PodUid, all: &[Asked], container: &str) -> Reuse {
    let mut reuse = Reuse::default();
    for before in all.iter().take_while(|asked| asked.container != container) {
        for (resource, given) in state.pods().of(uid.as_str(), &before.container) {
            reuse.after(before.kind, resource, &given.ids());
        }
    }
    reuse
}

/// All that plugins said to a container's devices.
fn extras(state: &State, uid: &PodUid, container: &str) -> Extras {
    let answers = state
        .pods()
        .of(uid.as_str(), container)
        .filter_map(|(resource, given)| {
            let answer = ContainerAllocateResponse::decode(given.answer.as_deref()?).ok()?;
            Some((resource, answer))
        });
    Extras::of(answers.collect_ordered::<BTreeMap<_, _>>())
}

/// Whether a pod asks for devices at all.
pub fn asks(pod: &Pod, state: &State) -> bool {
    pod_object::containers(pod).any(|(_, container)| !draft::resources(container, state).is_empty())
}
