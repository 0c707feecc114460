//! Building and reading netlink messages. Pure: bytes in, bytes out. Numbers are in host byte order unless named otherwise.

use super::wire::{NLA_F_NESTED, NLA_TYPE_MASK};

/// Length of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;

/// A message under construction. Its header gets length and sequence number when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// Starts a message with its fixed part.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut body = Vec::with_capacity(256);
        body.extend_from_slice(fixed);
        pad(&mut body);
        Self { kind, flags, body }
    }

    /// The message's flags.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Appends an attribute.
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        push_attr(&mut self.body, kind, value);
        self
    }

    /// Appends an attribute holding a number.
    pub fn attr_u32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends an attribute holding a text closed by NUL.
    pub fn attr_str(self, kind: u16, value: &str) -> Self {
        self.attr(kind, &text(value))
    }

    /// Appends an attribute that holds what `attributes` collected.
    pub fn nested(mut self, kind: u16, attributes: Attributes) -> Self {
        push_attr(&mut self.body, kind | NLA_F_NESTED, &attributes.0);
        self
    }

    /// Appends already built attributes.
    pub fn attributes(mut self, attributes: &Attributes) -> Self {
        self.body.extend_from_slice(&attributes.0);
        self
    }

    /// The bytes to send, with sequence number `sequence` and `more_flags` added.
    pub fn encode(&self, sequence: u32, more_flags: u16) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.len());
        self.encode_into(&mut bytes, sequence, more_flags);
        bytes
    }

    /// Like [`Self::encode`], behind what is there already.
    pub fn encode_into(&self, bytes: &mut Vec<u8>, sequence: u32, more_flags: u16) {
        bytes.extend_from_slice(&((HEADER_BYTES + self.body.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(self.flags | more_flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&self.body);
    }
}

/// A list of attributes under construction, for nesting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was collected.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Starts with fixed bytes, such as a nested `struct ifinfomsg`.
    pub fn with_fixed(fixed: &[u8]) -> Self {
        let mut body = fixed.to_vec();
        pad(&mut body);
        Self(body)
    }

    /// Appends an attribute.
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        push_attr(&mut self.0, kind, value);
        self
    }

    /// Appends an attribute holding a text closed by NUL.
    pub fn attr_str(self, kind: u16, value: &str) -> Self {
        self.attr(kind, &text(value))
    }

    /// Appends an attribute holding a number in network byte order, as nf_tables wants it.
    pub fn attr_be32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends a nested list.
    pub fn nested(mut self, kind: u16, attributes: Attributes) -> Self {
        push_attr(&mut self.0, kind | NLA_F_NESTED, &attributes.0);
        self
    }
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn push_attr(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    debug_assert!(
        value.len() + 4 <= usize::from(u16::MAX),
        "a netlink attribute holds less than 64 KiB"
    );
    body.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    pad(body);
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Message type.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Sequence number of the request it answers.
    pub sequence: u32,
    /// Everything behind the header.
    pub body: &'a [u8],
}

/// Walks the messages of a datagram; stops at the first that does not fit.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER_BYTES)?;
        let length = read_u32(header, 0)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let message = Received {
            kind: read_u16(header, 4)?,
            flags: read_u16(header, 6)?,
            sequence: read_u32(header, 8)?,
            body,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Walks attributes as (type without flags, value); stops at the first that does not fit.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(read_u16(bytes, 0)?);
        let kind = read_u16(bytes, 2)? & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// A text attribute's value up to its NUL.
pub fn read_text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Two bytes at an offset, host order.
pub fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Four bytes at an offset, host order.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Eight bytes at an offset, network order.
pub fn read_be64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_a_link_request() {
        let message = Message::new(18, 0, &[0; 16])
            .attr_str(3, "eth0")
            .nested(18, Attributes::new().attr_str(1, "veth"));
        assert_eq!(
            message.encode(7, 5),
            [
                &[60, 0, 0, 0, 18, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0][..], // header: length, type, flags, sequence, port
                &[0; 16],                                                // struct ifinfomsg
                &[9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0],       // IFLA_IFNAME, padded
                &[16, 0, 18, 0x80],                                      // IFLA_LINKINFO, nested
                &[9, 0, 1, 0, b'v', b'e', b't', b'h', 0, 0, 0, 0],       // IFLA_INFO_KIND
            ]
            .concat()
        );
    }

    #[test]
    fn what_is_built_reads_back() {
        let bytes = Message::new(1, 0, &[1, 2, 3, 4])
            .attr_u32(5, 99)
            .attr(6, b"xyz")
            .encode(3, 0);
        let message = messages(&bytes).next().unwrap();
        assert_eq!((message.kind, message.sequence), (1, 3));
        assert_eq!(
            attribute(&message.body[4..], 5).and_then(|value| read_u32(value, 0)),
            Some(99)
        );
        assert_eq!(attribute(&message.body[4..], 6), Some(&b"xyz"[..]));
        assert_eq!(attribute(&message.body[4..], 7), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic_or_hang(bytes: Vec<u8>) {
            for message in messages(&bytes) {
                proptest::prop_assert!(attributes(message.body).count() <= bytes.len());
            }
            attributes(&bytes).for_each(|(_, value)| drop(read_text(value)));
        }
    }
}
