//! Answers become HTTP replies: encoding, shape, compression, headers. Never decides what the answer is.

mod layout;
mod messages;
mod renamed;
mod stream;

use super::flow::ByteReservation;
use super::negotiate::{Encoding, Output, PROTOBUF, Shape, not_acceptable};
use super::status::ApiError;
use super::{Body, body, printer};
use crate::resource::Kind;
use crate::resource::structural::Structural;
use crate::schema::protobuf::{self, Message};
use crate::store::Revision;
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::{EncodedForms, Stored};
use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY, WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use layout::Layout;
use messages::Messages;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::Arc;
use stream::Pieces;
pub(super) use stream::STORED_BYTES;

/// Bodies above this are compressed for clients that accept it (contract §1).
const GZIP_ABOVE_BYTES: usize = 131_072;
/// Replies of one object that has no more bytes than this are bounded by their requests' places alone.
pub(super) const UNCOUNTED_BYTES: usize = 16 << 10;
/// All warnings of a reply together stay below this many characters, or each is cut to [`WARNING_CUT`].
const WARNINGS_LIMIT: usize = 4096;
const WARNING_CUT: usize = 256;

/// What a verb answers.
pub(super) enum Answer {
    /// A complete object (with kind and apiVersion) that no revision stands behind: a Status, a Scale, a dry run.
    Object { code: u16, object: Value },
    /// An object of a revision; `revision` is what the reply shows (a deletion's own).
    Stored {
        code: u16,
        stored: Arc<Stored>,
        revision: Revision,
    },
    /// A page of a collection.
    List(Page),
    /// A finished reply: changes as they come, after a state of so many bytes.
    Watch {
        response: Response<Body>,
        initial_bytes: usize,
    },
}

/// A page of a collection.
pub(super) struct Page {
    pub(super) items: Vec<Arc<Stored>>,
    pub(super) revision: Revision,
    pub(super) next: Option<String>,
    pub(super) remaining: Option<usize>,
    /// What the reply may hold, where it has been granted already.
    pub(super) room: Option<ByteReservation>,
}

impl Answer {
    /// A watch that begins with nothing.
    pub(super) fn watch(response: Response<Body>) -> Self {
        Self::Watch {
            response,
            initial_bytes: 0,
        }
    }

    /// What sending the answer holds for as long as the client takes, in bytes; 0 where that is not worth counting.
    pub(super) fn cost(&self, output: Output) -> usize {
        match self {
            Self::List(page) => page.cost(output),
            Self::Watch { initial_bytes, .. } => *initial_bytes,
            Self::Stored { stored, .. } if stored.size() > UNCOUNTED_BYTES => written_bytes(stored, output),
            _ => 0,
        }
    }
}

/// What objects hold that may be written over while they are being sent, in bytes.
pub(super) fn held_bytes<'a>(objects: impl Iterator<Item = &'a Arc<Stored>>) -> usize {
    objects.map(|stored| stored.size() + 64).sum()
}

/// What the text of an object takes at most.
fn written_bytes(stored: &Stored, output: Output) -> usize {
    text_bytes(stored.size(), output)
}

/// What the text of a value takes at most, which has so many bytes without blanks.
fn text_bytes(compact: usize, output: Output) -> usize {
    match Layout::of(output) {
        None if output.encoding == Encoding::Protobuf => compact * protobuf::GROWTH_MAX,
        None => compact,
        Some(_) => Layout::most_bytes(compact),
    }
}

/// What a reply may take, granted before what it tells of is done: afterwards there is nothing to refuse any more.
#[derive(Default)]
pub(super) struct Allowance {
    pub(super) room: Option<ByteReservation>,
    /// A text that blanks would make longer than this has none; `None` for no bound.
    pub(super) most_bytes: Option<usize>,
}

impl Allowance {
    /// What the reply takes that has about so many bytes without blanks: to be asked for, or 0 where that is not worth counting.
    pub(super) fn wanted(compact: usize, output: Output) -> usize {
        match compact > UNCOUNTED_BYTES {
            true => text_bytes(compact, output),
            false => 0,
        }
    }

    /// As wanted and granted.
    pub(super) fn granted(wanted: usize, room: Option<ByteReservation>) -> Self {
        Self {
            room,
            most_bytes: Some(wanted.max(Layout::most_bytes(UNCOUNTED_BYTES))),
        }
    }
}

