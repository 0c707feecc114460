use super::*;
use std::io::Read;

/// All frames in these bytes, given to the decoder in pieces of a size.
fn frames(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, SpdyError> {
    let (mut decoder, mut input, mut frames) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.put_slice(piece);
        while let Some(frame) = decoder.decode(&mut input)? {
            frames.push(frame);
        }
    }
    assert!(input.len() < HEAD + CONTROL_MAX);
    Ok(frames)
}

fn control_frame(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    head(kind, body.len(), &mut out);
    out[4] = flags;
    out.put_slice(body);
    out.to_vec()
}

#[test]
fn data_arrives_in_parts_and_ends_once() {
    let mut out = BytesMut::new();
    let encoder = Encoder::default();
    encoder.data(3, true, b"hello", &mut out);
    encoder.data(5, true, b"", &mut out);
    for piece in 1..out.len() {
        let mut heard = Vec::new();
        let mut ended = 0;
        for frame in frames(&out, piece).expect("frames") {
            let Frame::Data { stream, fin, payload } = frame else {
                panic!("{frame:?}")
            };
            match stream {
                3 => heard.extend_from_slice(&payload),
                5 => assert!(fin && payload.is_empty()),
                _ => panic!("stream {stream}"),
            }
            ended += u32::from(fin);
            assert!(
                stream == 5 || fin == (heard.len() == 5),
                "the end is told with the last bytes"
            );
        }
        assert_eq!(
            (heard.as_slice(), ended),
            (b"hello".as_slice(), 2),
            "in pieces of {piece}"
        );
    }
}

#[test]
fn control_frames_say_what_matters_and_nonsense_is_refused() {
    let reply = control_frame(SYN_REPLY, FLAG_FIN, &[0, 0, 0, 7, 1, 2, 3]);
    assert_eq!(frames(&reply, 3), Ok(vec![Frame::Reply { stream: 7, fin: true }]));
    let reset = control_frame(RST_STREAM, 0, &[0, 0, 0, 9, 0, 0, 0, 5]);
    assert_eq!(frames(&reset, 100), Ok(vec![Frame::Reset { stream: 9 }]));
    assert_eq!(
        frames(&control_frame(PING, 0, &[0, 0, 0, 2]), 1),
        Ok(vec![Frame::Ping(2)])
    );
    assert_eq!(frames(&control_frame(GOAWAY, 0, &[0; 8]), 100), Ok(vec![Frame::GoAway]));
    assert_eq!(frames(&control_frame(4, 0, &[0; 12]), 100), Ok(vec![Frame::Other(4)]));
    assert_eq!(
        frames(&control_frame(PING, 0, &[1, 2]), 100),
        Err(SpdyError::Truncated(PING))
    );
    let long = control_frame(SYN_REPLY, 0, &vec![0; CONTROL_MAX + 1]);
    assert_eq!(frames(&long, 100), Err(SpdyError::TooLong(CONTROL_MAX + 1)));
    assert!(
        frames(b"HTTP/1.1 400 Bad Request", 100).is_ok(),
        "it looks like data of a stream"
    );
    assert_eq!(frames(&[0x80, 2, 0, 1, 0, 0, 0, 0], 100), Err(SpdyError::Version(2)));
}

#[test]
fn headers_of_several_streams_are_one_zlib_stream() {
    let mut encoder = Encoder::default();
    let mut out = BytesMut::new();
    encoder.open(1, &[("streamtype", "error")], &mut out);
    encoder.open(3, &[("streamtype", "stdin"), ("x", "")], &mut out);
    let mut blocks = Vec::new();
    while out.has_remaining() {
        let length = u32::from_be_bytes([0, out[5], out[6], out[7]]) as usize;
        let frame = out.split_to(HEAD + length);
        let block = &frame[HEAD + 10..];
        assert!(
            block.ends_with(&FLUSH),
            "a reader gets all of the headers with this frame"
        );
        blocks.extend_from_slice(block);
    }
    // Another implementation of the format reads them.
    let mut plain = vec![0; 4 + 4 + 10 + 4 + 5 + 4 + 4 + 10 + 4 + 5 + 4 + 1 + 4];
    let mut reader = flate2::read::ZlibDecoder::new(blocks.as_slice());
    reader.read_exact(&mut plain).expect("deflated");
    let texts: Vec<&[u8]> = [(8, 10), (22, 5), (35, 10), (49, 5)]
        .map(|(at, length)| &plain[at..at + length])
        .to_vec();
    assert_eq!(texts, [&b"streamtype"[..], b"error", b"streamtype", b"stdin"]);
}
