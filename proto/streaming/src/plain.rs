//! A reply as messages of a WebSocket, for clients that can open nothing else: browsers that watch or read logs (control-plane
//! contract §2.1; upstream's `wsstream` and its handler of watches).
//!
//! An event of a watch is a message, however long: it goes out in as many frames as it comes in, and is never collected. Owns no
//! reply's content, and takes the next piece only once the one before has been written.

use crate::websocket::{self, BASE64_BINARY, BINARY};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use futures::{SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An event in JSON, with the line's end it has in a reply.
    Lines,
    /// An event in protobuf, without the four bytes of length that stand before it in a reply.
    Delimited,
    /// What came at once.
    Pieces,
    /// The same in base64, for clients that take text alone.
    Base64,
}

impl Form {
    /// The form of logs, by the protocol that was agreed on.
    pub fn of_log(protocol: Option<&str>) -> Self {
        match protocol {
            Some(BASE64_BINARY) => Self::Base64,
            _ => Self::Pieces,
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Lines | Self::Base64)
    }
}

/// The protocols logs are spoken in, beside none at all.
pub const LOG_PROTOCOLS: [&str; 2] = [BINARY, BASE64_BINARY];

/// A part of a message.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    data: Bytes,
    is_first: bool,
    is_last: bool,
}

/// Where messages end in what comes. Pure.
struct Cutter {
    form: Form,
    /// A message has begun.
    is_within: bool,
    /// What has come of the bytes of length before an event.
    head: Vec<u8>,
    /// What is missing of an event whose length is known.
    missing: usize,
}

impl Cutter {
    fn new(form: Form) -> Self {
        Self {
            form,
            is_within: false,
            head: Vec::new(),
            missing: 0,
        }
    }

    fn cut(&mut self, mut piece: Bytes) -> Vec<Part> {
        let mut parts = Vec::new();
        while !piece.is_empty() {
            let end = match self.form {
                Form::Lines => piece.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
                Form::Delimited => {
                    if !self.is_within && !self.read_head(&mut piece) {
                        continue;
                    }
                    (self.missing <= piece.len()).then_some(self.missing)
                }
                Form::Pieces | Form::Base64 => Some(piece.len()),
            };
            let data = piece.split_to(end.unwrap_or(piece.len()));
            self.missing = self.missing.saturating_sub(data.len());
            let data = match self.form {
                Form::Base64 => Bytes::from(STANDARD.encode(&data)),
                _ => data,
            };
            parts.push(Part {
                data,
                is_first: !self.is_within,
                is_last: end.is_some(),
            });
            self.is_within = end.is_none();
        }
        parts
    }

    /// Takes the length off; whether it is complete, and of something.
    fn read_head(&mut self, piece: &mut Bytes) -> bool {
        let wanted = (4 - self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..wanted]);
        piece.advance(wanted);
        let Ok(length) = <[u8; 4]>::try_from(self.head.as_slice()) else {
            return false;
        };
        self.head.clear();
        self.missing = u32::from_be_bytes(length) as usize;
        self.missing > 0
    }
}

fn frame(part: Part, is_text: bool) -> Message {
    let kind = match (part.is_first, is_text) {
        (false, _) => Data::Continue,
        (true, true) => Data::Text,
        (true, false) => Data::Binary,
    };
    Message::Frame(Frame::message(part.data, OpCode::Data(kind), part.is_last))
}

