//! The text of an expression as a tree (the Common Expression Language's grammar). Pure.
//!
//! Owns how deep and how long an expression may be: whoever walks the tree may recurse. Macros stay calls.

use super::lexer::{Lexer, Mark, RESERVED, Token};

/// Characters of an expression, as upstream's parser allows.
const LENGTH_MAX: usize = 100_000;
/// Levels of a tree, and of what is open while it is read.
const DEPTH_MAX: usize = 96;
/// Links of a chain of operators, such as `a + b + c`: as many as upstream has levels.
const LINKS_MAX: usize = 250;

/// A node, and where in the text it stands.
#[derive(Clone, Debug)]
pub(super) struct Ast {
    pub(super) at: usize,
    /// Levels from here down; those of a chain of operators count once.
    height: usize,
    /// Links of the chain of operators that ends here.
    links: usize,
    pub(super) kind: Kind,
}

/// What a node is. Operators are calls of functions such as `_+_`.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Name(Box<str>),
    Select {
        of: Box<Ast>,
        field: Box<str>,
        is_optional: bool,
    },
    Call {
        name: Box<str>,
        target: Option<Box<Ast>>,
        args: Vec<Ast>,
    },
    /// With whether a member is optional.
    List(Vec<(bool, Ast)>),
    Map(Vec<(bool, Ast, Ast)>),
}

/// Something wrong with an expression, and where.
#[derive(Clone, Debug)]
pub(super) struct Mistake {
    pub(super) at: usize,
    pub(super) why: String,
}

/// Operators of two sides that bind alike, weakest first.
const BINARY: [&[(Mark, &str)]; 3] = [
    &[
        (Mark::Less, "_<_"),
        (Mark::LessEqual, "_<=_"),
        (Mark::Greater, "_>_"),
        (Mark::GreaterEqual, "_>=_"),
        (Mark::Equal, "_==_"),
        (Mark::NotEqual, "_!=_"),
        (Mark::In, "@in"),
    ],
    &[(Mark::Plus, "_+_"), (Mark::Minus, "_-_")],
    &[(Mark::Star, "_*_"), (Mark::Slash, "_/_"), (Mark::Percent, "_%_")],
];

