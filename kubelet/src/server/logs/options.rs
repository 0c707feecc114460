//! The options of a log request. Pure.

use crate::server::request::Query;
use jiff::{SignedDuration, Timestamp};

/// Which of the two streams are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    All,
    Stdout,
    Stderr,
}

/// What of the log is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogOptions {
    pub(super) tail: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) follow: bool,
    pub(super) timestamps: bool,
    pub(super) since: Option<Timestamp>,
    pub(super) previous: bool,
    pub(super) streams: Streams,
}

fn whole(query: &Query, name: &str, least: i64, mistakes: &mut Vec<String>) -> Option<i64> {
    let text = query.first(name).filter(|t| !t.is_empty())?;
    match text.parse::<i64>() {
        Ok(value) if value >= least => Some(value),
        Ok(value) => {
            mistakes.push(format!(
                "{name}: Invalid value: {value}: must be greater than or equal to {least}"
            ));
            None
        }
        Err(_) => {
            mistakes.push(format!("{name}: Invalid value: {text:?}: must be a whole number"));
            None
        }
    }
}

fn switch(query: &Query, name: &str, mistakes: &mut Vec<String>) -> bool {
    match query.first(name) {
        None | Some("" | "false" | "0") => false,
        Some("true" | "1") => true,
        Some(other) => {
            mistakes.push(format!("{name}: Invalid value: {other:?}: must be true or false"));
            false
        }
    }
}

impl LogOptions {
    /// Reads the query; the error names every mistake, a line each.
    pub(super) fn parse(query: &Query, now: Timestamp) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let tail_name = if query.first("tailLines").is_some() {
            "tailLines"
        } else {
            "tail"
        };
        let tail = match query.first(tail_name) {
            Some("all") => None,
            _ => whole(query, tail_name, 0, &mut mistakes),
        };
        let seconds = whole(query, "sinceSeconds", 1, &mut mistakes);
        let time = query
            .first("sinceTime")
            .filter(|t| !t.is_empty())
            .map(str::parse::<Timestamp>);
        let since = match (seconds, time) {
            (Some(_), Some(_)) => {
                mistakes.push(
                    "sinceSeconds: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified".into(),
                );
                None
            }
            (Some(seconds), None) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
            (None, Some(Ok(time))) => Some(time),
            (None, Some(Err(error))) => {
                mistakes.push(format!("sinceTime: Invalid value: {error}"));
                None
            }
            (None, None) => None,
        };
        let streams = match query.first("stream") {
            None | Some("" | "All") => Streams::All,
            Some("Stdout") => Streams::Stdout,
            Some("Stderr") => Streams::Stderr,
            Some(other) => {
                mistakes.push(format!(
                    "stream: Unsupported value: {other:?}: supported values: \"All\", \"Stderr\", \"Stdout\""
                ));
                Streams::All
            }
        };
        if streams != Streams::All && tail.is_some() {
            mistakes
                .push("tailLines: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now".into());
        }
        let unsigned = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
        let options = Self {
            tail: unsigned(tail),
            limit: unsigned(whole(query, "limitBytes", 1, &mut mistakes)),
            follow: switch(query, "follow", &mut mistakes),
            timestamps: switch(query, "timestamps", &mut mistakes),
            since,
            previous: switch(query, "previous", &mut mistakes),
            streams,
        };
        if mistakes.is_empty() {
            Ok(options)
        } else {
            Err(mistakes.join("\n") + "\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogOptions, String> {
        LogOptions::parse(&Query::parse(text), Timestamp::from_second(100).expect("in range"))
    }

    #[test]
    fn options() {
        let got =
            parse("tailLines=5&limitBytes=10&follow=true&timestamps=1&sinceSeconds=40&previous=false").expect("sound");
        assert_eq!(
            (got.tail, got.limit, got.follow, got.timestamps, got.previous),
            (Some(5), Some(10), true, true, false)
        );
        assert_eq!(got.since.map(|t| t.as_second()), Some(60));
        assert_eq!(parse("tail=all").expect("sound").tail, None);
        assert_eq!(
            parse("sinceTime=1970-01-01T00:00:07Z")
                .expect("sound")
                .since
                .map(|t| t.as_second()),
            Some(7)
        );
    }

    #[test]
    fn mistakes_are_named_together() {
        let text = parse("tailLines=-1&limitBytes=0&sinceSeconds=x&follow=maybe&stream=None&sinceTime=never")
            .expect_err("mistakes");
        for field in [
            "tailLines",
            "limitBytes",
            "sinceSeconds",
            "follow",
            "stream",
            "sinceTime",
        ] {
            assert!(text.lines().any(|l| l.starts_with(field)), "{field}: {text}");
        }
        assert!(parse("sinceSeconds=1&sinceTime=1970-01-01T00:00:07Z").is_err());
        assert!(parse("stream=Stdout&tailLines=1").is_err());
    }
}
