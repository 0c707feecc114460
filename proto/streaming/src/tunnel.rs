//! A port-forward: SPDY inside of a WebSocket. Bytes go through as they are.

use crate::silence::Silence;
use crate::websocket;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Bytes of a message at most.
const MESSAGE: usize = 32 << 10;

/// Carries bytes between the messages of a WebSocket and a SPDY connection, until either ends or nothing has moved for `idle`
/// (zero: for as long as it takes).
pub async fn tunnel<W, S>(socket: WebSocketStream<W>, spdy: S, idle: Duration)
where
    W: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
{
    let (mut sink, mut messages) = socket.split();
    let (mut from_spdy, mut to_spdy) = tokio::io::split(spdy);
    let silence = Silence::new();
    let up = async {
        while let Some(Ok(message)) = messages.next().await {
            match message {
                Message::Binary(bytes) => {
                    silence.broken();
                    to_spdy.write_all(&bytes).await?;
                    to_spdy.flush().await?;
                }
                Message::Close(_) | Message::Text(_) => break,
                _ => {}
            }
        }
        std::io::Result::Ok(())
    };
    let down = async {
        loop {
            let mut buffer = BytesMut::with_capacity(MESSAGE);
            if from_spdy.read_buf(&mut buffer).await? == 0 {
                return std::io::Result::Ok(());
            }
            silence.broken();
            let message = Message::Binary(Bytes::from(buffer));
            sink.send(message).await.map_err(std::io::Error::other)?;
        }
    };
    let ended = {
        tokio::pin!(down);
        tokio::select! {
            biased;
            ended = &mut down => ended,
            ended = up => match ended {
                // What the other side still says goes to its end.
                Err(_) => tokio::select! {
                    biased;
                    ended = down => ended,
                    () = silence.lasts(idle) => Ok(()),
                },
                ended => ended,
            },
            () = silence.lasts(idle) => Ok(()),
        }
    };
    let code = match ended {
        Ok(()) => CloseCode::Normal,
        Err(error) => {
            tracing::debug!(%error, "port-forward broke");
            CloseCode::Error
        }
    };
    websocket::close(&mut sink, &mut messages, code, None).await;
}
