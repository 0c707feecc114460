//! Calls: operators, functions of the libraries, and which of their overloads fit. Pure.

use super::super::budget::PATTERN_BYTES;
use super::super::cost::Range;
use super::super::library::{format, time};
use super::super::signatures::{self, Overload};
use super::super::syntax::{Ast, Kind};
use super::super::types::{Letters, Ty};
use super::{Checked, Checker, Node, NodeKind, disguised, made};
use crate::pattern::Pattern;

impl Checker {
    pub(super) fn call(&mut self, at: usize, name: &str, target: Option<&Ast>, args: &[Ast]) -> Checked {
        match (name, target) {
            ("_&&_" | "_||_", None) => return self.junction(at, name, args),
            ("_?_:_", None) if args.len() == 3 => return self.condition(at, args),
            ("_[_]" | "_[?_]", None) if args.len() == 2 => return self.index(at, name == "_[?_]", args),
            ("has", None) => return self.has(at, args),
            ("dyn", None) if args.len() == 1 => {
                let mut inner = self.check(&args[0]);
                inner.ty = Ty::Dyn;
                inner.estimate.cost = inner.estimate.cost.plus(Range::fixed(1));
                return inner;
            }
            _ => {}
        }
        if let Some(target) = target
            && let Some(checked) = self.special(at, name, target, args)
        {
            return checked;
        }
        // A function of a library, such as `sets.contains`.
        if let Some(Ast {
            kind: Kind::Name(space),
            ..
        }) = target
            && self.variable(space).is_none()
        {
            let name = format!("{space}.{name}");
            if signatures::named(&name, false).next().is_some() {
                return self.function(at, &name, None, args);
            }
        }
        self.function(at, name, target, args)
    }

