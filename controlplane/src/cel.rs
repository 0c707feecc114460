//! The Common Expression Language, as the API's rules use it (control-plane contract §9; the language is cel.dev's). Pure.
//!
//! [`compile`] checks an expression against what a schema declares and estimates what it costs; [`Program::evaluate`] runs it within
//! bounds of cost and work. Expressions and what they judge are both as their senders made them: trees have bounded depth, what
//! is made while evaluating is charged before it is made, patterns take time linear in the text. Functions that are not here are
//! undeclared to the checker, so that a rule that uses one is refused when it is written.

mod budget;
mod check;
mod cost;
mod equal;
mod eval;
mod lexer;
mod library;
mod signatures;
mod syntax;
mod types;
mod value;

pub(crate) use library::time;
pub(crate) use types::{Decl, DeclKind, Listed, escaped, is_reserved};

use std::sync::Arc;

use serde_json::Value;

use budget::{Budget, Failure, Outcome};
use check::{Checker, Node};
use eval::Eval;
use syntax::Mistake;
use types::Ty;
use value::Val;

/// Upstream's units that one call may cost.
const CALL_LIMIT: u64 = 1_000_000;

/// What an expression has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    Bool,
    Text,
}

/// A checked expression.
#[derive(Debug)]
pub(crate) struct Program {
    node: Node,
    /// What a call may cost at most, in upstream's units.
    pub(crate) most_cost: u64,
    /// Whether it asks for what was there before.
    pub(crate) uses_old: bool,
    old_is_optional: bool,
    gives: Gives,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Bool(bool),
    Text(String),
    /// The expression's own error.
    Error(String),
    /// It cost more than it may.
    TooMuch,
}

/// What is judged: a value, and what was there before, if that is known.
#[derive(Clone, Copy)]
pub(crate) struct Judged<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: Option<&'a Value>,
    pub(crate) decl: &'a Decl,
}

/// Why an expression is none, as upstream says it.
fn told(text: &str, mistakes: &[Mistake]) -> String {
    let shown = |mistake: &Mistake| {
        let at = text.floor_char_boundary(mistake.at.min(text.len()));
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count());
        let source: String = text
            .split('\n')
            .nth(line)
            .unwrap_or_default()
            .chars()
            .take(4096)
            .collect();
        let dots = ".".repeat(column.min(4096));
        format!(
            "ERROR: <input>:{}:{}: {}\n | {source}\n | {dots}^",
            line + 1,
            column + 1,
            mistake.why
        )
    };
    mistakes.iter().map(shown).collect::<Vec<_>>().join("\n")
}

/// Checks an expression over `self` and `oldSelf`, which both are as `decl` says.
///
/// # Errors
/// Why it is none.
pub(crate) fn compile(text: &str, decl: &Arc<Decl>, old_is_optional: bool, gives: Gives) -> Result<Program, String> {
    let failed = match gives {
        Gives::Bool => "compilation failed",
        Gives::Text => "messageExpression compilation failed",
    };
    let failed = |mistakes: &[Mistake]| format!("{failed}: {}", told(text, mistakes));
    let ast = syntax::parse(text).map_err(|mistake| failed(&[mistake]))?;
    let mut checker = Checker::new(decl, old_is_optional);
    let checked = checker.check(&ast);
    if !checker.mistakes.is_empty() {
        return Err(failed(&checker.mistakes));
    }
    match (gives, &checked.ty) {
        (Gives::Bool, Ty::Bool) | (Gives::Text, Ty::Text) => {}
        (Gives::Bool, _) => return Err("cel expression must evaluate to a bool".to_owned()),
        (Gives::Text, _) => return Err("messageExpression must evaluate to a string".to_owned()),
    }
    Ok(Program {
        node: checked.node,
        most_cost: checked.estimate.cost.max,
        uses_old: checker.uses_old,
        old_is_optional,
        gives,
    })
}

impl Program {
    /// Runs the expression; gives what it cost, too. Work is taken off `work_left`.
    pub(crate) fn evaluate(&self, judged: Judged<'_>, work_left: &mut u64) -> (Answer, u64) {
        let mut budget = Budget::new(CALL_LIMIT, *work_left);
        let answer = match (self.gives, self.run(judged, &mut budget)) {
            (Gives::Bool, Ok(Val::Bool(is))) => Answer::Bool(is),
            (Gives::Text, Ok(Val::Text(text))) => Answer::Text(text.to_string()),
            // What types could not tell before.
            (_, Ok(_)) => Answer::Error("no such overload".to_owned()),
            (_, Err(Failure::Error(why))) => Answer::Error(why),
            (_, Err(Failure::Cost)) => Answer::TooMuch,
        };
        *work_left = budget.work_left;
        (answer, budget.cost)
    }

    fn run<'a>(&'a self, judged: Judged<'a>, budget: &mut Budget) -> Outcome<'a> {
        let own = Val::read(judged.new, judged.decl, budget)?;
        let old = judged.old.map(|old| Val::read(old, judged.decl, budget)).transpose()?;
        let old = match self.old_is_optional {
            true => Val::Optional(old.map(std::rc::Rc::new)),
            false => old.unwrap_or(Val::Null),
        };
        Eval::new(budget, own, old).value(&self.node)
    }
}

#[cfg(test)]
mod tests;
