//! One call from environment and standard input to exit code and output (contract §1.2, §1.4, §1.8). The order of the
//! checks is upstream's, since it decides which error a runtime sees.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Map, Value, json};

use super::env::{Command, Environment, validate_network_name};
use super::error::{self, Error};
use super::json::Fields;
use super::privilege;
use super::result::CniResult;
use super::version::{self, Version};

/// The largest configuration read from standard input, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// A plugin: its name, the versions it accepts and what it does per verb.
pub struct Plugin {
    /// The `type` in a configuration.
    pub name: &'static str,
    /// Accepted versions, oldest first.
    pub versions: &'static [Version],
    /// ADD.
    pub add: fn(&Request) -> Result<CniResult, Error>,
    /// DEL.
    pub del: fn(&Request) -> Result<(), Error>,
    /// CHECK.
    pub check: fn(&Request) -> Result<(), Error>,
    /// GC; succeeds silently when there is nothing to collect.
    pub gc: fn(&Request) -> Result<(), Error>,
    /// STATUS.
    pub status: fn(&Request) -> Result<(), Error>,
}

/// A validated call, as plugins see it.
pub struct Request {
    /// The environment.
    pub env: Environment,
    /// Every variable, for delegates.
    pub variables: BTreeMap<String, String>,
    /// The configuration as it came, for delegates.
    pub stdin: Vec<u8>,
    /// The configuration.
    pub config: Map<String, Value>,
    /// `name` of the network.
    pub network: String,
    /// `cniVersion`.
    pub version: Version,
}

impl Request {
    /// The configuration's fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.config, "NetConf")
    }

    /// `prevResult`, if the configuration carries one; without a version of its own it takes the configuration's.
    pub fn prev_result(&self) -> Result<Option<CniResult>, Error> {
        let Some(value) = self.fields().value("prevResult") else {
            return Ok(None);
        };
        CniResult::parse(value, self.version)
            .map(Some)
            .map_err(|error| Error::internal(format!("could not parse prevResult: {error}")))
    }

    /// The attachments a GC must keep: pairs of container ID and interface name (contract §1.8).
    pub fn valid_attachments(&self) -> Result<Vec<(String, String)>, Error> {
        let fields = self.fields();
        let key = if fields.value("cni.dev/valid-attachments").is_some() {
            "cni.dev/valid-attachments"
        } else {
            "cni.dev/attachments"
        };
        let invalid = |error: super::json::DecodeError| Error::new(error::DECODING, error.to_string());
        let objects = fields.objects(key, "GCAttachment").map_err(invalid)?;
        let pair = |entry: &Fields<'_>| -> Result<(String, String), Error> {
            Ok((
                entry.string("containerID").map_err(invalid)?.to_owned(),
                entry.string("ifname").map_err(invalid)?.to_owned(),
            ))
        };
        objects.iter().map(pair).collect()
    }
}

/// What a call leaves behind for the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// 0 or 1.
    pub exit_code: u8,
    /// The result or the error, as JSON; may be empty.
    pub stdout: String,
    /// The about text, when no command was given.
    pub stderr: String,
}

impl Outcome {
    fn success(stdout: String) -> Self {
        Self {
            exit_code: 0,
            stdout,
            stderr: String::new(),
        }
    }

    fn failure(error: &Error) -> Self {
        Self {
            exit_code: 1,
            stdout: error.render(),
            stderr: String::new(),
        }
    }
}

/// Serves one call of `plugin`.
pub fn serve(plugin: &Plugin, variables: &BTreeMap<String, String>, stdin: &mut dyn Read) -> Outcome {
    if variables.get("CNI_COMMAND").is_none_or(String::is_empty) {
        return about(plugin);
    }
    match call(plugin, variables, stdin) {
        Ok(stdout) => Outcome::success(stdout),
        Err(error) => Outcome::failure(&privilege::explain(error)),
    }
}

