//! Checks the types of an expression, and estimates what it costs. Messages are upstream's. Pure.

mod call;
mod macros;

use std::sync::Arc;

use super::cost::{Estimate, Range};
use super::lexer::RESERVED;
use super::signatures::Overload;
use super::syntax::{Ast, Kind, Mistake, chained};
use super::types::{Decl, DeclKind, Ty};

/// Nodes of an expression.
const NODES_MAX: usize = 10_000;
/// Mistakes that are told.
const MISTAKES_MAX: usize = 10;

/// A checked expression.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
}

/// What is evaluated.
#[derive(Debug)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    /// A type as a value.
    Type(&'static str),
    /// By its slot.
    Variable(usize),
    Select {
        of: Box<Node>,
        field: Box<str>,
        is_optional: bool,
    },
    Has {
        of: Box<Node>,
        field: Box<str>,
    },
    Index {
        of: Box<Node>,
        key: Box<Node>,
        is_optional: bool,
    },
    And(Vec<Node>),
    Or(Vec<Node>),
    If(Box<[Node; 3]>),
    List(Vec<(bool, Node)>),
    Map(Vec<(bool, Node, Node)>),
    Call {
        /// Those that the types allow; the values choose.
        overloads: Box<[&'static Overload]>,
        args: Vec<Node>,
    },
    Fold {
        fold: Fold,
        range: Box<Node>,
        parts: Vec<Node>,
    },
    OptMap {
        of: Box<Node>,
        then: Box<Node>,
        is_flat: bool,
    },
    OrValue {
        of: Box<Node>,
        other: Box<Node>,
        /// `or`, which gives an optional.
        is_or: bool,
    },
}

/// Macros that go over the members of something; with a 2, over keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    All,
    Exists,
    One,
    Map,
    Filter,
    All2,
    Exists2,
    One2,
    /// `transformList`, `transformMap`, `transformMapEntry`.
    ListOf,
    MapOf,
    EntryOf,
}

impl Fold {
    pub(super) fn has_two(self) -> bool {
        !matches!(self, Self::All | Self::Exists | Self::One | Self::Map | Self::Filter)
    }
}

/// A node with what is known of it.
pub(super) struct Checked {
    pub(super) node: Node,
    pub(super) ty: Ty,
    pub(super) estimate: Estimate,
}

struct Variable {
    name: Box<str>,
    ty: Ty,
    /// Without cost.
    estimate: Estimate,
}

/// Checks one expression.
pub(super) struct Checker {
    variables: Vec<Variable>,
    pub(super) mistakes: Vec<Mistake>,
    nodes: usize,
    /// Calls around that take lists and maps of several types.
    mixing: usize,
    /// The types of the members of the list that was checked last.
    listed: Vec<Ty>,
    pub(super) uses_old: bool,
}

/// Names of types as values.
const TYPES: [&str; 10] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
];

/// Likewise, of libraries.
const DOTTED_TYPES: [&str; 8] = [
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "net.IP",
    "net.CIDR",
];

