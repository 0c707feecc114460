//! The options of a log request. Pure.

use crate::server::request::Query;
use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// Which of the two streams are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Streams {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// What of the log is wanted; by default all there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LogOptions {
    pub(super) tail: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) follow: bool,
    pub(super) timestamps: bool,
    pub(super) since: Option<Timestamp>,
    pub(super) previous: bool,
    pub(super) streams: Streams,
}

/// Why there is nothing to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A value is not of its type.
    Undecodable,
    /// Values that may not be, each with its name.
    Invalid(Vec<String>),
}

impl Mistake {
    /// The status code upstream gives it.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Undecodable => 400,
            Self::Invalid(_) => 422,
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable => f.write_str(r#"{"message": "Unable to decode query."}"#),
            Self::Invalid(mistakes) => f.write_str(&mistakes.join("\n")),
        }
    }
}

fn whole(query: &Query, name: &str) -> Result<Option<i64>, Mistake> {
    let value = query.first(name).map(str::parse);
    value.transpose().map_err(|_| Mistake::Undecodable)
}

/// Whether a switch is on: any value but these two says so, also none at all (upstream's `Convert_Slice_string_To_bool`).
fn switch(query: &Query, name: &str) -> bool {
    query
        .first(name)
        .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// What is wrong with values that are each of their type.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    /// The value, if it is no less.
    fn at_least(&mut self, name: &str, value: Option<i64>, least: u32) -> Option<u64> {
        let value = value?;
        if value < i64::from(least) {
            self.0.push(format!(
                "{name}: Invalid value: {value}: must be greater than or equal to {least}"
            ));
        }
        u64::try_from(value).ok()
    }

    fn streams(&mut self, asked: Option<&str>, may_be_chosen: bool) -> Streams {
        match asked {
            None => Streams::All,
            Some(_) if !may_be_chosen => {
                self.0.push("stream: Forbidden: may not be specified".into());
                Streams::All
            }
            Some("All") => Streams::All,
            Some("Stdout") => Streams::Stdout,
            Some("Stderr") => Streams::Stderr,
            Some(other) => {
                self.0.push(format!(
                    "stream: Unsupported value: {other:?}: supported values: \"All\", \"Stderr\", \"Stdout\""
                ));
                Streams::All
            }
        }
    }
}

impl LogOptions {
    /// Reads the query; `with_streams` is whether one stream may be asked for. The error names every value that may not be.
    pub(super) fn parse(query: &Query, now: Timestamp, with_streams: bool) -> Result<Self, Mistake> {
        // The older name goes first.
        let tail = match query.first("tail") {
            Some("all") => None,
            None | Some("") => whole(query, "tailLines")?,
            Some(_) => whole(query, "tail")?,
        };
        let (seconds, limit) = (whole(query, "sinceSeconds")?, whole(query, "limitBytes")?);
        let time = query.first("sinceTime").filter(|t| !t.is_empty());
        let time = time.map(str::parse::<Timestamp>).transpose();
        let time = time.map_err(|_| Mistake::Undecodable)?;
        let mut mistakes = Mistakes::default();
        let tail = mistakes.at_least("tailLines", tail, 0);
        let limit = mistakes.at_least("limitBytes", limit, 1);
        let since = match (seconds, time) {
            (Some(_), Some(_)) => {
                let text = "sinceSeconds: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
                mistakes.0.push(text.into());
                None
            }
            (seconds, None) => mistakes
                .at_least("sinceSeconds", seconds, 1)
                .and_then(|seconds| i64::try_from(seconds).ok())
                .and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok()),
            (None, time) => time,
        };
        let streams = mistakes.streams(query.first("stream"), with_streams);
        if streams != Streams::All && tail.is_some() {
            let text = "tailLines: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now";
            mistakes.0.push(text.into());
        }
        if !mistakes.0.is_empty() {
            return Err(Mistake::Invalid(mistakes.0));
        }
        Ok(Self {
            tail,
            limit,
            follow: switch(query, "follow"),
            timestamps: switch(query, "timestamps"),
            since,
            previous: switch(query, "previous"),
            streams,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogOptions, Mistake> {
        LogOptions::parse(
            &Query::parse(text),
            Timestamp::from_second(100).expect("in range"),
            true,
        )
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
        assert_eq!(parse("tail=all&tailLines=3").expect("sound").tail, None);
        assert_eq!(parse("tail=2&tailLines=3").expect("sound").tail, Some(2));
        assert_eq!(parse("tail=&tailLines=3").expect("sound").tail, Some(3));
        assert_eq!(
            parse("sinceTime=1970-01-01T00:00:07Z")
                .expect("sound")
                .since
                .map(|t| t.as_second()),
            Some(7)
        );
        assert_eq!(parse("sinceTime=").expect("sound").since, None);
    }

    #[test]
    fn a_switch_is_on_unless_it_is_absent_or_says_no() {
        for (text, on) in [
            ("", false),
            ("timestamps=false", false),
            ("timestamps=False", false),
            ("timestamps=0", false),
            ("timestamps", true),
            ("timestamps=", true),
            ("timestamps=True", true),
            ("timestamps=yes", true),
        ] {
            assert_eq!(parse(text).expect("sound").timestamps, on, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_together() {
        let mistake = parse("tailLines=-1&limitBytes=0&sinceSeconds=0&stream=None").expect_err("mistakes");
        assert_eq!(mistake.code(), 422);
        let text = mistake.to_string();
        for field in ["tailLines", "limitBytes", "sinceSeconds", "stream"] {
            assert!(text.lines().any(|l| l.starts_with(field)), "{field}: {text}");
        }
        assert!(parse("sinceSeconds=1&sinceTime=1970-01-01T00:00:07Z").is_err());
        assert!(parse("stream=Stdout&tailLines=1").is_err());
    }

    #[test]
    fn what_is_not_of_its_type_cannot_be_decoded() {
        for text in [
            "tailLines=x",
            "tail=x",
            "limitBytes=",
            "sinceSeconds=1.5",
            "sinceTime=never",
        ] {
            let mistake = parse(text).expect_err("a mistake");
            assert_eq!(mistake.code(), 400, "{text}");
            assert_eq!(mistake.to_string(), r#"{"message": "Unable to decode query."}"#);
        }
    }

    #[test]
    fn a_stream_is_asked_for_only_where_the_gate_is_on() {
        assert_eq!(parse("stream=Stdout").expect("sound").streams, Streams::Stdout);
        for text in ["stream=Stdout", "stream=All", "stream"] {
            let mistake = LogOptions::parse(&Query::parse(text), Timestamp::UNIX_EPOCH, false);
            let text = "stream: Forbidden: may not be specified".to_owned();
            assert_eq!(mistake, Err(Mistake::Invalid(vec![text])));
        }
    }
}
