use super::*;
use crate::websocket;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;

const ALL: Streams = Streams {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

/// A translation that runs, seen from both ends.
struct Bench {
    client: WebSocketStream<DuplexStream>,
    runtime: DuplexStream,
    input: BytesMut,
    decoder: Decoder,
    task: tokio::task::JoinHandle<()>,
}

impl Bench {
    async fn new(streams: Streams, idle: Duration) -> Self {
        let (client, ours) = tokio::io::duplex(4096);
        let (theirs, runtime) = tokio::io::duplex(4096);
        let task = tokio::spawn(async move {
            translate(websocket::open(ours).await, theirs, streams, idle).await;
        });
        Self {
            client: WebSocketStream::from_raw_socket(client, Role::Client, None).await,
            runtime,
            input: BytesMut::new(),
            decoder: Decoder::default(),
            task,
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.input).expect("frames") {
                return Some(frame);
            }
            if self.runtime.read_buf(&mut self.input).await.expect("reads") == 0 {
                return None;
            }
        }
    }

    /// So many bytes that are written to a stream, in however many parts.
    async fn written(&mut self, stream: u32, bytes: usize) -> String {
        let mut text = Vec::new();
        while text.len() < bytes {
            match self.frame().await {
                Some(Frame::Data {
                    stream: on,
                    fin: false,
                    payload,
                }) if on == stream => text.extend_from_slice(&payload),
                other => panic!("{other:?} after {text:?}"),
            }
        }
        String::from_utf8(text).expect("text")
    }

    /// Takes that many openings of streams, whose numbers rise; whatever follows is left.
    async fn opened(&mut self, count: usize) {
        let mut last = 0;
        for _ in 0..count {
            while self.input.len() < 12 {
                assert!(self.runtime.read_buf(&mut self.input).await.expect("reads") > 0);
            }
            let stream = u32::from_be_bytes([self.input[8], self.input[9], self.input[10], self.input[11]]);
            assert!(stream > last && stream % 2 == 1, "{stream} after {last}");
            last = stream;
            assert_eq!(self.frame().await, Some(Frame::Other(1)), "SYN_STREAM");
        }
    }

    async fn write(&mut self, channel: Channel, fin: bool, text: &str) {
        let mut out = BytesMut::new();
        Encoder::default().data(channel.stream(), fin, text.as_bytes(), &mut out);
        self.runtime.write_all(&out).await.expect("written");
    }

    /// The first message tells that the streams are there.
    async fn greeted(&mut self) {
        let greeting = self.hear().await;
        assert_eq!(greeting, Message::Binary(Bytes::from_static(b"\x01")));
    }

    async fn hear(&mut self) -> Message {
        self.client.next().await.expect("a message").expect("sound")
    }

    async fn say(&mut self, bytes: &[u8]) {
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        self.client.send(message).await.expect("sent");
    }
}

