//! Types of expressions, and the types that a schema's values have. Pure.

use super::lexer::RESERVED;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Parts of a type. What is shared counts wherever it stands: types are walked, and a chain of macros doubles one at each link.
const PARTS_MAX: usize = 256;

/// The type of an expression.
#[derive(Clone, Debug)]
pub(super) enum Ty {
    /// Known only when it is evaluated; also what stands for a mistake that has been told.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Time,
    Type,
    List(Arc<Ty>),
    Map(Arc<Ty>, Arc<Ty>),
    Optional(Arc<Ty>),
    Object(Arc<Decl>),
    /// A type of a library, such as a quantity.
    Named(&'static str),
}

/// A pattern of types: what a function takes or gives.
#[derive(Clone, Copy, Debug)]
pub(super) enum T {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Time,
    Type,
    List(&'static T),
    Map(&'static T, &'static T),
    Optional(&'static T),
    Named(&'static str),
    /// Any type, the same wherever the letter stands.
    A,
    B,
}

/// What the letters of a pattern stand for.
#[derive(Default)]
pub(super) struct Letters([Option<Ty>; 2]);

/// A value as a schema declares it.
#[derive(Debug)]
pub(crate) struct Decl {
    pub(crate) kind: DeclKind,
    /// Characters or members it may have.
    pub(crate) max: u64,
    /// Bytes it has at least when it is written as JSON.
    pub(crate) min_bytes: u64,
    /// Whether it may be null.
    pub(crate) nullable: bool,
}

/// What kind of value a declaration is of.
#[derive(Debug)]
pub(crate) enum DeclKind {
    IntOrString,
    Bool,
    Int,
    Double,
    Text,
    Bytes,
    Duration,
    /// A date, or a date with a time.
    Time,
    List(Arc<Decl>, Listed),
    Map(Arc<Decl>),
    /// Fields by the names that expressions have for them, with their own names.
    Object(BTreeMap<Box<str>, (Box<str>, Arc<Decl>)>),
}

/// How the members of a list are told apart, which says when two lists are equal.
#[derive(Debug)]
pub(crate) enum Listed {
    Atomic,
    Set,
    Keys(Box<[Box<str>]>),
}

/// Words that are values or an operator, and fields' names only in disguise, as those that are reserved.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Whether no variable can have the name.
pub(crate) fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || RESERVED.contains(&name)
}

/// The name that expressions have for a field; `None` if they have none.
pub(crate) fn escaped(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let is_letter = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '/' | '-');
    let is_name = name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    let whole = name.replace("__", "__underscores__");
    let whole = whole
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    is_name.then_some(whole)
}

impl Decl {
    /// The type of expressions whose value is declared so.
    pub(super) fn ty(self: &Arc<Self>) -> Ty {
        match &self.kind {
            DeclKind::IntOrString => Ty::Dyn,
            DeclKind::Bool => Ty::Bool,
            DeclKind::Int => Ty::Int,
            DeclKind::Double => Ty::Double,
            DeclKind::Text => Ty::Text,
            DeclKind::Bytes => Ty::Bytes,
            DeclKind::Duration => Ty::Duration,
            DeclKind::Time => Ty::Time,
            DeclKind::List(items, _) => Ty::List(Arc::new(items.ty())),
            DeclKind::Map(values) => Ty::Map(Arc::new(Ty::Text), Arc::new(values.ty())),
            DeclKind::Object(_) => Ty::Object(Arc::clone(self)),
        }
    }

    /// What the members of a list, or the values of a map, are declared as.
    pub(super) fn member(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(inner, _) | DeclKind::Map(inner) => Some(inner),
            _ => None,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Time => "google.protobuf.Timestamp",
            Self::Type => "type",
            Self::Object(_) => "object",
            Self::Named(name) => name,
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
            Self::Optional(of) => return write!(f, "optional_type({of})"),
        };
        f.write_str(name)
    }
}

impl Ty {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(super) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Whether it has more parts than a type may have.
    pub(super) fn is_too_large(&self) -> bool {
        self.count(0) > PARTS_MAX
    }

