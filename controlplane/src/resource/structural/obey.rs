//! Whether an object obeys the rules of expressions of its schema (control-plane contract §9). Messages are upstream's. Pure.
//!
//! Rules of what was there before see it only where it can be told which it is: in maps, and in lists whose members have keys. What was
//! broken before and is not touched is let be (KEP-4008).

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::Value;

use super::expressions::{Expressions, Rule};
use super::judge::Path;
use super::{Structural, Unique};
use crate::cel::{Answer, Judged, Program};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::tree;

/// What an object's rules may cost together.
const BUDGET: u64 = 10_000_000;
/// Work of asking a rule, however little it costs in upstream's units.
const RULE_WORK: u64 = 32;
/// Bytes that are compared for a step of work.
const COMPARED_BYTES: u64 = 8;
/// Bytes of a message that an expression makes.
const MESSAGE_BYTES: usize = 5 << 10;
const NO_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// A value and what was there before.
#[derive(Clone, Copy)]
struct Pair<'v, 'p> {
    new: &'v Value,
    old: Option<&'v Value>,
    /// It, or the nearest value above that is known from before.
    known: Option<&'p Known<'v>>,
}

/// A value that is known from before.
struct Known<'v> {
    new: &'v Value,
    old: &'v Value,
    /// Compared once, however many rules below are broken.
    is_same: OnceCell<bool>,
}

/// The keys of a list's members, and the members there were by them.
type Before<'s, 'v> = (&'s [Box<str>], HashMap<String, &'v Value>);

/// What obeying owns.
struct Obeying<'e> {
    errors: &'e mut FieldErrors,
    left: u64,
    work_left: &'e mut u64,
    /// Nothing more is asked.
    is_over: bool,
}

impl<'v> Known<'v> {
    fn of(new: &'v Value, old: Option<&'v Value>) -> Option<Self> {
        let old = old.filter(|old| !old.is_null())?;
        let is_same = OnceCell::new();
        Some(Self { new, old, is_same })
    }

    /// Whether it is as it was.
    fn is_same(&self, obeying: &mut Obeying<'_>) -> bool {
        *self.is_same.get_or_init(|| {
            let bytes = tree::size(self.new, usize::MAX) as u64;
            obeying.spend(bytes / COMPARED_BYTES) && self.new == self.old
        })
    }
}

impl Structural {
    /// Why no object can be judged by this schema, if so.
    pub(crate) fn unusable(&self) -> Option<&str> {
        self.unusable.as_deref()
    }

    /// Whether there are rules of expressions.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Tells which rules an object breaks. `old` is what it was, unless it is new. Work is taken off `work_left`; once that is 0
    /// nothing more is asked.
    pub(in crate::resource) fn obey(
        &self,
        object: &Value,
        old: Option<&Value>,
        work_left: &mut u64,
        errors: &mut FieldErrors,
    ) {
        if !self.has_rules || self.unusable.is_some() {
            return;
        }
        let mut obeying = Obeying {
            is_over: errors.is_full(),
            errors,
            left: BUDGET,
            work_left,
        };
        self.obey_at((object, old), None, &Path::ROOT, &mut obeying);
    }

    /// `above` is the nearest value above that is known from before.
    fn obey_at(
        &self,
        (new, old): (&Value, Option<&Value>),
        above: Option<&Known<'_>>,
        path: &Path<'_>,
        obeying: &mut Obeying<'_>,
    ) {
        if !self.has_rules || new.is_null() || obeying.is_over {
            return;
        }
        if !obeying.spend(1) {
            obeying.end(path, self.form.schema_type());
            return;
        }
        let known = Known::of(new, old);
        let pair = Pair {
            new,
            old: known.as_ref().map(|known| known.old),
            known: known.as_ref().or(above),
        };
        if let Some(expressions) = &self.expressions {
            self.evaluate(expressions, pair, path, obeying);
        }
        match pair.new {
            Value::Object(map) => {
                for (key, value) in map {
                    let old = pair.old.and_then(|old| old.get(key.as_str()));
                    match (self.properties.get(key.as_str()), &self.values) {
                        (Some(property), _) => property.obey_at((value, old), pair.known, &path.key(key), obeying),
                        (None, Some(values)) => values.obey_at((value, old), pair.known, &path.map_key(key), obeying),
                        (None, None) => {}
                    }
                }
            }
            Value::Array(members) => {
                let Some(items) = self.items.as_deref().filter(|items| items.has_rules) else {
                    return;
                };
                let before = self.by_keys(pair.old, obeying);
                for (i, member) in members.iter().enumerate() {
                    let old = before
                        .as_ref()
                        .and_then(|(keys, before)| before.get(&key_of(keys, member)).copied());
                    items.obey_at((member, old), pair.known, &path.index(i), obeying);
                }
            }
            _ => {}
        }
    }

