//! Writing trees as messages. Bytes are put down from the last to the first, so that the length of a message is known when its
//! head is written, and nothing is measured or copied twice.
//!
//! What a tree does not have is not written. Go's encoders write the zeros of fields without a pointer, too; no reader of theirs
//! can tell, and left out they keep the form from being larger than about twice the JSON ([`GROWTH_MAX`]).

use super::MAGIC;
use super::field_table::{Field, Form, Label, META, message_of, messages};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The form of a tree is at most so many times as long as its JSON without blanks (small numbers are longer by a few bytes;
/// texts, keys and lists are not).
pub(crate) const GROWTH_MAX: usize = 4;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;

/// What ends every envelope: no encoding and no type of content, which Go writes though they are empty.
const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// A known message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message(&'static str);

impl Message {
    /// The message of a kind; `None` for kinds that have no protobuf form (custom resources, tables).
    pub(crate) fn of(api_version: &str, kind: &str) -> Option<Self> {
        message_of(api_version, kind).map(Self)
    }

    /// The bare message of a tree, without kind and apiVersion.
    pub(crate) fn bytes(self, tree: &Value) -> Vec<u8> {
        let mut out = Backwards::default();
        if let Some(members) = tree.as_object() {
            out.message(self.0, members);
        }
        out.finish()
    }
}

/// A whole object that says what it is, in its envelope; `None` if its kind has no protobuf form.
pub(crate) fn of_object(object: &Value) -> Option<Vec<u8>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    // The oldest documents of discovery leave the version out of JSON.
    let (api_version, kind) = (text("apiVersion").unwrap_or("v1"), text("kind")?);
    let raw = Message::of(api_version, kind)?.bytes(object);
    let (head, tail) = envelope(api_version, kind, raw.len());
    Some([head.as_slice(), &raw, tail].concat())
}

/// What stands before and behind a bare message of so many bytes.
pub(crate) fn envelope(api_version: &str, kind: &str, length: usize) -> (Vec<u8>, &'static [u8]) {
    let mut out = Backwards::default();
    out.varint(length as u64);
    out.tag(2, LENGTH);
    out.nested(1, |out| {
        out.text(2, kind);
        out.text(1, api_version);
    });
    out.bytes(MAGIC);
    (out.finish(), ENVELOPE_TAIL)
}

/// What stands before an enveloped object of so many bytes in a stream of watch events: the frame's length, the event's type
/// (`ADDED`), and the heads of what the object stands in.
pub(crate) fn event_head(what: &str, length: usize) -> Vec<u8> {
    let mut out = Backwards::default();
    out.varint(length as u64);
    out.tag(1, LENGTH);
    let inner = length + out.0.len();
    out.varint(inner as u64);
    out.tag(2, LENGTH);
    out.text(1, what);
    let frame = u32::try_from(length + out.0.len()).unwrap_or(u32::MAX);
    out.bytes(&frame.to_be_bytes());
    out.finish()
}

/// The parts of a list's message: what stands before its items, and before each of them. `None` if the kind is no list.
pub(crate) fn list_parts(list: Message, metadata: &Value) -> Option<(Vec<u8>, ItemHead)> {
    let fields = messages().get(list.0)?;
    let number = fields.iter().find(|(_, field)| field.name == "items")?.0;
    let mut head = Backwards::default();
    let mut members = Map::new();
    members.insert("metadata".to_owned(), metadata.clone());
    head.message(list.0, &members);
    Some((head.finish(), ItemHead(*number)))
}

/// What stands before an item of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemHead(u32);

impl ItemHead {
    /// Before one of so many bytes.
    pub(crate) fn bytes(self, length: usize) -> Vec<u8> {
        let mut out = Backwards::default();
        out.varint(length as u64);
        out.tag(self.0, LENGTH);
        out.finish()
    }
}

/// Bytes written from the last to the first.
#[derive(Default)]
struct Backwards(Vec<u8>);

