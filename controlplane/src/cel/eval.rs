//! Evaluates checked expressions. Pure.
//!
//! Every node is a step of work, and what is made is charged before; see [`Budget`].

use std::rc::Rc;

use super::budget::{Budget, Failure, Outcome};
use super::check::{Fold, Node, NodeKind};
use super::cost::Charge;
use super::signatures::Overload;
use super::value::{Text, Val, error};

/// Evaluates one expression with its variables.
pub(super) struct Eval<'a, 'b> {
    pub(super) budget: &'b mut Budget,
    /// By slot: `self`, `oldSelf`, then those of macros.
    variables: Vec<Val<'a>>,
}

impl<'a, 'b> Eval<'a, 'b> {
    pub(super) fn new(budget: &'b mut Budget, own: Val<'a>, old: Val<'a>) -> Self {
        Self {
            budget,
            variables: vec![own, old],
        }
    }

    pub(super) fn value(&mut self, node: &'a Node) -> Outcome<'a> {
        self.budget.work(1)?;
        match &node.kind {
            NodeKind::Null => Ok(Val::Null),
            NodeKind::Bool(is) => Ok(Val::Bool(*is)),
            NodeKind::Int(number) => Ok(Val::Int(*number)),
            NodeKind::Uint(number) => Ok(Val::Uint(*number)),
            NodeKind::Double(number) => Ok(Val::Double(*number)),
            NodeKind::Text(text) => Ok(Val::Text(Text::Ref(text))),
            NodeKind::Bytes(bytes) => {
                self.budget.make(bytes.len())?;
                Ok(Val::Bytes(bytes.as_ref().into()))
            }
            NodeKind::Type(name) => Ok(Val::Type(name)),
            NodeKind::Variable(slot) => {
                self.budget.charge(1)?;
                match self.variables.get(*slot) {
                    Some(value) => Ok(value.clone()),
                    None => error("no such attribute"),
                }
            }
            NodeKind::Select { of, field, is_optional } => self.select(of, field, *is_optional),
            NodeKind::Has { of, field } => self.has(of, field),
            NodeKind::Index { of, key, is_optional } => self.index(of, key, *is_optional),
            NodeKind::And(terms) => self.junction(terms, false),
            NodeKind::Or(terms) => self.junction(terms, true),
            NodeKind::If(parts) => match self.value(&parts[0])? {
                Val::Bool(true) => self.value(&parts[1]),
                Val::Bool(false) => self.value(&parts[2]),
                _ => error("no such overload"),
            },
            NodeKind::List(members) => self.list(members),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Call { .. } => self.calls(node),
            NodeKind::Fold { fold, range, parts } => self.fold(*fold, range, parts),
            NodeKind::OptMap { of, then, is_flat } => self.opt_map(of, then, *is_flat),
            NodeKind::OrValue { of, other, is_or } => self.or_value(of, other, *is_or),
        }
    }

    fn select(&mut self, of: &'a Node, field: &'a str, is_optional: bool) -> Outcome<'a> {
        let of = self.value(of)?;
        self.budget.charge(1)?;
        let (of, was_optional) = match of {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        let found = of.get(&Val::Text(Text::Ref(field)), self.budget)?;
        match (found, is_optional || was_optional) {
            (found, true) => Ok(Val::Optional(found.map(Rc::new))),
            (Some(found), false) => Ok(found),
            (None, false) => match of.type_name() {
                "map" | "object" => error(format!("no such key: {field}")),
                _ => error("no such overload"),
            },
        }
    }

    fn has(&mut self, of: &'a Node, field: &'a str) -> Outcome<'a> {
        let of = match self.value(of)? {
            Val::Optional(None) => return Ok(Val::Bool(false)),
            Val::Optional(Some(inner)) => (*inner).clone(),
            other => other,
        };
        match of.type_name() {
            "map" | "object" => {
                let found = of.get(&Val::Text(Text::Ref(field)), self.budget)?;
                Ok(Val::Bool(found.is_some()))
            }
            _ => error("no such overload"),
        }
    }

    /// A member was looked at: it was decoded if it is bytes.
    fn decoded(&mut self, member: Option<&Val<'a>>) -> Result<(), Failure> {
        match member {
            Some(Val::Bytes(bytes)) => self.budget.make(bytes.len()),
            _ => Ok(()),
        }
    }

    fn index(&mut self, of: &'a Node, key: &'a Node, is_optional: bool) -> Outcome<'a> {
        let of = self.value(of)?;
        let key = self.value(key)?;
        self.budget.charge(1)?;
        let (of, was_optional) = match of {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        let is_optional = is_optional || was_optional;
        let found = match of.type_name() {
            "list" => {
                let at = match key {
                    Val::Int(at) => usize::try_from(at).ok(),
                    Val::Uint(at) => usize::try_from(at).ok(),
                    Val::Double(at) if at.fract() == 0.0 && at >= 0.0 => Some(at as usize),
                    Val::Double(_) => None,
                    _ => return error("no such overload"),
                };
                let found = at.and_then(|at| of.member(at)).transpose()?;
                self.decoded(found.as_ref())?;
                if found.is_none() && !is_optional {
                    let shown = match key {
                        Val::Int(at) => at,
                        _ => at.and_then(|at| i64::try_from(at).ok()).unwrap_or(i64::MAX),
                    };
                    return error(format!("index out of bounds: {shown}"));
                }
                found
            }
            "map" | "object" => {
                let found = of.get(&key, self.budget)?;
                if found.is_none() && !is_optional {
                    return error(format!("no such key: {}", super::library::strings::shown(&key)));
                }
                found
            }
            _ => return error("no such overload"),
        };
        match is_optional {
            true => Ok(Val::Optional(found.map(Rc::new))),
            false => found.map_or_else(|| error("no such key"), Ok),
        }
    }