/// Sends a reply's pieces until they end or the client is gone. A log begins with an empty message, as upstream's, so that the client
/// sees that it has begun.
pub async fn send<S, P, E>(socket: WebSocketStream<S>, pieces: P, form: Form)
where
    S: AsyncRead + AsyncWrite + Unpin,
    P: Stream<Item = Result<Bytes, E>>,
{
    let (mut sink, mut messages) = socket.split();
    let mut cutter = Cutter::new(form);
    let mut pieces = std::pin::pin!(pieces);
    if matches!(form, Form::Pieces | Form::Base64) && sink.send(Message::Binary(Bytes::new())).await.is_err() {
        return;
    }
    let code = loop {
        let piece = tokio::select! {
            biased;
            // What a client says has no meaning here but its goodbye.
            message = messages.next() => match message {
                None | Some(Err(_)) => return,
                Some(Ok(Message::Close(_))) => return websocket::answer_close(&mut sink).await,
                Some(Ok(_)) => continue,
            },
            piece = pieces.next() => piece,
        };
        match piece {
            None => break CloseCode::Normal,
            Some(Err(_)) => break CloseCode::Error,
            Some(Ok(piece)) => {
                for part in cutter.cut(piece) {
                    if sink.send(frame(part, form.is_text())).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    websocket::close(&mut sink, &mut messages, code, None).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use proptest::prelude::*;
    use std::convert::Infallible;
    use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

    /// What a client reads of these pieces: its messages, and what it was told at the end.
    async fn read(pieces: Vec<Bytes>, form: Form) -> (Vec<Message>, Option<CloseCode>) {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
        let sending = tokio::spawn(async move { send(websocket::open(ours).await, pieces, form).await });
        let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let mut read = Vec::new();
        let mut code = None;
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Close(frame) => code = frame.map(|frame| frame.code),
                message => read.push(message),
            }
        }
        sending.await.expect("it ends");
        (read, code)
    }

    #[tokio::test]
    async fn an_event_is_a_message_however_it_comes() {
        let pieces = ["{\"a\":", "1}\n{\"b\"", ":2", "}\n{\"\u{e4}\":3}\n"];
        let (messages, code) = read(pieces.map(Bytes::from).into(), Form::Lines).await;
        let expected = ["{\"a\":1}\n", "{\"b\":2}\n", "{\"\u{e4}\":3}\n"];
        assert_eq!(messages, expected.map(Message::text));
        assert_eq!(code, Some(CloseCode::Normal));
    }

    #[tokio::test]
    async fn a_log_begins_with_nothing_and_is_what_came() {
        let pieces = || vec![Bytes::from("one"), Bytes::from_static(b"\xff\n")];
        let (messages, _) = read(pieces(), Form::of_log(Some(BINARY))).await;
        let binary = |data: &'static [u8]| Message::Binary(Bytes::from(data));
        assert_eq!(messages, [binary(b""), binary(b"one"), binary(b"\xff\n")]);
        let (messages, _) = read(pieces(), Form::of_log(Some(BASE64_BINARY))).await;
        assert_eq!(messages, [binary(b""), Message::text("b25l"), Message::text("/wo=")]);
    }

    #[tokio::test]
    async fn a_goodbye_is_answered() {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let pieces = stream::pending::<Result<Bytes, Infallible>>();
        let sending = tokio::spawn(async move { send(websocket::open(ours).await, pieces, Form::Lines).await });
        let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let goodbye = Message::Close(Some(CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        }));
        client.send(goodbye.clone()).await.expect("sent");
        assert_eq!(client.next().await.expect("answered").expect("a frame"), goodbye);
        sending.await.expect("it ends");
    }

    proptest! {
        #[test]
        fn lengths_are_taken_off_wherever_pieces_end(
            events in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            step in 1_usize..50,
        ) {
            let whole: Vec<u8> = events.iter().flat_map(|event| {
                let length = u32::try_from(event.len()).expect("a short one").to_be_bytes();
                length.into_iter().chain(event.iter().copied())
            }).collect();
            let mut cutter = Cutter::new(Form::Delimited);
            let mut found: Vec<Vec<u8>> = Vec::new();
            let mut is_open = false;
            for piece in whole.chunks(step) {
                for part in cutter.cut(Bytes::copy_from_slice(piece)) {
                    prop_assert_eq!(part.is_first, !is_open);
                    if part.is_first { found.push(Vec::new()); }
                    found.last_mut().expect("begun").extend_from_slice(&part.data);
                    is_open = !part.is_last;
                }
            }
            prop_assert!(!is_open);
            prop_assert_eq!(found, events);
        }
    }
}
