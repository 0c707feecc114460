//! One connection to one device plugin, with a deadline for every call. Never retries, and never dials again: a plugin that went
//! registers anew.

use super::answer::ANSWER_BYTES_MAX;
use super::state::{DEVICES_MAX, Device, NODES_MAX, Options, TOGETHER_MAX};
use crate::rpc::budget::Budget;
use crate::rpc::dial::{self, Stream};
use crate::rpc::{Client, Failure, decoded, repeated};
use crate::runtime::code_name;
use bytes::Bytes;
use client::ordered::{Arrange, CollectOrdered};
use futures::TryFutureExt;
use prost::Message;
use proto::device_plugin as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

/// How long the other end of a connection may take to greet, as upstream's.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a plugin may take to say what it wants to be asked, and what it prefers.
const QUESTION_DEADLINE: Duration = Duration::from_secs(10);
/// How long an allocation may take: some plugins configure hardware for it.
const ALLOCATE_DEADLINE: Duration = Duration::from_secs(120);
/// Upstream's `KubeletPreStartContainerRPCTimeoutInSecs`.
const PRE_START_DEADLINE: Duration = Duration::from_secs(30);
/// The largest answer or list that is read, bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The largest answer that has nothing of devices in it, bytes.
const SHORT_BYTES_MAX: usize = 64 << 10;
/// What the plugins of all resources may have sent at a time that is not looked at yet, bytes.
pub(super) const UNREAD_BYTES_MAX: usize = 32 << 20;
/// The field of containers in answers, of devices in lists, and of their names in what is preferred.
const REPEATED: u32 = 1;
/// What a healthy device says of itself.
pub(super) const HEALTHY: &str = crate::reason::device_health::HEALTHY;

/// Why a plugin's answer is not there, or is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody listens there.
    #[error("failed to dial device plugin: {0}")]
    Dial(String),
    /// It refused.
    #[error("rpc error: code = {code} desc = {message}")]
    Refused {
        /// gRPC's code by its name.
        code: &'static str,
        /// What it says.
        message: String,
    },
    /// It hangs.
    #[error("rpc error: code = DeadlineExceeded desc = {call} took longer than {} s", .deadline.as_secs())]
    Deadline {
        /// The call.
        call: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// Its answer has nothing for the container.
    #[error("no containers return in allocation response {0}")]
    Nothing(String),
    /// Its answer is not kept.
    #[error("the allocation response has {0} bytes, more than {ANSWER_BYTES_MAX}")]
    TooLong(usize),
    /// Its list is not believed.
    #[error("the device plugin lists {0} devices, more than {DEVICES_MAX}")]
    TooMany(usize),
    /// Its list is not kept.
    #[error(
        "there is no room for the {0} devices that the device plugin lists: those of all resources take {TOGETHER_MAX} bytes at most"
    )]
    NoRoom(usize),
}

/// A connected plugin. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct Plugin {
    client: Client,
    /// Where it registered.
    registration: Arc<Path>,
}

impl Plugin {
    /// Dials the socket of a plugin that registered at this or at another one. It may be there a moment before anybody listens.
    pub(super) async fn dial(socket: &Path, registration: &Path, budget: &Budget) -> Result<Self, CallError> {
        let failed = |error: io::Error| CallError::Dial(format!("{}: {error}", socket.display()));
        let stream = crate::plugin::dial(socket).await.map_err(failed)?;
        let registration = Arc::from(registration);
        Ok(Self {
            registration,
            ..Self::over(stream, budget).await?
        })
    }

    /// Whether this is the plugin that registered at that socket.
    pub(super) fn registered_at(&self, socket: &Path) -> bool {
        *self.registration == *socket
    }

    /// A plugin at the other end of a connection.
    ///
    /// # Errors
    /// It is none.
    pub(super) async fn over(stream: impl Stream + 'static, budget: &Budget) -> Result<Self, CallError> {
        let gone = || io::Error::other("the device plugin's connection is closed");
        let connecting = dial::over(dial::of_plugin(), Box::pin(stream), gone);
        let connected = tokio::time::timeout(DIAL_DEADLINE, connecting).await;
        match connected {
            Ok(channel) => {
                let channel = channel.map_err(|error| CallError::Dial(error.to_string()))?;
                let client = Client::within(channel, budget.clone(), "v1beta1.DevicePlugin", MESSAGE_BYTES_MAX);
                let registration = Arc::from(Path::new(""));
                Ok(Self { client, registration })
            }
            Err(_) => Err(CallError::Dial("context deadline exceeded".to_owned())),
        }
    }