    /// `&&` and `||`: a term that decides makes errors of the others good.
    fn junction(&mut self, terms: &'a [Node], decides: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.value(term) {
                Ok(Val::Bool(is)) if is == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Failure::Error("no such overload".to_owned()))),
                Err(Failure::Cost) => return Err(Failure::Cost),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        failed.map_or(Ok(Val::Bool(!decides)), Err)
    }

    fn list(&mut self, members: &'a [(bool, Node)]) -> Outcome<'a> {
        self.budget.charge(10)?;
        self.budget.make_values(members.len())?;
        let mut out = Vec::with_capacity(members.len());
        for (is_optional, member) in members {
            match (is_optional, self.value(member)?) {
                (true, Val::Optional(None)) => {}
                (true, Val::Optional(Some(inner))) => out.push((*inner).clone()),
                (true, _) => return error("cannot initialize optional list element from non-optional value"),
                (false, value) => out.push(value),
            }
        }
        Ok(Val::list(out))
    }

    fn map(&mut self, entries: &'a [(bool, Node, Node)]) -> Outcome<'a> {
        self.budget.charge(30)?;
        self.budget.make_values(entries.len().saturating_mul(2))?;
        let mut out: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(entries.len());
        for (is_optional, key, value) in entries {
            let (key, value) = (self.value(key)?, self.value(value)?);
            let value = match (is_optional, value) {
                (true, Val::Optional(None)) => continue,
                (true, Val::Optional(Some(inner))) => (*inner).clone(),
                (_, value) => value,
            };
            self.put(&mut out, key, value)?;
        }
        Ok(Val::Map(Rc::new(out)))
    }

    /// Adds a pair whose key is new.
    fn put(&mut self, pairs: &mut Vec<(Val<'a>, Val<'a>)>, key: Val<'a>, value: Val<'a>) -> Result<(), Failure> {
        if !matches!(key, Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Text(_)) {
            return error("unsupported key type");
        }
        for (own, _) in pairs.iter() {
            if own.equals(&key, self.budget)? {
                return error(format!(
                    "insert failed: key {} already exists",
                    super::library::strings::shown(&key)
                ));
            }
        }
        pairs.push((key, value));
        Ok(())
    }

    /// A call, and the calls that its first argument is made of: without recursion, since those make long chains.
    fn calls(&mut self, node: &'a Node) -> Outcome<'a> {
        let (mut links, mut first) = (Vec::new(), Some(node));
        while let Some(NodeKind::Call { overloads, args }) = first.map(|first| &first.kind) {
            self.budget.work(1)?;
            links.push((overloads, args));
            first = args.first();
        }
        let mut value = first.map(|first| self.value(first)).transpose()?;
        while let Some((overloads, args)) = links.pop() {
            let mut values = Vec::with_capacity(args.len());
            values.extend(value);
            for arg in args.iter().skip(values.len()) {
                values.push(self.value(arg)?);
            }
            value = Some(self.call(overloads, &values)?);
        }
        value.map_or_else(|| error("no such overload"), Ok)
    }

    fn call(&mut self, overloads: &'a [&'static Overload], args: &[Val<'a>]) -> Outcome<'a> {
        let takes = |overload: &&&'static Overload| {
            overload.args.len() == args.len() && args.iter().zip(overload.args).all(|(arg, pattern)| arg.has(pattern))
        };
        let Some(overload) = overloads.iter().find(takes) else {
            return error("no such overload");
        };
        for arg in args {
            self.budget.work(arg.load())?;
        }
        let cost = overload.charge.of(args, self.budget)?;
        self.budget.charge(cost)?;
        let value = (overload.run)(args, self.budget)?;
        if let Charge::Join = overload.charge {
            self.budget.charge((value.size() * 2).div_ceil(10))?;
        }
        Ok(value)
    }

    /// The variables of a macro at one turn.
    fn turn_at(
        &mut self,
        range: &Val<'a>,
        keys: &[Val<'a>],
        at: usize,
        has_two: bool,
    ) -> Result<[Option<Val<'a>>; 2], Failure> {
        self.budget.work(1)?;
        if let Some(key) = keys.get(at) {
            let value = match has_two {
                true => range.get(key, self.budget)?,
                false => None,
            };
            return Ok([Some(key.clone()), value]);
        }
        let member = range.member(at).transpose()?;
        self.decoded(member.as_ref())?;
        Ok(match has_two {
            true => [Some(Val::Int(i64::try_from(at).unwrap_or(i64::MAX))), member],
            false => [member, None],
        })
    }

    fn fold(&mut self, fold: Fold, range: &'a Node, parts: &'a [Node]) -> Outcome<'a> {
        let range = self.value(range)?;
        let keys = match range.type_name() {
            "list" => Vec::new(),
            "map" => {
                self.budget.make_values(range.len())?;
                range.keys()
            }
            _ => return error("no such overload"),
        };
        let depth = self.variables.len();
        let mut state = State::default();
        if matches!(fold, Fold::Map | Fold::Filter | Fold::ListOf) {
            self.budget.charge(10)?;
        } else if matches!(fold, Fold::MapOf | Fold::EntryOf) {
            self.budget.charge(30)?;
        }
        for at in 0..range.len() {
            let [first, second] = self.turn_at(&range, &keys, at, fold.has_two())?;
            let first = first.unwrap_or(Val::Null);
            self.variables.extend(std::iter::once(first.clone()).chain(second));
            let is_over = self.turn(fold, parts, first, &mut state);
            self.variables.truncate(depth);
            if is_over? {
                break;
            }
        }
        self.budget.charge(1)?;
        match fold {
            Fold::All | Fold::All2 => state
                .failed
                .filter(|_| !state.is_decided)
                .map_or(Ok(Val::Bool(!state.is_decided)), Err),
            Fold::Exists | Fold::Exists2 => state
                .failed
                .filter(|_| !state.is_decided)
                .map_or(Ok(Val::Bool(state.is_decided)), Err),
            Fold::One | Fold::One2 => Ok(Val::Bool(state.count == 1)),
            Fold::Map | Fold::Filter | Fold::ListOf => Ok(Val::list(state.list)),
            Fold::MapOf | Fold::EntryOf => Ok(Val::Map(Rc::new(state.map))),
        }
    }

    /// One turn of a macro; whether it was the last.
    fn turn(&mut self, fold: Fold, parts: &'a [Node], first: Val<'a>, state: &mut State<'a>) -> Result<bool, Failure> {
        match fold {
            Fold::All | Fold::All2 | Fold::Exists | Fold::Exists2 => {
                let decides = matches!(fold, Fold::Exists | Fold::Exists2);
                self.budget.charge(if decides { 4 } else { 3 })?;
                match self.value(&parts[0]) {
                    Ok(Val::Bool(is)) => state.is_decided |= is == decides,
                    Ok(_) => state.failed = state.failed.take().or(Some(Failure::Error("no such overload".into()))),
                    Err(Failure::Cost) => return Err(Failure::Cost),
                    Err(failure) => state.failed = state.failed.take().or(Some(failure)),
                }
                return Ok(state.is_decided);
            }
            Fold::One | Fold::One2 => {
                let is = matches!(self.value(&parts[0])?, Val::Bool(true));
                self.budget.charge(if is { 2 } else { 1 })?;
                state.count += usize::from(is);
                return Ok(false);
            }
            _ => {}
        }
        // With a condition it comes first.
        if (parts.len() == 2 || fold == Fold::Filter) && !matches!(self.value(&parts[0])?, Val::Bool(true)) {
            self.budget.charge(1)?;
            return Ok(false);
        }
        self.budget.charge(12)?;
        // Twice: what grows is copied.
        self.budget.make_values(2)?;
        let last = parts.last().filter(|_| fold != Fold::Filter);
        let made = match last {
            Some(last) => self.value(last)?,
            None => first.clone(),
        };
        match (fold, made) {
            (Fold::MapOf, made) => self.put(&mut state.map, first, made)?,
            (Fold::EntryOf, Val::Map(pairs)) => {
                self.budget.make_values(pairs.len().saturating_mul(4))?;
                for (key, value) in pairs.iter() {
                    self.put(&mut state.map, key.clone(), value.clone())?;
                }
            }
            (Fold::EntryOf, _) => return error("no such overload"),
            (_, made) => state.list.push(made),
        }
        Ok(false)
    }

    fn opt_map(&mut self, of: &'a Node, then: &'a Node, is_flat: bool) -> Outcome<'a> {
        let Val::Optional(of) = self.value(of)? else {
            return error("no such overload");
        };
        let Some(inner) = of else {
            return Ok(Val::Optional(None));
        };
        let depth = self.variables.len();
        self.variables.push((*inner).clone());
        let made = self.value(then);
        self.variables.truncate(depth);
        match is_flat {
            true => made,
            false => made.map(Val::some),
        }
    }

    fn or_value(&mut self, of: &'a Node, other: &'a Node, is_or: bool) -> Outcome<'a> {
        match self.value(of)? {
            Val::Optional(Some(inner)) if !is_or => Ok((*inner).clone()),
            Val::Optional(None) => self.value(other),
            Val::Optional(some) => Ok(Val::Optional(some)),
            _ => error("no such overload"),
        }
    }
}

/// What a macro has found so far.
#[derive(Default)]
struct State<'a> {
    is_decided: bool,
    failed: Option<Failure>,
    count: usize,
    list: Vec<Val<'a>>,
    map: Vec<(Val<'a>, Val<'a>)>,
}
