//! Lists written piece by piece: what has been sent is let go of. Never decides what is in a list.

use super::layout::Layout;
use super::{Context, Page, json_of, partial, table_of, whole};
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

/// A piece ends once it has this many bytes; only one object may go beyond.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// A piece also ends once it has been made of so many stored bytes: little may come of much.
pub(in crate::apiserver) const STORED_BYTES: usize = 256 << 10;
/// Rows of a Table made at once, of objects that together have no more than [`GROUP_BYTES`] or are alone.
const GROUP: usize = 32;
const GROUP_BYTES: usize = PIECE_BYTES;

/// A list on its way.
pub(super) struct Pieces {
    kind: Arc<Kind>,
    form: Form,
    /// `None`: JSON without blanks.
    layout: Option<Layout>,
    items: VecDeque<Arc<Stored>>,
    text: Text,
    is_first: bool,
    /// What follows the objects.
    end: Vec<u8>,
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
pub(super) enum Text {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Done,
}

impl Pieces {
    /// The page in the negotiated shape and layout.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`.
    pub(super) fn new(page: Page, context: &Context<'_>, is_compressed: bool) -> Result<Self, ApiError> {
        let (members, key, form) = frame(&page, context)?;
        let layout = Layout::of(context.output);
        let is_empty = page.items.is_empty();
        let (head, end) = match layout {
            None => (opened(&members, key), b"]}\n".to_vec()),
            Some(layout) => (
                layout.opened(&members, key, is_empty),
                layout.closed(&members, key, is_empty),
            ),
        };
        let mut text = Text::new(is_compressed);
        text.write(&head);
        Ok(Self {
            kind: Arc::clone(context.kind),
            form,
            layout,
            items: page.items.into(),
            text,
            is_first: true,
            end,
        })
    }

    /// The next piece, which may be empty; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let mut read = 0;
        while !self.items.is_empty() && self.text.ready() < PIECE_BYTES && read < STORED_BYTES {
            let group = self.group();
            read += group.iter().map(|stored| stored.size()).sum::<usize>();
            self.write(&group);
        }
        match self.items.is_empty() {
            false => Some(self.text.take()),
            true => self.text.finish(&self.end),
        }
    }

    /// The next objects, as many as are written at once.
    fn group(&mut self) -> Vec<Arc<Stored>> {
        let most = match self.form {
            Form::Row { .. } => GROUP,
            Form::Whole | Form::Partial(_) => 1,
        };
        let mut bytes = 0;
        let fit = self.items.iter().take(most).take_while(|stored| {
            bytes += stored.size();
            bytes <= GROUP_BYTES
        });
        let count = fit.count().max(1);
        self.items.drain(..count).collect()
    }

    fn write(&mut self, group: &[Arc<Stored>]) {
        match &self.form {
            Form::Whole => {
                for stored in group {
                    match self.layout {
                        None if self.kind.conversion.is_none() => self.splice(stored),
                        _ if self.kind.structural.is_some() => self.value(&whole(stored, stored.revision, &self.kind)),
                        _ => self.value(&untyped(whole(stored, stored.revision, &self.kind))),
                    }
                }
            }
            Form::Partial(version) => {
                let version = *version;
                for stored in group {
                    self.value(&partial(&whole(stored, stored.revision, &self.kind), version));
                }
            }
            Form::Row { version, include, now } => {
                let whole = |stored: &Arc<Stored>| Arc::new(whole(stored, stored.revision, &self.kind));
                let objects: Vec<Arc<Value>> = group.iter().map(whole).collect();
                // The head was made the same way: it cannot fail any more.
                let table = table_of(&self.kind, &objects, version, include, *now, json!({})).unwrap_or_default();
                for row in table["rows"].as_array().into_iter().flatten() {
                    self.value(row);
                }
            }
        }
    }

    /// An object's stored bytes.
    fn splice(&mut self, stored: &Stored) {
        // Lists of custom resources say of each object what it is.
        let (head, rest) = match self.kind.structural {
            None => stored.json(None, stored.revision),
            Some(_) => json_of(stored, stored.revision, &self.kind),
        };
        self.comma();
        self.text.write(&head);
        self.text.write(&rest);
    }

    fn value(&mut self, value: &Value) {
        match self.layout {
            None => {
                self.comma();
                self.text.write(value.to_string().as_bytes());
            }
            Some(layout) => {
                let is_first = std::mem::take(&mut self.is_first);
                self.text.write(&layout.item(value, is_first));
            }
        }
    }

    fn comma(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.text.write(b",");
        }
    }
}

/// Pieces as a stream, in which others have their turn between them.
pub(super) fn in_turns(
    next: impl FnMut() -> Option<Bytes> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(next, |mut next| async move {
        loop {
            let piece = next()?;
            tokio::task::yield_now().await;
            if !piece.is_empty() {
                return Some((piece, next));
            }
        }
    })
}

