//! The gRPC probe: `grpc.health.v1.Health/Check` in plain HTTP/2, on a connection of its own (kubelet contract §4.4).

use super::check::{Report, dial_error};
use super::http::AGENT;
use crate::rpc::Client;
use crate::rpc::dial;
use proto::health::health_check_response::ServingStatus;
use proto::health::{HealthCheckRequest, HealthCheckResponse};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// The largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Asks the server at `address` after a service; the whole of it takes at most `limit`.
pub(super) async fn ask(address: &str, service: &str, limit: Duration) -> Report {
    let deadline = Instant::now() + limit;
    let seconds = limit.as_secs();
    let channel = match timeout_at(deadline, connect(address)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(why)) => {
            return Report::failed(format!("error: failed to connect service at {address:?}: {why}"));
        }
        Err(_) => {
            return Report::failed(format!(
                "timeout: failed to connect service {address:?} within {seconds}s: context deadline exceeded"
            ));
        }
    };
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let client = Client::new(channel, "grpc.health.v1.Health", ANSWER_BYTES_MAX);
    let left = deadline.saturating_duration_since(Instant::now());
    match client.call("Check", request, Some(left)).await {
        Ok(HealthCheckResponse { status }) => judge(status),
        Err(failure) => Report::failed(refusal(&failure.into_status(), seconds)),
    }
}

async fn connect(address: &str) -> Result<Channel, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| dial_error(address, &error))?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(AGENT))
        .map_err(|error| error.to_string())?;
    dial::over(endpoint, Box::pin(stream), || ErrorKind::NotConnected.into())
        .await
        .map_err(|error| error.to_string())
}

fn judge(status: i32) -> Report {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => Report::passed(),
        Ok(other) => Report::failed(format!("service unhealthy (responded with {:?})", other.as_str_name())),
        Err(_) => Report::failed(format!("service unhealthy (responded with \"{status}\")")),
    }
}

fn refusal(status: &Status, seconds: u64) -> String {
    let message = status.message();
    match status.code() {
        Code::Unimplemented => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        Code::DeadlineExceeded => format!("timeout: health rpc did not complete within {seconds}s"),
        code => format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            crate::runtime::code_name(code)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::health::health_server::{Health, HealthServer};
    use tokio::net::TcpListener;
    use tonic::{Request, Response};

    struct Server;

    #[tonic::async_trait]
    impl Health for Server {
        async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
            let agent = request
                .metadata()
                .get("user-agent")
                .and_then(|agent| agent.to_str().ok());
            if !agent.is_some_and(|agent| agent.starts_with("kube-probe/1.36")) {
                return Err(Status::internal(format!("asked by {agent:?}")));
            }
            let status = match request.into_inner().service.as_str() {
                "" => ServingStatus::Serving,
                "down" => ServingStatus::NotServing,
                "slow" => std::future::pending().await,
                other => return Err(Status::not_found(format!("no service {other}"))),
            };
            Ok(Response::new(HealthCheckResponse { status: status.into() }))
        }
    }

    async fn listen() -> (String, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        (listener.local_addr().expect("address").to_string(), listener)
    }

    #[tokio::test]
    async fn only_serving_is_healthy() {
        let (address, listener) = listen().await;
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(HealthServer::new(Server));
        let server = tokio::spawn(server.serve_with_incoming(incoming));
        for (service, seconds, expected) in [
            ("", 20, Report::passed()),
            (
                "down",
                20,
                Report::failed("service unhealthy (responded with \"NOT_SERVING\")".into()),
            ),
            (
                "slow",
                1,
                Report::failed("timeout: health rpc did not complete within 1s".into()),
            ),
            (
                "none",
                20,
                Report::failed(
                    "error: health rpc probe failed: rpc error: code = NotFound desc = no service none".into(),
                ),
            ),
        ] {
            let report = ask(&address, service, Duration::from_secs(seconds)).await;
            assert_eq!(report, expected, "{service:?}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn servers_of_another_kind_and_absent_ones_are_told_apart() {
        let (address, listener) = listen().await;
        let server = tonic::transport::Server::builder().add_routes(tonic::service::Routes::default());
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = tokio::spawn(server.serve_with_incoming(incoming));
        let report = ask(&address, "", Duration::from_secs(20)).await;
        let text = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ";
        assert!(report.message.starts_with(text), "{}", report.message);
        server.abort();

        let (address, listener) = listen().await;
        drop(listener);
        let report = ask(&address, "", Duration::from_secs(20)).await;
        let text =
            format!("error: failed to connect service at {address:?}: dial tcp {address}: connect: connection refused");
        assert_eq!(report, Report::failed(text));
    }
}
