//! The static token file: CSV of `token,user,uid[,"group1,group2"]` (control-plane contract §6). Pure.

use crate::apiserver::user::User;
use std::collections::BTreeMap;

/// Static tokens and the users they stand for.
#[derive(Clone, Debug, Default)]
pub struct TokenFile {
    users: BTreeMap<String, User>,
}

impl TokenFile {
    /// Reads the file's text; rows with an empty token are skipped, and of a repeated token the last row wins.
    ///
    /// # Errors
    /// Names the line that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut users = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let line_error = |why: &str| format!("line {}: {why}", number + 1);
            let fields = split(line).ok_or_else(|| line_error("a quoted field does not end"))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(line_error("must have at least 3 columns (token, user name, user uid)"));
            };
            if token.is_empty() {
                tracing::warn!(line = number + 1, "empty token in the token file is skipped");
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
            let user = User {
                uid: (!uid.is_empty()).then(|| uid.clone()),
                ..User::named(name.as_str(), &groups)
            };
            users.insert(token.clone(), user);
        }
        Ok(Self { users })
    }

    /// The user of a token.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }
}

/// One CSV record: fields by comma, quotes around a field, doubled quotes inside.
fn split(line: &str) -> Option<Vec<String>> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim_start().to_owned()),
            c => field.push(c),
        }
    }
    fields.push(field.trim_start().to_owned());
    (!quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_users() {
        let text = "t1,alice,1,\"dev,ops\"\r\n\n,skipped,2\nt2,bob,\nt1,carol,3\n";
        let file = TokenFile::parse(text).unwrap();
        assert_eq!(file.user("t1").unwrap().name, "carol");
        assert_eq!(file.user("t1").unwrap().groups, ["system:authenticated"]);
        assert_eq!(file.user("t2").unwrap().uid, None);
        assert!(file.user("").is_none());
        let file = TokenFile::parse("t1,alice,1,\"dev,ops\"").unwrap();
        assert_eq!(file.user("t1").unwrap().groups, ["dev", "ops", "system:authenticated"]);
    }

    #[test]
    fn short_rows_and_open_quotes_are_named() {
        assert!(
            TokenFile::parse("a,b,c\na,b")
                .unwrap_err()
                .starts_with("line 2: must have at least 3")
        );
        assert!(TokenFile::parse("a,b,c,\"x").unwrap_err().contains("quoted"));
    }
}
