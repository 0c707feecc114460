//! Values of expressions. Objects and lists of what is judged are looked at where they are, never copied. Pure.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use jiff::Timestamp;
use proto::api::quantity::Quantity;
use serde_json::Value;

use super::eval::{Budget, Failure, Outcome};
use super::library::net::Url;
use super::library::time;
use super::types::{Decl, DeclKind, Listed, T, escaped};
use crate::tree;

/// Characters of base64 that are decoded for a step of work.
const DECODED: u64 = 8;
/// Bytes that are counted for one.
const COUNTED: u64 = 64;
/// Bytes of JSON that are compared for one.
const COMPARED: u64 = 8;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Rc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Time(Timestamp),
    Type(&'static str),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>),
    /// An object or a list of what is judged.
    Data(&'a Value, &'a Decl),
    Optional(Option<Rc<Val<'a>>>),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Url(Rc<Url>),
    Semver(Rc<semver::Version>),
    /// A named format.
    Format(&'static str),
}

/// A string of what is judged or of the expression, or one that was made.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Ref(&'a str),
    Own(Rc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Ref(text) => text,
            Self::Own(text) => text,
        }
    }
}

pub(super) fn error<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Error(why.into()))
}

/// The text that an argument is.
pub(super) fn text<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v str, Failure> {
    match args.get(at) {
        Some(Val::Text(text)) => Ok(text),
        _ => error("no such overload"),
    }
}

