//! Lists written piece by piece: what has been sent is let go of. Never decides what is in a list.

use super::{Context, Page, partial, table_of, whole};
use crate::apiserver::negotiate::Shape;
use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::store::window::Stored;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, Stream};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

/// A piece ends once it has this many bytes; only one group of objects may go beyond.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Rows of a Table made at once.
const GROUP: usize = 32;

/// A list on its way.
pub(super) struct Pieces {
    kind: &'static Kind,
    form: Form,
    items: VecDeque<Arc<Stored>>,
    text: Text,
    is_first: bool,
}

/// What stands for each object.
enum Form {
    Whole,
    Partial(&'static str),
    Row {
        version: &'static str,
        include: String,
        now: Timestamp,
    },
}

/// Where the text goes.
enum Text {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Done,
}

impl Pieces {
    /// The page in the negotiated shape, as JSON without blanks.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`.
    pub(super) fn new(page: Page, context: &Context<'_>, is_compressed: bool) -> Result<Self, ApiError> {
        let (head, form) = head(&page, context)?;
        let mut text = match is_compressed {
            true => Text::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::fast()))),
            false => Text::Plain(Vec::new()),
        };
        text.write(&head);
        Ok(Self {
            kind: context.kind,
            form,
            items: page.items.into(),
            text,
            is_first: true,
        })
    }

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        while !self.items.is_empty() && self.text.ready() < PIECE_BYTES {
            let group: Vec<Arc<Stored>> = self.items.drain(..self.items.len().min(GROUP)).collect();
            self.write(&group);
        }
        match self.items.is_empty() {
            false => Some(self.text.take()),
            true => self.text.finish(b"]}\n"),
        }
    }

    /// The rest of the list.
    pub(super) fn all(mut self) -> Bytes {
        let mut all = Vec::new();
        while let Some(piece) = self.next() {
            all.extend_from_slice(&piece);
        }
        Bytes::from(all)
    }

    /// The list as a stream.
    pub(super) fn stream(self) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(self, |mut pieces| async move {
            let piece = pieces.next()?;
            Some((piece, pieces))
        })
    }

    fn write(&mut self, group: &[Arc<Stored>]) {
        let kind = self.kind;
        match &self.form {
            Form::Whole => {
                for stored in group {
                    let (head, rest) = stored.json(None, stored.revision);
                    comma(&mut self.is_first, &mut self.text);
                    self.text.write(&head);
                    self.text.write(&rest);
                }
            }
            Form::Partial(version) => {
                for stored in group {
                    comma(&mut self.is_first, &mut self.text);
                    self.text.json(&partial(&stored.tree(), version));
                }
            }
            Form::Row { version, include, now } => {
                let objects: Vec<Arc<Value>> = group
                    .iter()
                    .map(|stored| Arc::new(whole(stored, stored.revision, kind)))
                    .collect();
                // The head was made the same way: it cannot fail any more.
                let table = table_of(kind, &objects, version, include, *now, json!({})).unwrap_or_default();
                for row in table["rows"].as_array().into_iter().flatten() {
                    comma(&mut self.is_first, &mut self.text);
                    self.text.json(row);
                }
            }
        }
    }
}

fn comma(is_first: &mut bool, text: &mut Text) {
    if !std::mem::take(is_first) {
        text.write(b",");
    }
}

/// Everything before the first object, and what each will be.
fn head(page: &Page, context: &Context<'_>) -> Result<(Vec<u8>, Form), ApiError> {
    let kind = context.kind;
    let metadata = page.metadata();
    let opened = |kind: &str, api_version: &str| {
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
            .into_bytes()
    };
    Ok(match context.output.shape {
        Shape::Table(version) => {
            let include = context.include.to_owned();
            let mut table = table_of(kind, &[], version, &include, context.now, metadata)?;
            let members = table.as_object_mut().map(std::mem::take).unwrap_or_default();
            (
                open_table(members),
                Form::Row {
                    version,
                    include,
                    now: context.now,
                },
            )
        }
        Shape::PartialList(version) => {
            let head = opened("PartialObjectMetadataList", &format!("meta.k8s.io/{version}"));
            (head, Form::Partial(version))
        }
        Shape::Whole | Shape::Partial(_) => (opened(kind.list_kind, &kind.api_version()), Form::Whole),
    })
}

/// A Table up to its first row.
fn open_table(mut members: Map<String, Value>) -> Vec<u8> {
    members.remove("rows");
    let mut head = Value::Object(members).to_string().into_bytes();
    head.pop();
    head.extend_from_slice(b",\"rows\":[");
    head
}

impl Text {
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(text) => text.extend_from_slice(bytes),
            // Into memory: it cannot fail.
            Self::Gzip(encoder) => encoder.write_all(bytes).unwrap_or_default(),
            Self::Done => {}
        }
    }

    fn json(&mut self, value: &Value) {
        self.write(value.to_string().as_bytes());
    }

    /// Bytes that can be taken.
    fn ready(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Done => 0,
        }
    }

    fn take(&mut self) -> Bytes {
        match self {
            Self::Plain(text) => Bytes::from(std::mem::take(text)),
            Self::Gzip(encoder) => Bytes::from(std::mem::take(encoder.get_mut())),
            Self::Done => Bytes::new(),
        }
    }

    /// The last piece; `None` if it has been taken.
    fn finish(&mut self, end: &[u8]) -> Option<Bytes> {
        self.write(end);
        match std::mem::replace(self, Self::Done) {
            Self::Plain(text) => Some(Bytes::from(text)),
            Self::Gzip(encoder) => Some(Bytes::from(encoder.finish().unwrap_or_default())),
            Self::Done => None,
        }
    }
}
