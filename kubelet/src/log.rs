//! Log lines as upstream's kubelet writes them: klog's text, or one JSON object each.
//!
//! Owns the format and the choice of lines by `-v` and `--vmodule`. Never decides what is worth a line.

mod json;
mod text;
mod verbosity;

pub use verbosity::{Pattern, Verbosity};

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tracing::Metadata;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// klog's header, the message, `key="value"`.
    #[default]
    Text,
    /// `ts`, `caller`, `msg`, `v`, and the values.
    Json,
}

/// What to log, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// `logging.format`.
    pub format: Format,
    /// `logging.verbosity` and `logging.vmodule`.
    pub verbosity: Verbosity,
}

/// How much is said now; another number holds from the next line on. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LogLevel(Arc<RwLock<Verbosity>>);

impl LogLevel {
    /// As it is configured.
    pub fn new(logging: &Logging) -> Self {
        Self(Arc::new(RwLock::new(logging.verbosity.clone())))
    }

    /// The verbosity of files that have none of their own.
    pub fn current(&self) -> i64 {
        self.read().default
    }

    /// Sets that verbosity; files with one of their own keep it.
    pub fn set(&self, verbosity: i64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).default = verbosity;
        // What was asked of each line before is remembered.
        tracing::callsite::rebuild_interest_cache();
    }

    fn read(&self) -> RwLockReadGuard<'_, Verbosity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Filter<S> for LogLevel {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.read().wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.read().wants(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.read().most())
    }
}

/// Sends this process's lines to standard error from now on. The first call counts.
pub fn init(logging: &Logging, level: &LogLevel) {
    let filter = level.clone();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = match logging.format {
        Format::Text => tracing_subscriber::registry()
            .with(lines.event_format(text::Text::default()).with_filter(filter))
            .try_init(),
        Format::Json => tracing_subscriber::registry()
            .with(lines.event_format(json::Json).with_filter(filter))
            .try_init(),
    };
    // Somebody else's subscriber stays: a test's.
    drop(started);
}

/// An event's message and values, in the order they were given.
#[derive(Debug, Default)]
struct Line {
    message: String,
    values: Vec<(&'static str, Value)>,
}

/// A value as a line shows it.
#[derive(Debug, PartialEq)]
enum Value {
    Text(String),
    /// Numbers and truths, which need no quotes.
    Bare(String),
}

impl Line {
    fn of(event: &tracing::Event<'_>) -> Self {
        let mut line = Self::default();
        event.record(&mut line);
        line
    }

    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::Text(text) | Value::Bare(text)) => self.message = text,
            (name, value) => self.values.push((upstream_name(name), value)),
        }
    }
}

/// Errors have upstream's key.
fn upstream_name(name: &'static str) -> &'static str {
    if name == "error" { "err" } else { name }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.take(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        // A message does not repeat its source: the chain is written out once, here.
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        self.take(field, Value::Text(text));
    }
}

/// The file's name and the line, as `file.rs:12`.
fn caller(metadata: &tracing::Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or("unknown");
    let file = file.rsplit('/').next().unwrap_or(file);
    format!("{file}:{}", metadata.line().unwrap_or(0))
}

/// Quoted as Go quotes it, so that a value is one line whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
