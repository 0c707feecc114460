//! `I1120 14:25:30.123456    4711 file.rs:123] "message" key="value"`, klog's text format.

use super::{Line, Value, caller, quoted};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format. Times are the machine's local times, as klog's are.
pub(super) struct Text {
    zone: TimeZone,
    process: u32,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            zone: TimeZone::system(),
            process: std::process::id(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let line = Line::of(event);
        let head = header(*event.metadata().level(), Timestamp::now(), &self.zone, self.process);
        write!(writer, "{head} {}] {}", caller(event.metadata()), quoted(&line.message))?;
        for (name, value) in &line.values {
            match value {
                Value::Text(text) => write!(writer, " {name}={}", quoted(text))?,
                Value::Bare(text) => write!(writer, " {name}={text}")?,
            }
        }
        writeln!(writer)
    }
}

/// Everything before the caller.
fn header(level: Level, now: Timestamp, zone: &TimeZone, process: u32) -> String {
    let letter = match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let time = now.to_zoned(zone.clone()).strftime("%m%d %H:%M:%S%.6f");
    format!("{letter}{time} {process:7}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_klogs() {
        let now: Timestamp = "2026-11-20T14:25:30.123456789Z".parse().expect("a time");
        let shown = header(Level::WARN, now, &TimeZone::UTC, 42);
        assert_eq!(shown, "W1120 14:25:30.123456      42");
        assert!(header(Level::DEBUG, now, &TimeZone::UTC, 42).starts_with('I'));
    }
}
