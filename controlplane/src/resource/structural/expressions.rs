//! Rules of expressions (`x-kubernetes-validations`): read and checked with a definition, evaluated with each object (control-plane
//! contract §9). Messages are upstream's. Pure.
//!
//! Owns the limits: what a rule and a definition may cost by estimate, what an object's rules may cost together.

use std::sync::Arc;

use serde_json::Value;

use super::declare::REQUEST_BYTES;
use super::field_path::FieldStep;
use super::{Form, Structural, Unique};
use crate::cel::{self, Decl, DeclKind, Gives, Program};
use crate::resource::field::{at, flag, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// What one rule may cost by estimate, wherever its schema stands.
const RULE_COST: u64 = 10_000_000;
/// What all rules of a version may.
const TOTAL_COST: u64 = 100_000_000;
/// Rules of a version; upstream has no such bound.
const RULES_MAX: usize = 2_000;
/// Bytes of the expressions of a version; upstream has no such bound either.
const RULES_BYTES: usize = 512 << 10;
/// What is told of those that make the total too large.
const EXPENSIVE_MAX: usize = 4;
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// The rules of one place.
#[derive(Debug)]
pub(super) struct Expressions {
    pub(super) decl: Arc<Decl>,
    pub(super) rules: Box<[Rule]>,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) program: Program,
    pub(super) message_program: Option<Program>,
    /// What it says when it is broken, or the rule itself.
    pub(super) shown: Box<str>,
    pub(super) message: Box<str>,
    pub(super) message_text: Box<str>,
    pub(super) reason: Box<str>,
    /// Below the place, with the dot before it.
    pub(super) path: Box<str>,
    pub(super) old_is_optional: bool,
}

/// What checking the rules of a version owns.
#[derive(Default)]
pub(super) struct Compiling {
    /// What is wrong with rules.
    pub(super) errors: FieldErrors,
    /// What costs too much; such a rule works all the same.
    pub(super) costs: FieldErrors,
    total: u64,
    expensive: Vec<(String, u64)>,
    count: usize,
    bytes: usize,
}

/// Where a schema stands.
#[derive(Clone)]
struct Place<'p> {
    path: &'p str,
    /// How often it can be there; `None` for no bound but the request's.
    count: Option<u64>,
    /// The list above whose members cannot be told from those before.
    uncorrelated: Option<&'p str>,
}

/// What is wrong with how rules are written.
pub(super) fn check_form(schema: &Value, read: &Structural, path: &str, errors: &mut FieldErrors) {
    for (i, rule) in list(schema, &["x-kubernetes-validations"]).iter().enumerate() {
        let below = |key: &str| format!("{path}.x-kubernetes-validations[{i}].{key}");
        let own = |key: &str| text(rule, &[key]);
        let (expression, message) = (own("rule").trim(), own("message").trim());
        if expression.is_empty() {
            errors.push(FieldError::required(below("rule"), "rule is not specified"));
        } else if !own("message").is_empty() && message.is_empty() {
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(below("message"), own("message"), why));
        } else if message.contains('\n') {
            errors.push(FieldError::invalid(
                below("message"),
                own("message"),
                "must not contain line breaks",
            ));
        } else if expression.contains('\n') && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(below("message"), why));
        }
        if !own("messageExpression").is_empty() && own("messageExpression").trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(below("messageExpression"), why));
        }
        let reason = own("reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.push(FieldError::not_supported(below("reason"), reason, &REASONS));
        }
        let field = own("fieldPath");
        if field.is_empty() {
            continue;
        }
        if field.trim().is_empty() {
            errors.push(FieldError::invalid(
                below("fieldPath"),
                field,
                "must be non-empty if specified",
            ));
        }
        if field.contains('\n') {
            errors.push(FieldError::invalid(
                below("fieldPath"),
                field,
                "must not contain line breaks",
            ));
        }
        if read.at_path(field, true).is_err() {
            errors.push(FieldError::invalid(below("fieldPath"), field, "must be a valid path"));
        }
    }
}

