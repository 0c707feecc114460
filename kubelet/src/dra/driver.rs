//! One instance of a driver: the calls of it, and the task that keeps its connection and hears of its devices' health.

use super::HealthBoard;
use super::health::{Report, State};
use crate::metrics::DraMetrics;
use crate::plugin::{Connections, Plugin, channel};
use crate::rpc::budget::Budget;
use crate::rpc::{Client, Failure, decoded, repeated};
use crate::wake;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use proto::dra::health::{DeviceHealth, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use proto::dra::v1::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// How long a call may take (kubelet contract §8).
const CALL: Duration = Duration::from_secs(45);
/// The wait before a stream that ended is begun again, which is also what connects again. It is so short for as long as a driver that is
/// back keeps its ResourceSlices, and doubles from then on.
const STREAM_AGAIN: Duration = Duration::from_secs(5);
/// How often it doubles.
const DOUBLINGS: u32 = 4;
/// How far apart a driver's reports of health are taken, as lists of device plugins are: each may be told in the status of many pods. What
/// came meanwhile is taken together, so that the last state is never behind what led to it.
const REPORTS_APART: Duration = Duration::from_secs(1);
/// The largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The largest answer about one claim, bytes: twice what is kept of one, and its error. What takes two bytes in an answer takes a hundred once
/// it is decoded.
const CLAIM_BYTES_MAX: usize = 128 << 10;
/// Devices that one message may tell of, and that are taken at once: far more than are kept of a driver.
const REPORTS_MAX: usize = 1 << 16;
/// What a message of a stream counts for beside its text, bytes: one without any costs something, too.
const MESSAGE_BYTES: usize = 64;

/// How long is waited before the next try after so many that failed. Pure.
fn again(failed: u32) -> Duration {
    let soon = u32::try_from(super::wipe::AWAY.as_secs() / STREAM_AGAIN.as_secs()).unwrap_or_default();
    STREAM_AGAIN * (1 << failed.saturating_sub(soon).min(DOUBLINGS))
}

/// The services drivers may have, the best first.
const SERVICES: [(&str, Service); 2] = [("v1.DRAPlugin", Service::V1), ("v1beta1.DRAPlugin", Service::V1beta1)];

/// By which service a driver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    V1,
    V1beta1,
}

impl Service {
    /// The best of those a plugin says it has. Pure.
    ///
    /// # Errors
    /// There is none of them, in upstream's words.
    pub(super) fn choose(plugin: &Plugin) -> Result<Self, String> {
        let wrong = |why: String| {
            let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
            format!("invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {why}")
        };
        if plugin.versions.is_empty() {
            return Err(wrong(
                "empty list of supported gRPC services (aka supported versions)".to_owned(),
            ));
        }
        let offered = |name: &str| plugin.versions.iter().any(|offered| offered == name);
        let best = SERVICES
            .iter()
            .find(|(name, _)| offered(name))
            .map(|(_, service)| *service);
        best.ok_or_else(|| {
            let list = |names: &mut dyn Iterator<Item = &str>| {
                let names: Vec<String> = names.take(16).map(|name| format!("{name:?}")).collect();
                names.join(" ")
            };
            let theirs = list(&mut plugin.versions.iter().map(String::as_str));
            let ours = list(&mut SERVICES.iter().map(|(name, _)| *name));
            wrong(format!(
                "none of services supported by the plugin ([{theirs}]) are supported by the kubelet ([{ours}])"
            ))
        })
    }

    /// Its name in calls.
    fn name(self) -> &'static str {
        match self {
            Self::V1 => "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            Self::V1beta1 => "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
        }
    }
}

/// A driver's plugin that is registered.
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) endpoint: PathBuf,
    /// Which instance this is; of several the newest has the highest number.
    pub(super) number: u64,
    service: Service,
    channel: Channel,
    /// What all drivers may have sent that is not whole yet.
    unread: Budget,
    connections: Connections,
    metrics: DraMetrics,
}

