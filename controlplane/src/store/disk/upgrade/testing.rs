//! A data directory as binaries of format 1 left it: `tests/data/format-1.records` are the records of one (its file is half a megabyte),
//! and `format-1.past` is the file of its past, as it was.

use crate::store::value::TypeMeta;
use redb::TableDefinition;
use std::path::Path;

const RECORDS: &str = include_str!("../../../../tests/data/format-1.records");
const PAST: &[u8] = include_bytes!("../../../../tests/data/format-1.past");

/// A record of the fixture.
pub(crate) struct Old {
    pub(crate) key: &'static str,
    pub(crate) created: u64,
    pub(crate) modified: u64,
    pub(crate) value: &'static str,
}

/// The newest revision of the fixture.
pub(crate) const REVISION: u64 = 135;

/// All its records.
pub(crate) fn records() -> impl Iterator<Item = Old> {
    RECORDS.lines().filter(|line| line.starts_with('/')).map(|line| {
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().unwrap();
        Old {
            key: next(),
            created: next().parse().unwrap(),
            modified: next().parse().unwrap(),
            value: next(),
        }
    })
}

/// The names and layouts of format 1, whatever the present ones are.
pub(super) const OLD_RECORDS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("records");
pub(super) const OLD_META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

/// Writes them as format 1 had them, with the past beside them.
pub(crate) fn write(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let database = redb::Database::create(directory.join("state.redb")).unwrap();
    let writing = database.begin_write().unwrap();
    let mut meta = writing.open_table(OLD_META).unwrap();
    meta.insert("format", 1).unwrap();
    meta.insert("revision", REVISION).unwrap();
    let mut table = writing.open_table(OLD_RECORDS).unwrap();
    for old in records() {
        let revisions = [old.created.to_be_bytes(), old.modified.to_be_bytes()].concat();
        let record = [&revisions, old.value.as_bytes()].concat();
        table.insert(old.key, record.as_slice()).unwrap();
    }
    drop((meta, table));
    writing.commit().unwrap();
    std::fs::write(directory.join("past.newer"), PAST).unwrap();
}

/// As the daemon describes what is stored.
pub(crate) fn describe(key: &str, read: &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<TypeMeta<'static>> {
    let (api_version, kind) = crate::resource::stored::KeyKinds::new().of(key, read)?;
    Some(TypeMeta::new(&api_version, &kind).into_owned())
}