impl Structural {
    /// Checks all rules of a version, and keeps them. Says whether there are any.
    pub(super) fn compile(&mut self, path: &str, compiling: &mut Compiling) -> bool {
        if !self.wants_rules() {
            return false;
        }
        let decl = self.declare(true);
        let place = Place {
            path,
            count: Some(1),
            uncorrelated: None,
        };
        self.compile_at(decl.as_ref(), &place, compiling);
        if compiling.total > TOTAL_COST {
            for (path, _) in std::mem::take(&mut compiling.expensive) {
                let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                compiling.costs.push(FieldError::forbidden(path, why));
            }
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            let why = too_expensive(what, compiling.total, TOTAL_COST);
            compiling.costs.push(FieldError::forbidden(path, why));
        }
        true
    }

    fn wants_rules(&self) -> bool {
        let inner = self
            .properties
            .values()
            .chain(self.items.as_deref())
            .chain(self.values.as_deref());
        !self.uncompiled.is_empty() || inner.into_iter().any(Self::wants_rules)
    }

    fn compile_at(&mut self, decl: Option<&Arc<Decl>>, place: &Place<'_>, compiling: &mut Compiling) {
        let wanted = std::mem::take(&mut self.uncompiled);
        let mut rules = Vec::new();
        for (i, raw) in wanted.iter().enumerate() {
            let path = format!("{}.x-kubernetes-validations[{i}]", place.path);
            if !compiling.has_room_for(raw) {
                if compiling.errors.is_empty() {
                    let why =
                        format!("this server takes at most {RULES_MAX} rules of {RULES_BYTES} bytes in a version");
                    compiling.errors.push(FieldError::forbidden(path, why));
                }
                break;
            }
            match decl {
                Some(decl) => rules.extend(self.compile_rule(raw, decl, (place, &path), compiling)),
                None => {
                    let why = "Internal error: failed to convert to declType for CEL validation rules";
                    compiling.errors.push(FieldError::forbidden(path, why));
                }
            }
        }
        if let Some(decl) = decl.filter(|_| !rules.is_empty()) {
            let (decl, rules) = (Arc::clone(decl), rules.into());
            self.expressions = Some(Box::new(Expressions { decl, rules }));
        }
        self.has_rules = self.expressions.is_some();
        self.compile_below(decl, place, compiling);
    }

    fn compile_below(&mut self, decl: Option<&Arc<Decl>>, place: &Place<'_>, compiling: &mut Compiling) {
        let most = |of: fn(&super::Rules) -> Option<u64>| self.rules.as_deref().and_then(of);
        let times = |count: Option<u64>| Some(place.count?.saturating_mul(count?));
        let (items_most, values_most) = (most(|rules| rules.items.1), most(|rules| rules.properties.1));
        let is_map_list = self
            .rules
            .as_deref()
            .is_some_and(|rules| matches!(rules.unique, Some(Unique::Keys(_))));
        let fields = match decl.map(|decl| &decl.kind) {
            Some(DeclKind::Object(fields)) => Some(fields),
            _ => None,
        };
        let member = match decl.map(|decl| &decl.kind) {
            Some(DeclKind::List(inner, _) | DeclKind::Map(inner)) => Some(Arc::clone(inner)),
            _ => None,
        };
        let mut has_rules = false;
        for (name, property) in self
            .properties
            .iter_mut()
            .filter(|(_, property)| property.wants_rules())
        {
            let path = format!("{}.properties[{name}]", place.path);
            let declared = match (cel::escaped(name), fields) {
                (Some(escaped), Some(fields)) => fields.get(escaped.as_str()).map(|(_, field)| Arc::clone(field)),
                _ => property.declare(property.embedded),
            };
            let there = Place {
                path: &path,
                ..place.clone()
            };
            property.compile_at(declared.as_ref(), &there, compiling);
            has_rules |= property.has_rules;
        }
        if let Some(items) = self.items.as_deref_mut().filter(|items| items.wants_rules()) {
            let path = format!("{}.items", place.path);
            let there = Place {
                path: &path,
                count: times(items_most),
                uncorrelated: place.uncorrelated.or((!is_map_list).then_some(place.path)),
            };
            items.compile_at(member.as_ref(), &there, compiling);
            has_rules |= items.has_rules;
        }
        if let Some(values) = self.values.as_deref_mut().filter(|values| values.wants_rules()) {
            let path = format!("{}.additionalProperties", place.path);
            let there = Place {
                path: &path,
                count: times(values_most),
                ..place.clone()
            };
            values.compile_at(member.as_ref(), &there, compiling);
            has_rules |= values.has_rules;
        }
        self.has_rules |= has_rules;
    }

