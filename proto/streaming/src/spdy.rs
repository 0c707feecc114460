//! Frames of SPDY/3.1, as far as one side needs them that opens all streams itself: what it writes, and what it is answered.
//!
//! Pure. Owns the wire format. Header blocks of the other side are skipped: they hold nothing that is used, so nothing has to be
//! decompressed; our own travel in stored (uncompressed) blocks of the connection's zlib stream. Windows are not kept, as no
//! container runtime keeps them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Most bytes of a control frame: those that matter have twelve, headers a few hundred.
const CONTROL_MAX: usize = 64 << 10;
const HEAD: usize = 8;
const VERSION: u16 = 3;
const FLAG_FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// How a zlib stream begins that uses no dictionary and deflates nothing (RFC 1950 §2.2).
const ZLIB_HEAD: [u8; 2] = [0x78, 0x01];
/// An empty stored block: readers hand on what came before it, and may keep it until then.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// Most bytes of a stored block (RFC 1951 §3.2.4).
const STORED_MAX: usize = 0xffff;

/// Why the other side's bytes are no SPDY/3.1.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    /// A control frame of another version of the protocol.
    #[error("SPDY version {0}, not 3")]
    Version(u16),
    /// A control frame that no peer of ours has a reason to send.
    #[error("a control frame of {0} bytes, more than 65536")]
    TooLong(usize),
    /// A control frame without the fields its type has.
    #[error("a control frame of type {0} ends early")]
    Truncated(u16),
}

/// What the other side says.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A stream of ours was accepted; `fin`: nothing will come on it.
    Reply {
        /// The stream.
        stream: u32,
        /// Whether it is closed on the other side.
        fin: bool,
    },
    /// A stream ended with an error.
    Reset {
        /// The stream.
        stream: u32,
    },
    /// To be answered with the same number.
    Ping(u32),
    /// No further stream will be accepted.
    GoAway,
    /// A part of what was written to a stream; a frame may come in several.
    Data {
        /// The stream.
        stream: u32,
        /// Whether this is the last.
        fin: bool,
        /// The bytes.
        payload: Bytes,
    },
    /// Of no importance here.
    Other(u16),
}

/// What is left of a data frame.
#[derive(Debug)]
struct Rest {
    stream: u32,
    fin: bool,
    bytes: usize,
}

/// Takes frames apart as their bytes arrive. Holds no more than one control frame.
#[derive(Debug, Default)]
pub struct Decoder {
    rest: Option<Rest>,
}

impl Decoder {
    /// The next frame, or part of a data frame, taken out of `input`; none while it is incomplete.
    ///
    /// # Errors
    /// [`SpdyError`] if these are no frames of SPDY/3.1; the connection is of no use then.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        if let Some(rest) = self.rest.take() {
            return Ok(self.data(rest, input));
        }
        if input.len() < HEAD {
            return Ok(None);
        }
        let word = u32::from_be_bytes([input[0], input[1], input[2], input[3]]);
        let flags = input[4];
        let length = u32::from_be_bytes([0, input[5], input[6], input[7]]) as usize;
        if word >> 31 == 0 {
            input.advance(HEAD);
            let fin = flags & FLAG_FIN != 0;
            let rest = Rest {
                stream: word,
                fin,
                bytes: length,
            };
            return Ok(self.data(rest, input));
        }
        let (version, kind) = ((word >> 16) as u16 & 0x7fff, word as u16);
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        if length > CONTROL_MAX {
            return Err(SpdyError::TooLong(length));
        }
        if input.len() < HEAD + length {
            return Ok(None);
        }
        input.advance(HEAD);
        let body = input.split_to(length).freeze();
        control(kind, flags, body).map(Some)
    }

    /// What has arrived of a data frame; the end of an empty one is told as well.
    fn data(&mut self, rest: Rest, input: &mut BytesMut) -> Option<Frame> {
        let here = rest.bytes.min(input.len());
        let left = rest.bytes - here;
        if here == 0 && left > 0 {
            self.rest = Some(rest);
            return None;
        }
        let payload = input.split_to(here).freeze();
        let (stream, fin) = (rest.stream, rest.fin && left == 0);
        if left > 0 {
            self.rest = Some(Rest { bytes: left, ..rest });
        }
        Some(Frame::Data { stream, fin, payload })
    }
}

fn control(kind: u16, flags: u8, mut body: Bytes) -> Result<Frame, SpdyError> {
    let mut number = || match body.len() {
        0..4 => Err(SpdyError::Truncated(kind)),
        _ => Ok(body.get_u32()),
    };
    Ok(match kind {
        SYN_REPLY => Frame::Reply {
            stream: number()? & 0x7fff_ffff,
            fin: flags & FLAG_FIN != 0,
        },
        RST_STREAM => Frame::Reset {
            stream: number()? & 0x7fff_ffff,
        },
        PING => Frame::Ping(number()?),
        GOAWAY => Frame::GoAway,
        other => Frame::Other(other),
    })
}

/// Writes frames of one connection.
#[derive(Debug, Default)]
pub struct Encoder {
    begun: bool,
}

impl Encoder {
    /// Opens a stream with these headers; their names must be in lower case.
    pub fn open(&mut self, stream: u32, headers: &[(&str, &str)], out: &mut BytesMut) {
        let mut block = BytesMut::new();
        block.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.put_u32(text.len() as u32);
            block.put_slice(text.as_bytes());
        }
        let mut stored = BytesMut::new();
        if !std::mem::replace(&mut self.begun, true) {
            stored.put_slice(&ZLIB_HEAD);
        }
        for part in block.chunks(STORED_MAX) {
            let length = part.len() as u16;
            // Not the last block, and a stored one; its head ends at a byte.
            stored.put_u8(0);
            stored.put_u16_le(length);
            stored.put_u16_le(!length);
            stored.put_slice(part);
        }
        stored.put_slice(&FLUSH);
        head(SYN_STREAM, 10 + stored.len(), out);
        out.put_u32(stream);
        // No associated stream, the highest priority, no credentials.
        out.put_u32(0);
        out.put_u16(0);
        out.put_slice(&stored);
    }

    /// Writes to a stream; `fin` closes our side of it. At most 16 MiB at a time.
    pub fn data(&self, stream: u32, fin: bool, payload: &[u8], out: &mut BytesMut) {
        out.put_u32(stream);
        out.put_u8(if fin { FLAG_FIN } else { 0 });
        out.put_uint(payload.len() as u64, 3);
        out.put_slice(payload);
    }

    /// Answers a ping.
    pub fn pong(&self, number: u32, out: &mut BytesMut) {
        head(PING, 4, out);
        out.put_u32(number);
    }
}

fn head(kind: u16, length: usize, out: &mut BytesMut) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u8(0);
    out.put_uint(length as u64, 3);
}

#[cfg(test)]
mod tests;
