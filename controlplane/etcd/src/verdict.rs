//! What etcd's refusals mean (pure): whether anything may have been done, and whether asking again helps.

use crate::connect::NotConnected;
use std::error::Error;
use tonic::{Code, Status};

/// What a failed request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing has been done; another member, or the same one later, may do it.
    NotDone,
    /// It may have been done, or may still be.
    Unsure,
    /// Nothing has been done, and nothing will be.
    Refused,
    /// The revision is compacted.
    Compacted,
    /// The lease it was to be done with is over: nothing has been done.
    NoLease,
    /// The answer is of another history than those before ([`crate::history`]): nothing is asked any more.
    Over,
}

/// The verdict on a status.
pub(crate) fn of(status: &Status) -> Verdict {
    if is_not_connected(status) {
        return Verdict::NotDone;
    }
    if status.source().is_some() {
        // The connection's own error: etcd has not said anything.
        return Verdict::Unsure;
    }
    match status.code() {
        Code::OutOfRange if status.message().contains("compacted") => Verdict::Compacted,
        // Said before anything is proposed to the others.
        Code::Unavailable if status.message() == "etcdserver: no leader" => Verdict::NotDone,
        Code::ResourceExhausted if status.message() == "etcdserver: too many requests" => Verdict::NotDone,
        Code::NotFound if status.message() == "etcdserver: requested lease not found" => Verdict::NoLease,
        Code::NotFound
        | Code::InvalidArgument
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::OutOfRange
        | Code::Unimplemented => Verdict::Refused,
        _ => Verdict::Unsure,
    }
}

fn is_not_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<NotConnected>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// What to tell of a status: etcd's own words, or the last reason in a row of them.
pub(crate) fn text(status: &Status) -> String {
    let mut reason = None;
    let mut source = status.source();
    while let Some(error) = source {
        reason = Some(error.to_string());
        source = error.source();
    }
    reason.unwrap_or_else(|| status.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_is_called_certain() {
        for (code, message, expected) in [
            (Code::Unavailable, "etcdserver: no leader", Verdict::NotDone),
            (Code::Unavailable, "etcdserver: request timed out", Verdict::Unsure),
            (Code::Unavailable, "etcdserver: leader changed", Verdict::Unsure),
            (Code::DeadlineExceeded, "", Verdict::Unsure),
            (Code::Cancelled, "", Verdict::Unsure),
            (Code::Unknown, "transport error", Verdict::Unsure),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                Verdict::NotDone,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Verdict::Refused,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                Verdict::Refused,
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Verdict::Refused,
            ),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                Verdict::NoLease,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Verdict::Compacted,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                Verdict::Refused,
            ),
        ] {
            assert_eq!(of(&Status::new(code, message)), expected, "{message}");
        }
    }
}
