//! The tuning plugin's keys (contract §4.5).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::protocol::args;
use crate::protocol::dispatch::Request;
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields, kind};

const DEFAULT_DATA_DIR: &str = "/run/cni/tuning";
/// The switches an administrator allows, one pattern per line; without the file, all of the network.
const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";

/// Attributes of a link; absent ones are not touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Hardware address as text.
    pub mac: Option<String>,
    /// Receives what is not addressed to it.
    pub promisc: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Receives every multicast.
    pub allmulti: Option<bool>,
    /// Length of the transmit queue in packets.
    pub tx_queue: Option<u32>,
}

impl Attributes {
    /// Whether nothing is to be touched.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each attribute alone, in the order they are restored.
    pub fn each(&self) -> [Self; 5] {
        let none = Self::default;
        [
            Self {
                mtu: self.mtu,
                ..none()
            },
            Self {
                mac: self.mac.clone(),
                ..none()
            },
            Self {
                promisc: self.promisc,
                ..none()
            },
            Self {
                allmulti: self.allmulti,
                ..none()
            },
            Self {
                tx_queue: self.tx_queue,
                ..none()
            },
        ]
    }
}

/// A read configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where attributes are remembered.
    pub data_dir: String,
    /// Kernel switches by their names as written.
    pub switches: BTreeMap<String, String>,
    /// The attributes the link is to have.
    pub wanted: Attributes,
}

fn load(error: DecodeError) -> Error {
    Error::internal(format!("failed to load netconf: {error}"))
}

impl Config {
    /// Reads the configuration and `CNI_ARGS`.
    pub fn read(request: &Request) -> Result<Self, Error> {
        refuse_duplicates(&request.stdin)?;
        Self::read_fields(&Fields::new(&request.config, "TuningConf"), &request.env.args)
    }

    fn read_fields(fields: &Fields<'_>, cni_args: &str) -> Result<Self, Error> {
        let [from_env] = args::parse(cni_args, ["MAC"]).map_err(|error| Error::internal(error.to_string()))?;
        let runtime = fields.object("runtimeConfig", "RuntimeConfig").map_err(load)?;
        let in_args = fields
            .object("args", "Args")
            .and_then(|args| args.object("cni", "IPAMArgs"));
        let in_args = in_args.map_err(load)?;
        let mut switches = read_switches(fields)?;
        switches.extend(read_switches(&in_args)?);
        let mut wanted = read_attributes(fields)?;
        // Rising precedence: the configuration, CNI_ARGS, runtimeConfig, args.cni.
        let at_runtime = runtime.string("mac").map_err(load)?;
        for mac in [from_env.as_deref().unwrap_or_default(), at_runtime] {
            if !mac.is_empty() {
                wanted.mac = Some(mac.to_owned());
            }
        }
        overrule(&mut wanted, &in_args)?;
        let data_dir = match fields.string("dataDir").map_err(load)? {
            "" => DEFAULT_DATA_DIR,
            folder => folder,
        };
        Ok(Self {
            data_dir: data_dir.to_owned(),
            switches,
            wanted,
        })
    }

    /// Refuses switches the administrator's list does not allow.
    pub fn refuse_forbidden_switches(&self) -> Result<(), Error> {
        let text = match std::fs::read_to_string(ALLOW_LIST) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let reason = netlink::errno::text(&error);
                return Err(Error::internal(format!("open {ALLOW_LIST}: {reason}")));
            }
            Ok(text) => text,
        };
        refuse_unlisted(&self.switches, &text)
    }
}

fn read_switches(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut switches = BTreeMap::new();
    match fields.value("sysctl") {
        None => {}
        Some(Value::Object(map)) => {
            for (key, value) in map {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => return Err(wrong_switch(other, "string")),
                };
                switches.insert(key.clone(), text);
            }
        }
        Some(other) => return Err(wrong_switch(other, "map[string]string")),
    }
    Ok(switches)
}

fn wrong_switch(found: &Value, wanted: &'static str) -> Error {
    let error = DecodeError::Type {
        found: kind(found),
        owner: "sysctlCheck",
        key: "sysctl",
        wanted,
    };
    Error::internal(error.to_string())
}

