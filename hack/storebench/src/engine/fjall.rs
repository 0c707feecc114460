//! fjall: a log-structured merge tree, with the smallest buffers it takes.

use super::{Engine, State, Write};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

pub struct Fjall {
    database: Database,
    records: Keyspace,
}

impl Fjall {
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let database = Database::builder(directory)
            .cache_size(4 << 20)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()?;
        let records = database.keyspace("records", || {
            KeyspaceCreateOptions::default().max_memtable_size(4 << 20)
        })?;
        Ok(Self { database, records })
    }
}

impl Engine for Fjall {
    fn load(&mut self) -> anyhow::Result<State> {
        let mut state = State::new();
        for entry in self.records.iter() {
            let (key, value) = entry.into_inner()?;
            state.insert(Arc::from(std::str::from_utf8(&key)?), Bytes::copy_from_slice(&value));
        }
        Ok(state)
    }

    fn commit(&mut self, batch: &[Write], _: &State) -> anyhow::Result<()> {
        let mut writes = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in batch {
            match value {
                Some(value) => writes.insert(&self.records, key.as_bytes(), &**value),
                None => writes.remove(&self.records, key.as_bytes()),
            }
        }
        writes.commit()?;
        Ok(())
    }
}
