//! The environment of a call and the rules for names (contract §1.2, §1.3).

use std::collections::BTreeMap;

use super::error::{self, Error};

/// What the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// Verify an attachment.
    Check,
    /// Remove what no valid attachment owns.
    Gc,
    /// Can ADD be served?
    Status,
    /// Which versions are supported?
    Version,
}

impl Command {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    fn names_an_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// The validated environment of one call.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The verb; `None` is one we do not know, reported after the configuration was looked at, as upstream does.
    pub command: Option<Command>,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`: a path, possibly empty on DEL.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`: folders with plugins, separated by `:`.
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`: the namespace may be the plugin's own.
    pub netns_override: bool,
}

impl Environment {
    /// Reads and checks the variables; everything missing is reported in one error.
    pub fn read(variables: &BTreeMap<String, String>) -> Result<Self, Error> {
        let get = |name: &str| variables.get(name).cloned().unwrap_or_default();
        let command = Command::parse(&get("CNI_COMMAND"));
        let attachment = command.is_some_and(Command::names_an_attachment);
        let needs_netns = matches!(command, Some(Command::Add | Command::Check));
        let needs_path = command.is_some_and(|command| command != Command::Version);
        let mut missing = Vec::new();
        let mut check = |name: &'static str, required: bool, validate: fn(&str) -> Result<(), Error>| {
            let value = get(name);
            if !value.is_empty() {
                return if required { validate(&value) } else { Ok(()) };
            }
            if required {
                missing.push(name);
            }
            Ok(())
        };
        check("CNI_COMMAND", true, |_| Ok(()))?;
        check("CNI_CONTAINERID", attachment, validate_container_id)?;
        check("CNI_NETNS", needs_netns, |_| Ok(()))?;
        check("CNI_IFNAME", attachment, validate_interface_name)?;
        check("CNI_PATH", needs_path, |_| Ok(()))?;
        if !missing.is_empty() {
            let text = format!("required env variables [{}] missing", missing.join(","));
            return Err(Error::new(error::BAD_ENVIRONMENT, text));
        }
        let netns_override = get("CNI_NETNS_OVERRIDE");
        Ok(Self {
            command,
            container_id: get("CNI_CONTAINERID"),
            netns: get("CNI_NETNS"),
            ifname: get("CNI_IFNAME"),
            args: get("CNI_ARGS"),
            path: get("CNI_PATH"),
            netns_override: netns_override == "1" || netns_override.eq_ignore_ascii_case("true"),
        })
    }
}

/// Letters, digits, `_`, `.`, `-`; the first a letter or digit.
fn is_plain_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && text.bytes().all(allowed)
}

/// Refuses a container ID with other characters, code 4.
pub fn validate_container_id(id: &str) -> Result<(), Error> {
    if is_plain_name(id) {
        return Ok(());
    }
    Err(Error::new(error::BAD_ENVIRONMENT, "invalid characters in containerID").with_details(id))
}

/// Refuses a network name that is empty or has other characters, code 7.
pub fn validate_network_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::new(error::INVALID_CONFIG, "missing network name"));
    }
    if is_plain_name(name) {
        return Ok(());
    }
    Err(Error::new(error::INVALID_CONFIG, "invalid characters found in network name").with_details(name))
}

/// Refuses what the kernel would refuse as an interface name, code 4.
pub fn validate_interface_name(name: &str) -> Result<(), Error> {
    const LONGEST: usize = 15;
    let fail = |msg: &str| Err(Error::new(error::BAD_ENVIRONMENT, msg));
    if name.is_empty() {
        return fail("interface name is empty");
    }
    if name.len() > LONGEST {
        let details = format!("interface name should be less than {} characters", LONGEST + 1);
        return Err(Error::new(error::BAD_ENVIRONMENT, "interface name is too long").with_details(details));
    }
    if name == "." || name == ".." {
        return fail("interface name is . or ..");
    }
    if name
        .chars()
        .any(|letter| letter == '/' || letter == ':' || letter.is_whitespace())
    {
        return fail("interface name contains / or : or whitespace characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, Error> {
        Environment::read(
            &pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn everything_missing_is_named_at_once() {
        let error = read(&[("CNI_COMMAND", "ADD"), ("CNI_PATH", "/x")]).unwrap_err();
        assert_eq!(
            error.msg,
            "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing"
        );
        assert_eq!(error.code, 4);
        assert_eq!(
            read(&[]).unwrap_err().msg,
            "required env variables [CNI_COMMAND] missing"
        );
        let error = read(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a")]).unwrap_err();
        assert_eq!(error.msg, "required env variables [CNI_IFNAME,CNI_PATH] missing");
        assert!(read(&[("CNI_COMMAND", "VERSION")]).is_ok());
        assert_eq!(
            read(&[("CNI_COMMAND", "GC")]).unwrap_err().msg,
            "required env variables [CNI_PATH] missing"
        );
        assert_eq!(read(&[("CNI_COMMAND", "BOGUS")]).unwrap().command, None);
    }

    #[test]
    fn names_follow_the_rules() {
        for good in ["a", "A-b_c.d", "0x", &"a".repeat(300)] {
            assert!(
                validate_container_id(good).is_ok() && validate_network_name(good).is_ok(),
                "{good}"
            );
        }
        for bad in ["..", ".", "a/b", "-a", "a b", "é", "a\n", "_x"] {
            assert_eq!(validate_container_id(bad).unwrap_err().details, bad);
            assert_eq!(validate_network_name(bad).unwrap_err().code, 7);
        }
        for bad in ["", "a/b", "a:b", "a b", ".", "..", "sixteen-bytes-00"] {
            assert_eq!(validate_interface_name(bad).unwrap_err().code, 4, "{bad}");
        }
        assert!(validate_interface_name("fifteen-bytes-0").is_ok());
    }

    #[test]
    fn a_bad_id_is_reported_before_what_is_missing() {
        let error = read(&[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "a/b")]).unwrap_err();
        assert_eq!(
            (error.msg.as_str(), error.details.as_str()),
            ("invalid characters in containerID", "a/b")
        );
    }

    #[test]
    fn the_override_is_one_or_true() {
        for (text, expected) in [
            ("1", true),
            ("True", true),
            ("TRUE", true),
            ("yes", false),
            ("0", false),
        ] {
            let env = read(&[("CNI_COMMAND", "VERSION"), ("CNI_NETNS_OVERRIDE", text)]).unwrap();
            assert_eq!(env.netns_override, expected);
        }
    }
}
