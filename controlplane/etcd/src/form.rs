//! What is noted in etcd of the values under our prefix: their form, what is added to etcd's revisions, and which move brought them.
//!
//! A cluster that came from another store goes on with higher revisions than that one told, though etcd's own begin low: what is
//! added stands beside the objects, so that all servers add the same. Upstream's API server knows nothing of it, and tells etcd's own.
//! Every write of ours depends on the note: a server that has not seen the present one looks at it before it writes anything.

use crate::keys::Keys;
use crate::no_answer;
use crate::options::OpenError;
use crate::rpc::Rpc;
use crate::txn::{equal, put};
use proto::etcd::{KeyValue, RangeRequest, TxnRequest};
use store::form::{Form, PRESENT, judge};
use store::{Revision, StoreError};

/// What is noted. What is not there is as in a store that nobody has noted anything in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) form: Form,
    /// What is added to etcd's revisions.
    pub(crate) shift: Revision,
    /// The move that brought what is there; 0 if it began here.
    pub(crate) origin: u64,
}

impl Note {
    /// As lines of a name and a number.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let Form {
            written,
            minimum_reader,
        } = self.form;
        let (shift, origin) = (self.shift, self.origin);
        format!("written {written}\nminimum-reader {minimum_reader}\nshift {shift}\norigin {origin}\n").into_bytes()
    }

    /// Of its bytes.
    ///
    /// # Errors
    /// What cannot be read, as the end of a sentence about the objects.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut note = Self::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            let wrong = || format!("have a note of their form that cannot be read: {line:?}");
            let (name, number) = line.split_once(' ').ok_or_else(wrong)?;
            let number = number.parse().map_err(|_| wrong())?;
            match name {
                "written" => note.form.written = number,
                "minimum-reader" => note.form.minimum_reader = number,
                "shift" => note.shift = number,
                "origin" => note.origin = number,
                // A newer binary's, which would have raised the form if older ones had to know it.
                _ => {}
            }
        }
        Ok(note)
    }
}

/// The note that is there, as etcd has it.
pub(crate) async fn found(rpc: &Rpc, keys: &Keys) -> Result<Option<KeyValue>, StoreError> {
    let request = RangeRequest {
        key: keys.form(),
        ..RangeRequest::default()
    };
    Ok(rpc.range(request).await?.kvs.into_iter().next())
}

/// The keys with what is added to their revisions, and etcd's revision of the note's last write (0: there is none).
///
/// # Errors
/// This binary does not know the form, or etcd does not answer.
pub(crate) async fn read(rpc: &Rpc, keys: Keys, prefix: &str) -> Result<(Keys, i64), OpenError> {
    let Some(found) = found(rpc, &keys).await.map_err(no_answer)? else {
        return Ok((keys, 0));
    };
    let wrong = |why: String| OpenError::Form {
        prefix: prefix.to_owned(),
        why,
    };
    let note = Note::parse(&found.value).map_err(wrong)?;
    judge(note.form, PRESENT).map_err(|error| wrong(error.to_string()))?;
    Ok((keys.noted(note.shift, note.origin), found.mod_revision))
}

/// Notes the form this binary writes, unless one is noted; gives the note that is there.
pub(crate) async fn note(rpc: &Rpc, keys: &Keys) -> Result<Option<KeyValue>, StoreError> {
    let noted = found(rpc, keys).await?;
    if noted.is_some() {
        // An etcd without space refuses whatever might write, also what would not: its data can be read all the same.
        return Ok(noted);
    }
    let request = TxnRequest {
        compare: vec![equal(keys.form(), 0)],
        success: vec![put(keys.form(), Note::default().bytes(), 0)],
        failure: Vec::new(),
    };
    rpc.txn(request).await?;
    found(rpc, keys).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_and_nonsense_is_refused() {
        let note = Note {
            form: Form {
                written: 3,
                minimum_reader: 2,
            },
            shift: 1_000,
            origin: u64::MAX,
        };
        assert_eq!(Note::parse(&note.bytes()), Ok(note));
        assert_eq!(Note::parse(b""), Ok(Note::default()));
        let shift = Note {
            shift: 4,
            ..Note::default()
        };
        assert_eq!(Note::parse(b"later 9\nshift 4\n"), Ok(shift));
        for nonsense in ["shift", "shift x", "written -1", "{}"] {
            assert!(
                Note::parse(nonsense.as_bytes()).unwrap_err().contains(nonsense),
                "{nonsense}"
            );
        }
    }
}
