//! Macros: what goes over lists and maps, and what goes on with an optional value. Pure.

use super::super::cost::{Estimate, Range};
use super::super::syntax::{Ast, Kind};
use super::super::types::Ty;
use super::{Checked, Checker, Fold, Node, NodeKind, Variable, made};
use std::sync::Arc;

/// The name that an argument is.
fn simple(ast: &Ast) -> Option<&str> {
    match &ast.kind {
        Kind::Name(name) => Some(name),
        _ => None,
    }
}

fn fold_of(name: &str, args: usize) -> Option<Fold> {
    Some(match (name, args) {
        ("all", 2) => Fold::All,
        ("exists", 2) => Fold::Exists,
        ("exists_one" | "existsOne", 2) => Fold::One,
        ("map", 2 | 3) => Fold::Map,
        ("filter", 2) => Fold::Filter,
        ("all", 3) => Fold::All2,
        ("exists", 3) => Fold::Exists2,
        ("exists_one" | "existsOne", 3) => Fold::One2,
        ("transformList", 3 | 4) => Fold::ListOf,
        ("transformMap", 3 | 4) => Fold::MapOf,
        ("transformMapEntry", 3 | 4) => Fold::EntryOf,
        _ => return None,
    })
}

impl Checker {
    /// A call that is a macro; `None` if it is none.
    pub(super) fn special(&mut self, at: usize, name: &str, target: &Ast, args: &[Ast]) -> Option<Checked> {
        if let Some(fold) = fold_of(name, args.len()) {
            return Some(self.fold(at, fold, target, args));
        }
        match (name, args) {
            ("optMap" | "optFlatMap", [variable, then]) => {
                Some(self.opt_map(at, name == "optFlatMap", (target, variable, then)))
            }
            ("orValue" | "or", [other]) => Some(self.or_value(at, name, target, other)),
            _ => None,
        }
    }

    fn fold(&mut self, at: usize, fold: Fold, target: &Ast, args: &[Ast]) -> Checked {
        let count = if fold.has_two() { 2 } else { 1 };
        let (names, parts) = args.split_at(count);
        let mut variables = Vec::new();
        for name in names {
            match simple(name) {
                Some(simple) => variables.push(simple),
                None => return self.wrong(name.at, "argument must be a simple name"),
            }
        }
        if let [one, other] = variables[..]
            && one == other
        {
            return self.wrong(names[1].at, format!("duplicate variable name: {other}"));
        }
        let range = self.check(target);
        let (key, value) = match &range.ty {
            Ty::List(member) => (Ty::Int, (**member).clone()),
            Ty::Map(key, value) => ((**key).clone(), (**value).clone()),
            Ty::Dyn => (Ty::Dyn, Ty::Dyn),
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return self.wrong(target.at, why);
            }
        };
        let is_list = !matches!(range.ty, Ty::Map(..));
        let own = &range.estimate;
        let key_estimate = if is_list {
            Estimate::default().sized(&key)
        } else {
            own.key()
        };
        let declared = match (fold.has_two(), is_list) {
            (true, _) => vec![(key.clone(), key_estimate), (value, own.member())],
            (false, true) => vec![(value, own.member())],
            (false, false) => vec![(key.clone(), key_estimate)],
        };
        let depth = self.variables.len();
        let first = declared.first().map_or(Ty::Dyn, |(ty, _)| ty.clone());
        let first_size = declared.first().map_or(Range::UNKNOWN, |(_, estimate)| estimate.size());
        for (name, (ty, estimate)) in variables.into_iter().zip(declared) {
            let name = name.into();
            self.variables.push(Variable { name, ty, estimate });
        }
        let checked: Vec<Checked> = parts.iter().map(|part| self.check(part)).collect();
        self.variables.truncate(depth);
        // All but the last are conditions, and of those that judge the last is one, too.
        let judges = !matches!(fold, Fold::Map | Fold::ListOf | Fold::MapOf | Fold::EntryOf);
        let conditions = if judges { checked.len() } else { checked.len() - 1 };
        for condition in checked.iter().take(conditions) {
            if !condition.ty.fits(&Ty::Bool) {
                let why = format!(
                    "found no matching overload for '_?_:_' applied to '({}, bool, bool)'",
                    condition.ty
                );
                return self.wrong(at, why);
            }
        }
        folded(fold, range, checked, (key, first, first_size))
    }

    fn opt_map(&mut self, at: usize, is_flat: bool, (target, variable, then): (&Ast, &Ast, &Ast)) -> Checked {
        let Some(name) = simple(variable) else {
            return self.wrong(variable.at, "optMap() variable name must be a simple identifier");
        };
        let of = self.check(target);
        let inner = match &of.ty {
            Ty::Optional(inner) => (**inner).clone(),
            Ty::Dyn => Ty::Dyn,
            other => {
                let why = format!("found no matching overload for 'hasValue' applied to '{other}.()'");
                return self.wrong(at, why);
            }
        };
        let mut estimate = of.estimate.clone();
        estimate.cost = Range::default();
        self.variables.push(Variable {
            name: name.into(),
            ty: inner,
            estimate,
        });
        let then = self.check(then);
        self.variables.pop();
        let ty = match (is_flat, then.ty) {
            (true, ty @ (Ty::Optional(_) | Ty::Dyn)) => ty,
            (true, other) => return self.wrong(at, format!("expected type 'optional_type(_)' but found '{other}'")),
            (false, ty) => Ty::optional(ty),
        };
        let cost = of
            .estimate
            .cost
            .plus(then.estimate.cost)
            .plus(Range { min: 1, max: 15 });
        let kind = NodeKind::OptMap {
            of: Box::new(of.node),
            then: Box::new(then.node),
            is_flat,
        };
        made(kind, ty, cost, then.estimate.size)
    }

    fn or_value(&mut self, at: usize, name: &str, target: &Ast, other: &Ast) -> Checked {
        let (of, other) = (self.check(target), self.check(other));
        let inner = match &of.ty {
            Ty::Optional(inner) => (**inner).clone(),
            _ => Ty::Dyn,
        };
        let is_or = name == "or";
        let wanted = if is_or { Ty::optional(inner.clone()) } else { inner };
        if !of.ty.fits(&Ty::optional(Ty::Dyn)) || !other.ty.fits(&wanted) {
            let why = format!(
                "found no matching overload for '{name}' applied to '{}.({})'",
                of.ty, other.ty
            );
            return self.wrong(at, why);
        }
        let size = of
            .estimate
            .size
            .zip(other.estimate.size)
            .map(|(one, other)| one.or(other));
        let cost = of.estimate.cost.plus(other.estimate.cost).plus(Range::fixed(1));
        let ty = wanted.or(other.ty);
        let kind = NodeKind::OrValue {
            of: Box::new(of.node),
            other: Box::new(other.node),
            is_or,
        };
        made(kind, ty, cost, size)
    }
}

