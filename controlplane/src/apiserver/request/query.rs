//! Query parameters with the meanings upstream gives their texts. Pure.

use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;

/// A parsed query string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Splits and decodes; never fails (bad escapes stay as they are).
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key, true), decode(value, true))
        });
        Self { pairs: pairs.collect() }
    }

    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut found = self.pairs.iter().filter(|(own, _)| own == key);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Every value of `key`.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.pairs.iter().filter(move |(own, _)| own == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The first value of `key`, or the empty text.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }

    /// Whether `key` is there and neither `false` nor `0` (upstream's conversion).
    pub fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// A number, if `key` is there and not empty.
    ///
    /// # Errors
    /// 400 when the value is not an integer.
    pub fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        match self.text(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
                use std::num::IntErrorKind::{NegOverflow, PosOverflow};
                let problem = match error.kind() {
                    PosOverflow | NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                ApiError::bad_request(format!("{key}: strconv.ParseInt: parsing \"{text}\": {problem}"))
            }),
        }
    }

    /// Whether `dryRun=All` is asked for.
    ///
    /// # Errors
    /// 422 for any other value, also for none: who writes `dryRun=` wants nothing to be written.
    pub fn dry_run(&self, options_kind: &str) -> Result<bool, ApiError> {
        let asked: Vec<&str> = self.all("dryRun").collect();
        match dry_run_problem(&asked) {
            None => Ok(!asked.is_empty()),
            Some(error) => Err(ApiError::invalid("meta.k8s.io", options_kind, "", vec![error])),
        }
    }
}

/// What is wrong with the values of `dryRun`.
pub fn dry_run_problem(asked: &[&str]) -> Option<FieldError> {
    let is_known = asked.iter().all(|value| *value == "All");
    (!is_known).then(|| FieldError::not_supported("dryRun", asked.to_vec(), &["All"]))
}

pub(super) fn decode_path(text: &str) -> String {
    decode(text, false)
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escaped) {
            (_, Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', None) if plus_is_space => out.push(b' '),
            (byte, None) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_flags_read_as_upstream_does() {
        let query = Query::parse("a=x%3Dy+z&watch&w=0&v=False&n=12&m=1x&b=%zz&big=9223372036854775808");
        assert_eq!(query.text("a"), "x=y z");
        assert_eq!(query.text("b"), "%zz");
        assert!(query.flag("watch"));
        assert!(!query.flag("w") && !query.flag("v") && !query.flag("absent"));
        assert_eq!(query.number("n").unwrap(), Some(12));
        assert_eq!(query.number("m").unwrap_err().code, 400);
        let big = query.number("big").unwrap_err();
        assert!(big.message.ends_with("value out of range"), "{}", big.message);
        assert!(!query.dry_run("CreateOptions").unwrap());
        assert!(Query::parse("dryRun=All").dry_run("CreateOptions").unwrap());
        for wrong in ["dryRun=x", "dryRun=", "dryRun=All&dryRun=x"] {
            let error = Query::parse(wrong).dry_run("CreateOptions").unwrap_err();
            assert_eq!(error.code, 422, "{wrong}");
        }
    }
}