    /// What it wants to be asked.
    pub(super) async fn options(&self) -> Result<Options, CallError> {
        let asked = self.ask(
            "GetDevicePluginOptions",
            QUESTION_DEADLINE,
            SHORT_BYTES_MAX,
            pb::Empty {},
        );
        let options: pb::DevicePluginOptions = decoded(asked.await?).map_err(|status| refused(&status))?;
        Ok(Options {
            pre_start: options.pre_start_required,
            preferred: options.get_preferred_allocation_available,
        })
    }

    /// Begins to listen to its lists.
    pub(super) async fn watch(&self) -> Result<Streaming<Bytes>, CallError> {
        let stream = self.client.listen("ListAndWatch", pb::Empty {}, MetadataMap::new());
        stream.await.map_err(|status| refused(&status))
    }

    /// Which devices it would rather give.
    pub(super) async fn preferred(
        &self,
        available: BTreeSet<String>,
        must: BTreeSet<String>,
        count: usize,
    ) -> Result<BTreeSet<String>, CallError> {
        let request = pb::PreferredAllocationRequest {
            container_requests: vec![pb::ContainerPreferredAllocationRequest {
                available_device_i_ds: available.into_iter().collect(),
                must_include_device_i_ds: must.into_iter().collect(),
                allocation_size: i32::try_from(count).unwrap_or(i32::MAX),
            }],
        };
        let asked = self.ask("GetPreferredAllocation", QUESTION_DEADLINE, MESSAGE_BYTES_MAX, request);
        preferred(&asked.await?)
    }

    /// Makes devices ready for a container; what it is to start with, as sent.
    pub(super) async fn allocate(&self, ids: &BTreeSet<String>) -> Result<Vec<u8>, CallError> {
        let request = pb::AllocateRequest {
            container_requests: vec![pb::ContainerAllocateRequest {
                devices_ids: ids.iter().cloned().collect(),
            }],
        };
        let asked = self.ask("Allocate", ALLOCATE_DEADLINE, MESSAGE_BYTES_MAX, request);
        allocated(&asked.await?)
    }

    /// Tells that a container with these devices is about to start.
    pub(super) async fn pre_start(&self, ids: BTreeSet<String>) -> Result<(), CallError> {
        let request = pb::PreStartContainerRequest {
            devices_ids: ids.into_iter().collect(),
        };
        let asked = self.ask("PreStartContainer", PRE_START_DEADLINE, SHORT_BYTES_MAX, request);
        asked.await.map(drop)
    }

    fn ask<Q: Message>(
        &self,
        call: &'static str,
        deadline: Duration,
        bytes_max: usize,
        request: Q,
    ) -> impl Future<Output = Result<Bytes, CallError>> + Send + use<Q> {
        let client = self.client.clone().reading_at_most(bytes_max);
        let answer = client.ask(call, request.encode_to_vec(), Some(deadline));
        answer.map_err(move |failure| match failure {
            Failure::Status(status) => refused(&status),
            Failure::Deadline => CallError::Deadline { call, deadline },
        })
    }
}

/// What a plugin answered for the first container of an allocation, the only one that is asked for; nothing else of it is decoded.
fn allocated(answer: &Bytes) -> Result<Vec<u8>, CallError> {
    let (_, first) = repeated(answer, REPEATED).map_err(|status| refused(&status))?;
    let Some(first) = first else {
        let nothing = pb::AllocateResponse::default();
        return Err(CallError::Nothing(format!("{nothing:?}")));
    };
    if first.len() > ANSWER_BYTES_MAX {
        return Err(CallError::TooLong(first.len()));
    }
    let first: pb::ContainerAllocateResponse = decoded(first).map_err(|status| refused(&status))?;
    Ok(first.encode_to_vec())
}

/// Which devices a plugin prefers for the first container, likewise.
fn preferred(answer: &Bytes) -> Result<BTreeSet<String>, CallError> {
    let (_, first) = repeated(answer, REPEATED).map_err(|status| refused(&status))?;
    let first: pb::ContainerPreferredAllocationResponse = counted(first.unwrap_or_default())?;
    Ok(first.device_i_ds.into_iter().collect_ordered())
}

/// A message whose devices are counted before it is decoded.
fn counted<M: Message + Default>(message: Bytes) -> Result<M, CallError> {
    let (count, _) = repeated(&message, REPEATED).map_err(|status| refused(&status))?;
    if count > DEVICES_MAX {
        return Err(CallError::TooMany(count));
    }
    decoded(message).map_err(|status| refused(&status))
}