/// What a macro gives and may cost, as upstream's expansion of it does.
fn folded(fold: Fold, range: Checked, parts: Vec<Checked>, (key, first, first_size): (Ty, Ty, Range)) -> Checked {
    let turns = range.estimate.size();
    let (one, last) = (Range::fixed(1), parts.last());
    let last_cost = last.map_or(Range::default(), |part| part.estimate.cost);
    let condition = match parts.len() {
        2 => parts[0].estimate.cost,
        _ => Range::default(),
    };
    let has_condition = parts.len() == 2;
    let last_ty = last.map_or(Ty::Dyn, |part| part.ty.clone());
    let last_size = last.map_or(Range::UNKNOWN, |part| part.estimate.size());
    let appended = Range::fixed(12).plus(last_cost);
    let step = match fold {
        Fold::All | Fold::All2 => Range::fixed(2).plus(Range {
            min: 1,
            max: last_cost.max.saturating_add(1),
        }),
        Fold::Exists | Fold::Exists2 => Range::fixed(3).plus(Range {
            min: 1,
            max: last_cost.max.saturating_add(1),
        }),
        Fold::One | Fold::One2 => last_cost.plus(Range { min: 1, max: 2 }),
        Fold::Filter => last_cost.plus(Range { min: 1, max: 13 }),
        _ if has_condition => condition.plus(one.or(appended)),
        _ => appended,
    };
    let (start, end) = match fold {
        Fold::All | Fold::All2 | Fold::Exists | Fold::Exists2 => (0, 1),
        Fold::One | Fold::One2 => (0, 2),
        Fold::Map | Fold::Filter | Fold::ListOf => (10, 1),
        Fold::MapOf | Fold::EntryOf => (30, 1),
    };
    let cost = range
        .estimate
        .cost
        .plus(Range::fixed(start))
        .plus(turns.times(step))
        .plus(Range::fixed(end));
    let (ty, value_size) = match fold {
        Fold::All | Fold::Exists | Fold::One | Fold::All2 | Fold::Exists2 | Fold::One2 => (Ty::Bool, None),
        Fold::Filter => (Ty::list(first), Some(first_size)),
        Fold::Map | Fold::ListOf => (Ty::list(last_ty), Some(last_size)),
        Fold::MapOf => (Ty::Map(Arc::new(key), Arc::new(last_ty)), Some(last_size)),
        Fold::EntryOf => (last_ty, Some(Range::UNKNOWN)),
    };
    let kind = NodeKind::Fold {
        fold,
        range: Box::new(range.node),
        parts: parts.into_iter().map(|part| part.node).collect::<Vec<Node>>(),
    };
    let mut made = made(kind, ty, cost, value_size.map(|_| turns));
    made.estimate.entries = value_size.map(|size| (one, size));
    made
}
