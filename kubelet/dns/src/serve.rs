//! What one question comes to: an answer at once, from the index or the cache, or one that comes later. Everything of one responder
//! lives on one thread, so nothing here is locked; nothing here waits either.

use crate::answer::{Onward, Room, Verdict, answer, answer_as};
use crate::autopath::{SearchPaths, Walk};
use crate::cache::Hit;
use crate::clients::Clients;
use crate::fair::Fair;
use crate::forward::{Forwarder, Outcome, write};
use crate::index::Index;
use crate::metrics::{Metrics, Source, Way};
use crate::wire::{HEADER_BYTES, Name, Problem, Query, Writer, rcode, writer};
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
    /// As whom the source counts.
    pub(crate) client: IpAddr,
    pub(crate) way: Way,
    pub(crate) began: Instant,
    /// The largest answer, in bytes.
    pub(crate) limit: usize,
    pub(crate) sink: Sink,
    /// The names that are tried in place of the one asked for, with autopath.
    pub(crate) walk: Option<Walk>,
}

/// Everything of one responder.
pub(crate) struct Server {
    pub(crate) index: RefCell<Index>,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) ttl: u32,
    pub(crate) datagram_bytes: u16,
    room: RefCell<Room>,
    pub(crate) fair: RefCell<Fair>,
    clients: RefCell<Clients>,
    search: Option<SearchPaths>,
}

/// A question as it came.
pub(crate) struct Came<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) tcp: bool,
}

impl Server {
    pub(crate) fn new(
        index: Index,
        forwarder: Forwarder,
        metrics: Arc<Metrics>,
        datagram_bytes: u16,
        (search, clients): (Option<SearchPaths>, Clients),
    ) -> Self {
        Self {
            ttl: index.shape.ttl,
            index: RefCell::new(index),
            forwarder,
            metrics,
            datagram_bytes,
            room: RefCell::default(),
            fair: RefCell::new(Fair::new(Instant::now())),
            clients: RefCell::new(clients),
            search,
        }
    }

    /// As whom a peer counts now.
    pub(crate) fn client(&self, peer: SocketAddr, now: Instant) -> IpAddr {
        self.clients.borrow_mut().of(peer.ip().to_canonical(), now)
    }

    /// Whether a client gets an answer now, beside the others; then it counts.
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.fair.borrow_mut().allows(client, Instant::now())
    }

    /// Answers into `out`, and says whether that is to be sent now. What comes later goes where `sink` says.
    pub(crate) fn handle(self: &Rc<Self>, came: &Came<'_>, out: &mut Vec<u8>, sink: impl FnOnce() -> Sink) -> bool {
        let began = Instant::now();
        let source = came.peer.ip().to_canonical();
        let client = self.client(came.peer, began);
        // (A connection that asks too much waits.)
        if !came.tcp && !self.fair.borrow_mut().allows(client, began) {
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
        let (onward, walk) = match verdict {
            Verdict::Onward(onward) => (Some(onward), None),
            Verdict::Done => {
                let code = writer.finish();
                self.metrics.request(Source::Cluster, way, kind, bytes, dnssec_ok);
                let walk = match code {
                    rcode::NX_DOMAIN => self.search_of(&query, source),
                    _ => None,
                };
                if walk.is_none() {
                    let took = began.elapsed();
                    self.metrics.response(Source::Cluster, way, code, out.len(), took);
                    return true;
                }
                (None, walk)
            }
        };
        let asked = Box::new(Asked {
            query,
            source,
            client,
            way,
            began,
            limit,
            sink: sink(),
            walk,
        });
        let Some(onward) = onward else {
            return self.walk(asked, out);
        };
        self.metrics.request(Source::Forward, way, kind, bytes, dnssec_ok);
        self.forward(asked, onward, out)
    }

    /// What is to be tried for a name that is not there, if it is the first of its source's search path.
    fn search_of(&self, query: &Query, source: IpAddr) -> Option<Walk> {
        let search = self.search.as_ref()?;
        let likely = Walk::is_likely(query, &self.index.borrow().shape.zone);
        Walk::of(query, &likely.then(|| search(source))??)
    }

    /// Tries the names that are left: the first that is there is the answer.
    fn walk(self: &Rc<Self>, mut asked: Box<Asked>, out: &mut Vec<u8>) -> bool {
        while let Some(name) = asked.walk.as_mut().and_then(Walk::next) {
            let mut writer = Writer::begin(out, &asked.query, asked.limit, self.datagram_bytes);
            let verdict = self.try_name(&asked.query, &name, &mut writer);
            match verdict {
                Verdict::Onward(_) if !self.forwarder.has_time(asked.began) => break,
                Verdict::Onward(onward) => return self.forward(asked, onward, out),
                Verdict::Done => match writer.finish() {
                    rcode::NX_DOMAIN => {}
                    rcode::NO_ERROR => {
                        self.metrics.completed();
                        self.count(Source::Cluster, &asked, rcode::NO_ERROR, out);
                        return true;
                    }
                    _ => break,
                },
            }
        }
        self.give_up(&asked, out)
    }

    fn try_name(&self, query: &Query, name: &Name, writer: &mut Writer<'_>) -> Verdict {
        answer_as(
            &self.index.borrow(),
            query,
            Some(name),
            writer,
            &mut self.room.borrow_mut(),
        )
    }

    /// What was asked for is not there, and that is the answer: the client goes on by itself.
    fn give_up(&self, asked: &Asked, out: &mut Vec<u8>) -> bool {
        let mut writer = Writer::begin(out, &asked.query, asked.limit, self.datagram_bytes);
        let _ = answer(
            &self.index.borrow(),
            &asked.query,
            &mut writer,
            &mut self.room.borrow_mut(),
        );
        let code = writer.finish();
        self.count(Source::Cluster, asked, code, out);
        true
    }

    fn count(&self, by: Source, asked: &Asked, code: u16, out: &[u8]) {
        self.metrics
            .response(by, asked.way, code, out.len(), asked.began.elapsed());
    }

    fn forward(self: &Rc<Self>, asked: Box<Asked>, onward: Box<Onward>, out: &mut Vec<u8>) -> bool {
        match self.forwarder.ask(self, asked, onward) {
            Outcome::Later => false,
            Outcome::Now(hit, asked, onward) => self.land(&hit, asked, &onward, out),
            Outcome::Rejected(asked) if asked.walk.is_some() => self.give_up(&asked, out),
            Outcome::Rejected(asked) => {
                let mut writer = Writer::begin(out, &asked.query, asked.limit, self.datagram_bytes);
                writer.code(rcode::REFUSED);
                let code = writer.finish();
                self.count(Source::Forward, &asked, code, out);
                true
            }
        }
    }

    /// Answers what a resolver said, and says whether `out` is to be sent now. (A walk through a whole search path that is in the
    /// cache comes back here for each name of it, which are few.)
    pub(crate) fn land(self: &Rc<Self>, hit: &Hit, asked: Box<Asked>, onward: &Onward, out: &mut Vec<u8>) -> bool {
        match hit.reply.rcode {
            rcode::NX_DOMAIN if asked.walk.is_some() => return self.walk(asked, out),
            rcode::NO_ERROR if asked.walk.is_some() => self.metrics.completed(),
            _ if asked.walk.is_some() => return self.give_up(&asked, out),
            _ => {}
        }
        let code = write(out, self, &asked, onward, hit);
        self.count(Source::Forward, &asked, code, out);
        true
    }
}
