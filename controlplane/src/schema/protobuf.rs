//! Reading the protobuf form of a request body into the same tree JSON gives, driven by `data/protobuf-fields.tsv`. Pure.
//!
//! kubectl's typed commands and Go clients send it by default. Only reading is here: replies are JSON, which every client that
//! sends protobuf accepts beside it.

use super::{Schema, TypeId, schema};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::OnceLock;

/// How an object in this form begins (control-plane contract §1).
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting read.
const DEPTH_MAX: usize = 100;
/// The table: message, field, number, label, type.
const FIELDS: &str = include_str!("../../data/protobuf-fields.tsv");

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";

/// Fields that are always on the wire and mean "not given" when zero or false. (Others may be pointers, whose zero is a value.)
const ZERO_IS_ABSENT: &[&str] = &[
    "currentNumberScheduled",
    "failed",
    "failureThreshold",
    "generation",
    "healthCheckNodePort",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "nodePort",
    "observedGeneration",
    "paused",
    "periodSeconds",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "successThreshold",
    "timeoutSeconds",
    "tty",
    "unschedulable",
    "globalDefault",
    "count",
];

/// What a field's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Bytes,
    Bool,
    Int,
    Double,
    Message(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    One,
    Many,
    /// A map from text to the form.
    Keyed,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    label: Label,
    form: Form,
}

type Messages = HashMap<&'static str, HashMap<u32, Field>>;

fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let mut messages: Messages = HashMap::new();
        for line in FIELDS.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&'static str> = line.split('\t').collect();
            if let [message, name, number, label, form] = columns.as_slice()
                && let Ok(number) = number.parse()
            {
                let inner = form
                    .strip_prefix("map<string, ")
                    .and_then(|rest| rest.strip_suffix('>'));
                let field = Field {
                    name,
                    label: match (*label, inner) {
                        (_, Some(_)) => Label::Keyed,
                        ("repeated", None) => Label::Many,
                        _ => Label::One,
                    },
                    form: form_of(message, inner.unwrap_or(form)),
                };
                messages.entry(message).or_default().insert(number, field);
            }
        }
        // Messages without fields have no line of their own.
        let referred: Vec<&'static str> = messages
            .values()
            .flat_map(HashMap::values)
            .filter_map(|field| match field.form {
                Form::Message(name) => Some(name),
                _ => None,
            })
            .collect();
        for name in referred {
            messages.entry(name).or_default();
        }
        messages
    })
}

/// The form a type's name in the table stands for; names without a package are of the message's own.
fn form_of(message: &str, form: &'static str) -> Form {
    let form = form.trim_start_matches('.');
    match form {
        "string" => Form::Text,
        "bytes" => Form::Bytes,
        "bool" => Form::Bool,
        "int32" | "int64" => Form::Int,
        "double" => Form::Double,
        name if name.starts_with("k8s.io.") => Form::Message(name),
        name => {
            let package = message.rsplit_once('.').map_or("", |(package, _)| package);
            // Once per line of the table, at first use.
            Form::Message(Box::leak(format!("{package}.{name}").into_boxed_str()))
        }
    }
}

/// The message of an apiVersion and kind.
fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = match group {
        "" => format!("k8s.io.api.core.{version}"),
        "apiextensions.k8s.io" => format!("k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.{version}"),
        "apiregistration.k8s.io" => format!("k8s.io.kube_aggregator.pkg.apis.apiregistration.{version}"),
        group => format!("k8s.io.api.{}.{version}", group.split('.').next().unwrap_or(group)),
    };
    let known = |name: &str| messages().get_key_value(name).map(|(name, _)| *name);
    // Options and Status travel under any group's version.
    known(&format!("{package}.{kind}")).or_else(|| known(&format!("{META}.{kind}")))
}

