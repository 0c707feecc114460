//! Calls to a plugin over its unix socket, which are counted.
//!
//! Owns the connection and the deadline of calls. Never knows what is encrypted.

use crate::cipher::Secret;
use crate::config::KmsPlugin;
use crate::metrics::{Metrics, OK};
use hyper_util::rt::TokioIo;
use proto::kms::key_management_service_client::KeyManagementServiceClient;
use proto::kms::{DecryptRequest, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest, StatusResponse};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// See the module.
pub(super) struct Service {
    client: KeyManagementServiceClient<Channel>,
    timeout: Duration,
    plugin: String,
    metrics: Arc<Metrics>,
}

/// Why a call failed; the text is the plugin's, or says that it does not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct CallError {
    text: String,
    /// As gRPC names it.
    pub(super) code: &'static str,
    /// The plugin has judged what it was asked: it would say so again.
    pub(super) is_final: bool,
}

impl Service {
    /// Connects when it is first asked, and again after the plugin was away.
    pub(super) fn new(plugin: &KmsPlugin, metrics: &Arc<Metrics>) -> Self {
        let socket = plugin.socket.clone();
        let connector = tower::service_fn(move |_: tonic::transport::Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Self {
            client: KeyManagementServiceClient::new(channel),
            timeout: plugin.timeout,
            plugin: plugin.name.clone(),
            metrics: Arc::clone(metrics),
        }
    }

    async fn within<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        let answer = match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(CallError {
                text: format!("rpc error: code = {:?} desc = {}", status.code(), status.message()),
                code: name(status.code()),
                is_final: is_final(status.code()),
            }),
            Err(_) => Err(CallError {
                text: format!("no answer within {:?}", self.timeout),
                code: name(Code::DeadlineExceeded),
                is_final: false,
            }),
        };
        let code = answer.as_ref().err().map_or(OK, |error| error.code);
        self.metrics.called(&self.plugin, method, began, code);
        answer
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, CallError> {
        let mut client = self.client.clone();
        self.within("Status", client.status(StatusRequest {})).await
    }

    pub(super) async fn encrypt(&self, plain: &[u8]) -> Result<EncryptResponse, CallError> {
        let mut client = self.client.clone();
        let request = EncryptRequest {
            plaintext: plain.to_vec(),
            uid: uid(),
        };
        self.within("Encrypt", client.encrypt(request)).await
    }

    pub(super) async fn decrypt(&self, object: &EncryptedObject) -> Result<Secret, CallError> {
        let mut client = self.client.clone();
        let request = DecryptRequest {
            ciphertext: object.encrypted_dek_source.clone(),
            uid: uid(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let answer = self.within("Decrypt", client.decrypt(request)).await?;
        Ok(Secret::new(answer.plaintext))
    }
}

/// Whether a code is about the request. Others may be about what stands behind the plugin, which may come back.
fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::DataLoss
            | Code::Unimplemented
    )
}

/// As other languages write it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Of one request, for logs.
fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
