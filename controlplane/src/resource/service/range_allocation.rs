//! Which node ports are taken, as upstream's API servers keep it beside the Services: a `RangeAllocation` with one bit a port. Pure.

use super::node_port::NodePorts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How stored bytes in protobuf begin (upstream's `k8s.io/apimachinery` serializer).
const PROTOBUF: &[u8] = b"k8s\0";

/// The ports that stored bytes say are taken: in JSON, or in protobuf as upstream writes them.
///
/// # Errors
/// What is wrong with them.
pub fn taken_ports(stored: &[u8]) -> Result<BTreeSet<u16>, String> {
    let (range, data) = match stored.strip_prefix(PROTOBUF) {
        Some(unknown) => of_protobuf(unknown).ok_or("it is no RangeAllocation in protobuf")?,
        None => of_json(stored)?,
    };
    let first = match range.as_str() {
        "" => NodePorts::default().first,
        range => first_of(range).ok_or_else(|| format!("its range is {range:?}"))?,
    };
    Ok(bits(first, &data))
}

/// Tells one write of the record from another of the same ports.
const WRITE: &str = "skiff/write";

/// The bytes to store: of upstream's range, and of as much more as the ports need (`--service-node-port-range`). No two writes may have the
/// same `nonce`: a writer that lost its answer knows its own write by it.
pub fn range_allocation(taken: &BTreeSet<u16>, nonce: &str) -> Vec<u8> {
    let NodePorts { first, last } = NodePorts::default();
    let first = taken.first().map_or(first, |port| first.min(*port));
    let last = taken.last().map_or(last, |port| last.max(*port));
    let stored = json!({
        "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {"annotations": {WRITE: nonce}},
        "range": format!("{first}-{last}"), "data": STANDARD.encode(bytes(first, taken)),
    });
    stored.to_string().into_bytes()
}

fn of_json(stored: &[u8]) -> Result<(String, Vec<u8>), String> {
    let read: Value = serde_json::from_slice(stored).map_err(|error| error.to_string())?;
    let text = |key: &str| read[key].as_str().unwrap_or_default();
    let data = STANDARD
        .decode(text("data"))
        .map_err(|error| format!("data: {error}"))?;
    Ok((text("range").to_owned(), data))
}

/// Of upstream's envelope (`runtime.Unknown`, whose second field is the object): fields 2 and 3 of a RangeAllocation.
fn of_protobuf(unknown: &[u8]) -> Option<(String, Vec<u8>)> {
    let object = field(unknown, 2)?.unwrap_or_default();
    let range = field(object, 2)?.unwrap_or_default();
    let data = field(object, 3)?.unwrap_or_default();
    Some((String::from_utf8(range.to_vec()).ok()?, data.to_vec()))
}

/// The last field of that number, which is bytes; the inner `None` if there is none, the outer if the message cannot be read.
fn field(mut message: &[u8], number: u64) -> Option<Option<&[u8]>> {
    let mut found = None;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                if tag >> 3 == number {
                    found = Some(bytes);
                }
            }
            _ => return None,
        }
    }
    Some(found)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Of `30000-32767` or `30000+2767`.
fn first_of(range: &str) -> Option<u16> {
    range.split(['-', '+']).next()?.parse().ok()
}

/// A number's bytes, the most significant first (Go's `big.Int`): bit `i` is the port `first + i`.
fn bits(first: u16, data: &[u8]) -> BTreeSet<u16> {
    let by_weight = data.iter().rev().zip((first..=u16::MAX).step_by(8));
    by_weight
        .flat_map(|(byte, port)| {
            (0..8u16)
                .filter(move |bit| byte >> bit & 1 == 1)
                .map(move |bit| port.checked_add(bit))
        })
        .flatten()
        .collect()
}

fn bytes(first: u16, taken: &BTreeSet<u16>) -> Vec<u8> {
    let mut data = Vec::new();
    for offset in taken.iter().filter_map(|port| port.checked_sub(first)) {
        let place = usize::from(offset / 8);
        if data.len() <= place {
            data.resize(place + 1, 0u8);
        }
        data[place] |= 1 << (offset % 8);
    }
    data.reverse();
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_is_upstreams_form() {
        for ports in [
            vec![],
            vec![30_000],
            vec![30_001, 30_008, 32_767],
            vec![1, 443, 30_001, 65_535],
        ] {
            let ports = BTreeSet::from_iter(ports);
            assert_eq!(taken_ports(&range_allocation(&ports, "n")), Ok(ports));
        }
        // Ports 30000 and 30009: 0b10_0000_0001, the most significant byte first.
        let ports = BTreeSet::from([30_000, 30_009]);
        let stored: Value = serde_json::from_slice(&range_allocation(&ports, "n")).unwrap();
        assert_ne!(range_allocation(&ports, "n"), range_allocation(&ports, "m"));
        assert_eq!(stored["range"], "30000-32767");
        assert_eq!(STANDARD.decode(stored["data"].as_str().unwrap()).unwrap(), [2, 1]);
    }

    #[test]
    fn protobuf_as_upstream_writes_it_is_read() {
        let object = [b"\x0a\x00\x12\x0b30000-32767\x1a\x02".as_slice(), &[2, 1]].concat();
        let mut stored = b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x12".to_vec();
        stored.push(u8::try_from(object.len()).unwrap());
        stored.extend(&object);
        stored.extend(b"\x1a\x00\x22\x00");
        assert_eq!(taken_ports(&stored), Ok(BTreeSet::from([30_000, 30_009])));
        for length in 5..stored.len() - 6 {
            assert!(taken_ports(&stored[..length]).is_err() || length < 30, "{length}");
        }
    }

    #[test]
    fn what_is_something_else_is_refused() {
        for stored in [
            &b""[..],
            b"[",
            b"k8s\0\xff",
            br#"{"data": "?"}"#,
            br#"{"range": "x-y"}"#,
        ] {
            assert!(taken_ports(stored).is_err(), "{stored:?}");
        }
        // No data is nothing taken, as upstream's empty bitmap.
        assert_eq!(taken_ports(b"{}"), Ok(BTreeSet::new()));
        // What lies beyond all ports is none.
        let beyond = json!({"range": "65530-65535", "data": STANDARD.encode([0xff, 0xff])}).to_string();
        assert_eq!(taken_ports(beyond.as_bytes()).unwrap().len(), 6);
    }
}