/// A list as it is kept. Devices without a name are left out, and so are NUMA nodes beyond what a machine may have; of two of one name the
/// last counts, as upstream.
pub(super) fn devices(resource: &str, list: Bytes) -> Result<BTreeMap<String, Device>, CallError> {
    let list: pb::ListAndWatchResponse = counted(list)?;
    let listed = list.devices.len();
    let mut crowded = false;
    let named = list.devices.into_iter().filter(|device| !device.id.is_empty());
    let devices: BTreeMap<String, Device> = named
        .map(|device| {
            let mut nodes: Vec<i64> = device
                .topology
                .iter()
                .flat_map(|of| &of.nodes)
                .map(|node| node.id)
                .collect();
            nodes.arrange();
            nodes.dedup();
            crowded |= nodes.len() > NODES_MAX;
            nodes.truncate(NODES_MAX);
            let kept = Device {
                healthy: device.health == HEALTHY,
                placed: device.topology.is_some(),
                nodes,
            };
            (device.id, kept)
        })
        .collect_ordered();
    if crowded {
        let most = NODES_MAX;
        tracing::warn!(
            resource,
            most,
            "a device plugin lists devices on more NUMA nodes than there are: the others are left out"
        );
    }
    if devices.len() < listed {
        let kept = devices.len();
        tracing::warn!(
            resource,
            listed,
            kept,
            "a device plugin lists devices without a name, or twice"
        );
    }
    Ok(devices)
}

/// Messages are bounded: they go into events and statuses.
pub(super) fn refused(status: &Status) -> CallError {
    CallError::Refused {
        code: code_name(status.code()),
        message: status.message().chars().take(1024).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{device, env};
    use super::*;

    #[test]
    fn a_device_is_on_no_more_numa_nodes_than_a_machine_has() {
        let many: Vec<i64> = (0..100_000).rev().collect();
        let list = pb::ListAndWatchResponse {
            devices: vec![device("a", true, &many), device("b", true, &[3, 1, 3])],
        };
        let kept = devices("r", list.encode_to_vec().into()).expect("a list");
        assert_eq!(kept["a"].nodes.len(), NODES_MAX);
        assert_eq!((kept["a"].nodes[0], &kept["b"].nodes[..]), (0, &[1, 3][..]));
    }
    /// So many messages of no bytes in the first field of one.
    fn empty(count: usize) -> Bytes {
        [0x0a, 0].repeat(count).into()
    }

    #[test]
    fn what_is_in_a_message_is_counted_before_it_is_decoded() {
        let too_many = DEVICES_MAX + 1;
        assert_eq!(devices("r", empty(too_many)), Err(CallError::TooMany(too_many)));
        // Were it decoded, its damaged end would be told.
        let mut damaged = empty(too_many).to_vec();
        damaged.extend([0x0a, 1, 0xff]);
        assert_eq!(devices("r", damaged.into()), Err(CallError::TooMany(too_many + 1)));
        assert_eq!(devices("r", empty(DEVICES_MAX)), Ok(BTreeMap::new()), "without names");
        let ids = empty(too_many);
        let of_one = pb::PreferredAllocationResponse {
            container_responses: vec![pb::ContainerPreferredAllocationResponse {
                device_i_ds: vec![String::new(); too_many],
            }],
        };
        assert_eq!(
            preferred(&of_one.encode_to_vec().into()),
            Err(CallError::TooMany(too_many))
        );
        assert_eq!(preferred(&ids), Ok(BTreeSet::new()), "the first container's alone");
        assert_eq!(preferred(&Bytes::new()), Ok(BTreeSet::new()));
    }

    #[test]
    fn of_an_allocation_the_first_container_alone_is_decoded() {
        let mut answer = pb::AllocateResponse {
            container_responses: vec![env("X", "x")],
        };
        let kept = answer.container_responses[0].encode_to_vec();
        let mut bytes = answer.encode_to_vec();
        bytes.extend([0x0a, 1, 0xff].repeat(1_000_000));
        assert_eq!(allocated(&bytes.into()), Ok(kept), "others that are no messages");
        answer.container_responses = vec![env("X", &"x".repeat(ANSWER_BYTES_MAX))];
        let long = allocated(&answer.encode_to_vec().into()).expect_err("refused");
        assert!(matches!(long, CallError::TooLong(_)), "{long}");
        let nothing = allocated(&Bytes::new()).expect_err("refused").to_string();
        assert_eq!(
            nothing,
            "no containers return in allocation response AllocateResponse { container_responses: [] }"
        );
        for damaged in [
            &[0x0a, 9, 1][..],
            &[0x0a, 1, 0xff],
            &[0xff],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            let told = allocated(&Bytes::copy_from_slice(damaged)).expect_err("damaged");
            assert!(matches!(told, CallError::Refused { code: "Internal", .. }), "{told}");
        }
    }
}
