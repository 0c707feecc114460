//! A remote command: the channels of a WebSocket on one side (`v5.channel.k8s.io`), the streams of SPDY on the other.
//!
//! Both directions run beside each other, so that a command that writes without reading, or reads without writing, hangs
//! neither. Memory is what is on its way: nothing is queued.

use crate::silence::Silence;
use crate::spdy::{Decoder, Encoder, Frame, SpdyError};
use crate::websocket;
use bytes::{Bytes, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// The version of the streams' protocol that is spoken over SPDY.
pub const SPDY_PROTOCOL: &str = "v4.channel.k8s.io";
/// Bytes that are read at a time.
const BUFFER: usize = 32 << 10;
/// Pings of the runtime that wait for their answer; further ones go unanswered.
const PINGS: usize = 4;

/// The streams a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// The command's input.
    pub stdin: bool,
    /// Its output.
    pub stdout: bool,
    /// Its errors; none with a terminal, which has one output.
    pub stderr: bool,
    /// A terminal, whose size changes.
    pub tty: bool,
}

/// One stream: its channel in messages (KEP-4006) and its name in SPDY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Stdin = 0,
    Stdout = 1,
    Stderr = 2,
    Error = 3,
    Resize = 4,
}

/// The channel whose message closes another one.
const CLOSE: u8 = 255;

impl Channel {
    /// All, in the order in which runtimes expect them.
    const ALL: [Self; 5] = [Self::Error, Self::Stdin, Self::Stdout, Self::Stderr, Self::Resize];

    fn number(self) -> u8 {
        self as u8
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Error => "error",
            Self::Resize => "resize",
        }
    }

    /// Our streams have odd numbers, which rise in the order in which they are opened (SPDY draft 3.1 §2.3.2): a runtime waits in
    /// vain for a stream with a lower one.
    fn stream(self) -> u32 {
        match self {
            Self::Error => 1,
            Self::Stdin => 3,
            Self::Stdout => 5,
            Self::Stderr => 7,
            Self::Resize => 9,
        }
    }

    fn of_stream(stream: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.stream() == stream)
    }

    fn is_wanted(self, streams: Streams) -> bool {
        match self {
            Self::Stdin => streams.stdin,
            Self::Stdout => streams.stdout,
            Self::Stderr => streams.stderr && !streams.tty,
            Self::Error => true,
            Self::Resize => streams.tty,
        }
    }

    fn is_output(self) -> bool {
        matches!(self, Self::Stdout | Self::Stderr | Self::Error)
    }
}

