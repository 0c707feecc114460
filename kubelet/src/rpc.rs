//! gRPC calls over bytes: what a call is made of stands once, and not once a method as in the generated bindings' clients and servers,
//! which cost ten kilobytes each. Messages become bytes and back at its edge. Owns no connection and no deadline but those it is given.

pub(crate) mod budget;
pub(crate) mod dial;
#[cfg(test)]
mod tests;

use budget::{Budget, Counted};
use bytes::{Buf, BufMut, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The other side, or the connection, says so.
    Status(Status),
    /// It took too long.
    Deadline,
}

impl Failure {
    /// It as a status: upstream's words for a deadline.
    pub(crate) fn into_status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Deadline => Status::deadline_exceeded("context deadline exceeded"),
        }
    }
}

/// One service at the other end of a channel. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    grpc: Grpc<Counted>,
    /// Its name with its package's.
    service: &'static str,
}

impl Client {
    /// A client of a service, by its full name. Answers larger than `answer_max` bytes are refused.
    pub(crate) fn new(channel: Channel, service: &'static str, answer_max: usize) -> Self {
        Self::counting(channel, None, service, answer_max)
    }

    /// The same, of whose answers no more is held that is not whole than a budget has.
    pub(crate) fn within(channel: Channel, budget: Budget, service: &'static str, answer_max: usize) -> Self {
        Self::counting(channel, Some(budget), service, answer_max)
    }

    fn counting(channel: Channel, budget: Option<Budget>, service: &'static str, answer_max: usize) -> Self {
        let grpc = Grpc::new(Counted { channel, budget }).max_decoding_message_size(answer_max);
        Self { grpc, service }
    }

    /// The same, which refuses to send larger messages, too.
    pub(crate) fn sending_at_most(mut self, bytes: usize) -> Self {
        self.grpc = self.grpc.max_encoding_message_size(bytes);
        self
    }

    /// Asks and waits for the one answer, up to a deadline. Dropping the future cancels the call, at the other side too.
    pub(crate) fn call<A: Message + Default, Q: Message>(
        &self,
        method: &str,
        request: Q,
        deadline: Option<Duration>,
    ) -> impl Future<Output = Result<A, Failure>> + Send + use<A, Q> {
        // What asks and waits is the same for all: only this is there for each kind of answer.
        let answer = self.ask(method, request.encode_to_vec(), deadline);
        answer.map(|answer| answer.and_then(|bytes| decoded(bytes).map_err(Failure::Status)))
    }

    /// The same, which refuses to read larger answers.
    pub(crate) fn reading_at_most(mut self, bytes: usize) -> Self {
        self.grpc = self.grpc.max_decoding_message_size(bytes);
        self
    }

    /// As [`Self::call`], but the answer stays the bytes it is: whoever asks may look how much there is in it before it is decoded.
    pub(crate) fn ask(
        &self,
        method: &str,
        message: Vec<u8>,
        deadline: Option<Duration>,
    ) -> BoxFuture<'static, Result<Bytes, Failure>> {
        let (mut grpc, path) = (self.grpc.clone(), self.path(method));
        let call = async move {
            ready(&mut grpc).await?;
            let answer = grpc.unary(Request::new(message), path?, Raw).await;
            answer.map(Response::into_inner)
        };
        let call = async move {
            match deadline {
                None => call.await.map_err(Failure::Status),
                Some(deadline) => match tokio::time::timeout(deadline, call).await {
                    Ok(answer) => answer.map_err(Failure::Status),
                    Err(_) => Err(Failure::Deadline),
                },
            }
        };
        call.boxed()
    }

    /// Asks for a stream. The messages in it are [`decoded`] by whoever reads them.
    pub(crate) fn listen(
        &self,
        method: &str,
        request: impl Message,
        metadata: MetadataMap,
    ) -> BoxFuture<'static, Result<Streaming<Bytes>, Status>> {
        let (mut grpc, path) = (self.grpc.clone(), self.path(method));
        let mut request = Request::new(request.encode_to_vec());
        *request.metadata_mut() = metadata;
        let call = async move {
            ready(&mut grpc).await?;
            let stream = grpc.server_streaming(request, path?, Raw).await;
            stream.map(Response::into_inner)
        };
        call.boxed()
    }

    fn path(&self, method: &str) -> Result<PathAndQuery, Status> {
        let path = PathAndQuery::try_from(format!("/{}/{method}", self.service));
        path.map_err(|error| Status::internal(error.to_string()))
    }
}

async fn ready(grpc: &mut Grpc<Counted>) -> Result<(), Status> {
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))
}

/// A message from bytes.
///
/// # Errors
/// They are none, told as gRPC libraries do.
pub(crate) fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// How many messages a message has in its repeated field `tag`, and the bytes of the first of them: what takes two bytes here may take
/// hundreds once it is decoded.
///
/// # Errors
/// The bytes are no message.
pub(crate) fn repeated(message: &Bytes, tag: u32) -> Result<(usize, Option<Bytes>), Status> {
    let damaged = |error: DecodeError| Status::internal(error.to_string());
    let (mut rest, mut count, mut first) = (message.clone(), 0, None);
    while rest.has_remaining() {
        let (found, wire_type) = decode_key(&mut rest).map_err(damaged)?;
        if found != tag || wire_type != WireType::LengthDelimited {
            skip_field(wire_type, found, &mut rest, DecodeContext::default()).map_err(damaged)?;
            continue;
        }
        let length = decode_varint(&mut rest).map_err(damaged)?;
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= rest.remaining());
        let Some(length) = length else {
            return Err(Status::internal("failed to decode Protobuf message: buffer underflow"));
        };
        let one = rest.split_to(length);
        count += 1;
        first.get_or_insert(one);
    }
    Ok((count, first))
}

/// What a method of ours makes of a request.
pub(crate) type Answer = BoxFuture<'static, Result<Vec<u8>, Status>>;

/// Methods that are served: by the path of a call (`/package.Service/Method`) and its message. Nothing where no method has this path.
pub(crate) type Methods = Arc<dyn Fn(&str, Bytes) -> Option<Answer> + Send + Sync>;

/// Answers one call.
pub(crate) async fn answer(methods: Methods, request: http::Request<Incoming>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let method = Method { methods, path };
    tonic::server::Grpc::new(Raw).unary(method, request).await
}

struct Method {
    methods: Methods,
    path: String,
}

impl tonic::codegen::Service<Request<Bytes>> for Method {
    type Response = Response<Vec<u8>>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Response<Vec<u8>>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let answer = (self.methods)(&self.path, request.into_inner());
        async move {
            match answer {
                Some(answer) => answer.await.map(Response::new),
                None => Err(Status::unimplemented("")),
            }
        }
        .boxed()
    }
}

/// Messages as the bytes they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buf.remaining();
        Ok(Some(buf.copy_to_bytes(length)))
    }
}
