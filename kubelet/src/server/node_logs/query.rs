//! What a query of the node's logs asks for, and what is wrong with it. Pure.

use crate::server::request::Query;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const SERVICES_MAX: usize = 4;
const SERVICE_BYTES_MAX: usize = 256;
const LINES_MAX: i64 = 100_000;
/// Of a pattern; the journal compiles it.
const PATTERN_BYTES_MAX: usize = 1024;

/// A query as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogQuery {
    services: Vec<String>,
    files: Vec<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// What a valid query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    Services(&'a [String]),
    File(&'a str),
}

/// Reads a query; nothing if the request has none.
pub(super) fn parse(query: &Query) -> Result<Option<LogQuery>, Vec<String>> {
    let mut asked = LogQuery::default();
    let mut mistakes = Vec::new();
    let queries = query.all("query");
    for word in &queries {
        if word.contains(['/', '\\']) {
            asked.files.push(word.replace('\\', "/"));
        } else if !word.trim().is_empty() {
            asked.services.push(word.clone());
        }
    }
    if !queries.is_empty() && asked.files.is_empty() && asked.services.is_empty() {
        mistakes.push(format!("query: Invalid value: {queries:?}: query cannot be empty"));
    }
    let text = |name: &str| query.first(name).filter(|text| !text.is_empty());
    let mut time = |name: &str| {
        let time = text(name)?.parse::<Timestamp>();
        let wrong = || {
            format!(
                "{name}: Invalid value: {:?}: invalid time format",
                text(name).unwrap_or_default()
            )
        };
        time.map_err(|_| mistakes.push(wrong())).ok()
    };
    (asked.since, asked.until) = (time("sinceTime"), time("untilTime"));
    let mut number = |name: &str| {
        let number = text(name)?.parse::<i64>();
        let wrong = |why| format!("{name}: Invalid value: {:?}: {why}", text(name).unwrap_or_default());
        number.map_err(|why| mistakes.push(wrong(why))).ok()
    };
    (asked.boot, asked.lines) = (number("boot"), number("tailLines"));
    asked.pattern = text("pattern").unwrap_or_default().to_owned();
    match mistakes.is_empty() {
        true => Ok(Some(asked).filter(|asked| *asked != LogQuery::default())),
        false => Err(mistakes),
    }
}

impl LogQuery {
    /// Whether it says more than whose logs.
    pub(super) fn has_options(&self) -> bool {
        let Self {
            since,
            until,
            lines,
            boot,
            pattern,
            ..
        } = self;
        since.is_some() || until.is_some() || lines.is_some() || boot.is_some() || !pattern.is_empty()
    }

    /// What it asks for, or all that is wrong with it.
    pub(super) fn validate(&self) -> Result<Asked<'_>, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut wrong = |field: &str, value: String, why: &str| {
            mistakes.push(format!("{field}: Invalid value: {value}: {why}"));
        };
        for service in &self.services {
            if service.len() > SERVICE_BYTES_MAX {
                wrong("query", format!("{service:.32?}"), "length must be at most 256");
            } else if !service.bytes().all(is_safe) || service.starts_with('-') {
                wrong("query", format!("{service:?}"), "input contains unsupported characters");
            }
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            wrong(
                "untilTime",
                format!("{:?}", until.to_string()),
                "must be after `sinceTime`",
            );
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            wrong("boot", boot.to_string(), "must be less than 1");
        }
        if let Some(lines) = self.lines.filter(|lines| !(0..=LINES_MAX).contains(lines)) {
            wrong(
                "tailLines",
                lines.to_string(),
                "must be between 0 and 100000, inclusive",
            );
        }
        if self.pattern.len() > PATTERN_BYTES_MAX {
            wrong(
                "pattern",
                format!("{:.32?}", self.pattern),
                "must be at most 1024 bytes",
            );
        }
        let (services, files) = (self.services.as_slice(), self.files.as_slice());
        if services.len() > SERVICES_MAX {
            mistakes.push(format!(
                "query: Too many: {}: must have at most {SERVICES_MAX} items",
                services.len()
            ));
        }
        let asked = match (services, files) {
            ([], []) => {
                mistakes.push("query: Required value: cannot be empty with options".to_owned());
                None
            }
            ([], [file]) if !self.has_options() => Some(Asked::File(file)),
            ([], [_]) => {
                wrong_query(&mut mistakes, files, "cannot specify file with options");
                None
            }
            ([], _) => {
                wrong_query(&mut mistakes, files, "cannot specify more than one file");
                None
            }
            (_, []) => Some(Asked::Services(services)),
            _ => {
                wrong_query(&mut mistakes, files, "cannot specify a file and service");
                None
            }
        };
        match asked {
            Some(asked) if mistakes.is_empty() => Ok(asked),
            _ => Err(mistakes),
        }
    }

    /// The arguments of `journalctl` for some of the services.
    pub(super) fn arguments(&self, services: &[String]) -> Vec<String> {
        let mut arguments = ["--utc", "--no-pager", "--output=short-precise"]
            .map(str::to_owned)
            .to_vec();
        let at = |time: Timestamp| {
            time.to_zoned(TimeZone::UTC)
                .strftime("%Y-%m-%d %H:%M:%S UTC")
                .to_string()
        };
        arguments.extend(self.since.map(|since| format!("--since={}", at(since))));
        arguments.extend(self.until.map(|until| format!("--until={}", at(until))));
        arguments.extend(self.lines.map(|lines| format!("--lines={lines}")));
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        if !self.pattern.is_empty() {
            arguments.push(format!("--grep={}", self.pattern));
        }
        arguments.extend(self.boot.map(|boot| format!("--boot={boot}")));
        arguments
    }
}