impl Driver {
    pub(super) fn new(plugin: &Plugin, number: u64, service: Service, unread: Budget, metrics: DraMetrics) -> Self {
        let connections = Connections::default();
        Self {
            name: plugin.name.clone(),
            endpoint: plugin.endpoint.clone(),
            number,
            service,
            channel: channel(&plugin.endpoint, connections.clone()),
            unread,
            connections,
            metrics,
        }
    }

    /// A client of one of its services.
    fn client(&self, service: &'static str, bytes_max: usize) -> Client {
        Client::within(self.channel.clone(), self.unread.clone(), service, bytes_max)
    }

    /// Whether there is a connection to it.
    pub(super) fn is_connected(&self) -> bool {
        *self.connections.borrow() > 0
    }

    pub(super) async fn prepare(&self, claims: Vec<Claim>) -> Result<NodePrepareResourcesResponse, Status> {
        let bytes_max = answer_max(claims.len());
        self.ask(
            "NodePrepareResources",
            bytes_max,
            NodePrepareResourcesRequest { claims },
        )
        .await
    }

    pub(super) async fn unprepare(&self, claims: Vec<Claim>) -> Result<NodeUnprepareResourcesResponse, Status> {
        let bytes_max = answer_max(claims.len());
        self.ask(
            "NodeUnprepareResources",
            bytes_max,
            NodeUnprepareResourcesRequest { claims },
        )
        .await
    }

    /// Calls a method of the service, whose messages are the same in all its versions.
    async fn ask<A: Message + Default>(
        &self,
        method: &str,
        bytes_max: usize,
        request: impl Message,
    ) -> Result<A, Status> {
        let begun = Instant::now();
        let service = self.service.name();
        let client = self.client(service, bytes_max);
        let answer = client.call(method, request, Some(CALL)).await;
        let answer = answer.map_err(Failure::into_status);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        let code = crate::runtime::code_name(code);
        let method = format!("/{service}/{method}");
        self.metrics.called(&self.name, method, code, begun.elapsed());
        answer
    }

    /// Keeps a connection to the driver and takes what it tells of its devices, until dropped.
    pub(super) async fn attend(&self, note: impl Fn(&str), board: &HealthBoard) {
        let mut connections = self.connections.subscribe();
        let watch = async {
            while connections.changed().await.is_ok() {
                note(&self.name);
            }
        };
        tokio::join!(watch, self.hear(board));
    }

    /// Asks for the stream again and again: the request is also what connects. A driver without it is asked again when its connection
    /// broke.
    async fn hear(&self, board: &HealthBoard) {
        let mut failed = 0;
        loop {
            let client = self.client("v1alpha1.DRAResourceHealth", ANSWER_BYTES_MAX);
            let opening = client.listen("NodeWatchResources", NodeWatchResourcesRequest {}, MetadataMap::new());
            // Nobody promises that a driver says anything before it has something to say, so that this has no deadline.
            match opening.await {
                Ok(stream) => {
                    failed = 0;
                    let ended = self.take_all(stream, board).await;
                    tracing::info!(
                        driver = self.name,
                        error = ended.map(|status| status.to_string()),
                        "a driver tells no more of its devices"
                    );
                    // What another instance told is not this one's to take back.
                    board.clear(&self.name, self.number);
                }
                Err(status) if status.code() == Code::Unimplemented => {
                    failed = 0;
                    let mut connections = self.connections.subscribe();
                    drop(connections.wait_for(|count| *count == 0).await);
                }
                Err(status) => {
                    tracing::debug!(driver = self.name, %status, "a driver's stream of health does not begin");
                }
            }
            tokio::time::sleep(again(failed)).await;
            failed = failed.saturating_add(1);
        }
    }

    /// Takes reports until the stream ends.
    async fn take_all(
        &self,
        mut stream: impl Stream<Item = Result<Bytes, Status>> + Unpin,
        board: &HealthBoard,
    ) -> Option<Status> {
        let mut next = Instant::now();
        loop {
            let expiry = board.until_expiry(&self.name);
            let told = async {
                tokio::time::sleep_until(next).await;
                stream.next().await
            };
            let told = tokio::select! {
                biased;
                told = told => told,
                () = wake::after(expiry) => {
                    board.expire(&self.name);
                    continue;
                }
            };
            next = Instant::now() + REPORTS_APART;
            let (reports, end) = gathered(told, || stream.next().now_or_never());
            board.take(&self.name, self.number, reports);
            if let Some(end) = end {
                return end;
            }
        }
    }
}

