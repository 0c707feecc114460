//! Says plainly that a server's certificate begins after this machine's clock: its clock is not set (yet).
//!
//! Pure. The connection fails all the same and is tried again by whoever wants it, so a clock that is set heals it.

use k8s_openapi::jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use std::io;
use tower::BoxError;

/// The server's certificate is of the future.
#[derive(Debug, thiserror::Error)]
#[error("the server's certificate is valid from {not_before}, and this machine's clock says {now}: is the clock set?")]
struct Early {
    not_before: Timestamp,
    now: Timestamp,
    source: BoxError,
}

/// The error, with both times in words people read if that is what it is about.
pub(crate) fn explain(error: BoxError) -> BoxError {
    match times(&*error) {
        Some((not_before, now)) => Box::new(Early {
            not_before,
            now,
            source: error,
        }),
        None => error,
    }
}

/// The certificate's start and the time it was looked at, if it failed for that.
fn times(error: &(dyn std::error::Error + 'static)) -> Option<(Timestamp, Timestamp)> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before })) =
            error.downcast_ref()
        {
            return Some((timestamp(*not_before)?, timestamp(*time)?));
        }
        // An I/O error's source is that of what it holds, not what it holds.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = held
            .map(|held| held as &(dyn std::error::Error + 'static))
            .or_else(|| error.source());
    }
    None
}

fn timestamp(time: UnixTime) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(second))
    }

    fn refused(why: CertificateError) -> BoxError {
        // As TLS and the connector wrap it.
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(why));
        Box::new(io::Error::other(inner))
    }

    #[test]
    fn both_times_are_named() {
        let error = explain(refused(CertificateError::NotValidYetContext {
            time: at(0),
            not_before: at(1_767_225_600),
        }));
        assert_eq!(
            error.to_string(),
            "the server's certificate is valid from 2026-01-01T00:00:00Z, and this machine's clock says 1970-01-01T00:00:00Z: is \
             the clock set?"
        );
        assert!(error.source().is_some());
    }

    #[test]
    fn other_failures_stay_as_they_are() {
        let other = explain(refused(CertificateError::UnknownIssuer));
        assert!(other.to_string().contains("UnknownIssuer"), "{other}");
        assert_eq!(explain("no route".into()).to_string(), "no route");
    }
}