/// The members of the list beside its objects, where these are, and what stands for each.
fn frame(page: &Page, context: &Context<'_>) -> Result<(Map<String, Value>, &'static str, Form), ApiError> {
    let kind = context.kind;
    let list = |kind: &str, api_version: String| {
        let members = [
            ("kind", json!(kind)),
            ("apiVersion", json!(api_version)),
            ("metadata", page.metadata()),
        ];
        members
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    };
    Ok(match context.output.shape {
        Shape::Table(version) => {
            let include = context.include.to_owned();
            let mut table = table_of(kind, &[], version, &include, context.now, page.metadata())?;
            let mut members = table.as_object_mut().map(std::mem::take).unwrap_or_default();
            members.remove("rows");
            let now = context.now;
            (members, "rows", Form::Row { version, include, now })
        }
        Shape::PartialList(version) => {
            let members = list("PartialObjectMetadataList", format!("meta.k8s.io/{version}"));
            (members, "items", Form::Partial(version))
        }
        Shape::Whole | Shape::Partial(_) => (
            list(&kind.list_kind, kind.api_version.to_string()),
            "items",
            Form::Whole,
        ),
    })
}

/// An object as lists have it: their own kind says what it is.
fn untyped(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    object
}

/// A list without blanks up to its first object. Lists of objects name their kind first, as upstream does.
fn opened(members: &Map<String, Value>, key: &str) -> Vec<u8> {
    let first: &[&str] = if key == "items" { &["kind", "apiVersion"] } else { &[] };
    let others = members.keys().map(String::as_str).filter(|name| !first.contains(name));
    let names = first.iter().copied().chain(others);
    let texts: String = names.map(|name| format!("\"{name}\":{},", members[name])).collect();
    format!("{{{texts}\"{key}\":[").into_bytes()
}

impl Text {
    pub(super) fn new(is_compressed: bool) -> Self {
        match is_compressed {
            true => Self::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::fast()))),
            false => Self::Plain(Vec::new()),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(text) => text.extend_from_slice(bytes),
            // Into memory: it cannot fail.
            Self::Gzip(encoder) => encoder.write_all(bytes).unwrap_or_default(),
            Self::Done => {}
        }
    }

    /// Bytes that can be taken.
    pub(super) fn ready(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Done => 0,
        }
    }

    pub(super) fn take(&mut self) -> Bytes {
        match self {
            Self::Plain(text) => Bytes::from(std::mem::take(text)),
            Self::Gzip(encoder) => Bytes::from(std::mem::take(encoder.get_mut())),
            Self::Done => Bytes::new(),
        }
    }

    /// The last piece; `None` if it has been taken.
    pub(super) fn finish(&mut self, end: &[u8]) -> Option<Bytes> {
        self.write(end);
        match std::mem::replace(self, Self::Done) {
            Self::Plain(text) => Some(Bytes::from(text)),
            Self::Gzip(encoder) => Some(Bytes::from(encoder.finish().unwrap_or_default())),
            Self::Done => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::negotiate::{Encoding, Output};
    use crate::resource::Registry;
    use crate::store::window::EncodedForms;
    use futures::StreamExt;
    use http::HeaderMap;
    use serde_json::json;

    const OBJECT_BYTES: usize = 100 << 10;

    fn stored(number: u64) -> Arc<Stored> {
        let object = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(OBJECT_BYTES)}});
        let key = format!("/registry/configmaps/a/m{number}");
        Arc::new(Stored::new(
            Arc::from(key),
            number,
            number,
            Bytes::from(object.to_string()),
        ))
    }

    fn pieces(shape: Shape, is_compressed: bool) -> Pieces {
        let page = Page {
            items: (1..=20).map(stored).collect(),
            revision: 20,
            next: None,
            remaining: None,
            room: None,
        };
        let context = Context {
            forms: &Arc::new(EncodedForms::new(0)),
            kind: Registry::built_in().by_resource("", "v1", "configmaps").unwrap(),
            output: Output {
                encoding: Encoding::Json,
                shape,
                pretty: false,
            },
            headers: &HeaderMap::new(),
            include: "",
            now: Timestamp::UNIX_EPOCH,
            warnings: &[],
            most_bytes: None,
        };
        Pieces::new(page, &context, is_compressed).unwrap()
    }

    #[test]
    fn a_piece_reads_no_more_than_its_share_however_little_comes_of_it() {
        for (shape, is_compressed) in [
            (Shape::PartialList("v1"), false),
            (Shape::Table("v1"), false),
            (Shape::Whole, true),
        ] {
            let mut pieces = pieces(shape, is_compressed);
            let mut left = pieces.items.len();
            while pieces.next().is_some() {
                let read = left - pieces.items.len();
                assert!(read <= STORED_BYTES / OBJECT_BYTES + 1, "{read} objects");
                left = pieces.items.len();
            }
            assert_eq!(left, 0);
        }
    }

    #[tokio::test]
    async fn others_have_their_turn_between_pieces() {
        let mut stream = {
            let mut pieces = pieces(Shape::PartialList("v1"), false);
            std::pin::pin!(in_turns(move || pieces.next()))
        };
        let mut text = Vec::new();
        let mut turns = 0;
        loop {
            match futures::poll!(stream.next()) {
                std::task::Poll::Pending => turns += 1,
                std::task::Poll::Ready(Some(piece)) => {
                    assert!(!piece.is_empty());
                    text.extend_from_slice(&piece);
                }
                std::task::Poll::Ready(None) => break,
            }
        }
        assert!(turns >= 20 * OBJECT_BYTES / (STORED_BYTES + OBJECT_BYTES), "{turns}");
        let list: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 20);
    }
}
