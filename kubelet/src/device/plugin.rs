//! One connection to one device plugin, with a deadline for every call. Never retries, and never dials again: a plugin that went
//! registers anew.

use super::answer::ANSWER_BYTES_MAX;
use super::state::{DEVICES_MAX, Device, NODES_MAX, Options, TOGETHER_MAX};
use crate::rpc::dial::{self, Stream};
use crate::rpc::{Client, Failure};
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
use tonic::transport::Endpoint;
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
    pub(super) async fn dial(socket: &Path, registration: &Path) -> Result<Self, CallError> {
        let failed = |error: io::Error| CallError::Dial(format!("{}: {error}", socket.display()));
        let stream = crate::plugin::dial(socket).await.map_err(failed)?;
        let registration = Arc::from(registration);
        Ok(Self {
            registration,
            ..Self::over(stream).await?
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
    pub(super) async fn over(stream: impl Stream + 'static) -> Result<Self, CallError> {
        let gone = || io::Error::other("the device plugin's connection is closed");
        let connecting = dial::over(Endpoint::from_static("http://localhost"), Box::pin(stream), gone);
        let connected = tokio::time::timeout(DIAL_DEADLINE, connecting).await;
        match connected {
            Ok(channel) => {
                let channel = channel.map_err(|error| CallError::Dial(error.to_string()))?;
                let client = Client::new(channel, "v1beta1.DevicePlugin", MESSAGE_BYTES_MAX);
                let registration = Arc::from(Path::new(""));
                Ok(Self { client, registration })
            }
            Err(_) => Err(CallError::Dial("context deadline exceeded".to_owned())),
        }
    }

    /// What it wants to be asked.
    pub(super) async fn options(&self) -> Result<Options, CallError> {
        let asked = self.ask("GetDevicePluginOptions", QUESTION_DEADLINE, pb::Empty {});
        let options: pb::DevicePluginOptions = asked.await?;
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
        let asked = self.ask("GetPreferredAllocation", QUESTION_DEADLINE, request);
        let answer: pb::PreferredAllocationResponse = asked.await?;
        let first = answer.container_responses.into_iter().next();
        Ok(first
            .map(|of| of.device_i_ds.into_iter().collect_ordered())
            .unwrap_or_default())
    }

    /// Makes devices ready for a container; what it is to start with, as sent.
    pub(super) async fn allocate(&self, ids: &BTreeSet<String>) -> Result<Vec<u8>, CallError> {
        let request = pb::AllocateRequest {
            container_requests: vec![pb::ContainerAllocateRequest {
                devices_ids: ids.iter().cloned().collect(),
            }],
        };
        let answer: pb::AllocateResponse = self.ask("Allocate", ALLOCATE_DEADLINE, request).await?;
        let Some(first) = answer.container_responses.first() else {
            return Err(CallError::Nothing(format!("{answer:?}")));
        };
        match first.encoded_len() {
            long if long > ANSWER_BYTES_MAX => Err(CallError::TooLong(long)),
            _ => Ok(first.encode_to_vec()),
        }
    }

    /// Tells that a container with these devices is about to start.
    pub(super) async fn pre_start(&self, ids: BTreeSet<String>) -> Result<(), CallError> {
        let request = pb::PreStartContainerRequest {
            devices_ids: ids.into_iter().collect(),
        };
        self.ask("PreStartContainer", PRE_START_DEADLINE, request).await
    }

    fn ask<A: Message + Default, Q: Message>(
        &self,
        call: &'static str,
        deadline: Duration,
        request: Q,
    ) -> impl Future<Output = Result<A, CallError>> + Send + use<A, Q> {
        let answer = self.client.call(call, request, Some(deadline));
        answer.map_err(move |failure| match failure {
            Failure::Status(status) => refused(&status),
            Failure::Deadline => CallError::Deadline { call, deadline },
        })
    }
}

/// A list as it is kept. Devices without a name are left out, and so are NUMA nodes beyond what a machine may have; of two of one name the
/// last counts, as upstream.
pub(super) fn devices(resource: &str, list: pb::ListAndWatchResponse) -> Result<BTreeMap<String, Device>, CallError> {
    let listed = list.devices.len();
    if listed > DEVICES_MAX {
        return Err(CallError::TooMany(listed));
    }
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
    use super::super::testing::device;
    use super::*;

    #[test]
    fn a_device_is_on_no_more_numa_nodes_than_a_machine_has() {
        let many: Vec<i64> = (0..100_000).rev().collect();
        let list = pb::ListAndWatchResponse {
            devices: vec![device("a", true, &many), device("b", true, &[3, 1, 3])],
        };
        let kept = devices("r", list).expect("a list");
        assert_eq!(kept["a"].nodes.len(), NODES_MAX);
        assert_eq!((kept["a"].nodes[0], &kept["b"].nodes[..]), (0, &[1, 3][..]));
    }
}
