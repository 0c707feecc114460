//! The text grammars of label and field selectors.

use super::{FieldRequirement, Operator, Requirement, SelectorError};

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    'next: while !rest.is_empty() {
        for symbol in SYMBOLS {
            if let Some(after) = rest.strip_prefix(symbol) {
                tokens.push(Token::Symbol(symbol));
                rest = after.trim_start();
                continue 'next;
            }
        }
        let end = rest
            .find(|c: char| c.is_whitespace() || "=!(),><".contains(c))
            .unwrap_or(rest.len());
        tokens.push(Token::Word(rest[..end].to_owned()));
        rest = rest[end..].trim_start();
    }
    tokens
}

struct Parser {
    tokens: std::vec::IntoIter<Token>,
    ahead: Token,
}

fn found(token: &Token, expected: &str) -> SelectorError {
    SelectorError::Grammar(format!("found '{}', expected: {expected}", token.text()))
}

impl Parser {
    fn next(&mut self) -> Token {
        let next = self.tokens.next().unwrap_or(Token::End);
        std::mem::replace(&mut self.ahead, next)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let absent = token == Token::Symbol("!");
        if absent {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(found(&token, "identifier"));
        };
        if absent {
            return Requirement::new(&key, Operator::DoesNotExist, []);
        }
        if matches!(self.ahead, Token::End | Token::Symbol(",")) {
            return Requirement::new(&key, Operator::Exists, []);
        }
        let token = self.next();
        let (operator, set) = match token.text() {
            "=" | "==" => (Operator::In, false),
            "!=" => (Operator::NotIn, false),
            ">" => (Operator::GreaterThan, false),
            "<" => (Operator::LessThan, false),
            "in" => (Operator::In, true),
            "notin" => (Operator::NotIn, true),
            _ => return Err(found(&token, "in, notin, =, ==, !=, gt, lt")),
        };
        let values = if set { self.values()? } else { vec![self.value()?] };
        Requirement::new(&key, operator, values)
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match &self.ahead {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.next().text().to_owned()),
            other => Err(found(other, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(SelectorError::Grammar(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = vec![String::new()];
        let mut fresh = true;
        loop {
            let token = self.next();
            match &token {
                Token::Word(word) if fresh => {
                    values.pop();
                    values.push(word.clone());
                    fresh = false;
                }
                Token::Symbol(",") => {
                    values.push(String::new());
                    fresh = true;
                }
                Token::Symbol(")") => return Ok(values),
                _ => return Err(found(&token, "',', or ')'")),
            }
        }
    }
}

pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser {
        tokens: lex(text).into_iter(),
        ahead: Token::End,
    };
    parser.next();
    let mut list = Vec::new();
    if parser.ahead == Token::End {
        return Ok(list);
    }
    loop {
        if !matches!(parser.ahead, Token::Word(_) | Token::Symbol("!")) {
            let expected = if list.is_empty() {
                "!, identifier, or 'end of string'"
            } else {
                "identifier after ','"
            };
            return Err(found(&parser.ahead, expected));
        }
        list.push(parser.requirement()?);
        match parser.next() {
            Token::End => return Ok(list),
            Token::Symbol(",") => {}
            other => return Err(found(&other, "',' or 'end of string'")),
        }
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                _ => return Err(SelectorError::Field(text.to_owned())),
            },
            ',' | '=' => return Err(SelectorError::Field(text.to_owned())),
            c => out.push(c),
        }
    }
    Ok(out)
}

pub(super) fn fields(text: &str) -> Result<Vec<FieldRequirement>, SelectorError> {
    let mut list = Vec::new();
    for term in split_terms(text).into_iter().filter(|t| !t.is_empty()) {
        let at = term
            .find(['=', '!'])
            .ok_or_else(|| SelectorError::Field(term.to_owned()))?;
        let (field, rest) = term.split_at(at);
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (true, value)
        } else {
            return Err(SelectorError::Field(term.to_owned()));
        };
        list.push(FieldRequirement {
            field: field.to_owned(),
            value: unescape(value)?,
            equal,
        });
    }
    Ok(list)
}
