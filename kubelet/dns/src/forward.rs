//! Questions that are not the cluster's: from the cache, or asked of resolvers, each once however many want to know. Owns the cache,
//! what is under way and who waits for it, and which resolvers there are. Bounded: waiting questions in all and of one source.

use crate::answer::Onward;
use crate::cache::{Bound, Cache, Hit, Sort};
use crate::metrics::Metrics;
use crate::resolvers::{Stubs, of_file};
use crate::serve::{Asked, Server};
use crate::wire::reply::Question;
use crate::wire::{Section, Writer, flag, kind, rcode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

mod exchange;

/// How long a resolver that did not answer is asked after the others.
const SULK: Duration = Duration::from_secs(10);

/// For how long it is known of a resolver that it repeats questions in other letters.
const LOOSE: Duration = Duration::from_secs(300);

/// What bounds the asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Questions that wait for resolvers at once.
    pub waiting: usize,
    /// Those of them one source may have ([`crate::clients`]).
    pub waiting_per_source: usize,
    /// How long one resolver may take.
    pub patience: Duration,
    /// How long a question may take, with all its attempts.
    pub deadline: Duration,
    /// How long it may take to make sure of an answer that repeats the question in other letters.
    pub sure: Duration,
    /// What answers are kept.
    pub cache: Bound,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            waiting: 1000,
            waiting_per_source: 200,
            patience: Duration::from_millis(1500),
            deadline: Duration::from_millis(4500),
            sure: Duration::from_millis(300),
            cache: Bound {
                entries: 8192,
                bytes: 2 << 20,
            },
        }
    }
}

/// Who waits, and what led to the question.
type Waiting = (Box<Asked>, Box<Onward>);

/// One question under way.
struct Flight {
    waiting: Vec<Waiting>,
    /// Who is asked just now.
    resolver: Option<IpAddr>,
}

/// What a file was like when it was read.
type Stamp = Option<(SystemTime, u64)>;

/// What becomes of a question.
pub(crate) enum Outcome {
    /// This is the answer.
    Now(Hit, Box<Asked>, Box<Onward>),
    /// It will come.
    Later,
    /// Too much is under way.
    Rejected(Box<Asked>),
}

/// The forwarder.
pub(crate) struct Forwarder {
    bounds: Bounds,
    own: Vec<SocketAddr>,
    path: PathBuf,
    stubs: Stubs,
    metrics: Arc<Metrics>,
    state: RefCell<State>,
}

struct State {
    cache: Cache,
    flights: HashMap<Box<[u8]>, Flight>,
    waiting: usize,
    resolvers: Rc<[SocketAddr]>,
    read: Stamp,
    sulking: Vec<(SocketAddr, Instant)>,
    /// Those that do not keep a question's letters, and until when that is believed.
    loose: Vec<(SocketAddr, Instant)>,
}

impl State {
    /// How many questions of a client wait. (There are few in all.)
    fn waiting_of(&self, client: IpAddr) -> usize {
        let waiting = self.flights.values().flat_map(|flight| &flight.waiting);
        waiting.filter(|(asked, _)| asked.client == client).count()
    }

    /// Remembers who did not answer, or who does again.
    fn sulk(&mut self, resolver: SocketAddr, until: Option<Instant>) {
        self.sulking.retain(|(who, _)| *who != resolver);
        self.sulking.extend(until.map(|until| (resolver, until)));
    }

    /// Remembers whether a resolver keeps the letters of a question.
    fn loosen(&mut self, resolver: SocketAddr, is_loose: bool, now: Instant) {
        self.loose.retain(|(who, until)| *who != resolver && *until > now);
        self.loose.extend(is_loose.then(|| (resolver, now + LOOSE)));
    }

    fn is_loose(&self, resolver: SocketAddr, now: Instant) -> bool {
        self.loose.iter().any(|(who, until)| *who == resolver && *until > now)
    }
}

impl Forwarder {
    pub(crate) fn new(
        bounds: Bounds,
        own: Vec<SocketAddr>,
        path: PathBuf,
        stubs: Stubs,
        metrics: Arc<Metrics>,
    ) -> Self {
        let forwarder = Self {
            state: RefCell::new(State {
                cache: Cache::new(bounds.cache),
                flights: HashMap::new(),
                waiting: 0,
                resolvers: Rc::new([]),
                read: None,
                sulking: Vec::new(),
                loose: Vec::new(),
            }),
            bounds,
            own,
            path,
            stubs,
            metrics,
        };
        forwarder.read_resolvers();
        forwarder
    }

