//! Clients that ask a store and write down what they are answered, and watchers that write down what they are told.
//!
//! Owns the recording. Whether any of it is right is the judge's; what a failure of the store means for a history stands here:
//! what is not known to be undone may have been done.

use crate::history::{Answer, Ask, Change, Contents, Event, Part, Revision, Seen, Told, Watcher};
use bytes::Bytes;
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Expect, Record, Steps, Store, StoreError};
use tokio::sync::watch;

/// Pause after a store has failed.
const PAUSE: Duration = Duration::from_millis(10);

/// Takes events down, in the order in which they happen.
pub struct Recorder {
    next: AtomicU64,
    sink: Box<dyn Fn(Event) + Send + Sync>,
}

/// Events kept in memory.
pub type Events = Arc<Mutex<Vec<Event>>>;

impl Recorder {
    /// Hands each event to `sink`, one after the other as they are: it must keep their order.
    pub fn to(sink: impl Fn(Event) + Send + Sync + 'static) -> Arc<Self> {
        let sink = Box::new(sink);
        Arc::new(Self {
            next: AtomicU64::new(0),
            sink,
        })
    }

    /// Keeps them.
    pub fn kept() -> (Arc<Self>, Events) {
        let events = Events::default();
        let kept = Arc::clone(&events);
        (
            Self::to(move |event| kept.lock().unwrap_or_else(PoisonError::into_inner).push(event)),
            events,
        )
    }

    /// Something that is no operation's.
    pub fn note(&self, event: Event) {
        (self.sink)(event);
    }

    /// An operation that has been asked and answered between the event before and the next.
    pub fn asked(&self, ask: &Ask, answer: &Answer) {
        let number = self.begin(ask);
        self.end(number, answer);
    }

    fn begin(&self, ask: &Ask) -> u64 {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        (self.sink)(Event::Began(number, ask.clone()));
        number
    }

    fn end(&self, number: u64, answer: &Answer) {
        (self.sink)(Event::Ended(number, answer.clone()));
    }
}

/// Something to ask of, which may be replaced while it is asked.
pub type Door = watch::Receiver<Option<Arc<dyn Store>>>;

/// A door that always leads to the same store.
pub fn to(store: Arc<dyn Store>) -> Door {
    watch::Sender::new(Some(store)).subscribe()
}

/// The keys of a history: all that begins with a prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Ends in a slash.
    pub prefix: String,
    /// So many.
    pub count: usize,
    /// The longest value in bytes.
    pub value_max: usize,
}

fn seen(record: &Record) -> Seen {
    Seen {
        revision: record.modified,
        created: record.created,
        value: text(&record.value),
    }
}

/// What tells a value from others; the rest of it is spaces.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end().to_owned()
}

/// What a failure says of a write.
fn failed(key: &str, error: StoreError) -> Answer {
    match error {
        StoreError::Conflict { key: of, current } if of == key => Answer::Conflict(current.as_ref().map(seen)),
        StoreError::Unavailable(_) | StoreError::Full { .. } | StoreError::Refused(_) => Answer::NotDone,
        _ => Answer::Unknown,
    }
}

/// Asks a store once.
pub async fn ask(store: &dyn Store, prefix: &str, what: &Ask, length: usize) -> Answer {
    let padded = |value: &str| Bytes::from(format!("{value:<length$}"));
    let written = |key: &str, written: Result<Revision, StoreError>| {
        written.map_or_else(|error| failed(key, error), Answer::Done)
    };
    match what {
        Ask::Create { key, value } => written(key, store.put(key, padded(value), Expect::Absent).await),
        Ask::Update { key, value, at } => written(key, store.put(key, padded(value), Expect::At(*at)).await),
        Ask::Delete { key, at } => written(key, store.delete(key, *at).await),
        Ask::Get { key } => {
            let found = store.get(key).await;
            found.map_or(Answer::NotDone, |found| Answer::Found(found.as_ref().map(seen)))
        }
        Ask::List => match store.range(prefix).await {
            Ok((revision, records)) => Answer::Listed(revision, contents(&records)),
            Err(_) => Answer::NotDone,
        },
    }
}

fn contents(records: &[Record]) -> Contents {
    records
        .iter()
        .map(|record| (record.key.to_string(), seen(record)))
        .collect()
}

/// One client: what it believes of the keys, and its dice.
struct Client {
    name: String,
    keys: Keys,
    dice: StdRng,
    /// The revision of each key as far as it knows; 0 where there is none.
    known: HashMap<String, Revision>,
    written: usize,
}

impl Client {
    fn choose(&mut self) -> Ask {
        let key = format!("{}{}", self.keys.prefix, self.dice.random_range(0..self.keys.count));
        let die = self.dice.random_range(0..100);
        if die < 20 {
            return Ask::Get { key };
        }
        if die < 26 {
            return Ask::List;
        }
        self.written += 1;
        let value = format!("{}.{}", self.name, self.written);
        match self.known.get(&key).copied().unwrap_or_default() {
            0 => Ask::Create { key, value },
            at if die < 80 => Ask::Update { key, value, at },
            at => Ask::Delete { key, at },
        }
    }

