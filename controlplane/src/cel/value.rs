//! Values of expressions. Objects and lists of what is judged are looked at where they are, never copied. Pure.

use std::net::IpAddr;
use std::rc::Rc;

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::budget::{Budget, Failure, Outcome};
use super::library::time::{self, Moment};
use super::library::url::Url;
use super::types::{Decl, DeclKind, Listed, T};

/// Characters of base64 that are decoded for a step of work.
pub(super) const DECODED: u64 = 8;
/// Bytes that are counted for one.
const COUNTED: u64 = 64;

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
    Time(Moment),
    Type(&'static str),
    /// With how its members are told apart.
    List(Rc<Vec<Val<'a>>>, &'a Listed),
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

/// As much of a text as messages show: one that is made in vain for each of many members must cost little.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(1 << 10)).unwrap_or(text)
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
        Self::listing(members, &Listed::Atomic)
    }

    /// A list whose members are told apart so.
    pub(super) fn listing(members: Vec<Self>, listed: &'a Listed) -> Self {
        Self::List(Rc::new(members), listed)
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
                    Err(_) => return error(format!("invalid byte format: {}", cut(text))),
                }
            }
            (DeclKind::Duration, Value::String(text)) => match time::lenient_duration(text) {
                Some(nanoseconds) => Self::Duration(nanoseconds),
                None => return error(format!("invalid duration {}", cut(text))),
            },
            (DeclKind::Time, Value::String(text)) => match time::declared(text) {
                Some(time) => Self::Time(time),
                None => return error(format!("invalid date-time {}", cut(text))),
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

    /// As [`Val::of`], as work; bytes are made.
    pub(super) fn read(value: &'a Value, decl: &'a Decl, budget: &mut Budget) -> Outcome<'a> {
        budget.make(usize::try_from(Self::load_of(value, decl).saturating_mul(DECODED)).unwrap_or(usize::MAX))?;
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
            Self::List(..) => "list",
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
            Self::List(members, _) => members.len(),
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
            Self::List(members, _) => members.get(at).map(|member| Ok(member.clone())),
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
}