    /// Reads the resolvers' file if it is another than it was. One that cannot be read leaves things as they are.
    pub(crate) fn read_resolvers(&self) {
        let stamp = std::fs::metadata(&self.path).and_then(|file| Ok((file.modified()?, file.len())));
        let stamp = stamp.ok();
        if stamp.is_some() && stamp == self.state.borrow().read {
            return;
        }
        let place = self.path.display().to_string();
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) => {
                if self.state.borrow_mut().read.take().is_some() || self.state.borrow().resolvers.is_empty() {
                    tracing::warn!(path = place, %error, "resolvers cannot be read, names outside the cluster are asked of those read before");
                }
                return;
            }
        };
        let (found, wrong) = of_file(&place, &text, &self.own);
        for wrong in &wrong {
            tracing::warn!("cluster DNS: {wrong}");
        }
        if found.is_empty() {
            tracing::warn!(
                path = place,
                "no resolvers: names outside the cluster are answered with SERVFAIL"
            );
        }
        self.metrics
            .keep_resolvers(|resolver| found.contains(resolver) || self.stubs.asks(resolver));
        let mut state = self.state.borrow_mut();
        state.sulking.retain(|(resolver, _)| found.contains(resolver));
        (state.resolvers, state.read) = (found.into(), stamp);
    }

    /// Says how the cache is.
    pub(crate) fn count(&self) {
        let state = self.state.borrow();
        let [success, denial] = [Sort::Success, Sort::Denial].map(|sort| state.cache.len(sort));
        self.metrics.cached(success, denial, state.cache.evicted());
    }

    /// Answers from the cache, or has the question asked and its answer sent to who asked.
    pub(crate) fn ask(&self, server: &Rc<Server>, asked: Box<Asked>, onward: Box<Onward>) -> Outcome {
        let key = onward.question.key();
        let mut state = self.state.borrow_mut();
        let hit = state.cache.get(&key, Instant::now());
        self.metrics.cache(hit.as_ref().map(|hit| hit.sort));
        if let Some(hit) = hit {
            return Outcome::Now(hit, asked, onward);
        }
        let source = asked.source;
        if state.waiting >= self.bounds.waiting || state.waiting_of(asked.client) >= self.bounds.waiting_per_source {
            self.metrics.reject();
            return Outcome::Rejected(asked);
        }
        match state.flights.get_mut(&key) {
            // Whom we ask asks us the same: it would wait for itself.
            Some(flight) if flight.resolver == Some(source) => {
                tracing::warn!(resolver = %source, name = %onward.question.name, "a resolver asks us what we ask it: questions go round");
                return Outcome::Rejected(asked);
            }
            Some(flight) => flight.waiting.push((asked, onward)),
            None => {
                let question = onward.question.clone();
                let flight = Flight {
                    waiting: vec![(asked, onward)],
                    resolver: None,
                };
                state.flights.insert(key.clone(), flight);
                tokio::task::spawn_local(fly(server.clone(), key, question));
            }
        }
        state.waiting += 1;
        Outcome::Later
    }

    /// Whether there is time to ask for who began then: beyond, no client waits.
    pub(crate) fn has_time(&self, began: Instant) -> bool {
        began.elapsed() < self.bounds.deadline
    }

    /// Whom to ask, who lately did not answer last.
    fn order(&self, name: &[u8]) -> Vec<SocketAddr> {
        let state = self.state.borrow();
        let resolvers = self.stubs.of(name).unwrap_or(&state.resolvers);
        let now = Instant::now();
        let sulks = |resolver: &&SocketAddr| {
            state
                .sulking
                .iter()
                .any(|(who, until)| who == *resolver && *until > now)
        };
        let (late, early): (Vec<_>, Vec<_>) = resolvers.iter().partition(|resolver| sulks(resolver));
        early.into_iter().chain(late).copied().collect()
    }

    /// Takes who waits for an answer.
    fn land(&self, key: &[u8]) -> Vec<Waiting> {
        let mut state = self.state.borrow_mut();
        let Some(flight) = state.flights.remove(key) else {
            return Vec::new();
        };
        state.waiting -= flight.waiting.len();
        flight.waiting
    }
}

/// Lets go of who waits, whatever ends the flight.
struct Landing<'a>(&'a Forwarder, &'a [u8]);

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        drop(self.0.land(self.1));
    }
}

/// Asks, and tells everybody who waits.
async fn fly(server: Rc<Server>, key: Box<[u8]>, question: Question) {
    let forwarder = &server.forwarder;
    let landing = Landing(forwarder, &key);
    let reply = Arc::new(exchange::ask(forwarder, &key, &question).await);
    let now = Instant::now();
    forwarder.state.borrow_mut().cache.put(&key, &reply, now);
    let hit = Hit {
        reply,
        age: 0,
        sort: Sort::Success,
    };
    let waiting = forwarder.land(&key);
    drop(landing);
    let mut out = Vec::with_capacity(512);
    for (number, (asked, onward)) in waiting.into_iter().enumerate() {
        let sink = asked.sink.clone();
        if server.land(&hit, asked, &onward, &mut out) {
            sink.send(&out);
        }
        if number % 64 == 63 {
            tokio::task::yield_now().await;
        }
    }
}

/// Writes what a resolver said behind the names that led to it. Returns the code.
pub(crate) fn write(out: &mut Vec<u8>, server: &Server, asked: &Asked, onward: &Onward, hit: &Hit) -> u16 {
    let mut writer = Writer::begin(out, &asked.query, asked.limit, server.datagram_bytes);
    for (owner, target) in &onward.chain {
        let ttl = server.ttl;
        writer.record(Section::Answer, owner.wire(), kind::CNAME, ttl, target.wire());
    }
    hit.reply.write(&mut writer, hit.age);
    // Of the names before nobody checked anything.
    if !onward.chain.is_empty() {
        writer.unflag(flag::AUTHENTIC);
    }
    // A code we have no room to say, without EDNS.
    if hit.reply.rcode > 15 {
        writer.code(rcode::SERV_FAIL);
    }
    writer.finish()
}