/// Reads an expression.
///
/// # Errors
/// It is none, or too long or deep.
pub(super) fn parse(text: &str) -> Result<Ast, Mistake> {
    if text.chars().count() > LENGTH_MAX {
        let why = format!(
            "expression code point size exceeds limit: size: {}, limit {LENGTH_MAX}",
            text.chars().count()
        );
        return Err(Mistake { at: 0, why });
    }
    let mut parser = Parser::new(text)?;
    let ast = parser.expression(0)?;
    match parser.token {
        Token::Mark(Mark::End) => Ok(ast),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    at: usize,
}

fn too_deep(at: usize, most: usize) -> Mistake {
    Mistake {
        at,
        why: format!("expression recursion limit exceeded: {most}"),
    }
}

/// A node of the nodes below it: here alone trees grow, so whoever walks one may recurse, but not along a chain of operators.
fn node(at: usize, kind: Kind) -> Result<Ast, Mistake> {
    let most = |below: &mut dyn Iterator<Item = &Ast>| below.map(|ast| ast.height).max().unwrap_or(0);
    let links = chained(&kind).map_or(0, |[left, _]| left.links + 1);
    let below = match &kind {
        Kind::Select { of, .. } => of.height,
        Kind::Call { target, args, .. } => match chained(&kind) {
            // The chain goes on in the same level.
            Some([left, right]) if left.links > 0 => right.height.max(left.height.saturating_sub(1)),
            _ => most(&mut target.as_deref().into_iter().chain(args)),
        },
        Kind::List(members) => most(&mut members.iter().map(|(_, member)| member)),
        Kind::Map(entries) => most(&mut entries.iter().flat_map(|(_, key, value)| [key, value])),
        _ => 0,
    };
    if links > LINKS_MAX {
        return Err(too_deep(at, LINKS_MAX));
    }
    match below < DEPTH_MAX {
        true => Ok(Ast {
            at,
            height: below + 1,
            links,
            kind,
        }),
        false => Err(too_deep(at, DEPTH_MAX)),
    }
}

/// Both sides of an operator that makes chains.
pub(super) fn chained(kind: &Kind) -> Option<&[Ast; 2]> {
    match kind {
        Kind::Call {
            name,
            target: None,
            args,
        } => {
            let is_operator = BINARY
                .iter()
                .copied()
                .flatten()
                .any(|(_, operator)| **name == **operator);
            <&[Ast; 2]>::try_from(args.as_slice()).ok().filter(|_| is_operator)
        }
        _ => None,
    }
}

fn call(at: usize, name: &str, args: Vec<Ast>) -> Result<Ast, Mistake> {
    let kind = Kind::Call {
        name: name.into(),
        target: None,
        args,
    };
    node(at, kind)
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, Mistake> {
        let mut lexer = Lexer::new(text);
        let (at, token) = lexer.next()?;
        Ok(Self { lexer, token, at })
    }

    /// The present token, and goes on.
    fn take(&mut self) -> Result<(usize, Token), Mistake> {
        let (at, next) = self.lexer.next()?;
        let token = std::mem::replace(&mut self.token, next);
        Ok((std::mem::replace(&mut self.at, at), token))
    }

    fn is(&self, mark: Mark) -> bool {
        matches!(&self.token, Token::Mark(own) if *own == mark)
    }

    /// Goes past the mark if it is next.
    fn skip(&mut self, mark: Mark) -> Result<bool, Mistake> {
        let is_next = self.is(mark);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, mark: Mark) -> Result<(), Mistake> {
        match self.skip(mark)? {
            true => Ok(()),
            false => Err(self.unexpected(&format!("'{}'", mark.text()))),
        }
    }

    fn unexpected(&self, wanted: &str) -> Mistake {
        let found = self.lexer.text_from(self.at);
        Mistake {
            at: self.at,
            why: format!("Syntax error: mismatched input '{found}' expecting {wanted}"),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Mistake> {
        match depth < DEPTH_MAX {
            true => Ok(depth + 1),
            false => Err(too_deep(self.at, DEPTH_MAX)),
        }
    }

    fn expression(&mut self, depth: usize) -> Result<Ast, Mistake> {
        let depth = self.deeper(depth)?;
        let condition = self.junction(depth, Mark::Or, "_||_")?;
        if !self.is(Mark::Question) {
            return Ok(condition);
        }
        let (at, _) = self.take()?;
        let yes = self.junction(depth, Mark::Or, "_||_")?;
        self.expect(Mark::Colon)?;
        let no = self.expression(depth)?;
        call(at, "_?_:_", vec![condition, yes, no])
    }

    /// Terms of `||`, or of `&&`: as many as there are, in one node.
    fn junction(&mut self, depth: usize, mark: Mark, name: &str) -> Result<Ast, Mistake> {
        let term = |parser: &mut Self| match mark {
            Mark::Or => parser.junction(depth, Mark::And, "_&&_"),
            _ => parser.binary(depth, 0),
        };
        let first = term(self)?;
        if !self.is(mark) {
            return Ok(first);
        }
        let at = self.at;
        let mut terms = vec![first];
        while self.skip(mark)? {
            terms.push(term(self)?);
        }
        call(at, name, terms)
    }

    fn binary(&mut self, depth: usize, level: usize) -> Result<Ast, Mistake> {
        let Some(operators) = BINARY.get(level) else {
            return self.unary(depth);
        };
        let mut left = self.binary(depth, level + 1)?;
        while let Some((_, name)) = operators.iter().find(|(mark, _)| self.is(*mark)) {
            // A chain leans to the left.
            let (at, _) = self.take()?;
            let right = self.binary(depth, level + 1)?;
            left = call(at, name, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self, depth: usize) -> Result<Ast, Mistake> {
        for (mark, name) in [(Mark::Not, "!_"), (Mark::Minus, "-_")] {
            if !self.is(mark) {
                continue;
            }
            let (at, _) = self.take()?;
            if let (Mark::Minus, Token::Number(digits)) = (mark, &self.token) {
                // The sign belongs to the number: the least one has no positive counterpart.
                self.token = Token::Number(format!("-{digits}").into());
                return self.member(depth);
            }
            let depth = self.deeper(depth)?;
            let inner = self.unary(depth)?;
            return call(at, name, vec![inner]);
        }
        self.member(depth)
    }

    fn member(&mut self, depth: usize) -> Result<Ast, Mistake> {
        let mut of = self.primary(depth)?;
        loop {
            let is_dot = self.is(Mark::Dot);
            if !is_dot && !self.is(Mark::Open) {
                return Ok(of);
            }
            let (at, _) = self.take()?;
            let is_optional = self.skip(Mark::Question)?;
            if !is_dot {
                let key = self.expression(depth)?;
                self.expect(Mark::Close)?;
                of = call(at, if is_optional { "_[?_]" } else { "_[_]" }, vec![of, key])?;
                continue;
            }
            let field = match self.take()? {
                (_, Token::Name(name)) => name,
                (_, Token::Quoted(name)) => name,
                (at, _) => {
                    let why = format!(
                        "Syntax error: no viable alternative at input '{}'",
                        self.lexer.text_from(at)
                    );
                    return Err(Mistake { at, why });
                }
            };
            let inner = Box::new(of);
            of = match self.is(Mark::ParenOpen) && !is_optional {
                true => {
                    let at = self.at;
                    let args = self.arguments(depth)?;
                    let target = Some(inner);
                    let kind = Kind::Call {
                        name: field,
                        target,
                        args,
                    };
                    node(at, kind)?
                }
                false => {
                    let of = inner;
                    let kind = Kind::Select { of, field, is_optional };
                    node(at, kind)?
                }
            };
        }
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<Ast>, Mistake> {
        self.expect(Mark::ParenOpen)?;
        let mut args = Vec::new();
        if self.skip(Mark::ParenClose)? {
            return Ok(args);
        }
        args.push(self.expression(depth)?);
        while self.skip(Mark::Comma)? {
            args.push(self.expression(depth)?);
        }
        self.expect(Mark::ParenClose)?;
        Ok(args)
    }

    fn primary(&mut self, depth: usize) -> Result<Ast, Mistake> {
        let is_paren = self.is(Mark::ParenOpen);
        if is_paren {
            self.take()?;
            let inner = self.expression(depth)?;
            self.expect(Mark::ParenClose)?;
            return Ok(inner);
        }
        let is_start = [Mark::Open, Mark::BraceOpen, Mark::Dot]
            .iter()
            .any(|mark| self.is(*mark));
        if matches!(self.token, Token::Mark(_)) && !is_start {
            return Err(self.unexpected("an expression"));
        }
        let (at, token) = self.take()?;
        let kind = match token {
            Token::Number(digits) => number(at, &digits)?,
            Token::Unsigned(digits) => Kind::Uint(whole(at, &digits, u64::from_str_radix)?),
            Token::Double(value) => Kind::Double(value),
            Token::Text(text) => Kind::Text(text),
            Token::Bytes(bytes) => Kind::Bytes(bytes),
            Token::Name(name) => match &*name {
                "true" => Kind::Bool(true),
                "false" => Kind::Bool(false),
                "null" => Kind::Null,
                reserved if RESERVED.contains(&reserved) => {
                    let why = format!("Syntax error: reserved identifier: {reserved}");
                    return Err(Mistake { at, why });
                }
                _ if self.is(Mark::ParenOpen) => {
                    let at = self.at;
                    let args = self.arguments(depth)?;
                    let kind = Kind::Call {
                        name,
                        target: None,
                        args,
                    };
                    return node(at, kind);
                }
                _ => Kind::Name(name),
            },
            Token::Mark(Mark::Open) => Kind::List(self.members(depth)?),
            Token::Mark(Mark::BraceOpen) => Kind::Map(self.entries(depth)?),
            // A name from the root, which is where all names are.
            Token::Mark(Mark::Dot) => return self.primary(self.deeper(depth)?),
            Token::Quoted(_) | Token::Mark(_) => {
                let why = "Syntax error: unexpected input".to_owned();
                return Err(Mistake { at, why });
            }
        };
        node(at, kind)
    }

    fn members(&mut self, depth: usize) -> Result<Vec<(bool, Ast)>, Mistake> {
        let mut members = Vec::new();
        while !self.is(Mark::Close) {
            let is_optional = self.skip(Mark::Question)?;
            members.push((is_optional, self.expression(depth)?));
            if !self.skip(Mark::Comma)? {
                break;
            }
        }
        self.expect(Mark::Close)?;
        Ok(members)
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<(bool, Ast, Ast)>, Mistake> {
        let mut entries = Vec::new();
        while !self.is(Mark::BraceClose) {
            let is_optional = self.skip(Mark::Question)?;
            let key = self.expression(depth)?;
            self.expect(Mark::Colon)?;
            entries.push((is_optional, key, self.expression(depth)?));
            if !self.skip(Mark::Comma)? {
                break;
            }
        }
        self.expect(Mark::BraceClose)?;
        Ok(entries)
    }
}

fn number(at: usize, digits: &str) -> Result<Kind, Mistake> {
    whole(at, digits, i64::from_str_radix).map(Kind::Int)
}

/// A whole number, of base 16 where it says so.
fn whole<N>(at: usize, digits: &str, read: fn(&str, u32) -> Result<N, std::num::ParseIntError>) -> Result<N, Mistake> {
    let (sign, rest) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let read = match rest.strip_prefix("0x") {
        Some(hex) => read(&format!("{sign}{hex}"), 16),
        None => read(digits, 10),
    };
    read.map_err(|_| Mistake {
        at,
        why: "Syntax error: invalid int literal".to_owned(),
    })
}