/// A message of a stream, or its end.
type Told = Option<Result<Bytes, Status>>;

/// The reports of a message and of those behind it that are there already, and why there are no more to come. What is left when there are
/// more than one answer may have is for the next time.
fn gathered(first: Told, mut more: impl FnMut() -> Option<Told>) -> (Vec<Report>, Option<Option<Status>>) {
    let (mut reports, mut bytes) = (Vec::new(), 0);
    let mut told = first;
    loop {
        let message = match told {
            Some(Ok(message)) => message,
            Some(Err(status)) => return (reports, Some(Some(status))),
            None => return (reports, Some(None)),
        };
        bytes += MESSAGE_BYTES + message.len();
        match counted(message) {
            Ok(told) => reports.extend(told.devices.into_iter().map(report)),
            Err(status) => return (reports, Some(Some(status))),
        }
        // One that is read and not taken would be lost: it is asked for more only while there is room.
        let has_room = bytes < ANSWER_BYTES_MAX && reports.len() < REPORTS_MAX;
        told = match has_room.then(&mut more).flatten() {
            Some(next) => next,
            None => return (reports, None),
        };
    }
}

/// A message whose devices are counted before it is decoded.
fn counted(message: Bytes) -> Result<NodeWatchResourcesResponse, Status> {
    match repeated(&message, 1)?.0 {
        many if many > REPORTS_MAX => Err(Status::resource_exhausted(format!(
            "a message tells of {many} devices, more than {REPORTS_MAX}"
        ))),
        _ => decoded(message),
    }
}

/// The largest answer about so many claims, bytes. Pure.
fn answer_max(claims: usize) -> usize {
    claims.saturating_mul(CLAIM_BYTES_MAX).min(ANSWER_BYTES_MAX)
}

