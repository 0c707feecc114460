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

/// Turns a line of the file into what the client gets; `None` when it is not wanted. A line that is no record is an error of the
/// runtime's and is left out.
pub(super) fn render(line: &[u8], options: &LogOptions) -> Option<Vec<u8>> {
    let record = parse(line)?;
    let time: Timestamp = record.time.parse().ok()?;
    if options.since.is_some_and(|since| time < since) {
        return None;
    }
    match (options.streams, record.stream) {
        (Streams::Stdout, "stderr") | (Streams::Stderr, "stdout") => return None,
        _ => {}
    }
    let mut out = Vec::with_capacity(line.len());
    if options.timestamps {
        out.extend_from_slice(fixed_width(&time, record.time).as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(record.text);
    if !record.partial {
        out.push(b'\n');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LogOptions {
        LogOptions {
            tail: None,
            limit: None,
            follow: false,
            timestamps: false,
            since: None,
            previous: false,
            streams: Streams::All,
        }
    }

    fn text(line: &str, options: &LogOptions) -> Option<String> {
        render(line.as_bytes(), options).map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    const LINE: &str = "2026-11-20T10:00:00.12Z stdout F hello  world\n";

    #[test]
    fn records() {
        assert_eq!(text(LINE, &options()).as_deref(), Some("hello  world\n"));
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout P part\n", &options()).as_deref(),
            Some("part")
        );
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout F \n", &options()).as_deref(),
            Some("\n")
        );
        assert_eq!(
            text("2026-11-20T10:00:00Z stdout F\n", &options()).as_deref(),
            Some("\n")
        );
        for bad in ["nonsense\n", "x stdout F y\n", "\n"] {
            assert_eq!(text(bad, &options()), None, "{bad}");
        }
    }

    #[test]
    fn times_have_nine_digits() {
        let mut options = options();
        options.timestamps = true;
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
        let mut later = options();
        later.since = "2026-11-20T10:00:01Z".parse().ok();
        assert_eq!(text(LINE, &later), None);
        let mut errors = options();
        errors.streams = Streams::Stderr;
        assert_eq!(text(LINE, &errors), None);
    }
}
