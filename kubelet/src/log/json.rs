//! `{"ts":1763648730123.456,"caller":"file.rs:123","msg":"message","v":0,"key":"value"}`, upstream's JSON format.

use super::{Line, Value, caller, quoted};
use jiff::Timestamp;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let line = Line::of(event);
        writeln!(
            writer,
            "{}",
            object(*metadata.level(), Timestamp::now(), &caller(metadata), &line)
        )
    }
}

/// The line. An error has no verbosity, which is how upstream's readers tell it.
fn object(level: Level, now: Timestamp, caller: &str, line: &Line) -> String {
    let micros = now.as_microsecond();
    let mut text = format!(
        "{{\"ts\":{}.{:03},\"caller\":{},\"msg\":{}",
        micros / 1000,
        micros % 1000,
        quoted(caller),
        quoted(&line.message)
    );
    match level {
        Level::ERROR => {}
        Level::WARN | Level::INFO => text.push_str(",\"v\":0"),
        Level::DEBUG => text.push_str(",\"v\":4"),
        Level::TRACE => text.push_str(",\"v\":6"),
    }
    for (name, value) in &line.values {
        text.push(',');
        text.push_str(&quoted(name));
        text.push(':');
        match value {
            Value::Text(value) => text.push_str(&quoted(value)),
            // Not a number, or infinite: JSON has no word for it.
            Value::Bare(value) if value.parse::<f64>().is_ok_and(|number| !number.is_finite()) => {
                text.push_str(&quoted(value));
            }
            Value::Bare(value) => text.push_str(value),
        }
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object() {
        let now: Timestamp = "2026-11-20T14:25:30.123456Z".parse().expect("a time");
        let line = Line {
            message: "say \"hi\"\n".into(),
            values: vec![
                ("pod", Value::Text("a".into())),
                ("count", Value::Bare("3".into())),
                ("ratio", Value::Bare("NaN".into())),
            ],
        };
        let shown = object(Level::INFO, now, "x.rs:1", &line);
        let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read["msg"], "say \"hi\"\n");
        assert_eq!(
            (read["v"].as_i64(), read["count"].as_i64(), read["ratio"].as_str()),
            (Some(0), Some(3), Some("NaN"))
        );
        assert!(
            shown.starts_with("{\"ts\":1795184730123.456,\"caller\":\"x.rs:1\""),
            "{shown}"
        );
        let error = object(Level::ERROR, now, "x.rs:1", &line);
        assert!(!error.contains("\"v\":"), "{error}");
    }
}
