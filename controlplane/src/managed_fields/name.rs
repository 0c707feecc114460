//! Names of field managers: what requests may say, and what a client is called that says nothing. Pure.

use serde_json::Value;

use crate::resource::field_error::{FieldError, FieldErrorKind};

/// Longest name, in bytes.
pub(super) const NAME_MAX_BYTES: usize = 128;

/// Whether Go calls the character printable: letters, marks, numbers, punctuation, symbols and the plain blank.
fn is_printable(character: char) -> bool {
    character == ' ' || !(character.is_control() || character.is_whitespace() || is_format(character))
}

/// Characters that show nothing: joiners, directions, tags, private use, unassigned ends of planes.
fn is_format(character: char) -> bool {
    matches!(
        u32::from(character),
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f
            | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xfffe..=0xffff | 0x110bd | 0xe0001..=0xe007f | 0xf0000..
    )
}

/// What is wrong with a `fieldManager` parameter.
pub fn check_name(name: &str) -> Vec<FieldError> {
    check_name_at("fieldManager", name)
}

/// What is wrong with the name of a manager at a path.
pub(super) fn check_name_at(path: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > NAME_MAX_BYTES {
        let detail = format!("may not be more than {NAME_MAX_BYTES} bytes");
        errors.push(FieldError::new(path, FieldErrorKind::TooLong, Value::Null, detail));
    }
    let unprintable = name.char_indices().filter(|(_, character)| !is_printable(*character));
    for (at, character) in unprintable.take(NAME_MAX_BYTES) {
        let code = u32::from(character);
        errors.push(FieldError::invalid(
            path,
            name,
            format!("invalid character U+{code:04X} (at position {at})"),
        ));
    }
    errors
}

/// The manager of a request: what it says, or else how its program calls itself, up to the version.
pub fn manager_name(said: &str, user_agent: &str) -> String {
    if !said.is_empty() {
        return said.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or("");
    let mut name = String::new();
    for character in program.chars().filter(|character| is_printable(*character)) {
        if name.len() + character.len_utf8() > NAME_MAX_BYTES {
            break;
        }
        name.push(character);
    }
    name
}