    fn compile_rule(
        &self,
        raw: &Value,
        decl: &Arc<Decl>,
        (place, path): (&Place<'_>, &str),
        compiling: &mut Compiling,
    ) -> Option<Rule> {
        let own = |key: &str| text(raw, &[key]);
        let below = |key: &str| format!("{path}.{key}");
        let old_is_optional = flag(raw, &["optionalOldSelf"]);
        let program = match cel::compile(own("rule"), decl, old_is_optional, Gives::Bool) {
            Ok(program) => program,
            Err(why) => {
                compiling
                    .errors
                    .push(FieldError::invalid_value(below("rule"), raw, why));
                return None;
            }
        };
        let repeated = place.count.unwrap_or(REQUEST_BYTES / (decl.min_bytes + 1));
        let cost = program.most_cost.saturating_mul(repeated);
        compiling.observe(below("rule"), "estimated rule cost", cost);
        let message_program = match own("messageExpression") {
            "" => None,
            expression => match cel::compile(expression, decl, old_is_optional, Gives::Text) {
                Ok(program) => {
                    let path = below("messageExpression");
                    compiling.observe(path, "estimated messageExpression cost", program.most_cost);
                    Some(program)
                }
                Err(why) => {
                    let error = FieldError::invalid_value(below("messageExpression"), raw, why);
                    compiling.errors.push(error);
                    None
                }
            },
        };
        if program.uses_old {
            if let Some(list) = place.uncorrelated {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                compiling
                    .errors
                    .push(FieldError::invalid(below("rule"), own("rule"), why));
            }
        } else if !at(raw, &["optionalOldSelf"]).is_null() {
            let why = "may not be set if oldSelf is not used in rule";
            compiling
                .errors
                .push(FieldError::invalid(below("optionalOldSelf"), old_is_optional, why));
        }
        let steps = self
            .at_path(own("fieldPath"), true)
            .map(|(steps, _)| steps)
            .unwrap_or_default();
        let shown = match own("message").trim() {
            "" => own("rule").trim(),
            message => message,
        };
        Some(Rule {
            program,
            message_program,
            shown: shown.into(),
            message: own("message").trim().into(),
            message_text: own("messageExpression").into(),
            reason: own("reason").into(),
            path: written(&steps).into(),
            old_is_optional,
        })
    }
}

/// A path as errors name it.
fn written(steps: &[FieldStep]) -> String {
    let step = |step: &FieldStep| match step {
        FieldStep::Field(name) => format!(".{name}"),
        FieldStep::Key(key) => format!("[{key}]"),
    };
    steps.iter().map(step).collect()
}

impl Compiling {
    /// Whether one more rule is checked at all.
    fn has_room_for(&mut self, rule: &Value) -> bool {
        self.count += 1;
        self.bytes += text(rule, &["rule"]).len() + text(rule, &["messageExpression"]).len();
        self.count <= RULES_MAX && self.bytes <= RULES_BYTES
    }

    fn observe(&mut self, path: String, what: &str, cost: u64) {
        if cost > RULE_COST {
            self.costs.push(FieldError::forbidden(
                path.clone(),
                too_expensive(what, cost, RULE_COST),
            ));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_COST / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(EXPENSIVE_MAX);
        }
    }
}

/// By how much an estimate is too large, as upstream says it.
fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
         arrays, maps, and strings are declared)"
    )
}

impl Form {
    /// The type as a schema names it.
    pub(super) fn schema_type(self) -> &'static str {
        match self {
            Self::Any | Self::IntOrString => "",
            other => other.name(),
        }
    }
}
