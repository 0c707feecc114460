//! Lists as protobuf, written piece by piece like those of text. A message says how long it is before it begins, so the objects'
//! lengths are found first. Never decides what is in a list.

use super::stream::{PIECE_BYTES, STORED_BYTES, Text};
use super::{Context, Page, made_message, message, partial, whole};
use crate::apiserver::negotiate::Shape;
use crate::resource::Kind;
use crate::schema::protobuf::{self, ItemHead, Message};
use crate::store::window::{EncodedForms, Stored};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// A list on its way.
pub(super) struct Messages {
    item: Item,
    api_version: String,
    list_kind: String,
    metadata: Value,
    items: VecDeque<Arc<Stored>>,
    /// The lengths of the first items.
    lengths: VecDeque<usize>,
    /// Known once all lengths are.
    item_head: Option<ItemHead>,
    text: Text,
    end: &'static [u8],
}

/// How an object becomes an item.
struct Item {
    kind: Arc<Kind>,
    /// Its metadata alone.
    is_partial: bool,
    forms: Arc<EncodedForms>,
    /// Whether what is made is kept for others.
    keeps: bool,
}

impl Item {
    fn bytes(&self, stored: &Arc<Stored>) -> Bytes {
        let (kind, revision) = (&self.kind, stored.revision);
        if self.is_partial {
            let shown = partial(&whole(stored, revision, kind), "v1");
            return Bytes::from(
                partial_message("PartialObjectMetadata").map_or_else(Vec::new, |known| known.bytes(&shown)),
            );
        }
        match self.keeps {
            true => message(stored, revision, kind, &self.forms),
            false => self.forms.peek(stored, (&kind.api_version, revision), || {
                made_message(stored, revision, kind)
            }),
        }
    }
}

fn partial_message(kind: &str) -> Option<Message> {
    Message::of("meta.k8s.io/v1", kind)
}

impl Messages {
    /// The page in the negotiated shape.
    pub(super) fn new(page: Page, context: &Context<'_>, is_compressed: bool) -> Self {
        let partial = match context.output.shape {
            Shape::PartialList(version) => Some(version),
            _ => None,
        };
        let (api_version, list_kind) = match partial {
            Some(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadataList".to_owned()),
            None => (context.kind.api_version.to_string(), context.kind.list_kind.to_string()),
        };
        Self {
            item: Item {
                kind: Arc::clone(context.kind),
                is_partial: partial.is_some(),
                forms: Arc::clone(context.forms),
                keeps: context.forms.has_room_for(page.stored_bytes()),
            },
            api_version,
            list_kind,
            metadata: page.metadata(),
            items: page.items.into(),
            lengths: VecDeque::new(),
            item_head: None,
            text: Text::new(is_compressed),
            end: &[],
        }
    }

    /// The next piece, which may be empty; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let mut read = 0;
        let Some(item_head) = self.item_head else {
            while read < STORED_BYTES
                && let Some(stored) = self.items.get(self.lengths.len())
            {
                read += stored.raw().len();
                self.lengths.push_back(self.item.bytes(stored).len());
            }
            if self.lengths.len() == self.items.len() {
                self.item_head = Some(self.open()?);
            }
            return Some(Bytes::new());
        };
        while self.text.ready() < PIECE_BYTES
            && read < STORED_BYTES
            && let Some(stored) = self.items.pop_front()
        {
            read += stored.raw().len();
            let bytes = self.item.bytes(&stored);
            self.text.write(&item_head.bytes(bytes.len()));
            self.text.write(&bytes);
        }
        match self.items.is_empty() {
            false => Some(self.text.take()),
            true => self.text.finish(self.end),
        }
    }

    /// Writes what stands before the first item. `None` if the list has no such form, which is not negotiated then.
    fn open(&mut self) -> Option<ItemHead> {
        let lengths = std::mem::take(&mut self.lengths);
        let list = match self.item.is_partial {
            true => partial_message(&self.list_kind),
            false => Message::of(&self.api_version, &self.list_kind),
        };
        let parts = list.and_then(|list| protobuf::list_parts(list, &self.metadata));
        let (members, item_head) = parts?;
        let items: usize = lengths
            .iter()
            .map(|length| item_head.bytes(*length).len() + length)
            .sum();
        let (head, end) = protobuf::envelope(&self.api_version, &self.list_kind, members.len() + items);
        self.text.write(&head);
        self.text.write(&members);
        self.end = end;
        Some(item_head)
    }
}
