//! A request's query, decoded. Pure.

/// Query parameters in order; a name may come several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

/// A request's path as everybody judges it: undone of its percent encoding, in parts, none of them empty. Whether somebody may
/// do it, whether it is switched off and what it means must go by the same one, or one of them could be passed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestPath(Vec<String>);

impl RequestPath {
    pub(super) fn parse(text: &str) -> Self {
        let text = percent_decoded(text, false);
        let parts = text.split('/').filter(|part| !part.is_empty());
        Self(parts.map(str::to_owned).collect())
    }

    pub(super) fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether it is `root` (parts, with `/` between them) or below it.
    pub(super) fn is_in(&self, root: &str) -> bool {
        let mut own = self.0.iter();
        root.split('/').all(|part| own.next().is_some_and(|have| have == part))
    }
}

/// Undoes percent and plus encoding; what is not encoded properly stays as it is.
fn decode(text: &str) -> String {
    percent_decoded(text, true)
}

fn percent_decoded(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (hex, bytes[at]) {
            (Some(byte), _) => {
                out.push(byte);
                at += 3;
            }
            (None, b'+') if plus_is_space => {
                out.push(b' ');
                at += 1;
            }
            (None, byte) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.clone())
            .collect()
    }

    /// A switch: `1` or `true`.
    pub(super) fn on(&self, name: &str) -> bool {
        matches!(self.first(name), Some("1" | "true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_form() {
        let exec = ["exec", "ns", "p", "c"].map(str::to_owned);
        for text in [
            "/exec/ns/p/c",
            "//exec//ns/p/c/",
            "/%65xec/ns/p/c",
            "/exec%2Fns/p/c",
            "/%2fexec/ns/p/c",
        ] {
            assert_eq!(RequestPath::parse(text).parts(), exec, "{text}");
        }
        let path = RequestPath::parse("/debug//pprof/profile");
        assert!(path.is_in("debug/pprof") && path.is_in("debug") && !path.is_in("debug/flags"));
        assert!(!RequestPath::parse("/runner").is_in("run") && !RequestPath::parse("/").is_in("run"));
        assert_eq!(RequestPath::parse("/a+b/%zz").parts(), ["a+b", "%zz"]);
    }

    #[test]
    fn queries() {
        let query = Query::parse("command=sh&command=-c&command=echo%20a%2Bb+c&tty=1&x&input=true&bad=%zz");
        assert_eq!(query.all("command"), ["sh", "-c", "echo a+b c"]);
        assert!(query.on("tty") && query.on("input") && !query.on("x") && !query.on("none"));
        assert_eq!(query.first("bad"), Some("%zz"));
    }
}