    /// The members there were by their keys, if they have some.
    fn by_keys<'v>(&self, old: Option<&'v Value>, obeying: &mut Obeying<'_>) -> Option<Before<'_, 'v>> {
        let Some(Unique::Keys(keys)) = self.rules.as_deref().and_then(|rules| rules.unique.as_ref()) else {
            return None;
        };
        let members = old.and_then(Value::as_array)?;
        let bytes: usize = members.iter().map(|member| tree::size(member, usize::MAX)).sum();
        if !obeying.spend((bytes as u64 / COMPARED_BYTES).saturating_add(members.len() as u64)) {
            return None;
        }
        let pairs = members.iter().map(|member| (key_of(keys, member), member));
        Some((keys, pairs.collect()))
    }

    fn evaluate(&self, expressions: &Expressions, pair: Pair<'_, '_>, path: &Path<'_>, obeying: &mut Obeying<'_>) {
        let judged = Judged {
            new: pair.new,
            old: pair.old,
            decl: &expressions.decl,
        };
        for rule in &expressions.rules {
            if obeying.is_over {
                return;
            }
            if !obeying.spend(RULE_WORK) {
                obeying.end(path, self.form.schema_type());
                return;
            }
            // Where nothing was before there is nothing to compare with, unless a rule says what then.
            if rule.program.uses_old && pair.old.is_none() && !rule.old_is_optional {
                continue;
            }
            let kind = self.form.schema_type();
            let invalid = |obeying: &mut Obeying<'_>, why: String| {
                obeying.tell(FieldError::invalid(path.to_string(), kind, why));
            };
            if obeying.left == 0 {
                obeying.end(path, kind);
                return;
            }
            match obeying.run(&rule.program, judged) {
                None => obeying.end(path, kind),
                Some(Answer::Bool(true)) => {}
                Some(Answer::Bool(false)) => self.broken(rule, judged, pair, path, obeying),
                Some(Answer::TooMuch) => {
                    let why = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                               call cost exceeds limit for rule";
                    invalid(obeying, format!("{why}: {}", rule.shown));
                    obeying.is_over = true;
                }
                Some(Answer::Error(why)) if why.starts_with("no such overload") => {
                    let what =
                        "call arguments did not match a supported operator, function or macro signature for rule";
                    invalid(obeying, format!("'{why}': {what}: {}", rule.shown));
                }
                Some(Answer::Error(why)) => invalid(obeying, format!("{why} evaluating rule: {}", rule.shown)),
                // No rule gives a text: that is an error of its own.
                Some(Answer::Text(_)) => {}
            }
        }
    }

    fn broken(&self, rule: &Rule, judged: Judged<'_>, pair: Pair<'_, '_>, path: &Path<'_>, obeying: &mut Obeying<'_>) {
        let detail = obeying.message(rule, judged);
        if !rule.program.uses_old && pair.known.is_some_and(|known| known.is_same(obeying)) {
            return;
        }
        let detail = detail.map(|told| {
            told.unwrap_or_else(|| match &*rule.message {
                "" => format!("failed rule: {}", rule.shown),
                message => message.to_owned(),
            })
        });
        let own = path.to_string();
        let path = match own.as_str() {
            "" => rule.path.strip_prefix('.').unwrap_or(&rule.path).to_owned(),
            own => format!("{own}{}", rule.path),
        };
        let is_shown = !matches!(self.form.schema_type(), "object" | "array");
        let error = match (&*rule.reason, detail) {
            (_, Err(why)) => FieldError::invalid(path, self.form.schema_type(), why),
            ("FieldValueForbidden", Ok(detail)) => FieldError::forbidden(path, detail),
            ("FieldValueRequired", Ok(detail)) => FieldError::required(path, detail),
            ("FieldValueDuplicate", Ok(_)) if is_shown => {
                FieldError::new(path, FieldErrorKind::Duplicate, judged.new.clone(), "")
            }
            ("FieldValueDuplicate", Ok(_)) => FieldError::omitting(path, FieldErrorKind::Duplicate, ""),
            (_, Ok(detail)) if is_shown => FieldError::invalid_value(path, judged.new, detail),
            (_, Ok(detail)) => FieldError::omitting(path, FieldErrorKind::Invalid, detail),
        };
        obeying.tell(error);
    }
}

/// What tells a member of a list from others, as text.
fn key_of(keys: &[Box<str>], member: &Value) -> String {
    let values: Vec<&Value> = keys
        .iter()
        .map(|key| member.get(&**key).unwrap_or(&Value::Null))
        .collect();
    serde_json::to_string(&values).unwrap_or_default()
}

impl Obeying<'_> {
    /// Whether so much work may be done.
    fn spend(&mut self, steps: u64) -> bool {
        *self.work_left = self.work_left.saturating_sub(steps);
        *self.work_left > 0
    }

    /// Something is wrong. Once as much is as is kept, nothing more is asked.
    fn tell(&mut self, error: FieldError) {
        self.errors.push(error);
        self.is_over |= self.errors.is_full();
    }

    /// Nothing more is asked: there is no budget left.
    fn end(&mut self, path: &Path<'_>, kind: &str) {
        self.tell(FieldError::invalid(path.to_string(), kind, NO_BUDGET));
        self.is_over = true;
    }

    /// Runs an expression; `None` once there is no budget for what it took.
    fn run(&mut self, program: &Program, judged: Judged<'_>) -> Option<Answer> {
        let (answer, cost) = program.evaluate(judged, self.work_left);
        self.left = self.left.checked_sub(cost)?;
        Some(answer)
    }

    /// What a rule's expression says of it when it is broken; `None` leaves it to the rule's message.
    ///
    /// # Errors
    /// Making the message took too much, and nothing more is asked.
    fn message(&mut self, rule: &Rule, judged: Judged<'_>) -> Result<Option<String>, String> {
        let Some(program) = &rule.message_program else {
            return Ok(None);
        };
        let answer = self.run(program, judged);
        let text = match answer {
            None => {
                self.is_over = true;
                let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
                return Err(why.to_owned());
            }
            Some(Answer::TooMuch) => {
                self.is_over = true;
                let why =
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                return Err(format!("{why}: {:?}", rule.message_text));
            }
            Some(Answer::Text(text)) => text,
            Some(_) => return Ok(None),
        };
        let text = text.trim();
        let is_told = !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n');
        Ok(is_told.then(|| text.to_owned()))
    }
}
