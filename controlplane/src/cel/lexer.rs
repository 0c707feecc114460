//! The words of an expression. Pure.

use super::syntax::Mistake;

/// Signs and the one operator that is a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    End,
    Open,
    Close,
    ParenOpen,
    ParenClose,
    BraceOpen,
    BraceClose,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    In,
}

/// Longer ones first, so that they are found first.
const MARKS: [(&str, Mark); 25] = [
    ("<=", Mark::LessEqual),
    (">=", Mark::GreaterEqual),
    ("==", Mark::Equal),
    ("!=", Mark::NotEqual),
    ("&&", Mark::And),
    ("||", Mark::Or),
    ("[", Mark::Open),
    ("]", Mark::Close),
    ("(", Mark::ParenOpen),
    (")", Mark::ParenClose),
    ("{", Mark::BraceOpen),
    ("}", Mark::BraceClose),
    (".", Mark::Dot),
    (",", Mark::Comma),
    ("-", Mark::Minus),
    ("!", Mark::Not),
    ("?", Mark::Question),
    (":", Mark::Colon),
    ("+", Mark::Plus),
    ("*", Mark::Star),
    ("/", Mark::Slash),
    ("%", Mark::Percent),
    ("<", Mark::Less),
    (">", Mark::Greater),
    ("in", Mark::In),
];

impl Mark {
    pub(super) fn text(self) -> &'static str {
        let found = MARKS.iter().find(|(_, mark)| *mark == self);
        found.map_or("<EOF>", |(text, _)| text)
    }
}

/// A word.
#[derive(Clone, Debug)]
pub(super) enum Token {
    Mark(Mark),
    /// Digits of a whole number.
    Number(Box<str>),
    /// Likewise, of one without a sign.
    Unsigned(Box<str>),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Name(Box<str>),
    /// A field's name between backticks.
    Quoted(Box<str>),
}

/// Words that are no names of variables; of fields they are.
pub(super) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