impl Page {
    /// The objects' stored bytes, which is about what their JSON takes.
    fn stored_bytes(&self) -> usize {
        held_bytes(self.items.iter())
    }

    /// Its objects, which may be written over meanwhile, and the text of one of them.
    pub(super) fn cost(&self, output: Output) -> usize {
        let texts = self.items.iter().map(|stored| written_bytes(stored, output));
        self.stored_bytes() + texts.max().unwrap_or_default()
    }

    fn metadata(&self) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), json!(self.revision.to_string()));
        if let Some(next) = &self.next {
            metadata.insert("continue".to_owned(), json!(next));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        Value::Object(metadata)
    }
}

/// What is known about the request when its answer is written.
pub(super) struct Context<'a> {
    pub(super) kind: &'a Arc<Kind>,
    pub(super) forms: &'a Arc<EncodedForms>,
    pub(super) output: Output,
    pub(super) headers: &'a HeaderMap,
    pub(super) include: &'a str,
    pub(super) now: Timestamp,
    pub(super) warnings: &'a [String],
    /// As [`Allowance::most_bytes`].
    pub(super) most_bytes: Option<usize>,
}

/// Whether objects and lists of the kind have a protobuf form. What came in has none, whatever it is named.
pub(super) fn has_protobuf(kind: &Kind) -> bool {
    let has = |name: &str| name.is_empty() || Message::of(&kind.api_version, name).is_some();
    kind.structural.is_none() && has(&kind.kind) && has(&kind.list_kind)
}

/// Writes an answer down.
pub(super) fn write(answer: Answer, context: &Context<'_>) -> Result<Response<Body>, ApiError> {
    let (code, bytes) = match answer {
        Answer::Watch { mut response, .. } => {
            add_warnings(response.headers_mut(), context.warnings);
            return Ok(response);
        }
        Answer::Object { code, object } => {
            let object = object_shape(context.kind.presented(object), context)?;
            (code, encode_within(&object, context.output, context.most_bytes)?)
        }
        Answer::Stored { code, stored, revision } => (code, one(&stored, revision, context)?),
        Answer::List(page) => {
            let mut response = list(page, context)?;
            add_warnings(response.headers_mut(), context.warnings);
            return Ok(response);
        }
    };
    let mut response = finish(code, bytes, context.output.encoding, context.headers);
    add_warnings(response.headers_mut(), context.warnings);
    Ok(response)
}

/// An error, as its Status.
pub(super) fn error(error: &ApiError, status: &Value, output: Output) -> Response<Body> {
    let bytes = encode(status, output).map(|bytes| (bytes, output.encoding));
    let (bytes, encoding) = bytes.unwrap_or_else(|_| (Bytes::from(status.to_string()), Encoding::Json));
    let mut response = finish(error.code, bytes, encoding, &HeaderMap::new());
    if let Some(seconds) = error.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    add_warnings(response.headers_mut(), &error.warnings);
    response
}

