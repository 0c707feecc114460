//! The part of D-Bus's wire format that our few calls, their replies and the signals we wait for need. Pure.
//!
//! Written little-endian, as every machine this runs on is; read as its sender wrote it. Values are aligned to their size from the message's first byte; a body
//! begins at a multiple of 8, so it can be written for itself.

const LITTLE_ENDIAN: u8 = b'l';
const BIG_ENDIAN: u8 = b'B';
const VERSION: u8 = 1;
const CALL: u8 = 1;
/// Byte order, kind, flags, version, body length, serial, length of the header fields.
const FIXED_BYTES: usize = 16;
/// No message we ask for comes near it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// No message at all may be larger (D-Bus specification, "Message Format").
const ANY_BYTES_MAX: usize = 1 << 27;
/// Types within types, as deep as the specification lets them be.
const DEPTH_MAX: usize = 64;

const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SENDER: u8 = 7;
const FIELD_SIGNATURE: u8 = 8;
const FIELD_UNIX_FDS: u8 = 9;

/// Whose calls are called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The service's name on the bus; empty where there is no bus, only the service.
    pub(crate) destination: &'static str,
    pub(crate) path: &'static str,
    pub(crate) interface: &'static str,
}

/// A value of those we send and understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Bool(bool),
    /// Any whole number without a sign; sent as one of 64 bits.
    Number(u64),
    Text(String),
}

/// Bytes being written.
#[derive(Debug, Clone, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(length(text.len()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend(signature.as_bytes());
        self.0.push(0);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(value) => {
                self.signature("b");
                self.number(u32::from(*value));
            }
            Value::Number(value) => {
                self.signature("t");
                self.align(8);
                self.0.extend(value.to_le_bytes());
            }
            Value::Text(text) => {
                self.signature("s");
                self.text(text);
            }
        }
    }

    /// An array of structures. Its length counts neither itself nor the padding before the first element.
    fn structs<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(8);
        let begin = self.0.len();
        for item in items {
            self.align(8);
            write(self, item);
        }
        let bytes = length(self.0.len() - begin);
        self.0[length_at..length_at + 4].copy_from_slice(&bytes.to_le_bytes());
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A call; its arguments are written in the order of its signature.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    target: Target,
    member: &'static str,
    signature: &'static str,
    body: Writer,
}

impl Call {
    pub(crate) fn new(target: Target, member: &'static str, signature: &'static str) -> Self {
        Self {
            target,
            member,
            signature,
            body: Writer::default(),
        }
    }

    pub(crate) fn member(&self) -> &'static str {
        self.member
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.body.text(text);
        self
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.body.number(u32::from(value));
        self
    }

    /// A number with a sign, of 32 bits.
    pub(crate) fn signed(&mut self, value: i32) -> &mut Self {
        self.body.align(4);
        self.body.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn number(&mut self, value: u32) -> &mut Self {
        self.body.number(value);
        self
    }

    /// `a(sv)`.
    pub(crate) fn properties(&mut self, properties: &[(&'static str, Value)]) -> &mut Self {
        self.body.structs(properties, |writer, (name, value)| {
            writer.text(name);
            writer.value(value);
        });
        self
    }

    /// An array of structures with nothing in it.
    pub(crate) fn no_structs(&mut self) -> &mut Self {
        self.body.structs(&[(); 0], |_, ()| {});
        self
    }

    /// The whole message.
    pub(crate) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut out = Writer(vec![LITTLE_ENDIAN, CALL, 0, VERSION]);
        out.number(length(self.body.0.len()));
        out.number(serial);
        let mut fields = vec![
            (FIELD_PATH, "o", self.target.path),
            (FIELD_INTERFACE, "s", self.target.interface),
            (FIELD_MEMBER, "s", self.member),
            (FIELD_DESTINATION, "s", self.target.destination),
            (FIELD_SIGNATURE, "g", self.signature),
        ];
        fields.retain(|(_, _, text)| !text.is_empty());
        out.structs(&fields, |writer, (field, kind, text)| {
            writer.0.push(*field);
            writer.signature(kind);
            match *kind {
                "g" => writer.signature(text),
                _ => writer.text(text),
            }
        });
        out.align(8);
        out.0.extend(&self.body.0);
        out.0
    }
}

/// A message received: what of it concerns us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Its number among its sender's.
    pub(crate) serial: u32,
    /// The call it answers.
    pub(crate) reply_to: Option<u32>,
    /// A signal's name.
    pub(crate) member: Option<String>,
    /// What the signal is one of.
    pub(crate) interface: Option<String>,
    /// Who sent it, by the name the bus gave him: nobody can pretend to be another.
    pub(crate) sender: Option<String>,
    /// Present on a refusal.
    pub(crate) error: Option<String>,
    /// How many descriptors come with it.
    pub(crate) descriptors: u32,
    signature: String,
    is_big: bool,
    body: Vec<u8>,
}

