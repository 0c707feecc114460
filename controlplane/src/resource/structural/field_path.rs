//! Paths that a definition names fields by, such as `.spec.a['b.c']`: what of the schema they stand for. Messages are upstream's. Pure.

use super::Structural;

/// Steps a path may have.
const STEPS_MAX: usize = 100;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldStep {
    /// A property.
    Field(Box<str>),
    /// A key of a map.
    Key(Box<str>),
}

/// Splits a path as upstream does: `.`, `[` and `]` stand alone, quoted text is one.
fn next(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    let end = match first {
        '.' | '[' | ']' => 1,
        '\'' => {
            let mut before = '\'';
            let close = text.char_indices().skip(1).find(|(_, character)| {
                let is_close = *character == '\'' && before != '\\';
                before = *character;
                is_close
            });
            close.map_or(text.len(), |(at, _)| at + 1)
        }
        _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
    };
    Some((text.get(..end)?, text.get(end..)?))
}

fn unescaped(quoted: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('\\') => out.push('\\'),
            Some('\'') => out.push('\''),
            Some('"') => out.push('"'),
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => return Err("invalid string literal: invalid escape char \\".to_owned()),
        }
    }
    Ok(out)
}

impl Structural {
    /// The steps of a path, and the schema of the field it names; `['x']` only where `brackets` are allowed.
    ///
    /// # Errors
    /// Why it names none.
    pub(crate) fn at_path(&self, path: &str, brackets: bool) -> Result<(Vec<FieldStep>, &Self), String> {
        let end = || "unexpected end of JSON path".to_owned();
        let (mut schema, mut rest, mut steps) = (self, path, Vec::new());
        while let Some((token, after)) = next(rest) {
            let (name, left) = match token {
                "[" if !brackets => return Err("array notation is not allowed".to_owned()),
                "[" => {
                    let (quoted, after) = next(after).ok_or_else(end)?;
                    let inner = quoted.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
                    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                    let name = unescaped(inner)?;
                    let (close, after) = next(after).ok_or_else(end)?;
                    if close != "]" {
                        return Err(format!("expected ] but got {close}"));
                    }
                    (name, after)
                }
                "." => {
                    let (name, after) = next(after).ok_or_else(end)?;
                    (name.to_owned(), after)
                }
                other => return Err(format!("expected [ or . but got: {other}")),
            };
            if steps.len() == STEPS_MAX {
                return Err("does not refer to a valid field".to_owned());
            }
            let unknown = || "does not refer to a valid field".to_owned();
            if !schema.properties.is_empty() {
                schema = schema.properties.get(name.as_str()).ok_or_else(unknown)?;
                steps.push(FieldStep::Field(name.into()));
            } else {
                schema = schema.values.as_deref().ok_or_else(unknown)?;
                steps.push(FieldStep::Key(name.into()));
            }
            rest = left;
        }
        Ok((steps, schema))
    }

    /// Whether a field selector may ask for such a field.
    pub(crate) fn is_selectable(&self) -> bool {
        matches!(
            self.form,
            super::Form::String | super::Form::Boolean | super::Form::Integer
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::schema;
    use serde_json::json;

    #[test]
    fn paths_name_fields_of_the_schema() {
        let schema = schema(json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}, "m": {"type": "object",
                "additionalProperties": {"type": "integer"}}}}}}));
        for (path, found) in [
            (".a['b.c']", true),
            (".a.m.x", true),
            (".a.m['it\\'s']", true),
            (".a", false),
        ] {
            assert_eq!(schema.at_path(path, true).unwrap().1.is_selectable(), found, "{path}");
        }
        for (path, why) in [
            (".x", "does not refer to a valid field"),
            (".a.m.x.y", "does not refer to a valid field"),
            ("a", "expected [ or . but got: a"),
            (".a.", "unexpected end of JSON path"),
            (".a[b]", "expected single quoted string but got b"),
            (".a['b.c'", "unexpected end of JSON path"),
        ] {
            assert_eq!(schema.at_path(path, true).unwrap_err(), why, "{path}");
        }
        assert_eq!(
            schema.at_path(".a['m']", false).unwrap_err(),
            "array notation is not allowed"
        );
    }
}
