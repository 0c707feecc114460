//! Tags, varints and lengths: the fields of a message in order. Knows no message.

pub(super) fn first(bytes: &[u8], wanted: u32) -> Result<&[u8], String> {
    for field in Wire(bytes) {
        if let (number, Item::Bytes(content)) = field?
            && number == wanted
        {
            return Ok(content);
        }
    }
    Ok(&[])
}

pub(super) fn number(bytes: &[u8], wanted: u32) -> Result<i64, String> {
    for field in Wire(bytes) {
        if let (number, Item::Number(value)) = field?
            && number == wanted
        {
            return Ok(value.cast_signed());
        }
    }
    Ok(0)
}

pub(super) fn utf8(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|error| error.to_string())
}

/// One field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
pub(super) struct Wire<'a>(pub(super) &'a [u8]);

pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
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