impl Received {
    /// The texts among the body's first values, in order.
    pub(crate) fn texts(&self) -> Vec<String> {
        let texts = self.values().into_iter().filter_map(|value| match value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => None,
        });
        texts.collect()
    }

    /// The body's first values, in order; ends at the first of another type. A descriptor is its place among the message's.
    pub(crate) fn values(&self) -> Vec<Value> {
        let mut reader = Reader::new(&self.body, self.is_big);
        let mut out = Vec::new();
        for kind in self.signature.bytes() {
            match reader.value(kind) {
                Some(value) => out.push(value),
                None => break,
            }
        }
        out
    }
}

/// Bytes being read; every step is `None` past the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether numbers begin with their highest byte.
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], is_big: bool) -> Self {
        Self { bytes, at: 0, is_big }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = self.take(4)?.try_into().ok()?;
        Some(match self.is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    /// A value of this type; what a variant holds in its place.
    fn value(&mut self, kind: u8) -> Option<Value> {
        let kind = match kind {
            b'v' => match self.signature()?.as_bytes() {
                [inner] if *inner != b'v' => *inner,
                _ => return None,
            },
            kind => kind,
        };
        match kind {
            b'b' => self.number().map(|number| Value::Bool(number != 0)),
            b'u' | b'h' => self.number().map(|number| Value::Number(number.into())),
            b't' => {
                self.align(8);
                let bytes = self.take(8)?.try_into().ok()?;
                Some(Value::Number(match self.is_big {
                    true => u64::from_be_bytes(bytes),
                    false => u64::from_le_bytes(bytes),
                }))
            }
            b's' | b'o' => self.text().map(Value::Text),
            _ => None,
        }
    }

    /// Passes over a value of the first type of a signature; the rest of the signature.
    fn skip<'s>(&mut self, signature: &'s [u8], depth: usize) -> Option<&'s [u8]> {
        let (kind, rest) = signature.split_first()?;
        let depth = depth.checked_sub(1)?;
        match kind {
            b'y' => drop(self.byte()?),
            b'n' | b'q' => {
                self.align(2);
                self.take(2)?;
            }
            b'b' | b'i' | b'u' | b'h' => drop(self.number()?),
            b'x' | b't' | b'd' => {
                self.align(8);
                self.take(8)?;
            }
            b's' | b'o' => drop(self.text()?),
            b'g' => drop(self.signature()?),
            b'v' => {
                let inner = self.signature()?;
                self.skip(inner.as_bytes(), depth)?;
            }
            b'a' => {
                let bytes = usize::try_from(self.number()?).ok()?;
                let first = rest.first()?;
                // The padding before the first item is not counted.
                self.align(if b"xtd({".contains(first) { 8 } else { 1 });
                self.take(bytes)?;
                return after(rest, depth);
            }
            b'(' | b'{' => {
                self.align(8);
                let mut rest = rest;
                while !matches!(rest.first()?, b')' | b'}') {
                    rest = self.skip(rest, depth)?;
                }
                return rest.get(1..);
            }
            _ => return None,
        }
        Some(rest)
    }

    fn text_of(&mut self, count: usize) -> Option<String> {
        let text = String::from_utf8(self.take(count)?.to_vec()).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    fn text(&mut self) -> Option<String> {
        let count = usize::try_from(self.number()?).ok()?;
        self.text_of(count)
    }

    fn signature(&mut self) -> Option<String> {
        let count = usize::from(self.byte()?);
        self.text_of(count)
    }
}

