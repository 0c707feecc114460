//! `$(VAR)` in commands, arguments, values and paths (kubelet contract §6). Pure; written once for everyone who expands.

/// `$(NAME)` replaced by `lookup(NAME)`, `$$` by `$`; unknown names and everything else stay as written.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_replaced_and_the_rest_stays() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A}", "$A ${A}"),
            ("$(A", "$(A"),
            ("$(B$(A)", "$(B$(A)"),
            ("cost $", "cost $"),
            ("", ""),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }
}
