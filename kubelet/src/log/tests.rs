use super::*;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("paper").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Paper {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] std::io::Error);

#[test]
fn a_line_of_text_has_message_values_and_the_whole_error() {
    let paper = Paper::default();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(paper.clone())
        .event_format(text::Text::default());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
        let error = Outer(std::io::Error::other("inner"));
        let error = &error as &dyn std::error::Error;
        tracing::warn!(pod = "a \"b\"", count = 3, error, "it happened");
    });
    let shown = String::from_utf8(paper.0.lock().expect("paper").clone()).expect("text");
    let (_, rest) = shown.split_once("] ").expect("a header");
    assert_eq!(
        rest,
        "\"it happened\" pod=\"a \\\"b\\\"\" count=3 err=\"outer: inner\"\n"
    );
    assert!(shown.starts_with('W') && shown.contains(" tests.rs:"), "{shown}");
}
