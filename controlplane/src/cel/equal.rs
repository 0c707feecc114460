//! Which values are the same, and which is the greater. Pure.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::Value;

use super::budget::{Budget, Failure};
use super::types::{DeclKind, Listed, escaped};
use super::value::{DECODED, Val};
use crate::tree;

/// Bytes of JSON that are compared for a step of work.
const COMPARED: u64 = 8;
/// Bytes of a member's identity beside its text, as it is kept.
const IDENTITY_BYTES: usize = 64;

impl<'a> Val<'a> {
    /// Whether two values are the same; numbers are, whatever their types.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        budget.work(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => {
                budget.work(one.len().min(other.len()) as u64 / 16)?;
                **one == **other
            }
            (Self::Bytes(one), Self::Bytes(other)) => {
                budget.work(one.len().min(other.len()) as u64 / DECODED)?;
                one == other
            }
            (Self::Duration(one), Self::Duration(other)) => one == other,
            (Self::Time(one), Self::Time(other)) => one == other,
            (Self::Type(one), Self::Type(other)) | (Self::Format(one), Self::Format(other)) => one == other,
            (Self::Quantity(one), Self::Quantity(other)) => one.cmp(other).is_eq(),
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Cidr(one, length), Self::Cidr(other, other_length)) => one == other && length == other_length,
            (Self::Url(one), Self::Url(other)) => one == other,
            (Self::Semver(one), Self::Semver(other)) => one.cmp_precedence(other).is_eq(),
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(one)), Self::Optional(Some(other))) => one.equals(other, budget)?,
            (one, other) if one.is_number() && other.is_number() => one.compare(other) == Some(Ordering::Equal),
            (one, other) => match (one.type_name(), other.type_name()) {
                ("list", "list") => one.equal_lists(other, budget)?,
                ("map", "map") => one.equal_maps(other, budget)?,
                ("object", "object") => one.equal_objects(other, budget)?,
                _ => false,
            },
        })
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Uint(_) | Self::Double(_))
    }

    /// How the members of a list are told apart.
    pub(super) fn listed(&self) -> &'a Listed {
        match self {
            Self::List(_, listed) => listed,
            Self::Data(_, decl) => match &decl.kind {
                DeclKind::List(_, listed) => listed,
                _ => &Listed::Atomic,
            },
            _ => &Listed::Atomic,
        }
    }

    /// What tells a member of a list from others; `None` if nothing does.
    pub(super) fn identity(&self, listed: &Listed, budget: &mut Budget) -> Result<Option<String>, Failure> {
        let text = match (listed, self) {
            (Listed::Keys(keys), Self::Data(Value::Object(map), _)) => {
                let bytes: usize = keys
                    .iter()
                    .filter_map(|key| map.get(&**key))
                    .map(|value| tree::size(value, usize::MAX))
                    .sum();
                budget.make(bytes.saturating_add(keys.len().saturating_mul(IDENTITY_BYTES)))?;
                let values = keys.iter().map(|key| map.get(&**key).unwrap_or(&Value::Null));
                serde_json::to_string(&values.collect::<Vec<_>>()).ok()
            }
            (Listed::Set, Self::Data(value, _)) => {
                budget.make(tree::size(value, usize::MAX))?;
                serde_json::to_string(value).ok()
            }
            (Listed::Set, Self::Text(text)) => {
                budget.make(text.len())?;
                Some(format!("s{}", &**text))
            }
            (Listed::Set, Self::Bytes(bytes)) => {
                budget.make(bytes.len().saturating_mul(2))?;
                Some(format!("x{}", hex::encode(bytes)))
            }
            (Listed::Set, Self::Bool(is)) => Some(is.to_string()),
            (Listed::Set, Self::Int(number)) => Some(format!("i{number}")),
            (Listed::Set, Self::Uint(number)) => Some(format!("u{number}")),
            (Listed::Set, Self::Double(number)) => Some(format!("d{number}")),
            (Listed::Set, Self::Duration(nanoseconds)) => Some(format!("n{nanoseconds}")),
            (Listed::Set, Self::Time(time)) => Some(format!("t{time:?}")),
            _ => None,
        };
        budget.make(IDENTITY_BYTES)?;
        Ok(text)
    }

    /// The left side says how its members are told apart, whatever the right is: with an identity they have no place.
    fn equal_lists(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let listed = self.listed();
        if let Listed::Atomic = listed {
            for at in 0..self.len() {
                if let (Some(one), Some(other)) = (self.member(at), other.member(at))
                    && !one?.equals(&other?, budget)?
                {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let mut places = HashMap::new();
        for (at, member) in self.members().enumerate() {
            if let Some(identity) = member?.identity(listed, budget)? {
                places.insert(identity, at);
            }
        }
        for member in other.members() {
            let member = member?;
            let place = member
                .identity(listed, budget)?
                .and_then(|identity| places.get(&identity));
            let Some(own) = place.and_then(|at| self.member(*at)) else {
                return Ok(false);
            };
            if matches!(listed, Listed::Keys(_)) && !own?.equals(&member, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_maps(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        if self.len() != other.len() {
            return Ok(false);
        }
        budget.work(self.len() as u64)?;
        for key in self.keys() {
            let (one, other) = (self.get(&key, budget)?, other.get(&key, budget)?);
            match (one, other) {
                (Some(one), Some(other)) if one.equals(&other, budget)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// All that they have counts, also what expressions cannot name: that is compared as it is.
    fn equal_objects(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        let (Self::Data(Value::Object(one), decl), Self::Data(Value::Object(other), other_decl)) = (self, other) else {
            return Ok(false);
        };
        let DeclKind::Object(fields) = &decl.kind else {
            return Ok(false);
        };
        if !std::ptr::eq(*decl, *other_decl) || one.len() != other.len() {
            return Ok(false);
        }
        for (name, value) in one {
            budget.work(1)?;
            let Some(other) = other.get(name) else {
                return Ok(false);
            };
            let field = escaped(name).and_then(|escaped| fields.get(escaped.as_str()));
            let is_same = match field.filter(|(real, _)| **real == **name) {
                Some((_, field)) if !value.is_null() && !other.is_null() => {
                    let (one, other) = (Self::read(value, field, budget)?, Self::read(other, field, budget)?);
                    one.equals(&other, budget)?
                }
                _ => {
                    budget.work(tree::size(value, usize::MAX) as u64 / COMPARED)?;
                    value == other
                }
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Which of two is greater, where there is an order.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) | (Self::Duration(one), Self::Duration(other)) => Some(one.cmp(other)),
            (Self::Uint(one), Self::Uint(other)) => Some(one.cmp(other)),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Int(one), Self::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Uint(one), Self::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Int(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            (Self::Double(one), Self::Int(other)) => one.partial_cmp(&(*other as f64)),
            (Self::Uint(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            (Self::Double(one), Self::Uint(other)) => one.partial_cmp(&(*other as f64)),
            (Self::Text(one), Self::Text(other)) => Some((**one).cmp(&**other)),
            (Self::Bytes(one), Self::Bytes(other)) => Some(one.cmp(other)),
            (Self::Time(one), Self::Time(other)) => Some(one.cmp(other)),
            (Self::Quantity(one), Self::Quantity(other)) => Some(one.cmp(other)),
            (Self::Semver(one), Self::Semver(other)) => Some(one.cmp_precedence(other)),
            _ => None,
        }
    }
}