fn wrong_query(mistakes: &mut Vec<String>, files: &[String], why: &str) {
    mistakes.push(format!("query: Invalid value: {files:?}: {why}"));
}

fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Option<LogQuery>, Vec<String>> {
        parse(&Query::parse(text))
    }

    #[test]
    fn what_is_wrong_is_told() {
        assert_eq!(asked("follow=1"), Ok(None));
        for (text, part) in [
            ("query=%20", "query cannot be empty"),
            (
                "query=kubelet&sinceTime=yesterday",
                "sinceTime: Invalid value: \"yesterday\": invalid time format",
            ),
            ("query=kubelet&tailLines=x", "tailLines: Invalid value: \"x\""),
        ] {
            assert!(
                asked(text).is_err_and(|mistakes| mistakes.join(",").contains(part)),
                "{text}"
            );
        }
        for (text, part) in [
            ("tailLines=1", "cannot be empty with options"),
            ("query=kubelet&query=/x.log", "cannot specify a file and service"),
            ("query=/x&query=/y", "more than one file"),
            ("query=/x&boot=0", "cannot specify file with options"),
            ("query=a&query=b&query=c&query=d&query=e", "must have at most 4 items"),
            ("query=--all", "unsupported characters"),
            ("query=a;b", "unsupported characters"),
            ("query=kubelet&boot=1", "must be less than 1"),
            ("query=kubelet&tailLines=100001", "must be between 0 and 100000"),
            (
                "query=k&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
                "must be after `sinceTime`",
            ),
        ] {
            let query = asked(text).expect("read").expect("a query");
            let mistakes = query.validate().expect_err(text);
            assert!(mistakes.join(",").contains(part), "{text}: {mistakes:?}");
        }
    }

    #[test]
    fn the_journal_is_asked_in_its_own_words() {
        let text = "query=kubelet&sinceTime=2026-01-01T01:02:03%2B01:00&tailLines=5&pattern=a.*b&boot=-1";
        let query = asked(text).expect("read").expect("a query");
        assert_eq!(query.validate(), Ok(Asked::Services(&["kubelet".to_owned()])));
        assert_eq!(
            query.arguments(&["kubelet".to_owned()]),
            [
                "--utc",
                "--no-pager",
                "--output=short-precise",
                "--since=2026-01-01 00:02:03 UTC",
                "--lines=5",
                "--unit=kubelet",
                "--grep=a.*b",
                "--boot=-1",
            ]
        );
        let file = asked("query=%5Cpods%5Cx.log").expect("read").expect("a query");
        assert_eq!(file.validate(), Ok(Asked::File("/pods/x.log")));
    }
}
