//! Lists as protobuf, written piece by piece like those of text. A message says how long it is before it begins, so the objects'
//! lengths are found first. Never decides what is in a list.

use super::stream::{PIECE_BYTES, STORED_BYTES, Text};
use super::{Context, Page, made_message, message, partial, whole};
use crate::apiserver::negotiate::{Shape, not_acceptable};
use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::schema::protobuf::{self, ItemHead, Message};
use crate::store::window::{EncodedForms, Stored};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// A list on its way.
pub(super) struct Messages {
    item: Item,
    api_version: String,
    list_kind: String,
    /// What stands before the first item, and before each.
    members: Vec<u8>,
    item_head: ItemHead,
    items: VecDeque<Arc<Stored>>,
    /// The lengths of the first items.
    lengths: VecDeque<usize>,
    /// Whether all lengths are known, and the head is written.
    is_open: bool,
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
    ///
    /// # Errors
    /// 406 if the list has no such form.
    pub(super) fn new(page: Page, context: &Context<'_>, is_compressed: bool) -> Result<Self, ApiError> {
        let partial = match context.output.shape {
            Shape::PartialList(version) => Some(version),
            _ => None,
        };
        let (api_version, list_kind) = match partial {
            Some(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadataList".to_owned()),
            None => (context.kind.api_version.to_string(), context.kind.list_kind.to_string()),
        };
        let list = match partial {
            Some(_) => partial_message(&list_kind),
            None => Message::of(&api_version, &list_kind),
        };
        let parts = list.and_then(|list| protobuf::list_parts(list, &page.metadata()));
        let (members, item_head) = parts.ok_or_else(not_acceptable)?;
        Ok(Self {
            item: Item {
                kind: Arc::clone(context.kind),
                is_partial: partial.is_some(),
                forms: Arc::clone(context.forms),
                keeps: context.forms.has_room_for(page.stored_bytes()),
            },
            api_version,
            list_kind,
            members,
            item_head,
            items: page.items.into(),
            lengths: VecDeque::new(),
            is_open: false,
            text: Text::new(is_compressed),
            end: &[],
        })
    }

    /// The next piece, which may be empty; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let mut read = 0;
        if !self.is_open {
            while read < STORED_BYTES
                && let Some(stored) = self.items.get(self.lengths.len())
            {
                read += stored.size();
                self.lengths.push_back(self.item.bytes(stored).len());
            }
            if self.lengths.len() == self.items.len() {
                self.open();
            }
            return Some(Bytes::new());
        }
        while self.text.ready() < PIECE_BYTES
            && read < STORED_BYTES
            && let Some(stored) = self.items.pop_front()
        {
            read += stored.size();
            let bytes = self.item.bytes(&stored);
            self.text.write(&self.item_head.bytes(bytes.len()));
            self.text.write(&bytes);
        }
        match self.items.is_empty() {
            false => Some(self.text.take()),
            true => self.text.finish(self.end),
        }
    }

    /// Writes what stands before the first item.
    fn open(&mut self) {
        let lengths = std::mem::take(&mut self.lengths);
        let items: usize = lengths
            .iter()
            .map(|length| self.item_head.bytes(*length).len() + length)
            .sum();
        let (head, end) = protobuf::envelope(&self.api_version, &self.list_kind, self.members.len() + items);
        self.text.write(&head);
        self.text.write(&self.members);
        self.end = end;
        self.is_open = true;
    }
}