fn read_attributes(fields: &Fields<'_>) -> Result<Attributes, Error> {
    let length = fields.maybe_int("txQLen").map_err(load)?;
    Ok(Attributes {
        mac: Some(fields.string("mac").map_err(load)?.to_owned()).filter(|mac| !mac.is_empty()),
        promisc: Some(fields.bool("promisc").map_err(load)?).filter(|on| *on),
        mtu: read_mtu(fields)?,
        allmulti: fields.maybe_bool("allmulti").map_err(load)?,
        tx_queue: length.map(|length| read_number("txQLen", length)).transpose()?,
    })
}

/// The MTU; zero leaves it alone.
fn read_mtu(fields: &Fields<'_>) -> Result<Option<u32>, Error> {
    let mtu = fields.int("mtu").map_err(load)?;
    Ok(Some(read_number("mtu", mtu)?).filter(|mtu| *mtu != 0))
}

fn read_number(key: &str, number: i64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::internal(format!("invalid {key} {number}")))
}

/// What `args.cni` says replaces what the configuration says, also by empty and false.
fn overrule(wanted: &mut Attributes, in_args: &Fields<'_>) -> Result<(), Error> {
    if in_args.value("mac").is_some() {
        wanted.mac = Some(in_args.string("mac").map_err(load)?.to_owned()).filter(|mac| !mac.is_empty());
    }
    if let Some(on) = in_args.maybe_bool("promisc").map_err(load)? {
        wanted.promisc = Some(on).filter(|on| *on);
    }
    if in_args.value("mtu").is_some() {
        wanted.mtu = read_mtu(in_args)?;
    }
    if let Some(on) = in_args.maybe_bool("allmulti").map_err(load)? {
        wanted.allmulti = Some(on);
    }
    if let Some(length) = in_args.maybe_int("txQLen").map_err(load)? {
        wanted.tx_queue = Some(read_number("txQLen", length)?);
    }
    Ok(())
}

/// The path of a switch below `/proc/sys/net`: dots separate, `IFNAME` stands for the interface, whose name may hold dots.
pub fn switch_path(key: &str, ifname: &str) -> Result<String, Error> {
    let text = key.replace('.', "/").replacen("IFNAME", ifname, 1);
    let mut path = PathBuf::new();
    for component in Path::new(&text).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let inside = path.strip_prefix("net").ok().and_then(Path::to_str);
    inside
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| Error::internal(format!("invalid net sysctl key: {text:?}")))
}

fn refuse_unlisted(switches: &BTreeMap<String, String>, list: &str) -> Result<(), Error> {
    let patterns: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let compiled = patterns.iter().map(|pattern| {
        regex_lite::Regex::new(pattern).map_err(|error| Error::internal(format!("{ALLOW_LIST}: {pattern:?}: {error}")))
    });
    let compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    match switches
        .keys()
        .find(|key| !compiled.iter().any(|pattern| pattern.is_match(key)))
    {
        None => Ok(()),
        Some(key) => Err(Error::internal(format!(
            "Sysctl {key} is not allowed. Only the following sysctls are allowed: [{}]",
            patterns.join(" ")
        ))),
    }
}

/// Refuses a switch that is written twice, of which a JSON tree keeps only one.
fn refuse_duplicates(config: &[u8]) -> Result<(), Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(config);
    Keys { depth: 0 }
        .deserialize(&mut deserializer)
        .map_err(|error| match error.to_string() {
            text if text.starts_with(DUPLICATE) => Error::internal(DUPLICATE),
            text => Error::internal(format!("failed to load netconf: {text}")),
        })
}

const DUPLICATE: &str = "duplicated sysctl keys are not allowed";

/// Walks the configuration's keys (depth 0), then those of its `sysctl` (depth 1).
struct Keys {
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Keys {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.depth == 0 && key.eq_ignore_ascii_case("sysctl") {
                map.next_value_seed(Self { depth: 1 })?;
                continue;
            }
            map.next_value::<IgnoredAny>()?;
            if self.depth == 1 {
                if seen.contains(&key) {
                    return Err(serde::de::Error::custom(DUPLICATE));
                }
                seen.push(key);
            }
        }
        Ok(())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