fn about(plugin: &Plugin) -> Outcome {
    let versions: Vec<&str> = plugin.versions.iter().map(|version| version.as_str()).collect();
    let stderr = format!(
        "CNI {} plugin v{} (skiff)\nCNI protocol versions supported: {}\n",
        plugin.name,
        env!("CARGO_PKG_VERSION"),
        versions.join(", ")
    );
    Outcome {
        exit_code: 0,
        stdout: String::new(),
        stderr,
    }
}

fn call(plugin: &Plugin, variables: &BTreeMap<String, String>, stdin: &mut dyn Read) -> Result<String, Error> {
    let env = Environment::read(variables)?;
    if env.command == Some(Command::Version) {
        return Ok(render_versions(plugin));
    }
    let (stdin, config) = read_config(stdin)?;
    let network = config_name(&config)?;
    let Some(command) = env.command else {
        let text = format!(
            "unknown CNI_COMMAND: {}",
            variables.get("CNI_COMMAND").map_or("", String::as_str)
        );
        return Err(Error::new(error::BAD_ENVIRONMENT, text));
    };
    let version = config_version(plugin, command, &config)?;
    let request = Request {
        env,
        variables: variables.clone(),
        stdin,
        config,
        network,
        version,
    };
    if matches!(command, Command::Add | Command::Del) {
        refuse_own_netns(&request)?;
    }
    match command {
        Command::Add => {
            let result = (plugin.add)(&request)?;
            let value = result
                .render(version)
                .map_err(|error| Error::internal(error.to_string()))?;
            return Ok(super::json::render(&value));
        }
        Command::Del => (plugin.del)(&request)?,
        Command::Check => (plugin.check)(&request)?,
        Command::Gc => (plugin.gc)(&request)?,
        Command::Status => (plugin.status)(&request)?,
        Command::Version => {}
    }
    Ok(String::new())
}

fn render_versions(plugin: &Plugin) -> String {
    let supported: Vec<&str> = plugin.versions.iter().map(|version| version.as_str()).collect();
    let value = json!({"cniVersion": version::CURRENT.as_str(), "supportedVersions": supported});
    format!("{value}\n")
}

fn read_config(stdin: &mut dyn Read) -> Result<(Vec<u8>, Map<String, Value>), Error> {
    let mut bytes = Vec::new();
    stdin.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).map_err(|error| {
        Error::new(
            error::IO,
            format!("error reading from stdin: {}", netlink::errno::text(&error)),
        )
    })?;
    let undecodable = |text: String| Error::new(error::DECODING, format!("error unmarshall network config: {text}"));
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(config)) => Ok((bytes, config)),
        Ok(Value::Null) => Ok((bytes, Map::new())),
        Ok(other) => {
            let found = super::json::kind(&other);
            let wanted = r#"struct { Name string "json:\"name\"" }"#;
            Err(undecodable(format!(
                "json: cannot unmarshal {found} into Go value of type {wanted}"
            )))
        }
        Err(_) if bytes.iter().all(u8::is_ascii_whitespace) => Err(undecodable("unexpected end of JSON input".into())),
        Err(error) => Err(undecodable(error.to_string())),
    }
}

fn config_name(config: &Map<String, Value>) -> Result<String, Error> {
    let name = Fields::new(config, "")
        .string("name")
        .map_err(|error| Error::new(error::DECODING, format!("error unmarshall network config: {error}")))?;
    validate_network_name(name)?;
    Ok(name.to_owned())
}