fn closed_with(message: &Message) -> Option<CloseCode> {
    match message {
        Message::Close(frame) => frame.as_ref().map(|frame| frame.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_reads_its_input_to_the_end_and_tells_how_it_went() {
    let mut bench = Bench::new(ALL, Duration::ZERO).await;
    bench.opened(4).await;
    bench.greeted().await;
    bench.say(b"\0hello").await;
    assert_eq!(bench.written(3, 5).await, "hello");
    // Nobody asked for a terminal, and channel 9 is none.
    bench.say(b"\x04{}").await;
    bench.say(b"\x09x").await;
    bench.say(&[]).await;
    bench.say(&[CLOSE, 0]).await;
    bench.say(b"\0late").await;
    let end = Frame::Data {
        stream: 3,
        fin: true,
        payload: Bytes::new(),
    };
    assert_eq!(bench.frame().await, Some(end));

    bench.write(Channel::Stdout, false, "out").await;
    assert_eq!(bench.hear().await, Message::Binary(Bytes::from_static(b"\x01out")));
    bench.write(Channel::Stderr, true, "err").await;
    assert_eq!(bench.hear().await, Message::Binary(Bytes::from_static(b"\x02err")));
    bench.write(Channel::Error, true, "{}").await;
    assert_eq!(bench.hear().await, Message::Binary(Bytes::from_static(b"\x03{}")));
    bench.write(Channel::Stdout, true, "").await;
    assert_eq!(closed_with(&bench.hear().await), Some(CloseCode::Normal));
    assert!(bench.client.next().await.is_none(), "both have said that they are done");
    assert_eq!(
        bench.frame().await,
        None,
        "what came after the end of the input was dropped"
    );
    bench.task.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_has_one_output_and_a_size() {
    let tty = Streams { tty: true, ..ALL };
    let mut bench = Bench::new(tty, Duration::ZERO).await;
    bench.opened(4).await;
    bench.greeted().await;
    bench.say(b"\x04{\"Width\":80}").await;
    assert_eq!(bench.written(9, 12).await, "{\"Width\":80}");
    bench.write(Channel::Error, true, "").await;
    bench.write(Channel::Stdout, true, "").await;
    assert_eq!(closed_with(&bench.hear().await), Some(CloseCode::Normal));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_up_without_a_status_is_an_error() {
    let mut bench = Bench::new(ALL, Duration::ZERO).await;
    bench.opened(4).await;
    bench.greeted().await;
    bench.write(Channel::Stdout, true, "").await;
    drop(bench.runtime);
    let Message::Binary(status) = bench.client.next().await.expect("a message").expect("sound") else {
        panic!("no status")
    };
    assert!(status.starts_with(b"\x03{") && status.windows(13).any(|part| part == b"InternalError"));
    let message = bench.client.next().await.expect("a message").expect("sound");
    assert_eq!(closed_with(&message), Some(CloseCode::Error));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_takes_the_runtimes_connection_along() {
    let mut bench = Bench::new(ALL, Duration::ZERO).await;
    bench.opened(4).await;
    bench.greeted().await;
    bench.client.close(None).await.expect("closed");
    assert_eq!(bench.frame().await, None);
    bench.task.await.expect("ended");
}

/// The command's output is read by nobody until its input is written: neither direction may wait for the other.
#[tokio::test(start_paused = true)]
async fn both_directions_flow_beside_each_other() {
    const BYTES: usize = 1 << 20;
    let bench = Bench::new(ALL, Duration::ZERO).await;
    let Bench {
        client, mut runtime, ..
    } = bench;
    // A command that gives back what it reads, and reads on only when that is written.
    let echo = tokio::spawn(async move {
        let (mut decoder, mut input, mut echoed) = (Decoder::default(), BytesMut::new(), 0);
        while echoed < BYTES {
            while let Some(frame) = decoder.decode(&mut input).expect("frames") {
                if let Frame::Data { payload, .. } = frame {
                    let mut out = BytesMut::new();
                    Encoder::default().data(Channel::Stdout.stream(), false, &payload, &mut out);
                    runtime.write_all(&out).await.expect("written");
                    echoed += payload.len();
                }
            }
            if echoed < BYTES {
                assert!(runtime.read_buf(&mut input).await.expect("reads") > 0);
            }
        }
    });
    let (mut sink, mut stream) = client.split();
    let writing = async {
        for _ in 0..BYTES / 1024 {
            let mut bytes = vec![0_u8; 1025];
            bytes[1] = 7;
            sink.send(Message::Binary(bytes.into())).await.expect("sent");
        }
    };
    let reading = async {
        let mut heard = 0;
        while heard < BYTES {
            match stream.next().await.expect("a message").expect("sound") {
                Message::Binary(bytes) => heard += bytes.len() - 1,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(writing, reading);
    echo.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_on_both_sides_and_do_not_keep_an_idle_stream() {
    let mut bench = Bench::new(ALL, Duration::from_secs(60)).await;
    bench.opened(4).await;
    bench.greeted().await;
    let mut out = BytesMut::new();
    Encoder::default().pong(2, &mut out);
    bench.runtime.write_all(&out).await.expect("written");
    assert_eq!(bench.frame().await, Some(Frame::Ping(2)));
    let begin = tokio::time::Instant::now();
    loop {
        let ping = Message::Ping(Bytes::from_static(b"?"));
        if bench.client.send(ping).await.is_err() {
            break;
        }
        match bench.hear().await {
            Message::Pong(bytes) => assert_eq!(bytes, "?"),
            other => {
                assert!(
                    matches!(&other, Message::Binary(status) if status.starts_with(b"\x03")),
                    "{other:?}"
                );
                break;
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(begin.elapsed() < Duration::from_secs(70), "pings keep an idle stream");
    }
    assert!(begin.elapsed() >= Duration::from_secs(60));
}

/// A runtime that says what it has to say, and reads nothing.
struct Deaf;

impl AsyncWrite for Deaf {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The command has ended without reading all of its input, and the client reads slowly: it still hears everything.
#[tokio::test(start_paused = true)]
async fn what_was_said_is_heard_though_the_input_is_read_no_more() {
    let mut said = BytesMut::new();
    let encoder = Encoder::default();
    encoder.data(Channel::Stdout.stream(), true, &[b'x'; 10_000], &mut said);
    encoder.data(Channel::Stderr.stream(), true, b"", &mut said);
    encoder.data(Channel::Error.stream(), true, b"{}", &mut said);
    let (client, ours) = tokio::io::duplex(64);
    let task = tokio::spawn(async move {
        let runtime = tokio::io::join(std::io::Cursor::new(said), Deaf);
        translate(websocket::open(ours).await, runtime, ALL, Duration::ZERO).await;
    });
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let (mut heard, mut status) = (0, None);
    loop {
        match client.next().await.expect("a message").expect("sound") {
            Message::Binary(bytes) if bytes[0] == Channel::Error.number() => status = Some(bytes.slice(1..)),
            Message::Binary(bytes) => heard += bytes.len() - 1,
            other => break assert_eq!(closed_with(&other), Some(CloseCode::Normal)),
        }
    }
    assert_eq!((heard, status.as_deref()), (10_000, Some(&b"{}"[..])));
    task.await.expect("ended");
}

/// A client that asks for answers and reads none is listened to no further than the buffers go, or ends with its stream's idle
/// bound: nothing is collected for it.
#[tokio::test(start_paused = true)]
async fn pings_of_a_client_that_reads_nothing_are_not_collected() {
    const PINGS_SENT: usize = 100_000;
    let (client, ours) = tokio::io::duplex(4096);
    let (theirs, _runtime) = tokio::io::duplex(4096);
    let task = tokio::spawn(async move {
        let socket = websocket::open(ours).await;
        translate(socket, theirs, ALL, Duration::from_secs(60)).await;
    });
    let (_unread, mut writing) = tokio::io::split(client);
    // A masked ping of 125 bytes, its mask zero.
    let mut ping = vec![0x89, 0x80 | 125, 0, 0, 0, 0];
    ping.extend([b'p'; 125]);
    for _ in 0..PINGS_SENT {
        if writing.write_all(&ping).await.is_err() {
            break;
        }
    }
    task.await.expect("ended, although its last words were not read");
}