impl Backwards {
    fn finish(mut self) -> Vec<u8> {
        self.0.reverse();
        self.0
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    fn varint(&mut self, mut number: u64) {
        let mut digits = [0; 10];
        let mut count = 0;
        loop {
            digits[count] = (number & 0x7f) as u8 | 0x80;
            number >>= 7;
            count += 1;
            if number == 0 {
                break;
            }
        }
        digits[count - 1] &= 0x7f;
        self.bytes(&digits[..count]);
    }

    fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    /// A member that is a message, with what `inner` writes.
    fn nested(&mut self, number: u32, inner: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        inner(self);
        self.varint((self.0.len() - before) as u64);
        self.tag(number, LENGTH);
    }

    fn text(&mut self, number: u32, text: &str) {
        self.nested(number, |out| out.bytes(text.as_bytes()));
    }

    fn int(&mut self, number: u32, value: i64) {
        self.varint(value.cast_unsigned());
        self.tag(number, VARINT);
    }

    fn message(&mut self, name: &str, members: &Map<String, Value>) {
        let Some(fields) = messages().get(name) else { return };
        for (number, field) in fields.iter().rev() {
            match (field.is_inlined, field.form) {
                (true, Form::Message(inner)) => self.nested(*number, |out| out.message(inner, members)),
                _ => match members.get(field.name) {
                    None | Some(Value::Null) => {}
                    Some(value) => self.field(*number, field, value),
                },
            }
        }
    }

    fn field(&mut self, number: u32, field: &Field, value: &Value) {
        match (field.label, value) {
            (Label::One, value) => self.value(number, field.form, value),
            (Label::Many, Value::Array(items)) => {
                for item in items.iter().rev() {
                    self.value(number, field.form, item);
                }
            }
            (Label::Keyed, Value::Object(entries)) => {
                for (key, value) in entries.iter().rev() {
                    self.nested(number, |out| {
                        out.value(2, field.form, value);
                        out.text(1, key);
                    });
                }
            }
            // Trees have been through the schema: there are no others.
            _ => {}
        }
    }

    fn value(&mut self, number: u32, form: Form, value: &Value) {
        match (form, value) {
            (Form::Text, Value::String(text)) => self.text(number, text),
            (Form::Bytes, Value::String(text)) => {
                let content = STANDARD.decode(text).unwrap_or_default();
                self.nested(number, |out| out.bytes(&content));
            }
            (Form::Bool, Value::Bool(value)) => self.int(number, i64::from(*value)),
            (Form::Int, Value::Number(value)) => self.int(number, value.as_i64().unwrap_or_default()),
            (Form::Double, Value::Number(value)) => {
                self.bytes(&value.as_f64().unwrap_or_default().to_le_bytes());
                self.tag(number, FIXED64);
            }
            (Form::Message(name), value) => self.nested(number, |out| {
                if !out.special(name, value)
                    && let Some(members) = value.as_object()
                {
                    out.message(name, members);
                }
            }),
            _ => {}
        }
    }

    /// The messages whose JSON form is not an object of their fields; false for all others.
    fn special(&mut self, name: &str, value: &Value) -> bool {
        let (package, short) = name.rsplit_once('.').unwrap_or(("", name));
        match (package, short) {
            (META, "Time") => self.time(value, false),
            (META, "MicroTime") => self.time(value, true),
            (META, "FieldsV1") | ("k8s.io.apimachinery.pkg.runtime", "RawExtension") => self.raw(value),
            (META, "Verbs") | (_, "ExtraValue") => {
                let items = value.as_array().into_iter().flatten();
                for item in items.rev().filter_map(Value::as_str) {
                    self.text(1, item);
                }
            }
            ("k8s.io.apimachinery.pkg.api.resource", "Quantity") => match value {
                Value::String(text) => self.text(1, text),
                other => self.text(1, &other.to_string()),
            },
            ("k8s.io.apimachinery.pkg.util.intstr", "IntOrString") => {
                let text = value.as_str();
                self.text(3, text.unwrap_or_default());
                self.int(2, value.as_i64().unwrap_or_default());
                self.int(1, i64::from(text.is_some()));
            }
            (_, "JSON") if name.contains("apiextensions") => self.raw(value),
            _ => return self.union(name, value),
        }
        true
    }

    /// The counterpart of [`super::special::union`].
    fn union(&mut self, name: &str, value: &Value) -> bool {
        let Some((package, short)) = name.rsplit_once('.') else {
            return false;
        };
        let schema = || format!("{package}.JSONSchemaProps");
        match (short.strip_prefix("JSONSchemaPropsOr"), value) {
            (Some("Bool"), Value::Bool(allows)) => self.int(1, i64::from(*allows)),
            (Some("Bool"), Value::Object(members)) => {
                self.nested(2, |out| out.message(&schema(), members));
                // One that has a schema allows.
                self.int(1, 1);
            }
            (Some("Array" | "StringArray"), Value::Object(members)) => {
                self.nested(1, |out| out.message(&schema(), members));
            }
            (Some("Array"), Value::Array(items)) => {
                for members in items.iter().rev().filter_map(Value::as_object) {
                    self.nested(2, |out| out.message(&schema(), members));
                }
            }
            (Some("StringArray"), Value::Array(items)) => {
                for text in items.iter().rev().filter_map(Value::as_str) {
                    self.text(2, text);
                }
            }
            (Some("Bool" | "Array" | "StringArray"), _) => {}
            _ => return false,
        }
        true
    }

    fn raw(&mut self, value: &Value) {
        self.text(1, &value.to_string());
    }

    /// Whole seconds, or microseconds; no time at all is an empty message.
    fn time(&mut self, value: &Value, micro: bool) {
        let parsed = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let Some(time) = parsed else { return };
        // Nanoseconds count on from the second before, as Go's do.
        let nanos = time.as_nanosecond().rem_euclid(1_000_000_000);
        let micros = if micro { nanos - nanos % 1_000 } else { 0 };
        self.int(2, i64::try_from(micros).unwrap_or_default());
        self.int(
            1,
            i64::try_from(time.as_nanosecond().div_euclid(1_000_000_000)).unwrap_or_default(),
        );
    }
}