    fn learn(&mut self, ask: &Ask, answer: &Answer) {
        if let (Ask::List, Answer::Listed(_, contents)) = (ask, answer) {
            self.known = contents
                .iter()
                .map(|(key, seen)| (key.clone(), seen.revision))
                .collect();
        }
        let Some(key) = ask.key() else { return };
        let revision = match (ask, answer) {
            (Ask::Delete { .. }, Answer::Done(_)) => 0,
            (_, Answer::Done(revision)) => *revision,
            (_, Answer::Conflict(current) | Answer::Found(current)) => current.as_ref().map_or(0, |seen| seen.revision),
            _ => return,
        };
        self.known.insert(key.to_owned(), revision);
    }
}

/// Asks whatever is behind the door until told to stop; ends also when the door's owner has gone.
pub async fn client(
    number: usize,
    seed: u64,
    keys: Keys,
    mut door: Door,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
) {
    let mut client = Client {
        name: format!("{seed:x}.{number}"),
        dice: StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(number as u64)),
        keys,
        known: HashMap::new(),
        written: 0,
    };
    while !stop.load(Ordering::SeqCst) {
        let store = door.borrow_and_update().clone();
        let Some(store) = store else {
            let opened = tokio::time::timeout(PAUSE, door.changed()).await;
            if matches!(opened, Ok(Err(_))) {
                return;
            }
            continue;
        };
        let what = client.choose();
        let length = client.dice.random_range(0..client.keys.value_max);
        let asked = recorder.begin(&what);
        let answer = ask(&*store, &client.keys.prefix, &what, length).await;
        recorder.end(asked, &answer);
        drop(store);
        client.learn(&what, &answer);
        match answer {
            Answer::NotDone | Answer::Unknown => tokio::time::sleep(PAUSE).await,
            // Others have a turn.
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Lets go of what somebody follows for a while, so that they come back to a history that has gone on.
#[derive(Debug, Default)]
pub struct Pause {
    /// It is to.
    pub is_asked: AtomicBool,
    /// It has.
    pub is_away: AtomicBool,
}

/// How somebody follows.
pub struct Following {
    /// Its name in messages.
    pub name: String,
    /// The keys it is about.
    pub prefix: String,
    /// What keeps it away.
    pub pause: Arc<Pause>,
    /// It ends once it has been told so much.
    pub goal: watch::Receiver<Revision>,
}

/// Reads what is there and follows what changes, as a window does: on elsewhere after a failure, anew where history is compacted.
pub async fn follow(mut door: Door, following: Following) -> Watcher {
    let mut watcher = Watcher {
        name: following.name.clone(),
        parts: Vec::new(),
    };
    let mut goal = following.goal.clone();
    while watcher.parts.is_empty() || reached(&watcher) < *goal.borrow_and_update() {
        let pause = &following.pause;
        let is_away = pause.is_asked.load(Ordering::SeqCst) && !watcher.parts.is_empty();
        pause.is_away.store(is_away, Ordering::SeqCst);
        if is_away {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let store = door.borrow_and_update().clone();
        let told = match &store {
            Some(store) => tell(&**store, &following, &mut watcher, door.clone()).await,
            None => None,
        };
        drop(store);
        if told.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    watcher
}

/// What it has been told up to.
fn reached(watcher: &Watcher) -> Revision {
    let of = |part: &Part| part.steps.last().map_or(part.revision, |step| step.revision);
    watcher.parts.last().map_or(0, of)
}

/// Follows one stream to its end, the goal or another store; `None` when it has ended, or there is none.
async fn tell(store: &dyn Store, following: &Following, watcher: &mut Watcher, mut door: Door) -> Option<()> {
    if watcher.parts.is_empty() {
        read(store, following, watcher).await?;
    }
    let mut goal = following.goal.clone();
    let mut steps: Steps = match store.follow(reached(watcher)).await {
        Ok(steps) => steps,
        Err(error) => return ended(store, following, watcher, &error).await,
    };
    while reached(watcher) < *goal.borrow_and_update() {
        if following.pause.is_asked.load(Ordering::SeqCst) {
            return Some(());
        }
        let step = tokio::select! {
            biased;
            () = moved(&mut door) => return Some(()),
            _ = goal.changed() => continue,
            step = steps.next() => step?,
        };
        match step {
            Ok(step) => {
                let told = of(step, &following.prefix);
                watcher.parts.last_mut()?.steps.push(told);
            }
            Err(error) => return ended(store, following, watcher, &error).await,
        }
    }
    Some(())
}

/// Until another store is behind the door.
async fn moved(door: &mut Door) {
    if door.changed().await.is_err() {
        std::future::pending().await
    }
}

async fn ended(store: &dyn Store, following: &Following, watcher: &mut Watcher, error: &StoreError) -> Option<()> {
    match error {
        StoreError::Compacted { .. } => read(store, following, watcher).await,
        _ => None,
    }
}

/// Begins a new part.
async fn read(store: &dyn Store, following: &Following, watcher: &mut Watcher) -> Option<()> {
    let (revision, records) = store.range(&following.prefix).await.ok()?;
    let steps = Vec::new();
    let contents = contents(&records);
    watcher.parts.push(Part {
        revision,
        contents,
        steps,
    });
    Some(())
}

fn of(step: store::Step, prefix: &str) -> Told {
    let changes = step.changes.into_iter().filter(|change| change.key.starts_with(prefix));
    let changes = changes.map(|change| Change {
        revision: change.revision,
        key: change.key.to_string(),
        value: change.value.as_deref().map(text),
        is_creation: change.created,
    });
    Told {
        revision: step.revision,
        changes: changes.collect(),
    }
}
