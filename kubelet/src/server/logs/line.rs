//! One line of a log file as the runtime writes it: `TIME STREAM TAGS TEXT`. Pure.

use super::options::{LogOptions, Streams};
use jiff::Timestamp;

/// One record.
#[derive(Debug, PartialEq, Eq)]
struct Record<'a> {
    time: &'a str,
    stream: &'a str,
    /// The record is part of a longer line.
    partial: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Record<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let time = fields.next()?;
    let stream = fields.next()?;
    let tags = fields.next()?;
    let text = fields.next().unwrap_or_default();
    let tags = std::str::from_utf8(tags).ok()?;
    Some(Record {
        time: std::str::from_utf8(time).ok()?,
        stream: std::str::from_utf8(stream).ok()?,
        partial: tags.split(':').next() == Some("P"),
        text,
    })
}

/// A time with all nine digits of its nanoseconds, however many the runtime wrote.
fn fixed_width(time: &Timestamp, written: &str) -> String {
    // The runtime's own zone is kept; only the fraction is filled up.
    let zone_at = written
        .rfind(['Z', '+'])
        .or_else(|| written.rfind('-'))
        .unwrap_or(written.len());
    let seconds_end = written.find('.').unwrap_or(zone_at);
    let nanos = time.subsec_nanosecond();
    format!("{}.{nanos:09}{}", &written[..seconds_end], &written[zone_at..])
}

/// Turns what the file has into what the client gets, record by record.
pub(super) struct Renderer {
    options: LogOptions,
    /// What the client has got ends with a line: only there a time belongs.
    begins: bool,
}

impl Renderer {
    /// Nothing was rendered yet.
    pub(super) fn new(options: LogOptions) -> Self {
        Self { options, begins: true }
    }

    /// A record; `None` when it is not wanted. A line that is no record is an error of the runtime's and is left out. One that
    /// is not ended, because the file ends there, does not end the client's line either.
    pub(super) fn render(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let record = parse(line)?;
        let time: Timestamp = record.time.parse().ok()?;
        if self.options.since.is_some_and(|since| time < since) {
            return None;
        }
        match (self.options.streams, record.stream) {
            (Streams::Stdout, "stderr") | (Streams::Stderr, "stdout") => return None,
            _ => {}
        }
        let mut out = Vec::with_capacity(line.len());
        if self.options.timestamps && self.begins {
            out.extend_from_slice(fixed_width(&time, record.time).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(record.text);
        self.begins = !record.partial && line.ends_with(b"\n");
        if self.begins {
            out.push(b'\n');
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str, options: &LogOptions) -> Option<String> {
        let mut renderer = Renderer::new(options.clone());
        renderer
            .render(line.as_bytes())
            .map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    const LINE: &str = "2026-11-20T10:00:00.12Z stdout F hello  world\n";

    #[test]
    fn records() {
        assert_eq!(text(LINE, &LogOptions::default()).as_deref(), Some("hello  world\n"));
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout P part\n", &LogOptions::default()).as_deref(),
            Some("part")
        );
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout F \n", &LogOptions::default()).as_deref(),
            Some("\n")
        );
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout F\n", &LogOptions::default()).as_deref(),
            Some("\n")
        );
        for bad in ["nonsense\n", "x stdout F y\n", "\n"] {
            assert_eq!(text(bad, &LogOptions::default()), None, "{bad}");
        }
    }

    #[test]
    fn times_have_nine_digits() {
        let options = LogOptions {
            timestamps: true,
            ..LogOptions::default()
        };
        assert_eq!(
            text(LINE, &options).as_deref(),
            Some("2026-11-20T10:00:00.120000000Z hello  world\n")
        );
        let zoned = "2026-11-20T10:00:00.5-03:00 stderr F x\n";
        assert_eq!(
            text(zoned, &options).as_deref(),
            Some("2026-11-20T10:00:00.500000000-03:00 x\n")
        );
        let bare = "2026-11-20T10:00:00+02:00 stderr F x\n";
        assert_eq!(
            text(bare, &options).as_deref(),
            Some("2026-11-20T10:00:00.000000000+02:00 x\n")
        );
    }

    #[test]
    fn filters() {
        let later = LogOptions {
            since: "2026-11-20T10:00:01Z".parse().ok(),
            ..LogOptions::default()
        };
        assert_eq!(text(LINE, &later), None);
        let errors = LogOptions {
            streams: Streams::Stderr,
            ..LogOptions::default()
        };
        assert_eq!(text(LINE, &errors), None);
    }

    #[test]
    fn times_stand_where_lines_begin() {
        let options = LogOptions {
            timestamps: true,
            ..LogOptions::default()
        };
        let all = |streams, lines: &[&str]| {
            let options = LogOptions {
                streams,
                ..options.clone()
            };
            let mut renderer = Renderer::new(options);
            let out = lines.iter().filter_map(|line| renderer.render(line.as_bytes()));
            String::from_utf8(out.collect::<Vec<_>>().concat()).expect("text")
        };
        let time = |second| format!("2026-11-20T10:00:0{second}.000000000Z");
        let long = [
            "2026-11-20T10:00:01Z stdout P ab\n",
            "2026-11-20T10:00:02Z stdout P cd\n",
            "2026-11-20T10:00:03Z stdout F ef\n",
            "2026-11-20T10:00:04Z stdout F g\n",
        ];
        let expected = format!("{} abcdef\n{} g\n", time(1), time(4));
        assert_eq!(all(Streams::All, &long), expected);
        let mixed = [long[0], "2026-11-20T10:00:02Z stderr F no\n", long[2]];
        let expected = format!("{} abef\n", time(1));
        assert_eq!(all(Streams::Stdout, &mixed), expected, "what is left out ends no line");
        let cut = ["2026-11-20T10:00:01Z stdout F a\n", "2026-11-20T10:00:02Z stdout F b"];
        assert_eq!(all(Streams::All, &cut), format!("{} a\n{} b", time(1), time(2)));
    }
}