fn mistake<T>(at: usize, why: &str) -> Result<T, Mistake> {
    Err(Mistake {
        at,
        why: format!("Syntax error: {why}"),
    })
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The word that begins there, for messages.
    pub(super) fn text_from(&self, at: usize) -> &'t str {
        match self.text.get(at..).unwrap_or_default() {
            "" => "<EOF>",
            rest => {
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(rest.len());
                let first = rest.chars().next().map_or(0, char::len_utf8);
                rest.get(..end.clamp(first, 64.max(first))).unwrap_or("")
            }
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']).len();
            self.at += blanks;
            match self.rest().strip_prefix("//") {
                Some(comment) => self.at += 2 + comment.find('\n').unwrap_or(comment.len()),
                None => return,
            }
        }
    }

    /// The next word and where it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token), Mistake> {
        self.skip_blanks();
        let (at, rest) = (self.at, self.rest());
        let Some(first) = rest.chars().next() else {
            return Ok((at, Token::Mark(Mark::End)));
        };
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return Ok((at, self.number()?));
        }
        if let Some(token) = self.quoted()? {
            return Ok((at, token));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            self.at += name.len();
            return match name {
                "in" => Ok((at, Token::Mark(Mark::In))),
                name => Ok((at, Token::Name(name.into()))),
            };
        }
        if first == '`' {
            let inner = rest.get(1..).unwrap_or_default();
            let end = inner.find('`').unwrap_or(0);
            let name = inner.get(..end).unwrap_or_default();
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
            if name.is_empty() || !name.chars().all(is_name) {
                return mistake(at, "token recognition error at: '`'");
            }
            self.at += end + 2;
            return Ok((at, Token::Quoted(name.into())));
        }
        match MARKS.iter().find(|(text, _)| rest.starts_with(text)) {
            Some((text, mark)) => {
                self.at += text.len();
                Ok((at, Token::Mark(*mark)))
            }
            None => mistake(at, &format!("token recognition error at: '{first}'")),
        }
    }

    fn number(&mut self) -> Result<Token, Mistake> {
        let (at, rest) = (self.at, self.rest());
        let digits = |text: &str, is: fn(&char) -> bool| text.chars().take_while(is).count();
        let is_hex = rest.starts_with("0x");
        let mut end = match is_hex {
            true => 2 + digits(&rest[2..], char::is_ascii_hexdigit),
            false => digits(rest, char::is_ascii_digit),
        };
        let mut is_double = false;
        if !is_hex {
            let fraction = rest.get(end + 1..).unwrap_or_default();
            if rest[end..].starts_with('.') && fraction.starts_with(|c: char| c.is_ascii_digit()) {
                end += 1 + digits(fraction, char::is_ascii_digit);
                is_double = true;
            }
            if rest[end..].starts_with(['e', 'E']) {
                let after = rest.get(end + 1..).unwrap_or_default();
                let signed = after.strip_prefix(['+', '-']).unwrap_or(after);
                let count = digits(signed, char::is_ascii_digit);
                if count > 0 {
                    end += 1 + (after.len() - signed.len()) + count;
                    is_double = true;
                }
            }
        }
        let text = rest.get(..end).unwrap_or_default();
        self.at += end;
        if is_double {
            return text
                .parse()
                .map(Token::Double)
                .or_else(|_| mistake(at, "invalid double literal"));
        }
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Ok(Token::Unsigned(text.into()));
        }
        Ok(Token::Number(text.into()))
    }

    /// A string or bytes, if one begins here.
    fn quoted(&mut self) -> Result<Option<Token>, Mistake> {
        let (at, rest) = (self.at, self.rest());
        let prefix = rest.len() - rest.trim_start_matches(['r', 'R', 'b', 'B']).len();
        let quote = match rest.get(prefix..).and_then(|after| after.chars().next()) {
            Some(quote @ ('"' | '\'')) if prefix <= 2 => quote,
            _ => return Ok(None),
        };
        let prefix_text = rest.get(..prefix).unwrap_or_default().to_ascii_lowercase();
        if !matches!(&*prefix_text, "" | "r" | "b" | "br") {
            return Ok(None);
        }
        let (is_raw, is_bytes) = (prefix_text.contains('r'), prefix_text.contains('b'));
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let body = rest.get(prefix..).unwrap_or_default();
        let close = if body.starts_with(&triple) {
            triple
        } else {
            quote.to_string()
        };
        let body = body.get(close.len()..).unwrap_or_default();
        let mut out = Vec::new();
        let mut characters = body.char_indices();
        while let Some((i, character)) = characters.next() {
            if body[i..].starts_with(&close) {
                self.at += prefix + close.len() + i + close.len();
                return Ok(Some(match is_bytes {
                    true => Token::Bytes(out.into()),
                    false => match String::from_utf8(out) {
                        Ok(text) => Token::Text(text.into()),
                        Err(_) => return mistake(at, "invalid string literal"),
                    },
                }));
            }
            let is_end = close.len() == 1 && matches!(character, '\n' | '\r');
            match character {
                _ if is_end => break,
                '\\' if !is_raw => {
                    let Some(end) = escape(&body[i + 1..], is_bytes, &mut out) else {
                        return mistake(at, "invalid escape sequence");
                    };
                    for _ in 0..end {
                        characters.next();
                    }
                }
                other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        mistake(at, &format!("token recognition error at: '{}'", self.text_from(at)))
    }
}

/// What an escape stands for, and how many characters it has after the backslash.
fn escape(text: &str, is_bytes: bool, out: &mut Vec<u8>) -> Option<usize> {
    let first = text.chars().next()?;
    let plain = match first {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => first as u8,
        _ => 0,
    };
    if plain != 0 {
        out.push(plain);
        return Some(1);
    }
    let (skipped, count, base) = match first {
        'x' | 'X' => (1, 2, 16),
        'u' if !is_bytes => (1, 4, 16),
        'U' if !is_bytes => (1, 8, 16),
        '0'..='3' => (0, 3, 8),
        _ => return None,
    };
    let code = u32::from_str_radix(text.get(skipped..skipped + count)?, base).ok()?;
    match is_bytes {
        true => out.push(u8::try_from(code).ok()?),
        false => out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes()),
    }
    Some(skipped + count)
}
