//! Label selectors (the text grammar and the API type) and field selectors.
//!
//! Source: control-plane contract §2.8. Error texts follow upstream's parser.

use super::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod parse;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The value is one of the given ones (`=`, `==`, `in`).
    In,
    /// The value is absent or none of the given ones (`!=`, `notin`).
    NotIn,
    /// The key is there.
    Exists,
    /// The key is not there.
    DoesNotExist,
    /// The value is an integer above the given one.
    GreaterThan,
    /// The value is an integer below the given one.
    LessThan,
}

/// One comparison of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

/// Why a text or an API selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text does not follow the grammar.
    #[error("{0}")]
    Grammar(String),
    /// A requirement inside is wrong.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// The API type names an operator that does not exist.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// A field selector term lacks an operator.
    #[error("invalid field selector; can't understand '{0}'")]
    Field(String),
}

impl Requirement {
    /// A checked requirement.
    pub fn new(key: &str, operator: Operator, values: impl IntoIterator<Item = String>) -> Result<Self, SelectorError> {
        let fail = |text: String| Err(SelectorError::Requirement(text));
        if let Some(error) = names::qualified_name_error(key) {
            return fail(format!("key: Invalid value: {key:?}: {error}"));
        }
        let values: BTreeSet<String> = values.into_iter().collect();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return fail(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into(),
                );
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return fail("values: Invalid value: values set must be empty for exists and does not exist".into());
            }
            Operator::GreaterThan | Operator::LessThan => {
                let mut one = values.iter();
                let (Some(value), None) = (one.next(), one.next()) else {
                    return fail("values: for 'Gt', 'Lt' operators, exactly one value is required".into());
                };
                if value.parse::<i64>().is_err() {
                    return fail(format!(
                        "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            }
            _ => {}
        }
        for value in &values {
            if let Some(error) = names::label_value_error(value) {
                return fail(format!("values[0][{key}]: Invalid value: {value:?}: {error}"));
            }
        }
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Whether the labels satisfy it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_value(labels.get(&self.key).map(String::as_str))
    }

    /// Whether the value of its key satisfies it.
    fn matches_value(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |test: fn(i64, i64) -> bool| {
            let have = value.and_then(number);
            let want = self.values.first().and_then(|text| number(text));
            matches!((have, want), (Some(have), Some(want)) if test(have, want))
        };
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare(|have, want| have > want),
            Operator::LessThan => compare(|have, want| have < want),
        }
    }

    /// The label key it speaks about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it compares.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with, sorted.
    pub fn values(&self) -> &BTreeSet<String> {
        &self.values
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = || self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let key = &self.key;
        match self.operator {
            Operator::In if self.values.len() == 1 => write!(f, "{key}={}", list()),
            Operator::NotIn if self.values.len() == 1 => write!(f, "{key}!={}", list()),
            Operator::In => write!(f, "{key} in ({})", list()),
            Operator::NotIn => write!(f, "{key} notin ({})", list()),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{}", list()),
            Operator::LessThan => write!(f, "{key}<{}", list()),
        }
    }
}

/// A label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects no object.
    pub fn nothing() -> Self {
        Self {
            requirements: vec![],
            nothing: true,
        }
    }

    /// Parses the text of `labelSelector=`; the empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self {
            requirements: parse::requirements(text)?,
            nothing: false,
        })
    }

    /// From `matchLabels`-like equality pairs, such as a Service's selector.
    pub fn from_pairs(pairs: &BTreeMap<String, String>) -> Self {
        let equal = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: BTreeSet::from([value.clone()]),
        };
        Self {
            requirements: pairs.iter().map(equal).collect(),
            nothing: false,
        }
    }

    /// From the API type; `{}` selects everything.
    pub fn from_api(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::In, [value.clone()])?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// From an optional API type; absent selects nothing (upstream's rule for a nil selector).
    pub fn from_optional(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        selector.map_or_else(|| Ok(Self::nothing()), Self::from_api)
    }

    /// Whether the labels satisfy all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Like [`Selector::matches`], for labels that are kept otherwise; `value_of` gives that of a key.
    pub fn matches_by<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches_value(value_of(&r.key)))
    }

    /// Like [`Selector::matches`]; absent labels are no labels.
    pub fn matches_optional(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        labels.map_or_else(|| self.matches(&BTreeMap::new()), |l| self.matches(l))
    }

    /// Whether it selects every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Field path, such as `spec.nodeName`.
    pub field: String,
    /// The value compared with.
    pub value: String,
    /// Whether the field must equal the value (else: must differ).
    pub equal: bool,
}

/// A field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The terms, in the order written.
    pub requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses `a=b,c!=d`; `\,`, `\=` and `\\` are escapes.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self {
            requirements: parse::fields(text)?,
        })
    }

    /// Whether all terms hold; `value_of` gives a field's value (absent fields count as empty).
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> bool {
        self.requirements
            .iter()
            .all(|r| (value_of(&r.field) == r.value) == r.equal)
    }

    /// The value that the field must equal, if a term says so.
    pub fn required(&self, field: &str) -> Option<&str> {
        let mut terms = self.requirements.iter();
        terms.find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }
}

#[cfg(test)]
mod tests;
