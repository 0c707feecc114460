//! redb: a copy-on-write B-tree in one file, with the small page cache the control plane gives it.

use super::{Engine, State, Write};
use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

const RECORDS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("records");

pub struct Redb {
    database: Database,
    quick_repair: bool,
}

impl Redb {
    pub fn open(directory: &Path, quick_repair: bool) -> anyhow::Result<Self> {
        let database = Database::builder()
            .set_cache_size(4 << 20)
            .create(directory.join("state.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(Self { database, quick_repair })
    }
}

impl Engine for Redb {
    fn load(&mut self) -> anyhow::Result<State> {
        let transaction = self.database.begin_read()?;
        let mut state = State::new();
        for entry in transaction.open_table(RECORDS)?.iter()? {
            let (key, value) = entry?;
            state.insert(Arc::from(key.value()), Bytes::copy_from_slice(value.value()));
        }
        Ok(state)
    }

    fn commit(&mut self, batch: &[Write], _: &State) -> anyhow::Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(self.quick_repair);
        {
            let mut records = transaction.open_table(RECORDS)?;
            for (key, value) in batch {
                match value {
                    Some(value) => drop(records.insert(&**key, &**value)?),
                    None => drop(records.remove(&**key)?),
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