impl<'a> Val<'a> {
    /// A string that was made.
    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Own(text.into()))
    }

    pub(super) fn list(members: Vec<Self>) -> Self {
        Self::List(Rc::new(members))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// A value of what is judged, as it is declared.
    pub(super) fn of(value: &'a Value, decl: &'a Decl) -> Outcome<'a> {
        let invalid = |wanted: &str| error(format!("invalid data, expected {wanted}"));
        Ok(match (&decl.kind, value) {
            (_, Value::Null) if decl.nullable => Self::Null,
            (_, Value::Null) => return error("invalid data, got null for schema with nullable=false"),
            (DeclKind::IntOrString, Value::String(text)) => Self::Text(Text::Ref(text)),
            (DeclKind::IntOrString | DeclKind::Int, Value::Number(number)) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Int(number.as_f64().unwrap_or_default() as i64),
            },
            (DeclKind::Bool, Value::Bool(is)) => Self::Bool(*is),
            (DeclKind::Double, Value::Number(number)) => Self::Double(number.as_f64().unwrap_or_default()),
            (DeclKind::Text, Value::String(text)) => Self::Text(Text::Ref(text)),
            (DeclKind::Bytes, Value::String(text)) => {
                use base64::Engine;
                match base64::engine::general_purpose::STANDARD.decode(text) {
                    Ok(bytes) => Self::Bytes(bytes.into()),
                    Err(_) => return error(format!("invalid byte format: {text}")),
                }
            }
            (DeclKind::Duration, Value::String(text)) => match time::duration(text) {
                Some(nanoseconds) => Self::Duration(nanoseconds),
                None => return error(format!("invalid duration {text}")),
            },
            (DeclKind::Time, Value::String(text)) => match time::timestamp(text) {
                Some(time) => Self::Time(time),
                None => return error(format!("invalid date-time {text}")),
            },
            (DeclKind::List(..), Value::Array(_)) | (DeclKind::Map(_) | DeclKind::Object(_), Value::Object(_)) => {
                Self::Data(value, decl)
            }
            (DeclKind::List(..), _) => return invalid("a list"),
            (DeclKind::Map(_), _) => return invalid("a map"),
            (DeclKind::Object(_), _) => return invalid("an object"),
            _ => return invalid("a value of another type"),
        })
    }

    /// The work of looking at a value as it is declared, beyond one step.
    pub(super) fn load_of(value: &Value, decl: &Decl) -> u64 {
        match (&decl.kind, value) {
            (DeclKind::Bytes, Value::String(text)) => text.len() as u64 / DECODED,
            _ => 0,
        }
    }

    /// The work of a function's looking at it, beyond one step: texts are counted, members that are bytes decoded.
    pub(super) fn load(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64 / COUNTED,
            Self::Bytes(bytes) => bytes.len() as u64 / COUNTED,
            Self::Data(Value::Array(members), decl) => match decl.member() {
                Some(inner) if matches!(inner.kind, DeclKind::Bytes) => {
                    members.iter().map(|member| 1 + Self::load_of(member, inner)).sum()
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    /// As [`Val::of`], as work.
    pub(super) fn read(value: &'a Value, decl: &'a Decl, budget: &mut Budget) -> Outcome<'a> {
        budget.work(Self::load_of(value, decl))?;
        Self::of(value, decl)
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Data(_, decl) => match decl.kind {
                DeclKind::List(..) => "list",
                DeclKind::Map(_) => "map",
                _ => "object",
            },
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// Whether a function that takes the pattern takes this; what is in lists and maps is not looked at.
    pub(super) fn has(&self, pattern: &T) -> bool {
        match pattern {
            T::Dyn | T::A | T::B => true,
            T::Bool => matches!(self, Self::Bool(_)),
            T::Int => matches!(self, Self::Int(_)),
            T::Uint => matches!(self, Self::Uint(_)),
            T::Double => matches!(self, Self::Double(_)),
            T::Text => matches!(self, Self::Text(_)),
            T::Bytes => matches!(self, Self::Bytes(_)),
            T::Duration => matches!(self, Self::Duration(_)),
            T::Time => matches!(self, Self::Time(_)),
            T::Type => matches!(self, Self::Type(_)),
            T::Optional(_) => matches!(self, Self::Optional(_)),
            T::Named(name) => self.type_name() == *name,
            T::List(_) => self.type_name() == "list",
            T::Map(..) => self.type_name() == "map",
        }
    }

    /// Characters or members, as costs count them: 1 of all that has none.
    pub(super) fn size(&self) -> u64 {
        (match self {
            Self::Text(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(members) => members.len(),
            Self::Map(pairs) => pairs.len(),
            Self::Data(Value::Array(members), _) => members.len(),
            Self::Data(Value::Object(map), decl) if matches!(decl.kind, DeclKind::Map(_)) => map.len(),
            Self::Optional(Some(inner)) => return inner.size(),
            Self::Ip(address) => match address {
                IpAddr::V4(_) => 4,
                IpAddr::V6(_) => 16,
            },
            Self::Cidr(address, _) => return Self::Ip(*address).size(),
            _ => 1,
        }) as u64
    }

    /// How many members a list or a map has.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.size()).unwrap_or(usize::MAX)
    }

    /// A member of a list.
    pub(super) fn member(&self, at: usize) -> Option<Outcome<'a>> {
        match self {
            Self::List(members) => members.get(at).map(|member| Ok(member.clone())),
            Self::Data(Value::Array(members), decl) => Some(Self::of(members.get(at)?, decl.member()?)),
            _ => None,
        }
    }

    /// The members of a list.
    pub(super) fn members(&self) -> impl Iterator<Item = Outcome<'a>> + use<'_, 'a> {
        (0..self.len()).filter_map(|at| self.member(at))
    }

    /// The keys of a map.
    pub(super) fn keys(&self) -> Vec<Self> {
        match self {
            Self::Map(pairs) => pairs.iter().map(|(key, _)| key.clone()).collect(),
            Self::Data(Value::Object(map), _) => map.keys().map(|key| Self::Text(Text::Ref(key))).collect(),
            _ => Vec::new(),
        }
    }

    /// The value of a key or a field, if it is there.
    pub(super) fn get(&self, key: &Self, budget: &mut Budget) -> Result<Option<Self>, Failure> {
        match (self, key) {
            (Self::Map(pairs), key) => {
                for (own, value) in pairs.iter() {
                    if own.equals(key, budget)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            (Self::Data(Value::Object(map), decl), Self::Text(name)) => match &decl.kind {
                DeclKind::Map(values) => map
                    .get(&**name)
                    .map(|value| Self::read(value, values, budget))
                    .transpose(),
                // A field that is null is as one that is not there.
                DeclKind::Object(fields) => fields
                    .get(&**name)
                    .and_then(|(real, field)| Some((map.get(&**real).filter(|value| !value.is_null())?, field)))
                    .map(|(value, field)| Self::read(value, field, budget))
                    .transpose(),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

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

    fn listed(&self) -> &'a Listed {
        match self {
            Self::Data(_, decl) => match &decl.kind {
                DeclKind::List(_, listed) => listed,
                _ => &Listed::Atomic,
            },
            _ => &Listed::Atomic,
        }
    }

    fn equal_lists(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match (self.listed(), self, other) {
            (Listed::Set | Listed::Keys(_), Self::Data(Value::Array(one), _), Self::Data(Value::Array(other), _)) => {
                // Members have an identity, and no place.
                budget.work((one.len() as u64).saturating_mul(other.len() as u64))?;
                Ok(one.iter().all(|member| other.contains(member)))
            }
            _ => {
                for at in 0..self.len() {
                    if let (Some(one), Some(other)) = (self.member(at), other.member(at))
                        && !one?.equals(&other?, budget)?
                    {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn equal_maps(&self, other: &Self, budget: &mut Budget) -> Result<bool, Failure> {
        if self.len() != other.len() {
            return Ok(false);
        }
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
