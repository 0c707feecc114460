//! The services' side of the wire, for the tests' own systemd and logind.

use super::*;

const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// A message of systemd's with these texts as its body, after a number if there is one.
fn encode(kind: u8, fields: &[(u8, Value)], signature: &str, number: Option<u32>, texts: &[&str]) -> Vec<u8> {
    let mut body = Writer::default();
    if let Some(number) = number {
        body.number(number);
    }
    for text in texts {
        body.text(text);
    }
    let mut all = fields.to_vec();
    all.push((FIELD_SENDER, Value::Text("org.freedesktop.systemd1".into())));
    message(kind, &all, signature, body)
}

/// A message with these fields and this body.
fn message(kind: u8, fields: &[(u8, Value)], signature: &str, body: Writer) -> Vec<u8> {
    let mut out = Writer(vec![LITTLE_ENDIAN, kind, 1, VERSION]);
    out.number(length(body.0.len()));
    out.number(7);
    let mut all = fields.to_vec();
    if !signature.is_empty() {
        all.push((FIELD_SIGNATURE, Value::Text(signature.into())));
    }
    out.structs(&all, |writer, (field, value)| {
        writer.0.push(*field);
        match value {
            Value::Text(text) if *field == FIELD_SIGNATURE => {
                writer.signature("g");
                writer.signature(text);
            }
            Value::Text(text) if *field == FIELD_PATH => {
                writer.signature("o");
                writer.text(text);
            }
            Value::Number(number) => {
                writer.signature("u");
                writer.number(u32::try_from(*number).expect("a serial"));
            }
            other => writer.value(other),
        }
    });
    out.align(8);
    out.0.extend(body.0);
    out.0
}

/// A reply to whoever asked, with one value: of a property in a variant, of a descriptor that comes with it, or none at all.
pub(crate) fn answer(call: u32, to: &str, value: Option<Value>, descriptor: bool) -> Vec<u8> {
    let mut fields = vec![
        (FIELD_REPLY_SERIAL, Value::Number(call.into())),
        (FIELD_DESTINATION, Value::Text(to.into())),
    ];
    let mut body = Writer::default();
    let signature = match (value, descriptor) {
        (_, true) => {
            fields.push((FIELD_UNIX_FDS, Value::Number(1)));
            body.number(0);
            "h"
        }
        (Some(value), false) => {
            body.value(&value);
            "v"
        }
        (None, false) => "",
    };
    message(RETURN, &fields, signature, body)
}

/// A signal to everybody who asked for it, or to one alone.
pub(crate) fn signal(path: &str, interface: &str, member: &str, value: bool, to: Option<&str>) -> Vec<u8> {
    let mut fields = vec![
        (FIELD_PATH, Value::Text(path.into())),
        (FIELD_INTERFACE, Value::Text(interface.into())),
        (FIELD_MEMBER, Value::Text(member.into())),
    ];
    fields.extend(to.map(|to| (FIELD_DESTINATION, Value::Text(to.into()))));
    let mut body = Writer::default();
    body.number(u32::from(value));
    message(SIGNAL, &fields, "b", body)
}

/// A signal to one of more than he takes.
pub(crate) fn large_signal(path: &str, interface: &str, to: &str) -> Vec<u8> {
    let fields = [
        (FIELD_PATH, Value::Text(path.into())),
        (FIELD_INTERFACE, Value::Text(interface.into())),
        (FIELD_MEMBER, Value::Text("Much".into())),
        (FIELD_DESTINATION, Value::Text(to.into())),
    ];
    let mut body = Writer::default();
    body.text(&"x".repeat(2 * MESSAGE_BYTES_MAX));
    message(SIGNAL, &fields, "s", body)
}

/// A signal without a body, in the other byte order.
pub(crate) fn foreign_signal(path: &str, interface: &str, member: &str, to: &str) -> Vec<u8> {
    let mut out = vec![BIG_ENDIAN, SIGNAL, 1, VERSION, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0];
    for (field, kind, text) in [
        (FIELD_PATH, b'o', path),
        (FIELD_INTERFACE, b's', interface),
        (FIELD_MEMBER, b's', member),
        (FIELD_DESTINATION, b's', to),
    ] {
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend([field, 1, kind, 0]);
        out.extend(length(text.len()).to_be_bytes());
        out.extend(text.as_bytes());
        out.push(0);
    }
    let bytes = length(out.len() - FIXED_BYTES).to_be_bytes();
    out[12..16].copy_from_slice(&bytes);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

/// A signal with header fields that nobody knows yet.
pub(crate) fn newer_signal(member: &str) -> Vec<u8> {
    let fields = [
        (42, Value::Bool(true)),
        (43, Value::Number(7)),
        (FIELD_MEMBER, Value::Text(member.into())),
    ];
    message(SIGNAL, &fields, "", Writer::default())
}

/// The reply that names a job.
pub(crate) fn job_started(call: u32, job: &str) -> Vec<u8> {
    encode(
        RETURN,
        &[(FIELD_REPLY_SERIAL, Value::Number(call.into()))],
        "o",
        None,
        &[job],
    )
}

/// A reply without a body.
pub(crate) fn done(call: u32) -> Vec<u8> {
    encode(
        RETURN,
        &[(FIELD_REPLY_SERIAL, Value::Number(call.into()))],
        "",
        None,
        &[],
    )
}

/// A refusal.
pub(crate) fn refused(call: u32, name: &str, message: &str) -> Vec<u8> {
    let fields = [
        (FIELD_REPLY_SERIAL, Value::Number(call.into())),
        (FIELD_ERROR_NAME, Value::Text(name.into())),
    ];
    encode(ERROR, &fields, "s", None, &[message])
}

/// A refusal to whoever asked over a bus.
pub(crate) fn refused_to(call: u32, to: &str, name: &str, text: &str) -> Vec<u8> {
    let fields = [
        (FIELD_REPLY_SERIAL, Value::Number(call.into())),
        (FIELD_DESTINATION, Value::Text(to.into())),
        (FIELD_ERROR_NAME, Value::Text(name.into())),
    ];
    let mut body = Writer::default();
    body.text(text);
    message(ERROR, &fields, "s", body)
}

/// The signal that a job has ended.
pub(crate) fn job_removed(job: &str, unit: &str, result: &str) -> Vec<u8> {
    let fields = [(FIELD_MEMBER, Value::Text("JobRemoved".into()))];
    encode(SIGNAL, &fields, "uoss", Some(3), &[job, unit, result])
}

/// The serial of an encoded message.
pub(crate) fn serial(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[8..12].try_into().expect("four bytes"))
}