/// Why a translation ended early.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the runtime's connection: {0}")]
    Io(#[from] std::io::Error),
    #[error("the runtime's frames: {0}")]
    Spdy(#[from] SpdyError),
    #[error("the client's connection: {0}")]
    Socket(#[from] tokio_tungstenite::tungstenite::Error),
    #[error("the runtime hung up before it told how the command ended")]
    NoStatus,
    #[error("nothing moved for so long that the stream was ended")]
    Idle,
}

/// Opens the wanted streams on a SPDY connection, and carries what goes over them until the command has ended, the client has
/// gone, or nothing has moved for `idle` (zero: for as long as it takes).
pub async fn translate<W, S>(socket: WebSocketStream<W>, spdy: S, streams: Streams, idle: Duration)
where
    W: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
{
    let (mut sink, mut messages) = socket.split();
    let (from_runtime, to_runtime) = tokio::io::split(spdy);
    let silence = Silence::new();
    let (pings, pinged) = mpsc::channel(PINGS);
    let mut open = Channel::ALL.to_vec();
    open.retain(|channel| channel.is_wanted(streams) && channel.is_output());
    let ended = {
        let down = down(from_runtime, &mut sink, &mut open, &pings, &silence);
        let up = up(&mut messages, to_runtime, streams, pinged, &silence);
        tokio::pin!(down);
        tokio::select! {
            biased;
            ended = &mut down => ended,
            ended = up => match ended {
                // A command may end without having read its input: what it said, and how it went, is still to come.
                Err(Broken::Io(_)) => tokio::select! {
                    biased;
                    ended = down => ended,
                    () = silence.lasts(idle) => Err(Broken::Idle),
                },
                ended => ended,
            },
            () = silence.lasts(idle) => Err(Broken::Idle),
        }
    };
    let (code, last) = match ended {
        Ok(()) => (CloseCode::Normal, None),
        Err(error) => {
            tracing::debug!(%error, "remote command broke");
            // Only what was not told yet.
            let untold = open.contains(&Channel::Error);
            (
                CloseCode::Error,
                untold.then(|| message(Channel::Error, status(&error).as_bytes())),
            )
        }
    };
    websocket::close(&mut sink, &mut messages, code, last).await;
}

/// What a client is told that would else not know why its command ended (upstream's `metav1.Status`).
fn status(error: &Broken) -> String {
    let text = error.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    format!(
        r#"{{"metadata":{{}},"status":"Failure","message":"Internal error occurred: {text}","reason":"InternalError","code":500}}"#
    )
}

/// From the client to the runtime; ends with the client.
async fn up(
    messages: &mut (impl Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin),
    mut runtime: impl AsyncWrite + Unpin,
    streams: Streams,
    mut pinged: mpsc::Receiver<u32>,
    silence: &Silence,
) -> Result<(), Broken> {
    let mut encoder = Encoder::default();
    let mut out = BytesMut::new();
    for channel in Channel::ALL.into_iter().filter(|channel| channel.is_wanted(streams)) {
        encoder.open(channel.stream(), &[("streamtype", channel.name())], &mut out);
    }
    let mut closed = false;
    loop {
        runtime.write_all(&out).await?;
        runtime.flush().await?;
        out.clear();
        let message = tokio::select! {
            biased;
            Some(number) = pinged.recv() => {
                encoder.pong(number, &mut out);
                continue;
            }
            message = messages.next() => message,
        };
        let bytes = match message {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Close(_))) | None => return Ok(()),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(error.into()),
        };
        silence.broken();
        match (bytes.split_first(), streams.stdin && !closed) {
            (Some((channel, payload)), true) if *channel == Channel::Stdin.number() => {
                encoder.data(Channel::Stdin.stream(), false, payload, &mut out);
            }
            (Some((&CLOSE, payload)), true) if *payload == [Channel::Stdin.number()] => {
                closed = true;
                encoder.data(Channel::Stdin.stream(), true, &[], &mut out);
            }
            (Some((channel, payload)), _) if *channel == Channel::Resize.number() && streams.tty => {
                encoder.data(Channel::Resize.stream(), false, payload, &mut out);
            }
            // What was not asked for, or is closed: as upstream, it is not listened to.
            _ => {}
        }
    }
}

/// From the runtime to the client; ends when every stream has that the client may still hear of.
async fn down(
    mut runtime: impl AsyncRead + Unpin,
    client: &mut (impl Sink<Message, Error = tokio_tungstenite::tungstenite::Error> + Unpin),
    open: &mut Vec<Channel>,
    pings: &mpsc::Sender<u32>,
    silence: &Silence,
) -> Result<(), Broken> {
    let mut decoder = Decoder::default();
    let mut input = BytesMut::with_capacity(BUFFER);
    // As upstream's: an empty message tells that the streams are there.
    if let Some(first) = open.iter().min_by_key(|channel| channel.number()) {
        client.send(message(*first, &[])).await?;
    }
    loop {
        while let Some(frame) = decoder.decode(&mut input)? {
            let (stream, fin) = match frame {
                Frame::Data { stream, fin, payload } => {
                    let channel = Channel::of_stream(stream).filter(|channel| channel.is_output());
                    if let Some(channel) = channel.filter(|_| !payload.is_empty()) {
                        silence.broken();
                        client.send(message(channel, &payload)).await?;
                    }
                    (stream, fin)
                }
                Frame::Reply { stream, fin } => (stream, fin),
                Frame::Reset { stream } => (stream, true),
                Frame::Ping(number) => {
                    // A runtime that floods us with pings gets fewer answers.
                    let _ = pings.try_send(number);
                    continue;
                }
                Frame::GoAway | Frame::Other(_) => continue,
            };
            open.retain(|channel| !(fin && channel.stream() == stream));
            if open.is_empty() {
                return Ok(());
            }
        }
        input.reserve(BUFFER);
        if runtime.read_buf(&mut input).await? == 0 {
            return match open.contains(&Channel::Error) {
                true => Err(Broken::NoStatus),
                false => Ok(()),
            };
        }
    }
}

fn message(channel: Channel, payload: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(payload.len() + 1);
    bytes.extend_from_slice(&[channel.number()]);
    bytes.extend_from_slice(payload);
    Message::Binary(bytes.freeze())
}

#[cfg(test)]
mod tests;