fn report(told: DeviceHealth) -> Report {
    let state = match told.health() {
        HealthStatus::Healthy => State::Healthy,
        HealthStatus::Unhealthy => State::Unhealthy,
        HealthStatus::Unknown => State::Unknown,
    };
    let device = told.device.unwrap_or_default();
    Report {
        pool: device.pool_name,
        device: device.device_name,
        state,
        message: told.message,
        holds_seconds: told.health_check_timeout_seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_back_is_found_before_its_slices_go() {
        let tries = (0..).scan(Duration::ZERO, |at, failed| {
            *at += again(failed);
            Some(*at)
        });
        let away = crate::dra::wipe::AWAY;
        let last = tries.take_while(|at| *at < away).last().expect("some");
        assert!(
            away - last <= STREAM_AGAIN,
            "the last try before they go is at {last:?}"
        );
        let longest: Vec<u64> = [6, 7, 8, 9, 10, 11, u32::MAX]
            .map(|failed| again(failed).as_secs())
            .into();
        assert_eq!(longest, [5, 10, 20, 40, 80, 80, 80]);
    }

    fn told(message: &str) -> Told {
        let device = DeviceHealth {
            device: Some(proto::dra::health::DeviceIdentifier {
                pool_name: "p".into(),
                device_name: "d".into(),
            }),
            health: HealthStatus::Unhealthy.into(),
            health_check_timeout_seconds: 3600,
            message: message.to_owned(),
            ..DeviceHealth::default()
        };
        let report = NodeWatchResourcesResponse { devices: vec![device] };
        Some(Ok(report.encode_to_vec().into()))
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_taken_once_a_second_and_the_last_is_never_behind() {
        let plugin = Plugin {
            name: "driver".into(),
            socket: "/s".into(),
            endpoint: "/s".into(),
            versions: Vec::new(),
        };
        let metrics = crate::metrics::Metrics::new("n").dra.clone();
        let driver = Driver::new(&plugin, 1, Service::V1, Budget::new(0), metrics);
        let board = HealthBoard::new();
        board.begin("driver", 1);
        let (sender, stream) = futures::channel::mpsc::unbounded();
        let send = |message: &str| sender.unbounded_send(told(message).expect("a report")).expect("read");
        let heard = || board.of("driver", "p", "d").1.unwrap_or_default();
        let taken = board.changes();
        let telling = async {
            let begun = Instant::now();
            // One every ten milliseconds, and at times many at once.
            for number in 0..500 {
                for part in 0..=(number % 50) {
                    send(&format!("{number} {part}"));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let takes = *taken.borrow();
            assert!((4..=6).contains(&takes), "{takes} takes in {:?}", begun.elapsed());
            send("last");
            tokio::time::sleep(REPORTS_APART + Duration::from_millis(1)).await;
            assert_eq!(heard(), "last");
            // After a rest there is no wait.
            tokio::time::sleep(REPORTS_APART).await;
            send("after a rest");
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(heard(), "after a rest");
            sender.close_channel();
        };
        let (ended, ()) = tokio::join!(driver.take_all(stream, &board), telling);
        assert!(ended.is_none(), "{ended:?}");
    }

    #[test]
    fn devices_are_counted_before_a_message_is_decoded() {
        let of = |count: usize| Some(Ok(Bytes::from([0x0a, 0].repeat(count))));
        let (reports, end) = gathered(of(REPORTS_MAX + 1), || None);
        let Some(Some(status)) = end else { panic!("{end:?}") };
        assert_eq!((reports.len(), status.code()), (0, Code::ResourceExhausted), "{status}");
        let mut more = 0;
        let (reports, end) = gathered(of(REPORTS_MAX / 2), || {
            more += 1;
            Some(of(REPORTS_MAX / 2))
        });
        assert!(end.is_none());
        assert_eq!(
            (reports.len(), more),
            (REPORTS_MAX, 1),
            "the others are for the next time"
        );
    }

    #[test]
    fn an_answer_has_room_for_what_is_kept_of_each_claim() {
        assert_eq!((answer_max(0), answer_max(1), answer_max(3)), (0, 128 << 10, 384 << 10));
        assert_eq!(
            (answer_max(32), answer_max(64), answer_max(usize::MAX)),
            (4 << 20, 4 << 20, 4 << 20)
        );
    }

    #[test]
    fn no_more_is_taken_at_once_than_an_answer_may_have_and_nothing_is_lost() {
        let empty = || Some(Ok(Bytes::new()));
        let mut asked = 0;
        let (reports, end) = gathered(told("first"), || {
            asked += 1;
            Some(empty())
        });
        assert!(end.is_none() && reports.len() == 1);
        assert!(asked <= ANSWER_BYTES_MAX / MESSAGE_BYTES, "{asked}");
        let mut rest = [told("second"), None].into_iter();
        let (reports, end) = gathered(told("first"), || rest.next());
        let messages: Vec<&str> = reports.iter().map(|report| report.message.as_str()).collect();
        assert!(matches!(end, Some(None)), "{end:?}");
        assert_eq!(messages, ["first", "second"]);
    }

    #[test]
    fn the_newest_service_is_chosen_whatever_the_order() {
        let choose = |versions: &[&str]| {
            Service::choose(&Plugin {
                name: "d".into(),
                socket: "/s".into(),
                endpoint: "/s".into(),
                versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            })
        };
        assert_eq!(choose(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok(Service::V1));
        assert_eq!(
            choose(&["v1alpha1.DRAResourceHealth", "v1beta1.DRAPlugin"]),
            Ok(Service::V1beta1)
        );
        let invalid = "invalid supported gRPC versions of DRA driver plugin d at endpoint /s: ";
        assert_eq!(
            choose(&[]),
            Err(format!(
                "{invalid}empty list of supported gRPC services (aka supported versions)"
            ))
        );
        assert_eq!(
            choose(&["v1alpha4.Node", "1.0.0"]),
            Err(format!(
                "{invalid}none of services supported by the plugin ([\"v1alpha4.Node\" \"1.0.0\"]) are supported by the kubelet \
                 ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
            ))
        );
    }
}
