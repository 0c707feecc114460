//! The part of JSONPath that columns of custom resources use: fields, indices, `*`, and members chosen by the value of a field. Pure.

use serde_json::Value;

/// Steps a path may have.
const STEPS_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Box<str>),
    Index(i64),
    Each,
    /// Members of a list whose field has the value.
    Where(Box<str>, Value),
}

/// A path, such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Box<[Step]>);

/// Why a text is no path this knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    /// It does not begin with a dot or a bracket.
    #[error("must start with a dot")]
    Start,
    /// A bracket is not closed, or what is in it is not known.
    #[error("unrecognized: {0}")]
    Bracket(String),
    /// A field has no name.
    #[error("a field has no name")]
    NoName,
    /// Too many steps.
    #[error("more than {STEPS_MAX} steps")]
    TooLong,
}

impl JsonPath {
    /// Reads a path.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        let mut rest = text.trim();
        rest = rest
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(rest);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() == STEPS_MAX {
                return Err(PathError::TooLong);
            }
            // A dot before a bracket says nothing.
            let (step, after) = match rest.strip_prefix('.') {
                Some(after) if after.starts_with('[') => bracket(after)?,
                Some(after) => field(after)?,
                None if rest.starts_with('[') => bracket(rest)?,
                None => return Err(PathError::Start),
            };
            steps.push(step);
            rest = after;
        }
        Ok(Self(steps.into()))
    }

    /// The values at the path, in order.
    pub(crate) fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.from(value)).collect();
        }
        found
    }
}

fn field(text: &str) -> Result<(Step, &str), PathError> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => {
                end = at;
                break;
            }
            other => name.push(other),
        }
    }
    let step = match name.as_str() {
        "" => return Err(PathError::NoName),
        "*" => Step::Each,
        name => Step::Field(name.into()),
    };
    Ok((step, text.get(end..).unwrap_or_default()))
}

fn bracket(text: &str) -> Result<(Step, &str), PathError> {
    let unknown = || PathError::Bracket(text.to_owned());
    let is_filter = text.starts_with("[?(");
    let close = if is_filter { ")]" } else { "]" };
    let end = text.find(close).ok_or_else(unknown)?;
    let rest = text.get(end + close.len()..).unwrap_or_default();
    let inner = text.get(if is_filter { 3 } else { 1 }..end).unwrap_or_default().trim();
    let quoted = |text: &str| {
        let text = text.trim();
        let is_quoted = |quote: char| text.len() > 1 && text.starts_with(quote) && text.ends_with(quote);
        (is_quoted('\'') || is_quoted('"')).then(|| text[1..text.len() - 1].to_owned())
    };
    if is_filter {
        let (left, right) = inner.split_once("==").ok_or_else(unknown)?;
        let name = left.trim().strip_prefix("@.").ok_or_else(unknown)?;
        let value = match quoted(right) {
            Some(text) => Value::from(text),
            None => serde_json::from_str(right.trim()).map_err(|_| unknown())?,
        };
        return Ok((Step::Where(name.into(), value), rest));
    }
    if inner == "*" {
        return Ok((Step::Each, rest));
    }
    if let Some(name) = quoted(inner) {
        return Ok((Step::Field(name.into()), rest));
    }
    let index = inner.parse().map_err(|_| unknown())?;
    Ok((Step::Index(index), rest))
}

impl Step {
    fn from<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let members = || value.as_array().map_or(&[][..], Vec::as_slice);
        match self {
            Self::Field(name) => value.get(&**name).into_iter().collect(),
            Self::Index(index) => {
                let at = match usize::try_from(*index) {
                    Ok(at) => Some(at),
                    Err(_) => usize::try_from(-index)
                        .ok()
                        .and_then(|back| members().len().checked_sub(back)),
                };
                at.and_then(|at| members().get(at)).into_iter().collect()
            }
            Self::Each => match value {
                Value::Object(map) => map.values().collect(),
                _ => members().iter().collect(),
            },
            Self::Where(name, wanted) => {
                let is_wanted = |member: &&Value| member.get(&**name) == Some(wanted);
                members().iter().filter(is_wanted).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_columns_find_what_they_name() {
        let object = json!({"spec": {"a.b": 1, "list": [10, 20, 30]}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        for (path, found) in [
            (".spec.list[0]", json!([10])),
            (".spec.list[-1]", json!([30])),
            (".spec.list[*]", json!([10, 20, 30])),
            (".spec['a.b']", json!([1])),
            (".spec.a\\.b", json!([1])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Other')].status", json!(["False"])),
            (".status.none.deeper", json!([])),
            ("{.spec.list[1]}", json!([20])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).unwrap().find(&object)), found, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_told() {
        assert_eq!(JsonPath::parse("spec"), Err(PathError::Start));
        assert_eq!(JsonPath::parse(".a..b"), Err(PathError::NoName));
        for text in [".a[", ".a[x]", ".a[?(@.b>1)]", ".a[?(b==1)]", ".a[1:2]"] {
            assert!(matches!(JsonPath::parse(text), Err(PathError::Bracket(_))), "{text}");
        }
        assert_eq!(JsonPath::parse(&".a".repeat(33)), Err(PathError::TooLong));
    }
}
