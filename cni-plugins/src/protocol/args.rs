//! `CNI_ARGS`: `K=V;K2=V2`, the oldest of the three ways to pass extra values (contract §1.7).

/// The text is malformed or names keys nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// A piece is not exactly one key and one value.
    #[error("ARGS: invalid pair {0:?}")]
    Pair(String),
    /// A value does not parse.
    #[error("ARGS: error parsing value of pair {pair:?}: {reason}")]
    Value {
        /// The whole piece.
        pair: String,
        /// Why not.
        reason: String,
    },
    /// Keys nobody knows, without `IgnoreUnknown`.
    #[error("ARGS: unknown args [{}]", quoted(.0))]
    Unknown(Vec<String>),
}

/// Reads the pairs and returns the values of `known`, in that order; the last of repeated keys wins.
pub fn parse<const N: usize>(text: &str, known: [&str; N]) -> Result<[Option<String>; N], ArgsError> {
    let mut values = [const { None }; N];
    let mut unknown = Vec::new();
    let mut ignore_unknown = false;
    if text.is_empty() {
        return Ok(values);
    }
    for pair in text.split(';') {
        let mut pieces = pair.split('=');
        let (Some(key), Some(value), None) = (pieces.next(), pieces.next(), pieces.next()) else {
            return Err(ArgsError::Pair(pair.to_owned()));
        };
        if key == "IgnoreUnknown" {
            ignore_unknown = match value.to_ascii_lowercase().as_str() {
                "1" | "true" => true,
                "0" | "false" => false,
                _ => {
                    let reason = format!("boolean unmarshal error: invalid input {value}");
                    return Err(ArgsError::Value {
                        pair: pair.to_owned(),
                        reason,
                    });
                }
            };
        } else if let Some(position) = known.iter().position(|name| *name == key) {
            values[position] = Some(value.to_owned());
        } else {
            unknown.push(pair.to_owned());
        }
    }
    if unknown.is_empty() || ignore_unknown {
        Ok(values)
    } else {
        Err(ArgsError::Unknown(unknown))
    }
}

fn quoted(pairs: &[String]) -> String {
    pairs
        .iter()
        .map(|pair| format!("{pair:?}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_exact_and_unknown_keys_need_permission() {
        assert_eq!(parse("", ["IP"]), Ok([None]));
        assert_eq!(parse("IP=10.0.0.2", ["IP"]), Ok([Some("10.0.0.2".into())]));
        assert_eq!(parse("X=1;IgnoreUnknown=1;IP=a", ["IP"]), Ok([Some("a".into())]));
        assert_eq!(parse("none", ["IP"]), Err(ArgsError::Pair("none".into())));
        assert_eq!(parse("A=B=C", ["IP"]), Err(ArgsError::Pair("A=B=C".into())));
        assert_eq!(
            parse("A=1;B=2", ["IP"]).unwrap_err().to_string(),
            r#"ARGS: unknown args ["A=1" "B=2"]"#
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*") {
            let _ = parse(&text, ["IP", "MAC"]);
        }
    }
}
