//! What one question comes to: an answer at once, from the index or the cache, or one that comes later. Everything of one responder
//! lives on one thread, so nothing here is locked; nothing here waits either.

use crate::answer::{Onward, Room, Verdict, answer};
use crate::forward::{Forwarder, Outcome, write};
use crate::index::Index;
use crate::limit::Limit;
use crate::metrics::{Metrics, Source, Way};
use crate::wire::{HEADER_BYTES, Problem, Query, Writer, rcode, writer};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

pub(crate) mod tcp;
pub(crate) mod udp;

/// The longest question, in bytes: a name, and options nobody needs.
pub(crate) const QUESTION_BYTES: usize = 4096;

/// Where an answer goes.
#[derive(Clone)]
pub(crate) enum Sink {
    /// A datagram.
    Datagram(Rc<UdpSocket>, SocketAddr),
    /// A connection that writes it when it can.
    Stream(mpsc::Sender<Vec<u8>>),
}

impl Sink {
    /// Sends, or drops what nobody takes: UDP promises nothing, and a connection has room for all it may ask at once.
    pub(crate) fn send(&self, message: &[u8]) {
        match self {
            Self::Datagram(socket, peer) => drop(socket.try_send_to(message, *peer)),
            Self::Stream(stream) => drop(stream.try_send(message.to_vec())),
        }
    }
}

/// Who asked what, when, and where the answer goes.
pub(crate) struct Asked {
    pub(crate) query: Query,
    pub(crate) source: IpAddr,
    pub(crate) way: Way,
    pub(crate) began: Instant,
    /// The largest answer, in bytes.
    pub(crate) limit: usize,
    pub(crate) sink: Sink,
}

/// Everything of one responder.
pub(crate) struct Server {
    pub(crate) index: RefCell<Index>,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) ttl: u32,
    pub(crate) datagram_bytes: u16,
    room: RefCell<Room>,
    limit: RefCell<Limit>,
}

/// A question as it came.
pub(crate) struct Came<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) tcp: bool,
}

impl Server {
    pub(crate) fn new(index: Index, forwarder: Forwarder, metrics: Arc<Metrics>, sizes: (u16, u32)) -> Self {
        Self {
            ttl: index.shape.ttl,
            index: RefCell::new(index),
            forwarder,
            metrics,
            datagram_bytes: sizes.0,
            room: RefCell::default(),
            limit: RefCell::new(Limit::new(sizes.1)),
        }
    }

    /// Answers into `out`, and says whether that is to be sent now. What comes later goes where `sink` says.
    pub(crate) fn handle(self: &Rc<Self>, came: &Came<'_>, out: &mut Vec<u8>, sink: impl FnOnce() -> Sink) -> bool {
        let began = Instant::now();
        let source = came.peer.ip().to_canonical();
        if !self.limit.borrow_mut().allows(source, began) {
            self.metrics.limit();
            return false;
        }
        let way = Way {
            tcp: came.tcp,
            v6: source.is_ipv6(),
        };
        let query = match Query::read(came.message) {
            Ok(query) => query,
            Err(Problem::Silent) => return false,
            Err(Problem::Code { id, flags, rcode }) => {
                writer::refuse(out, id, flags, rcode);
                self.metrics.request(Source::Cluster, way, 0, came.message.len(), false);
                self.metrics
                    .response(Source::Cluster, way, rcode, HEADER_BYTES, began.elapsed());
                return true;
            }
        };
        let limit = match came.tcp {
            true => usize::from(u16::MAX),
            false => query.datagram_bytes(self.datagram_bytes),
        };
        let mut writer = Writer::begin(out, &query, limit, self.datagram_bytes);
        let verdict = answer(&self.index.borrow(), &query, &mut writer, &mut self.room.borrow_mut());
        let (kind, bytes, dnssec_ok) = (query.kind, came.message.len(), query.dnssec_ok());
        let onward = match verdict {
            Verdict::Done => {
                let code = writer.finish();
                self.metrics.request(Source::Cluster, way, kind, bytes, dnssec_ok);
                self.metrics
                    .response(Source::Cluster, way, code, out.len(), began.elapsed());
                return true;
            }
            Verdict::Onward(onward) => onward,
        };
        self.metrics.request(Source::Forward, way, kind, bytes, dnssec_ok);
        let asked = Box::new(Asked {
            query,
            source,
            way,
            began,
            limit,
            sink: sink(),
        });
        self.forward(asked, onward, out)
    }

    fn forward(self: &Rc<Self>, asked: Box<Asked>, onward: Box<Onward>, out: &mut Vec<u8>) -> bool {
        let (code, way, began) = match self.forwarder.ask(self, asked, onward) {
            Outcome::Later => return false,
            Outcome::Now(hit, asked, onward) => (write(out, self, &asked, &onward, &hit), asked.way, asked.began),
            Outcome::Rejected(asked) => {
                let mut writer = Writer::begin(out, &asked.query, asked.limit, self.datagram_bytes);
                writer.code(rcode::REFUSED);
                (writer.finish(), asked.way, asked.began)
            }
        };
        self.metrics
            .response(Source::Forward, way, code, out.len(), began.elapsed());
        true
    }
}
