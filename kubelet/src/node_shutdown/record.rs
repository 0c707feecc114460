//! `graceful_node_shutdown_state` in the kubelet's directory: when the last shutdown began and ended, in upstream's form (kubelet
//! contract §2). The next kubelet's metrics show it, and one that comes in the middle of a shutdown goes on by it.

use crate::host::directory::replace;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The file's name.
pub(super) const FILE_NAME: &str = "graceful_node_shutdown_state";
/// How upstream's kubelet writes that something has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The last shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    /// When it began.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub(super) start_time: Option<Timestamp>,
    /// When its pods had ended, or were waited for no longer.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub(super) end_time: Option<Timestamp>,
}

impl Record {
    /// What is in the file; one that is not there says nothing.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match crate::host::kept::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Puts it in place of what the file had, whole or not at all.
    pub(super) fn write(self, path: &Path) -> io::Result<()> {
        replace(path, &serde_json::to_vec(&self)?)
    }

    /// For how long the shutdown has been under way that began and did not end, if it may still be: nobody is given more than `total`.
    pub(super) fn under_way(self, now: Timestamp, total: Duration) -> Option<Duration> {
        let begun = self.start_time.filter(|_| self.end_time.is_none())?;
        let elapsed = Duration::try_from(now.duration_since(begun)).ok()?;
        (elapsed <= total).then_some(elapsed)
    }
}

fn write_time<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => time.serialize(to),
        None => to.serialize_str(NEVER),
    }
}

fn read_time<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let never: Option<Timestamp> = NEVER.parse().ok();
    let time: Option<Timestamp> = Deserialize::deserialize(from)?;
    Ok(time.filter(|time| Some(*time) != never))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::at;
    use std::fs;

    #[test]
    fn the_file_is_upstreams() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE_NAME);
        assert_eq!(Record::read(&path).expect("nothing"), Record::default());
        let begun = Record {
            start_time: Some(at(5)),
            end_time: None,
        };
        begun.write(&path).expect("written");
        let text = fs::read_to_string(&path).expect("there");
        let start = at(5);
        assert_eq!(
            text,
            format!(r#"{{"startTime":"{start}","endTime":"0001-01-01T00:00:00Z"}}"#)
        );
        assert_eq!(Record::read(&path).expect("sound"), begun);
        fs::write(
            &path,
            r#"{"startTime":"2026-01-02T03:04:05.678901234+02:00","endTime":"2026-01-02T01:04:09Z"}"#,
        )
        .expect("written");
        let read = Record::read(&path).expect("sound");
        assert_eq!(
            read.start_time.map(|time| time.to_string()).as_deref(),
            Some("2026-01-02T01:04:05.678901234Z")
        );
        assert!(read.end_time.is_some());
        fs::write(&path, "{").expect("written");
        assert!(Record::read(&path).is_err());
    }

    #[test]
    fn a_shutdown_is_under_way_for_no_longer_than_its_time() {
        let total = Duration::from_secs(30);
        let record = |start_time: Option<i64>, end_time: Option<i64>| Record {
            start_time: start_time.map(at),
            end_time: end_time.map(at),
        };
        for (record, now, expected) in [
            (record(Some(100), None), 100, Some(0)),
            (record(Some(100), None), 130, Some(30)),
            (record(Some(100), None), 131, None),
            (record(Some(100), None), 99, None),
            (record(Some(100), Some(101)), 110, None),
            (record(None, None), 110, None),
        ] {
            let elapsed = record.under_way(at(now), total);
            assert_eq!(
                elapsed.map(|elapsed| elapsed.as_secs()),
                expected,
                "{record:?} at {now}"
            );
        }
    }
}