    /// Its parts and `known` ones; no more are counted than tell that it is too large.
    fn count(&self, known: usize) -> usize {
        let known = known + 1;
        match self {
            _ if known > PARTS_MAX => known,
            Self::List(of) | Self::Optional(of) => of.count(known),
            Self::Map(key, value) => value.count(key.count(known)),
            _ => known,
        }
    }

    /// Whether the two are the same type.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.is(other),
            (Self::Map(key, value), Self::Map(other_key, other)) => key.is(other_key) && value.is(other),
            (Self::Named(one), Self::Named(other)) => one == other,
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other),
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// The type of what is of the one or of the other type, which fit: of what is known only later nothing is known before.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => Self::Dyn,
            (Self::Null, other) => other,
            (one, _) => one,
        }
    }

    /// Whether a value of the one type can stand where the other is asked for.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Null, other) | (other, Self::Null) => !matches!(
                other,
                Self::Bool
                    | Self::Int
                    | Self::Uint
                    | Self::Double
                    | Self::Text
                    | Self::Bytes
                    | Self::List(_)
                    | Self::Map(..)
                    | Self::Type
            ),
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.fits(other),
            (Self::Map(key, value), Self::Map(other_key, other)) => key.fits(other_key) && value.fits(other),
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other),
            (Self::Named(one), Self::Named(other)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// Whether its values have one size.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Duration | Self::Time => true,
            Self::Optional(of) => of.is_scalar(),
            _ => false,
        }
    }
}

impl Letters {
    /// Whether the type has the pattern.
    pub(super) fn takes(&mut self, pattern: &T, ty: &Ty) -> bool {
        let letter = match pattern {
            T::A => 0,
            T::B => 1,
            _ => return self.takes_plain(pattern, ty),
        };
        match &self.0[letter] {
            None => {
                self.0[letter] = Some(ty.clone());
                true
            }
            Some(known) if known.fits(ty) => {
                // What is known more of counts.
                if matches!(known, Ty::Dyn | Ty::Null) {
                    self.0[letter] = Some(ty.clone());
                }
                true
            }
            Some(_) => false,
        }
    }

    fn takes_plain(&mut self, pattern: &T, ty: &Ty) -> bool {
        match (pattern, ty) {
            (T::Dyn, _) | (_, Ty::Dyn) => true,
            (T::List(of), Ty::List(inner)) | (T::Optional(of), Ty::Optional(inner)) => self.takes(of, inner),
            (T::Map(key, value), Ty::Map(own_key, own)) => self.takes(key, own_key) && self.takes(value, own),
            (T::Bool, Ty::Bool)
            | (T::Int, Ty::Int)
            | (T::Uint, Ty::Uint)
            | (T::Double, Ty::Double)
            | (T::Text, Ty::Text)
            | (T::Bytes, Ty::Bytes)
            | (T::Duration, Ty::Duration)
            | (T::Time, Ty::Time)
            | (T::Type, Ty::Type) => true,
            (T::Named(one), Ty::Named(other)) => one == other,
            _ => false,
        }
    }

    /// The type that a pattern gives.
    pub(super) fn give(&self, pattern: &T) -> Ty {
        let letter = |i: usize| self.0[i].clone().unwrap_or(Ty::Dyn);
        match pattern {
            T::A => letter(0),
            T::B => letter(1),
            T::Dyn => Ty::Dyn,
            T::Bool => Ty::Bool,
            T::Int => Ty::Int,
            T::Uint => Ty::Uint,
            T::Double => Ty::Double,
            T::Text => Ty::Text,
            T::Bytes => Ty::Bytes,
            T::Duration => Ty::Duration,
            T::Time => Ty::Time,
            T::Type => Ty::Type,
            T::List(of) => Ty::list(self.give(of)),
            T::Optional(of) => Ty::optional(self.give(of)),
            T::Map(key, value) => Ty::Map(Arc::new(self.give(key)), Arc::new(self.give(value))),
            T::Named(name) => Ty::Named(name),
        }
    }
}
