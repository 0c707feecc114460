//! A server with prepared answers, for tests of probes and of hooks; what a prober needs.

use super::prober::ProbeContext;
use crate::events::Recorder;
use crate::host::addresses::HostIps;
use crate::runtime::fake::FakeRuntime;
use client::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers each connection with the next reply; tells what it was asked.
pub(crate) async fn serve(replies: Vec<&'static str>) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let task = tokio::spawn(async move {
        let mut asked = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let mut buffer = vec![0; 4096];
            let length = stream.read(&mut buffer).await.expect("read");
            asked.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            stream.write_all(reply.as_bytes()).await.expect("write");
        }
        asked
    });
    (port, task)
}

/// What a prober needs, over a runtime that does what it is told.
pub(crate) fn tools(clock: Arc<dyn Clock>) -> ProbeContext {
    let (recorder, _sink) = Recorder::new(clock.clone(), "n", None, crate::rate::Rate::default(), 1);
    let runtime = Arc::new(FakeRuntime::new(clock.clone(), 1));
    ProbeContext {
        runtime,
        recorder,
        clock,
        kubelet_start: Timestamp::UNIX_EPOCH,
        host_ips: HostIps::fixed(Vec::new()),
        metrics: crate::metrics::Metrics::new("n").probes,
    }
}

/// A probe of a port of this machine, each second, of which one failure counts.
pub(crate) fn tcp(port: u16) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            host: Some("127.0.0.1".into()),
            port: IntOrString::Int(i32::from(port)),
        }),
        period_seconds: Some(1),
        failure_threshold: Some(1),
        ..Probe::default()
    }
}
