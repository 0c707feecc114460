//! What clients of a store asked, what they were answered, and in which order (pure).
//!
//! Owns the form of a history; events stand in the order in which they happened, whoever wrote them down. Values are told apart by
//! their text: no two writes of a history put the same one. Knows no store.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A revision as the store tells it.
pub type Revision = u64;
/// A moment: the number of an event in its history.
pub type Moment = usize;
/// What has not ended, ends then.
pub const NEVER: Moment = Moment::MAX;

/// What a key held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Of the last write.
    pub revision: Revision,
    /// Of the key's creation.
    pub created: Revision,
    /// The text that was put there.
    pub value: String,
}

/// All keys that are there.
pub type Contents = BTreeMap<String, Seen>;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Put a value where no key is.
    Create {
        /// The key.
        key: String,
        /// Its value, which no other write has.
        value: String,
    },
    /// Put a value if the key's last write is of a revision.
    Update {
        /// The key.
        key: String,
        /// Its value, which no other write has.
        value: String,
        /// The revision.
        at: Revision,
    },
    /// Delete the key if its last write is of a revision.
    Delete {
        /// The key.
        key: String,
        /// The revision.
        at: Revision,
    },
    /// What is at the key?
    Get {
        /// The key.
        key: String,
    },
    /// What is there?
    List,
}

impl Ask {
    /// The one key it is about.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Create { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } | Self::Get { key } => {
                Some(key)
            }
            Self::List => None,
        }
    }

    /// The value it puts.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Create { value, .. } | Self::Update { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The revision its key must have; 0 where there must be no key. `None` of what only reads.
    pub fn base(&self) -> Option<Revision> {
        match self {
            Self::Create { .. } => Some(0),
            Self::Update { at, .. } | Self::Delete { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Written, at a revision.
    Done(Revision),
    /// Not written, because this was there.
    Conflict(Option<Seen>),
    /// This is there.
    Found(Option<Seen>),
    /// All of this is there, as of a revision.
    Listed(Revision, Contents),
    /// Nothing was done, and nothing will be.
    NotDone,
    /// It may have been done, or may still be.
    Unknown,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A request with a number of its own began.
    Began(u64, Ask),
    /// It was answered.
    Ended(u64, Answer),
    /// Who served has died: what has not been answered was done before, or never is.
    Died,
}

/// A request with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it began.
    pub began: Moment,
    /// When it had been done at the latest, if ever.
    pub ended: Moment,
    /// What was asked.
    pub ask: Ask,
    /// What was answered.
    pub answer: Answer,
}

/// The operations of events, in the order in which they began.
pub fn operations(events: &[Event]) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    let mut unknown: Vec<usize> = Vec::new();
    for (moment, event) in events.iter().enumerate() {
        match event {
            Event::Began(number, ask) => {
                open.insert(*number, operations.len());
                operations.push(Operation {
                    began: moment,
                    ended: NEVER,
                    ask: ask.clone(),
                    answer: Answer::Unknown,
                });
            }
            Event::Ended(number, answer) => {
                let Some(index) = open.remove(number) else { continue };
                operations[index].answer = answer.clone();
                match answer {
                    Answer::Unknown => unknown.push(index),
                    _ => operations[index].ended = moment,
                }
            }
            Event::Died => {
                let all = std::mem::take(&mut open).into_values().chain(unknown.drain(..));
                all.for_each(|index| operations[index].ended = moment);
            }
        }
    }
    operations
}

/// A change as a watch told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its revision.
    pub revision: Revision,
    /// Its key.
    pub key: String,
    /// The new value; `None` of a deletion.
    pub value: Option<String>,
    /// Whether the key was not there before.
    pub is_creation: bool,
}

/// What a watch told at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Everything up to this revision has been told.
    pub revision: Revision,
    /// The changes since.
    pub changes: Vec<Change>,
}

/// What was read at once, and the changes after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The revision that was read.
    pub revision: Revision,
    /// What was there.
    pub contents: Contents,
    /// What was told then.
    pub steps: Vec<Told>,
}

/// All that somebody who followed a store saw: a new part begins where history had been compacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watcher {
    /// Its name in messages.
    pub name: String,
    /// What it saw.
    pub parts: Vec<Part>,
}