/// Reads an enveloped object into the tree its JSON form has, kind and apiVersion included.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &body[..0]);
    for field in Wire(body) {
        match field? {
            (1, Item::Bytes(meta)) => {
                for field in Wire(meta) {
                    match field? {
                        (1, Item::Bytes(text)) => api_version = utf8(text)?,
                        (2, Item::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Item::Bytes(bytes)) => raw = bytes,
            (3, Item::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(format!(
                    "unknown content encoding {:?}",
                    String::from_utf8_lossy(encoding)
                ));
            }
            _ => {}
        }
    }
    let message = message_of(&api_version, &kind)
        .ok_or_else(|| format!("no kind \"{kind}\" is registered for version \"{api_version}\""))?;
    let mut value = Reader { schema: schema() }.message(message, raw, 0)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::String(api_version));
        map.insert("kind".to_owned(), Value::String(kind));
    }
    Ok(value)
}

struct Reader {
    schema: &'static Schema,
}

impl Reader {
    fn message(&self, name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("the message is nested too deeply".to_owned());
        }
        if let Some(value) = special(name, bytes)? {
            return Ok(value);
        }
        let fields = messages().get(name).ok_or_else(|| format!("unknown message {name}"))?;
        let own_type = self.schema.type_of(&definition(name));
        let mut map = Map::new();
        for item in Wire(bytes) {
            let (number, item) = item?;
            let Some(field) = fields.get(&number) else { continue };
            self.field(field, item, own_type, &mut map, depth)?;
        }
        Ok(Value::Object(map))
    }

    fn field(
        &self,
        field: &Field,
        item: Item<'_>,
        own_type: Option<TypeId>,
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        match field.label {
            Label::One => {
                let value = self.value(field.form, item, depth)?;
                let is_inlined = own_type.is_some_and(|id| self.schema.get(id).field(field.name).is_none());
                match value {
                    // Members that JSON inlines are messages of which the JSON type knows nothing.
                    Value::Object(inner) if is_inlined => map.extend(inner),
                    value if is_absent(field.name, &value) => {}
                    value => {
                        map.insert(field.name.to_owned(), value);
                    }
                }
            }
            Label::Many => {
                let list = map.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                let Some(list) = list.as_array_mut() else { return Ok(()) };
                match (field.form, item) {
                    (Form::Int, Item::Bytes(packed)) => {
                        let mut rest = packed;
                        while !rest.is_empty() {
                            list.push(Value::from(varint(&mut rest)?.cast_signed()));
                        }
                    }
                    (form, item) => list.push(self.value(form, item, depth)?),
                }
            }
            Label::Keyed => {
                let Item::Bytes(entry) = item else {
                    return Err(format!("{} is not a map", field.name));
                };
                let (mut key, mut value) = (String::new(), None);
                for part in Wire(entry) {
                    match part? {
                        (1, Item::Bytes(text)) => key = utf8(text)?,
                        (2, item) => value = Some(self.value(field.form, item, depth)?),
                        _ => {}
                    }
                }
                let value = match value {
                    Some(value) => value,
                    None => self.value(field.form, Item::Bytes(&[]), depth)?,
                };
                let entries = map.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Some(entries) = entries.as_object_mut() {
                    entries.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn value(&self, form: Form, item: Item<'_>, depth: usize) -> Result<Value, String> {
        Ok(match (form, item) {
            (Form::Text, Item::Bytes(text)) => Value::String(utf8(text)?),
            (Form::Bytes, Item::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
            (Form::Bool, Item::Number(number)) => Value::Bool(number != 0),
            (Form::Int, Item::Number(number)) => Value::from(number.cast_signed()),
            (Form::Double, Item::Fixed(bits)) => {
                let number = serde_json::Number::from_f64(f64::from_bits(bits));
                Value::Number(number.ok_or("not a finite number")?)
            }
            (Form::Message(name), Item::Bytes(bytes)) => self.message(name, bytes, depth + 1)?,
            _ => return Err("a field has the wrong wire type".to_owned()),
        })
    }
}

/// The JSON definition of a message: the same path, as OpenAPI writes it.
fn definition(message: &str) -> String {
    let path = message.strip_prefix("k8s.io.").unwrap_or(message);
    format!("io.k8s.{}", path.replace('_', "-"))
}

fn is_absent(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(false) => ZERO_IS_ABSENT.contains(&name),
        Value::Number(number) => number.as_i64() == Some(0) && ZERO_IS_ABSENT.contains(&name),
        _ => false,
    }
}

/// Messages whose JSON form is not an object of their fields.
fn special(name: &str, bytes: &[u8]) -> Result<Option<Value>, String> {
    let (package, short) = name.rsplit_once('.').unwrap_or(("", name));
    let value = match (package, short) {
        (META, "Time") => time(bytes, false)?,
        (META, "MicroTime") => time(bytes, true)?,
        (META, "FieldsV1") | ("k8s.io.apimachinery.pkg.runtime", "RawExtension") => raw(first(bytes, 1)?)?,
        (META, "Duration") => Value::String(go_duration(number(bytes, 1)?)),
        (META, "Verbs") | (_, "ExtraValue") => {
            let mut items = Vec::new();
            for field in Wire(bytes) {
                if let (1, Item::Bytes(text)) = field? {
                    items.push(Value::String(utf8(text)?));
                }
            }
            Value::Array(items)
        }
        ("k8s.io.apimachinery.pkg.api.resource", "Quantity") => Value::String(utf8(first(bytes, 1)?)?),
        ("k8s.io.apimachinery.pkg.util.intstr", "IntOrString") => match number(bytes, 1)? {
            0 => Value::from(number(bytes, 2)?),
            _ => Value::String(utf8(first(bytes, 3)?)?),
        },
        (_, "JSON") if name.contains("apiextensions") => raw(first(bytes, 1)?)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// JSON inside, or a whole enveloped object.
fn raw(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if bytes.starts_with(MAGIC) {
        return read(bytes);
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// The zero time is no time.
fn time(bytes: &[u8], micro: bool) -> Result<Value, String> {
    /// Seconds of Go's zero time, which encoders of old sent for "none".
    const GO_ZERO_SECONDS: i64 = -62_135_596_800;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (seconds, nanos) = (number(bytes, 1)?, number(bytes, 2)?);
    if seconds == GO_ZERO_SECONDS {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|error| error.to_string())?;
    let time = Timestamp::new(seconds, if micro { nanos } else { 0 }).map_err(|error| error.to_string())?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Value::String(time.strftime(format).to_string()))
}

/// Nanoseconds as Go prints a duration, in the units that matter.
fn go_duration(nanos: i64) -> String {
    let (sign, total) = if nanos < 0 {
        ("-", nanos.unsigned_abs())
    } else {
        ("", nanos.unsigned_abs())
    };
    let (seconds, fraction) = (total / 1_000_000_000, total % 1_000_000_000);
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match fraction {
        0 => String::new(),
        some => format!(".{some:09}").trim_end_matches('0').to_owned(),
    };
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}{fraction}s"),
        (0, minutes) => format!("{sign}{minutes}m{rest}{fraction}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}{fraction}s"),
    }
}

fn first(bytes: &[u8], wanted: u32) -> Result<&[u8], String> {
    for field in Wire(bytes) {
        if let (number, Item::Bytes(content)) = field?
            && number == wanted
        {
            return Ok(content);
        }
    }
    Ok(&[])
}

fn number(bytes: &[u8], wanted: u32) -> Result<i64, String> {
    for field in Wire(bytes) {
        if let (number, Item::Number(value)) = field?
            && number == wanted
        {
            return Ok(value.cast_signed());
        }
    }
    Ok(0)
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|error| error.to_string())
}

/// One field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
struct Wire<'a>(&'a [u8]);

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or("unexpected end of message")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long".to_owned())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (head, rest) = bytes.split_at_checked(count).ok_or("unexpected end of message")?;
    *bytes = rest;
    Ok(head)
}

impl<'a> Wire<'a> {
    fn step(&mut self) -> Result<(u32, Item<'a>), String> {
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).map_err(|error| error.to_string())?;
        let item = match key & 7 {
            0 => Item::Number(varint(&mut self.0)?),
            1 => Item::Fixed(
                take(&mut self.0, 8)?
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
            ),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|error| error.to_string())?;
                Item::Bytes(take(&mut self.0, length)?)
            }
            5 => Item::Fixed(
                take(&mut self.0, 4)?
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
            ),
            other => return Err(format!("wire type {other} is not known")),
        };
        Ok((number, item))
    }
}

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u32, Item<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.0 = &[];
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn put(out: &mut Vec<u8>, mut number: usize) {
        while number >= 0x80 {
            out.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }

    fn bytes(number: usize, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, number << 3 | 2);
        put(&mut out, content.len());
        out.extend_from_slice(content);
        out
    }

    fn int(number: usize, value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, number << 3);
        put(&mut out, value);
        out
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_config_map_and_a_secret() {
        let entry = [bytes(1, b"key"), bytes(2, b"value")].concat();
        let metadata = [bytes(1, b"c"), bytes(3, b"ns"), bytes(8, &[])].concat();
        let raw = [bytes(1, &metadata), bytes(2, &entry)].concat();
        assert_eq!(
            read(&envelope("v1", "ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}, "data": {"key": "value"}})
        );
        let secret = read(&envelope("v1", "Secret", &bytes(2, &entry))).unwrap();
        assert_eq!(secret["data"]["key"], "dmFsdWU=");
    }

    #[test]
    fn inlined_members_special_forms_and_zeros() {
        // Probe{handler{tcpSocket{port "web"}}, initialDelaySeconds 0}; resources limits cpu.
        let port = [int(1, 1), bytes(3, b"web")].concat();
        let handler = bytes(3, &bytes(1, &port));
        let probe = [bytes(1, &handler), int(2, 0)].concat();
        let limits = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
        let container = [
            bytes(1, b"c"),
            bytes(8, &bytes(1, &limits)),
            bytes(10, &probe),
            int(16, 0),
        ]
        .concat();
        let empty_dir = bytes(2, &bytes(2, &[]));
        let volume = [bytes(1, b"v"), empty_dir].concat();
        let spec = [bytes(1, &volume), bytes(2, &container), int(4, 0), int(11, 0)].concat();
        let pod = read(&envelope("v1", "Pod", &bytes(2, &spec))).unwrap();
        assert_eq!(
            pod["spec"],
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0, "containers": [{"name": "c",
                "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"tcpSocket": {"port": "web"}}}]})
        );
    }

    #[test]
    fn reviews_leases_and_options() {
        let extra = [bytes(1, b"k"), bytes(2, &bytes(1, b"v"))].concat();
        let review = bytes(2, &bytes(5, &extra));
        let review = read(&envelope("authorization.k8s.io/v1", "SubjectAccessReview", &review)).unwrap();
        assert_eq!(review["spec"]["extra"]["k"], json!(["v"]));
        let renewed = [int(1, 5), int(2, 9)].concat();
        let lease = read(&envelope(
            "coordination.k8s.io/v1",
            "Lease",
            &bytes(2, &bytes(4, &renewed)),
        ))
        .unwrap();
        assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:05.000000Z");
        let options = read(&envelope("apps/v1", "DeleteOptions", &int(1, 0))).unwrap();
        assert_eq!(
            options,
            json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
        );
    }

    #[test]
    fn durations_read_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (90_000_000_000, "1m30s"),
            (1_500_000_000, "1.5s"),
            (-3_600_000_000_000, "-1h0m0s"),
        ] {
            assert_eq!(go_duration(nanos), text);
        }
    }

    #[test]
    fn every_type_in_the_table_is_known() {
        for (name, fields) in messages() {
            for field in fields.values() {
                if let Form::Message(inner) = field.form {
                    assert!(messages().contains_key(inner), "{name}: {inner}");
                }
            }
        }
        assert!(read(b"{}").is_err());
        assert!(read(&envelope("v1", "Nothing", &[])).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&envelope("v1", "Pod", &raw));
            let _ = read(&raw);
        }
    }
}