    fn function(&mut self, at: usize, name: &str, target: Option<&Ast>, args: &[Ast]) -> Checked {
        let is_member = target.is_some();
        if signatures::named(name, is_member).next().is_none() {
            if let Some(target) = target {
                self.check(target);
            }
            return self.wrong(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        // What is written together need not be of one type.
        let mixes = usize::from(name == "format" && is_member);
        self.mixing += mixes;
        let checked: Vec<Checked> = target.into_iter().chain(args).map(|arg| self.check(arg)).collect();
        if let (Some(target), [values], 1) = (target, args, mixes) {
            self.check_format(at, target, values);
        }
        self.mixing -= mixes;
        self.check_literals(name, target, args);
        self.applied(at, name, checked, is_member)
    }

    /// A function of arguments that are checked, with the target first.
    pub(super) fn applied(&mut self, at: usize, name: &str, checked: Vec<Checked>, is_member: bool) -> Checked {
        let types: Vec<Ty> = checked.iter().map(|arg| arg.ty.clone()).collect();
        let (mut fitting, mut gives) = (Vec::<&'static Overload>::new(), None::<Ty>);
        for overload in signatures::named(name, is_member) {
            let mut letters = Letters::default();
            let takes = overload.args.len() == types.len()
                && overload
                    .args
                    .iter()
                    .zip(&types)
                    .all(|(pattern, ty)| letters.takes(pattern, ty));
            if takes {
                let ty = letters.give(&overload.gives);
                gives = Some(match gives {
                    None => ty,
                    Some(known) if known.is(&ty) => known,
                    Some(_) => Ty::Dyn,
                });
                fitting.push(overload);
            }
        }
        // Some functions want members that have an order.
        let is_ordered = |of: &Ty| {
            matches!(
                of,
                Ty::Dyn | Ty::Int | Ty::Uint | Ty::Double | Ty::Bool | Ty::Duration | Ty::Time | Ty::Text | Ty::Bytes
            )
        };
        if let (true, "min" | "max" | "sort" | "isSorted", [Ty::List(of)]) = (is_member, name, &types[..])
            && !is_ordered(of)
        {
            gives = None;
        }
        let Some(ty) = gives else {
            let why = format!(
                "found no matching overload for '{name}' applied to '{}'",
                applied(&types, is_member)
            );
            return self.wrong(at, why);
        };
        let estimates: Vec<_> = checked.iter().map(|arg| &arg.estimate).collect();
        let (mut own, mut size) = (Range { min: u64::MAX, max: 0 }, None::<Range>);
        for overload in &fitting {
            let (cost, result) = overload.charge.estimate(&estimates, &types);
            own = own.or(cost);
            size = match (size, result) {
                (Some(one), Some(other)) => Some(one.or(other)),
                (one, other) => one.or(other),
            };
        }
        let cost = checked.iter().fold(own, |cost, arg| cost.plus(arg.estimate.cost));
        // A scalar's size is its type's, whatever it was made of.
        let size = size.filter(|_| !ty.is_scalar());
        let entries = match name {
            "_+_" => match (estimates[0].entries, estimates.get(1).and_then(|other| other.entries)) {
                (Some(one), Some(other)) => Some((one.0.or(other.0), one.1.or(other.1))),
                _ => None,
            },
            _ => None,
        };
        let kind = NodeKind::Call {
            overloads: fitting.into(),
            args: checked.into_iter().map(|arg| arg.node).collect(),
        };
        let mut call = made(kind, ty, cost, size);
        call.estimate.entries = entries;
        call
    }

    /// A text that is written is judged with what it is to be formatted with, if that is a list that is written, too.
    fn check_format(&mut self, at: usize, target: &Ast, values: &Ast) {
        let types = std::mem::take(&mut self.listed);
        if let (Kind::Text(text), Kind::List(members)) = (&target.kind, &values.kind)
            && types.len() == members.len()
            && !members.iter().any(|(is_optional, _)| *is_optional)
            && let Some(why) = format::mistake(text, &types)
        {
            self.mistake(at, why);
        }
    }

    /// Texts that can be judged before there are values.
    fn check_literals(&mut self, name: &str, target: Option<&Ast>, args: &[Ast]) {
        let text = |ast: Option<&Ast>| match ast.map(|ast| &ast.kind) {
            Some(Kind::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        let pattern = match name {
            "matches" if target.is_none() => text(args.get(1)).map(|text| (1, text)),
            "matches" | "find" | "findAll" => text(args.first()).map(|text| (0, text)),
            _ => None,
        };
        if let Some((which, pattern)) = pattern
            && let Err(why) = Pattern::compile(&pattern, PATTERN_BYTES)
        {
            self.mistake(args[which].at, format!("invalid matches argument: {why}"));
        }
        match (name, text(args.first())) {
            ("duration", Some(text)) if time::duration(&text).is_none() => {
                self.mistake(args[0].at, "invalid duration argument");
            }
            // Zones by name would be a table of their own.
            (name, Some(zone))
                if target.is_some()
                    && name.starts_with("get")
                    && !matches!(zone.as_str(), "" | "UTC")
                    && time::offset(&zone).is_none() =>
            {
                self.mistake(args[0].at, format!("this server knows no time zone {zone:?}"));
            }
            ("timestamp", Some(text)) if time::moment(&text).is_none() => {
                self.mistake(args[0].at, "invalid timestamp argument");
            }
            _ => {}
        }
    }

    fn junction(&mut self, at: usize, name: &str, args: &[Ast]) -> Checked {
        let checked: Vec<Checked> = args.iter().map(|arg| self.check(arg)).collect();
        if !checked.iter().all(|arg| arg.ty.fits(&Ty::Bool)) {
            let types: Vec<Ty> = checked.iter().map(|arg| arg.ty.clone()).collect();
            let why = format!(
                "found no matching overload for '{name}' applied to '{}'",
                applied(&types, false)
            );
            return self.wrong(at, why);
        }
        let cost = Range {
            min: checked.first().map_or(0, |first| first.estimate.cost.min),
            max: checked
                .iter()
                .fold(0, |cost: u64, arg| cost.saturating_add(arg.estimate.cost.max)),
        };
        let nodes: Vec<Node> = checked.into_iter().map(|arg| arg.node).collect();
        let kind = match name {
            "_&&_" => NodeKind::And(nodes),
            _ => NodeKind::Or(nodes),
        };
        made(kind, Ty::Bool, cost, None)
    }

    fn condition(&mut self, at: usize, args: &[Ast]) -> Checked {
        let [condition, yes, no] = [0, 1, 2].map(|i| self.check(&args[i]));
        if !condition.ty.fits(&Ty::Bool) || !yes.ty.fits(&no.ty) {
            let types = [condition.ty, yes.ty, no.ty];
            let why = format!(
                "found no matching overload for '_?_:_' applied to '{}'",
                applied(&types, false)
            );
            return self.wrong(at, why);
        }
        let cost = condition.estimate.cost.plus(yes.estimate.cost.or(no.estimate.cost));
        let size = yes.estimate.size().or(no.estimate.size());
        let ty = yes.ty.or(no.ty);
        let entries = yes.estimate.entries.zip(no.estimate.entries);
        let kind = NodeKind::If(Box::new([condition.node, yes.node, no.node]));
        let mut made = made(kind, ty, cost, Some(size));
        made.estimate.entries = entries.map(|(one, other)| (one.0.or(other.0), one.1.or(other.1)));
        made
    }

    fn index(&mut self, at: usize, is_optional: bool, args: &[Ast]) -> Checked {
        let [of, key] = [0, 1].map(|i| self.check(&args[i]));
        let (inner, was_optional) = match &of.ty {
            Ty::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let ty = match &inner {
            Ty::Dyn => Some(Ty::Dyn),
            Ty::List(member) if key.ty.fits(&Ty::Int) => Some((**member).clone()),
            Ty::Map(own, value) if key.ty.fits(own) => Some((**value).clone()),
            _ => None,
        };
        let Some(ty) = ty else {
            let types = [of.ty, key.ty];
            let name = if is_optional { "_[?_]" } else { "_[_]" };
            let why = format!(
                "found no matching overload for '{name}' applied to '{}'",
                applied(&types, false)
            );
            return self.wrong(at, why);
        };
        let mut estimate = of.estimate.member().sized(&ty);
        estimate.cost = of.estimate.cost.plus(key.estimate.cost).plus(Range::fixed(1));
        let ty = if is_optional || was_optional {
            Ty::optional(ty)
        } else {
            ty
        };
        let kind = NodeKind::Index {
            of: Box::new(of.node),
            key: Box::new(key.node),
            is_optional,
        };
        Checked {
            node: Node { kind },
            ty,
            estimate,
        }
    }

    fn has(&mut self, at: usize, args: &[Ast]) -> Checked {
        let [
            Ast {
                at: field_at,
                kind:
                    Kind::Select {
                        of,
                        field,
                        is_optional: false,
                    },
                ..
            },
        ] = args
        else {
            return self.wrong(at, "invalid argument to has() macro");
        };
        let of = self.check(of);
        let disguised = disguised(&of.ty, field);
        let field = disguised.as_deref().unwrap_or(field);
        if self.field(*field_at, &of.ty, &of.estimate, field).is_none() {
            return made(NodeKind::Null, Ty::Dyn, Range::default(), None);
        }
        let kind = NodeKind::Has {
            of: Box::new(of.node),
            field: field.into(),
        };
        made(kind, Ty::Bool, of.estimate.cost, None)
    }
}

/// Types that are shown of what a function was applied to.
const SHOWN_MAX: usize = 16;

/// Types as upstream shows what a function was applied to.
pub(super) fn applied(types: &[Ty], is_member: bool) -> String {
    let shown = |types: &[Ty]| {
        let mut names: Vec<String> = types.iter().take(SHOWN_MAX).map(Ty::to_string).collect();
        if types.len() > SHOWN_MAX {
            names.push("\u{2026}".to_owned());
        }
        format!("({})", names.join(", "))
    };
    match types.split_first() {
        Some((target, args)) if is_member => format!("{target}.{}", shown(args)),
        _ => shown(types),
    }
}