/// What of a signature comes after its first type.
fn after(signature: &[u8], depth: usize) -> Option<&[u8]> {
    let (kind, rest) = signature.split_first()?;
    let depth = depth.checked_sub(1)?;
    match kind {
        b'a' => after(rest, depth),
        b'(' | b'{' => {
            let mut rest = rest;
            while !matches!(rest.first()?, b')' | b'}') {
                rest = after(rest, depth)?;
            }
            rest.get(1..)
        }
        _ => Some(rest),
    }
}

/// The length of the message that begins with these bytes: `Ok(None)` while they are too few to tell.
pub(crate) fn message_length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    match announced_length(bytes)? {
        Some(total) if total > MESSAGE_BYTES_MAX => Err("a message of more than 1 MiB"),
        total => Ok(total),
    }
}

/// The same where messages of any length may come.
pub(crate) fn announced_length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let Some(fixed) = bytes.get(..FIXED_BYTES) else {
        return Ok(None);
    };
    if ![LITTLE_ENDIAN, BIG_ENDIAN].contains(&fixed[0]) || fixed[3] != VERSION {
        return Err("not D-Bus of version 1");
    }
    let number = |at: usize| {
        let bytes = [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
        match fixed[0] {
            BIG_ENDIAN => u32::from_be_bytes(bytes) as usize,
            _ => u32::from_le_bytes(bytes) as usize,
        }
    };
    let total = number(12)
        .saturating_add(FIXED_BYTES)
        .next_multiple_of(8)
        .saturating_add(number(4));
    match total > ANY_BYTES_MAX {
        true => Err("a message of more than 128 MiB"),
        false => Ok(Some(total)),
    }
}

/// Reads one whole message.
pub(crate) fn decode(bytes: &[u8]) -> Option<Received> {
    let is_big = *bytes.first()? == BIG_ENDIAN;
    let mut reader = Reader::new(bytes, is_big);
    reader.take(4)?;
    let body_bytes = usize::try_from(reader.number()?).ok()?;
    let serial = reader.number()?;
    let fields_end = usize::try_from(reader.number()?).ok()?.checked_add(FIXED_BYTES)?;
    let mut received = Received {
        serial,
        is_big,
        ..Received::default()
    };
    while reader.at < fields_end {
        reader.align(8);
        let field = reader.byte()?;
        let kind = reader.signature()?;
        match (kind.as_str(), field) {
            ("u", FIELD_REPLY_SERIAL) => received.reply_to = Some(reader.number()?),
            ("u", FIELD_UNIX_FDS) => received.descriptors = reader.number()?,
            ("g", FIELD_SIGNATURE) => received.signature = reader.signature()?,
            ("s", FIELD_MEMBER) => received.member = Some(reader.text()?),
            ("s", FIELD_INTERFACE) => received.interface = Some(reader.text()?),
            ("s", FIELD_ERROR_NAME) => received.error = Some(reader.text()?),
            ("s", FIELD_SENDER) => received.sender = Some(reader.text()?),
            // What later versions add is to be passed over.
            _ => drop(reader.skip(kind.as_bytes(), DEPTH_MAX)?),
        }
    }
    reader.align(8);
    received.body = reader.take(body_bytes)?.to_vec();
    Some(received)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