/// The configuration's version, refused when the plugin does not list it or the verb is younger than it.
fn config_version(plugin: &Plugin, command: Command, config: &Map<String, Value>) -> Result<Version, Error> {
    let text = Fields::new(config, "").string("cniVersion").map_err(|error| {
        Error::new(
            error::DECODING,
            format!("decoding version from network config: {error}"),
        )
    })?;
    let version = Version::parse(text);
    let too_old = |verb: &str| {
        Err(Error::new(
            error::INCOMPATIBLE_VERSION,
            format!("config version does not allow {verb}"),
        ))
    };
    match (command, version) {
        (Command::Check, Some(version)) if version < Version::V0_4_0 => return too_old("CHECK"),
        (Command::Gc, Some(version)) if version < Version::V1_1_0 => return too_old("GC"),
        (Command::Status, Some(version)) if version < Version::V1_1_0 => return too_old("STATUS"),
        _ => {}
    }
    version
        .filter(|version| plugin.versions.contains(version))
        .ok_or_else(|| {
            let supported: Vec<String> = plugin
                .versions
                .iter()
                .map(|version| format!("{:?}", version.as_str()))
                .collect();
            let text = if text.is_empty() {
                Version::V0_1_0.as_str()
            } else {
                text
            };
            let details = format!("config is {text:?}, plugin supports [{}]", supported.join(" "));
            Error::new(error::INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(details)
        })
}

/// Upstream makes this check after the work is done; we make it before, so a wrong call changes nothing.
fn refuse_own_netns(request: &Request) -> Result<(), Error> {
    if !request.env.netns_override && netlink::netns::is_current(&request.env.netns) {
        let text = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::new(error::INVALID_NETNS, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUGIN: Plugin = Plugin {
        name: "fake",
        versions: &version::ALL,
        add: |_| Ok(CniResult::default()),
        del: |_| Ok(()),
        check: |_| Ok(()),
        gc: |_| Ok(()),
        status: |_| Ok(()),
    };

    fn outcome(command: &str, config: &str) -> Outcome {
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/nowhere"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt"),
        ];
        let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        serve(&PLUGIN, &variables, &mut config.as_bytes())
    }

    fn failure(command: &str, config: &str) -> (u64, String, String) {
        let outcome = outcome(command, config);
        assert_eq!(outcome.exit_code, 1, "{outcome:?}");
        let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        (value["code"].as_u64().unwrap(), text("msg"), text("details"))
    }

    #[test]
    fn version_ignores_the_configuration() {
        let outcome = outcome("VERSION", "not json");
        assert_eq!(outcome.exit_code, 0);
        let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(value["cniVersion"], "1.1.0");
        assert_eq!(value["supportedVersions"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn no_command_prints_the_about_text() {
        let outcome = serve(&PLUGIN, &BTreeMap::new(), &mut "".as_bytes());
        assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (0, ""));
        assert!(
            outcome
                .stderr
                .contains("CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0")
        );
    }

    #[test]
    fn the_contract_codes_and_texts() {
        assert_eq!(failure("ADD", "{").0, 6);
        assert_eq!(failure("ADD", "[]").0, 6);
        assert_eq!(failure("ADD", "").0, 6);
        assert_eq!(failure("ADD", "{}"), (7, "missing network name".into(), String::new()));
        assert_eq!(failure("ADD", r#"{"name":"a/b"}"#).0, 7);
        assert_eq!(failure("FLY", r#"{"name":"n"}"#).1, "unknown CNI_COMMAND: FLY");
        let (code, msg, details) = failure("ADD", r#"{"name":"n","cniVersion":"9.9.9"}"#);
        assert_eq!((code, msg.as_str()), (1, "incompatible CNI versions"));
        assert!(
            details.starts_with(r#"config is "9.9.9", plugin supports ["0.1.0" "0.2.0""#),
            "{details}"
        );
        let old = r#"{"name":"n","cniVersion":"0.3.1"}"#;
        assert_eq!(failure("CHECK", old).1, "config version does not allow CHECK");
        assert_eq!(failure("GC", old).1, "config version does not allow GC");
        assert_eq!(failure("STATUS", old).1, "config version does not allow STATUS");
    }

    #[test]
    fn quiet_verbs_print_nothing() {
        for command in ["DEL", "CHECK", "GC", "STATUS"] {
            let outcome = outcome(command, r#"{"NAME":"n","cniversion":"1.1.0"}"#);
            assert_eq!(outcome, Outcome::default());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_configuration_is_served_or_refused(config in "\\PC*", command in "ADD|DEL|CHECK|GC|STATUS|X") {
            let outcome = outcome(&command, &config);
            proptest::prop_assert!(outcome.exit_code <= 1);
        }
    }
}