/// The plain-text 404 of a path that does not exist.
pub(super) fn not_found_page() -> Response<Body> {
    let mut response = Response::new(body::full("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let nosniff = HeaderName::from_static("x-content-type-options");
    headers.insert(nosniff, HeaderValue::from_static("nosniff"));
    response
}

/// A reply of finished bytes in the encoding, compressed if that pays and `headers` (the request's) allow it.
pub(super) fn finish(code: u16, bytes: Bytes, encoding: Encoding, headers: &HeaderMap) -> Response<Body> {
    let compressed = accepts_gzip(headers).then(|| compress(&bytes)).flatten();
    let is_compressed = compressed.is_some();
    respond(code, body::full(compressed.unwrap_or(bytes)), encoding, is_compressed)
}

fn respond(code: u16, body: Body, encoding: Encoding, is_compressed: bool) -> Response<Body> {
    let content_type = match encoding {
        Encoding::Json => "application/json",
        Encoding::Yaml => "application/yaml",
        Encoding::Protobuf => PROTOBUF,
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Whether the client can take compressed bytes.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let value = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    value.is_some_and(|text| {
        text.split(',')
            .any(|part| part.split(';').next().is_some_and(|p| p.trim() == "gzip"))
    })
}

fn compress(bytes: &Bytes) -> Option<Bytes> {
    if bytes.len() <= GZIP_ABOVE_BYTES {
        return None;
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// A value as bytes in the negotiated encoding.
///
/// # Errors
/// 406 if it has no such form.
pub(super) fn encode(value: &Value, output: Output) -> Result<Bytes, ApiError> {
    encode_within(value, output, None)
}

/// As [`encode`], without blanks where these would make it longer than `most` bytes.
///
/// # Errors
/// As [`encode`].
pub(super) fn encode_within(value: &Value, output: Output, most: Option<usize>) -> Result<Bytes, ApiError> {
    if output.encoding == Encoding::Protobuf {
        return protobuf::of_object(value).map(Bytes::from).ok_or_else(not_acceptable);
    }
    if let Some(layout) = Layout::of(output) {
        return Ok(Bytes::from(layout.document(value, most.unwrap_or(usize::MAX))));
    }
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    Ok(Bytes::from(bytes))
}

/// The object in the form of a kind, with `revision` as its resourceVersion.
pub(super) fn whole(stored: &Stored, revision: Revision, kind: &Arc<Kind>) -> Value {
    let mut value = stored.owned_tree();
    let storage = kind.storage();
    value["kind"] = json!(&*storage.kind);
    value["apiVersion"] = json!(&*storage.api_version);
    value["metadata"]["resourceVersion"] = json!(revision.to_string());
    if let Some(schema) = &storage.structural {
        schema.refresh(&mut value);
    }
    kind.presented(value)
}

/// The object's JSON in the form of a kind, in two parts: most often head and shared rest (see [`Stored::json`]).
pub(super) fn parts(stored: &Stored, revision: Revision, kind: &Arc<Kind>) -> (Bytes, Bytes) {
    let Some(conversion) = &kind.conversion else {
        return json_of(stored, revision, kind);
    };
    let names = conversion.converter.renamed();
    let text = names.and_then(|names| renamed::text(json_of(stored, revision, kind), names));
    let text = text.unwrap_or_else(|| whole(stored, revision, kind).to_string());
    (Bytes::from(text), Bytes::new())
}

/// An object in the form that is stored, in two parts, with kind and apiVersion.
pub(super) fn json_of(stored: &Stored, revision: Revision, kind: &Kind) -> (Bytes, Bytes) {
    let names = Some((&*kind.api_version, &*kind.kind));
    match &kind.structural {
        None => stored.json(names, revision),
        Some(schema) => stored.json_in_form(kind.defined.form, |stored| remade(stored, schema), names, revision),
    }
}

/// The bytes of an object that was stored under another schema as this one has them; `None` if they are the same.
fn remade(stored: &Stored, schema: &Structural) -> Option<Bytes> {
    if schema.is_settled(&stored.raw()) {
        return None;
    }
    let mut object = stored.owned_tree();
    schema.refresh(&mut object);
    // What the bytes say of the form they are stored in is no reader's.
    let of = stored.type_meta().unwrap_or(TypeMeta::new("", ""));
    let bytes = canonical(&of, &object);
    (bytes != stored.raw()).then(|| Bytes::from(bytes))
}

/// The object's bare message in the form of a kind; shared with every other reader.
pub(super) fn message(stored: &Arc<Stored>, revision: Revision, kind: &Arc<Kind>, forms: &EncodedForms) -> Bytes {
    forms.of(stored, (&kind.api_version, revision), || {
        made_message(stored, revision, kind)
    })
}

fn made_message(stored: &Stored, revision: Revision, kind: &Arc<Kind>) -> Bytes {
    let message = Message::of(&kind.api_version, &kind.kind);
    debug_assert!(message.is_some(), "negotiated only for kinds that have this form");
    let made = message.map(|message| message.bytes(&whole(stored, revision, kind)));
    // Kept, so without the room it grew in.
    Bytes::from(made.unwrap_or_default().into_boxed_slice())
}

fn one(stored: &Arc<Stored>, revision: Revision, context: &Context<'_>) -> Result<Bytes, ApiError> {
    if context.output.encoding == Encoding::Protobuf && context.output.shape == Shape::Whole {
        let kind = context.kind;
        let raw = message(stored, revision, kind, context.forms);
        let (head, tail) = protobuf::envelope(&kind.api_version, &kind.kind, raw.len());
        return Ok(Bytes::from([head.as_slice(), &raw, tail].concat()));
    }
    if Layout::of(context.output).is_none() && context.output.shape == Shape::Whole {
        let (head, rest) = parts(stored, revision, context.kind);
        let mut bytes = BytesMut::with_capacity(head.len() + rest.len() + 1);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&rest);
        bytes.extend_from_slice(b"\n");
        return Ok(bytes.freeze());
    }
    let value = whole(stored, revision, context.kind);
    encode_within(&object_shape(value, context)?, context.output, context.most_bytes)
}

/// A single object in the negotiated shape; a Status stays what it is.
fn object_shape(value: Value, context: &Context<'_>) -> Result<Value, ApiError> {
    if value["kind"] == "Status" {
        return Ok(value);
    }
    match context.output.shape {
        Shape::Whole => Ok(value),
        Shape::Partial(version) => Ok(partial(&value, version)),
        Shape::PartialList(_) => Err(not_acceptable()),
        Shape::Table(version) => {
            let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            render(&[Arc::new(value)], version, metadata, context)
        }
    }
}

/// The metadata of an object alone.
pub(super) fn partial(value: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": value["metadata"],
    })
}

fn render(objects: &[Arc<Value>], version: &str, metadata: Value, context: &Context<'_>) -> Result<Value, ApiError> {
    table_of(context.kind, objects, version, context.include, context.now, metadata)
}

/// Objects as a Table.
pub(super) fn table_of(
    kind: &Kind,
    objects: &[Arc<Value>],
    version: &str,
    include: &str,
    now: Timestamp,
    metadata: Value,
) -> Result<Value, ApiError> {
    let mut value = printer::render(kind, objects, included(include)?, now, metadata);
    value["apiVersion"] = json!(format!("meta.k8s.io/{version}"));
    Ok(value)
}

/// Whether a list can be written in the form asked for.
///
/// # Errors
/// 406 for the form of a single object, 400 for an unknown `includeObject`.
pub(super) fn check_list_form(output: Output, include: &str) -> Result<(), ApiError> {
    match output.shape {
        Shape::Partial(_) => Err(not_acceptable()),
        Shape::Table(_) => included(include).map(|_| ()),
        Shape::Whole | Shape::PartialList(_) => Ok(()),
    }
}

fn included(include: &str) -> Result<printer::IncludeObject, ApiError> {
    let unknown = || ApiError::bad_request(format!("unrecognized includeObject value: \"{include}\""));
    printer::IncludeObject::parse(include).ok_or_else(unknown)
}

fn list(page: Page, context: &Context<'_>) -> Result<Response<Body>, ApiError> {
    check_list_form(context.output, context.include)?;
    let encoding = context.output.encoding;
    let bytes = page.stored_bytes();
    let is_long = bytes > stream::PIECE_BYTES;
    let is_compressed = bytes > GZIP_ABOVE_BYTES && accepts_gzip(context.headers);
    let mut next: Box<dyn FnMut() -> Option<Bytes> + Send> = match encoding {
        Encoding::Protobuf => {
            let mut messages = Messages::new(page, context, is_compressed)?;
            Box::new(move || messages.next())
        }
        Encoding::Json | Encoding::Yaml => {
            let mut pieces = Pieces::new(page, context, is_compressed)?;
            Box::new(move || pieces.next())
        }
    };
    if is_long {
        let pieces = body::stream(stream::in_turns(next));
        return Ok(respond(200, pieces, encoding, is_compressed));
    }
    let mut all = BytesMut::new();
    while let Some(piece) = next() {
        all.extend_from_slice(&piece);
    }
    Ok(finish(200, all.freeze(), encoding, context.headers))
}

pub(super) fn add_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let total: usize = warnings.iter().map(|text| text.chars().count()).sum();
    let mut seen: Vec<&String> = Vec::new();
    let mut written = 0;
    for text in warnings {
        if written >= WARNINGS_LIMIT {
            // Upstream says no more either.
            break;
        }
        if seen.contains(&text) {
            continue;
        }
        seen.push(text);
        let shown: String = match total > WARNINGS_LIMIT {
            true => text.chars().take(WARNING_CUT).collect(),
            false => text.clone(),
        };
        written += shown.chars().count();
        let quoted = shown.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{clean}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}