/// The name that expressions have for a field whose own is a reserved word; `None` if the field is there as it is named, or is none
/// of an object.
pub(super) fn disguised(ty: &Ty, field: &str) -> Option<String> {
    match ty {
        Ty::Optional(inner) => disguised(inner, field),
        Ty::Object(decl) => match &decl.kind {
            DeclKind::Object(fields) if RESERVED.contains(&field) && !fields.contains_key(field) => {
                Some(format!("__{field}__"))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A field's name as it was asked for.
fn undisguised(field: &str) -> &str {
    let inner = field.strip_prefix("__").and_then(|field| field.strip_suffix("__"));
    inner.filter(|inner| RESERVED.contains(inner)).unwrap_or(field)
}

impl Checker {
    /// Over `self` and `oldSelf`, which is optional where its rule says so.
    pub(super) fn new(own: &Arc<Decl>, old_is_optional: bool) -> Self {
        let variable = |name: &str, ty: Ty| Variable {
            name: name.into(),
            ty,
            estimate: Estimate {
                decl: Some(Arc::clone(own)),
                ..Estimate::default()
            },
        };
        let old = match old_is_optional {
            true => Ty::optional(own.ty()),
            false => own.ty(),
        };
        Self {
            variables: vec![variable("self", own.ty()), variable("oldSelf", old)],
            mistakes: Vec::new(),
            nodes: 0,
            mixing: 0,
            listed: Vec::new(),
            uses_old: false,
        }
    }

    fn mistake(&mut self, at: usize, why: impl Into<String>) {
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(Mistake { at, why: why.into() });
        }
    }

    /// What stands for an expression that is wrong.
    fn wrong(&mut self, at: usize, why: impl Into<String>) -> Checked {
        self.mistake(at, why);
        made(NodeKind::Null, Ty::Dyn, Range::default(), None)
    }

    /// What is given has no type too large to walk.
    pub(super) fn check(&mut self, ast: &Ast) -> Checked {
        // Along a chain of operators without recursion, which is as deep as a tree may be high.
        let (mut links, mut first) = (Vec::new(), ast);
        while let Some([left, right]) = chained(&first.kind) {
            links.push((first, right));
            first = left;
        }
        let mut checked = self.check_node(first);
        checked = self.bounded(first, checked);
        while let Some((link, right)) = links.pop() {
            let right = self.check(right);
            checked = match (&link.kind, self.is_counted(link)) {
                (Kind::Call { name, .. }, true) => self.applied(link.at, name, vec![checked, right], false),
                _ => made(NodeKind::Null, Ty::Dyn, Range::default(), None),
            };
            checked = self.bounded(link, checked);
        }
        checked
    }

    fn bounded(&mut self, ast: &Ast, checked: Checked) -> Checked {
        match checked.ty.is_too_large() {
            true => self.wrong(ast.at, "this server takes no types of so many parts"),
            false => checked,
        }
    }

    /// Whether there may be one more node.
    fn is_counted(&mut self, ast: &Ast) -> bool {
        self.nodes += 1;
        if self.nodes == NODES_MAX + 1 {
            let why = format!("this server takes at most {NODES_MAX} nodes in an expression");
            self.mistake(ast.at, why);
        }
        self.nodes <= NODES_MAX
    }

    fn check_node(&mut self, ast: &Ast) -> Checked {
        if !self.is_counted(ast) {
            return made(NodeKind::Null, Ty::Dyn, Range::default(), None);
        }
        let literal = |kind, ty, size| made(kind, ty, Range::default(), Some(Range::fixed(size)));
        match &ast.kind {
            Kind::Null => literal(NodeKind::Null, Ty::Null, 1),
            Kind::Bool(is) => literal(NodeKind::Bool(*is), Ty::Bool, 1),
            Kind::Int(number) => {
                let mut checked = literal(NodeKind::Int(*number), Ty::Int, 1);
                checked.estimate.literal = Some(*number);
                checked
            }
            Kind::Uint(number) => literal(NodeKind::Uint(*number), Ty::Uint, 1),
            Kind::Double(number) => literal(NodeKind::Double(*number), Ty::Double, 1),
            Kind::Text(text) => literal(NodeKind::Text(text.clone()), Ty::Text, text.chars().count() as u64),
            Kind::Bytes(bytes) => literal(NodeKind::Bytes(bytes.clone()), Ty::Bytes, bytes.len() as u64),
            Kind::Name(name) => self.name(ast.at, name),
            Kind::Select { of, field, is_optional } => self.select(ast.at, of, field, *is_optional),
            Kind::List(members) => self.list(members),
            Kind::Map(entries) => self.map(entries),
            Kind::Call { name, target, args } => self.call(ast.at, name, target.as_deref(), args),
        }
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().rposition(|variable| *variable.name == *name)
    }

    fn name(&mut self, at: usize, name: &str) -> Checked {
        if let Some(slot) = self.variable(name) {
            self.uses_old |= slot == 1;
            let variable = &self.variables[slot];
            let mut estimate = variable.estimate.clone().sized(&variable.ty);
            estimate.cost = Range::fixed(1);
            return Checked {
                node: Node {
                    kind: NodeKind::Variable(slot),
                },
                ty: variable.ty.clone(),
                estimate,
            };
        }
        match TYPES.iter().find(|known| **known == name) {
            Some(known) => made(NodeKind::Type(known), Ty::Type, Range::fixed(1), Some(Range::fixed(1))),
            None => self.wrong(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    /// The type of a field, and what is known of it; `None` tells that there is none.
    fn field(&mut self, at: usize, ty: &Ty, estimate: &Estimate, field: &str) -> Option<(Ty, Estimate)> {
        match ty {
            Ty::Dyn => Some((Ty::Dyn, Estimate::default())),
            Ty::Optional(inner) => {
                let (ty, estimate) = self.field(at, inner, estimate, field)?;
                let ty = match ty {
                    Ty::Optional(_) => ty,
                    ty => Ty::optional(ty),
                };
                Some((ty, estimate))
            }
            Ty::Map(_, value) => Some(((**value).clone(), estimate.member())),
            Ty::Object(decl) => {
                let DeclKind::Object(fields) = &decl.kind else {
                    return None;
                };
                let Some((_, found)) = fields.get(field) else {
                    let why = format!("undefined field '{}'", undisguised(field));
                    self.mistake(at, why);
                    return None;
                };
                let estimate = Estimate {
                    decl: Some(Arc::clone(found)),
                    ..Estimate::default()
                };
                Some((found.ty(), estimate))
            }
            other => {
                self.mistake(at, format!("type '{other}' does not support field selection"));
                None
            }
        }
    }

    /// A type as a value whose name has dots; no variable hides it.
    fn type_name(&self, of: &Ast, field: &str) -> Option<&'static str> {
        let (mut name, mut of) = (field.to_owned(), of);
        loop {
            match &of.kind {
                Kind::Name(first) if self.variable(first).is_none() => {
                    name = format!("{first}.{name}");
                    return DOTTED_TYPES.into_iter().find(|known| *known == name);
                }
                Kind::Select {
                    of: inner,
                    field,
                    is_optional: false,
                } if name.len() < 64 => {
                    name = format!("{field}.{name}");
                    of = inner;
                }
                _ => return None,
            }
        }
    }

    fn select(&mut self, at: usize, of: &Ast, field: &str, is_optional: bool) -> Checked {
        if let Some(known) = self.type_name(of, field).filter(|_| !is_optional) {
            return made(NodeKind::Type(known), Ty::Type, Range::fixed(1), Some(Range::fixed(1)));
        }
        let of = self.check(of);
        let disguised = disguised(&of.ty, field);
        let field = disguised.as_deref().unwrap_or(field);
        let Some((mut ty, mut estimate)) = self.field(at, &of.ty, &of.estimate, field) else {
            return made(NodeKind::Null, Ty::Dyn, Range::default(), None);
        };
        if is_optional && !matches!(ty, Ty::Optional(_)) {
            ty = Ty::optional(ty);
        }
        let own = match of.ty {
            Ty::Dyn if !is_optional => 0,
            _ => 1,
        };
        estimate = estimate.sized(&ty);
        estimate.cost = of.estimate.cost.plus(Range::fixed(own));
        let kind = NodeKind::Select {
            of: Box::new(of.node),
            field: field.into(),
            is_optional,
        };
        Checked {
            node: Node { kind },
            ty,
            estimate,
        }
    }

    /// One type for all of several, with a mistake where one differs.
    fn joined(&mut self, at: usize, known: Option<Ty>, ty: &Ty) -> Option<Ty> {
        match known {
            None => Some(ty.clone()),
            Some(known) if !known.fits(ty) && self.mixing > 0 => Some(Ty::Dyn),
            Some(known) if !known.fits(ty) => {
                self.mistake(at, format!("expected type '{known}' but found '{ty}'"));
                Some(known)
            }
            Some(known) => Some(known.or(ty.clone())),
        }
    }

    fn list(&mut self, members: &[(bool, Ast)]) -> Checked {
        let (mut nodes, mut of, mut cost, mut size) = (Vec::new(), None, Range::fixed(10), None::<Range>);
        let mut types = Vec::new();
        for (is_optional, member) in members {
            let checked = self.check(member);
            let ty = match (&checked.ty, is_optional) {
                (Ty::Optional(inner), true) => (**inner).clone(),
                (Ty::Dyn, _) | (_, false) => checked.ty.clone(),
                (other, true) => {
                    self.mistake(
                        member.at,
                        format!("expected type 'optional_type(_)' but found '{other}'"),
                    );
                    Ty::Dyn
                }
            };
            of = self.joined(member.at, of, &ty);
            types.push(ty);
            cost = cost.plus(checked.estimate.cost);
            let own = checked.estimate.size();
            size = Some(size.map_or(own, |size| size.or(own)));
            nodes.push((*is_optional, checked.node));
        }
        let mut list = made(
            NodeKind::List(nodes),
            Ty::list(of.unwrap_or(Ty::Dyn)),
            cost,
            Some(Range::fixed(members.len() as u64)),
        );
        list.estimate.entries = Some((Range::fixed(1), size.unwrap_or_default()));
        self.listed = types;
        list
    }

    fn map(&mut self, entries: &[(bool, Ast, Ast)]) -> Checked {
        let (mut nodes, mut cost) = (Vec::new(), Range::fixed(30));
        let (mut keys, mut values) = (None, None);
        let (mut key_size, mut value_size) = (None::<Range>, None::<Range>);
        for (is_optional, key_ast, value_ast) in entries {
            let (key, value) = (self.check(key_ast), self.check(value_ast));
            let value_ty = match (&value.ty, is_optional) {
                (Ty::Optional(inner), true) => (**inner).clone(),
                (ty, _) => ty.clone(),
            };
            keys = self.joined(key_ast.at, keys, &key.ty);
            values = self.joined(value_ast.at, values, &value_ty);
            cost = cost.plus(key.estimate.cost).plus(value.estimate.cost);
            let (own_key, own) = (key.estimate.size(), value.estimate.size());
            key_size = Some(key_size.map_or(own_key, |size| size.or(own_key)));
            value_size = Some(value_size.map_or(own, |size| size.or(own)));
            nodes.push((*is_optional, key.node, value.node));
        }
        let ty = Ty::Map(Arc::new(keys.unwrap_or(Ty::Dyn)), Arc::new(values.unwrap_or(Ty::Dyn)));
        let mut map = made(NodeKind::Map(nodes), ty, cost, Some(Range::fixed(entries.len() as u64)));
        map.estimate.entries = Some((key_size.unwrap_or_default(), value_size.unwrap_or_default()));
        map
    }
}

fn made(kind: NodeKind, ty: Ty, cost: Range, size: Option<Range>) -> Checked {
    Checked {
        node: Node { kind },
        estimate: Estimate::of(cost, size).sized(&ty),
        ty,
    }
}
