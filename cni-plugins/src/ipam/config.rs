//! host-local's configuration (contract §3.1): everything checked before anything is touched. Pure.

use std::net::IpAddr;

use serde_json::Value;

use super::range::{RangeError, RangeSet, RangeSpec};
use crate::protocol::args::{self, ArgsError};
use crate::protocol::json::{DecodeError, Fields, parse_ip};
use crate::protocol::result::Route;
use crate::protocol::version::Version;

/// Where reservations are kept unless `dataDir` says otherwise.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// One address is given from each set, in this order.
    pub sets: Vec<RangeSet>,
    /// Addresses the caller wants.
    pub wanted: Vec<IpAddr>,
    /// Routes to pass on.
    pub routes: Vec<Route>,
    /// The folder with one folder per network.
    pub data_dir: String,
    /// A `resolv.conf` to pass on, or empty.
    pub resolv_conf: String,
}

/// Why a configuration is refused; upstream's sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("IPAM config missing 'ipam' key")]
    NoIpam,
    #[error("no IP ranges specified")]
    NoRanges,
    #[error("invalid range set {index}: {error}")]
    Set { index: usize, error: RangeError },
    #[error("range set {0} overlaps with {1}")]
    Overlap(usize, usize),
    #[error("CNI version {0} does not support more than 1 address per family")]
    TooMany(Version),
    #[error("{0}")]
    Args(ArgsError),
    #[error("{0}")]
    Decode(DecodeError),
}

impl From<DecodeError> for ConfigError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Config {
    /// Reads and checks a network configuration together with `CNI_ARGS`.
    pub fn read(config: &Fields<'_>, version: Version, args: &str) -> Result<Self, ConfigError> {
        let ipam = config.object("ipam", "IPAMConfig")?;
        if !ipam.is_present() {
            return Err(ConfigError::NoIpam);
        }
        let runtime = config.object("runtimeConfig", "RuntimeConfig")?;
        let wanted = wanted_addresses(config, &runtime, args)?;
        let sets = canonical_sets(&range_specs(&ipam, &runtime)?)?;
        refuse_for_old_version(&sets, version)?;
        refuse_overlaps(&sets)?;
        let routes = ipam.objects("routes", "Route")?;
        let data_dir = match ipam.string("dataDir")? {
            "" => DEFAULT_DATA_DIR,
            folder => folder,
        };
        Ok(Self {
            sets,
            wanted,
            routes: routes.iter().map(Route::read).collect::<Result<_, _>>()?,
            data_dir: data_dir.to_owned(),
            resolv_conf: ipam.string("resolvConf")?.to_owned(),
        })
    }

    /// Reads only where reservations are kept, for verbs that need no ranges.
    pub fn read_data_dir(config: &Fields<'_>) -> Result<String, ConfigError> {
        let ipam = config.object("ipam", "IPAMConfig")?;
        let folder = ipam.string("dataDir")?;
        Ok(if folder.is_empty() { DEFAULT_DATA_DIR } else { folder }.to_owned())
    }
}

/// An address, of which a prefix length is accepted and dropped.
fn parse_wanted(text: &str) -> Result<IpAddr, DecodeError> {
    parse_ip(text.split_once('/').map_or(text, |(addr, _)| addr))
}

/// `CNI_ARGS` replaces nothing but comes first; `args.cni.ips` and `runtimeConfig.ips` follow.
fn wanted_addresses(config: &Fields<'_>, runtime: &Fields<'_>, args: &str) -> Result<Vec<IpAddr>, ConfigError> {
    let [from_env] = args::parse(args, ["IP"]).map_err(ConfigError::Args)?;
    if let Some(text) = &from_env
        && parse_wanted(text).is_err()
    {
        let reason = format!("invalid IP address {text}");
        return Err(ConfigError::Args(ArgsError::Value {
            pair: format!("IP={text}"),
            reason,
        }));
    }
    let in_config = config
        .object("args", "IPAMArgs")?
        .object("cni", "IPAMArgs")?
        .strings("ips")?;
    let texts = from_env.into_iter().chain(in_config).chain(runtime.strings("ips")?);
    texts
        .filter(|text| !text.is_empty())
        .map(|text| parse_wanted(&text).map_err(ConfigError::from))
        .collect()
}

fn range_specs(ipam: &Fields<'_>, runtime: &Fields<'_>) -> Result<Vec<Vec<RangeSpec>>, DecodeError> {
    let mut sets = read_sets(runtime, "ipRanges")?;
    let shorthand = RangeSpec::read(ipam)?;
    if shorthand.subnet.is_some() {
        sets.push(vec![shorthand]);
    }
    sets.extend(read_sets(ipam, "ranges")?);
    Ok(sets)
}

fn read_sets(fields: &Fields<'_>, key: &'static str) -> Result<Vec<Vec<RangeSpec>>, DecodeError> {
    let wrong = |found: &Value, wanted: &'static str| DecodeError::Type {
        found: crate::protocol::json::kind(found),
        owner: "IPAMConfig.ipam",
        key,
        wanted,
    };
    let mut sets = Vec::new();
    for set in fields.list(key, "[]RangeSet")? {
        let Value::Array(ranges) = set else {
            return Err(wrong(set, "allocator.RangeSet"));
        };
        let mut specs = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Value::Object(map) = range else {
                return Err(wrong(range, "allocator.Range"));
            };
            specs.push(RangeSpec::read(&Fields::new(map, "Range"))?);
        }
        sets.push(specs);
    }
    Ok(sets)
}

fn canonical_sets(specs: &[Vec<RangeSpec>]) -> Result<Vec<RangeSet>, ConfigError> {
    if specs.is_empty() {
        return Err(ConfigError::NoRanges);
    }
    let canonical = |(index, set): (usize, &Vec<RangeSpec>)| {
        RangeSet::canonical(set).map_err(|error| ConfigError::Set { index, error })
    };
    specs.iter().enumerate().map(canonical).collect()
}

fn refuse_for_old_version(sets: &[RangeSet], version: Version) -> Result<(), ConfigError> {
    let v4 = sets.iter().filter(|set| set.is_v4()).count();
    if version < Version::V0_3_0 && (v4 > 1 || sets.len() - v4 > 1) {
        return Err(ConfigError::TooMany(version));
    }
    Ok(())
}

fn refuse_overlaps(sets: &[RangeSet]) -> Result<(), ConfigError> {
    for (first, set) in sets.iter().enumerate() {
        if let Some(offset) = sets[first + 1..].iter().position(|other| set.overlaps(other)) {
            return Err(ConfigError::Overlap(first, first + 1 + offset));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: Value, args: &str) -> Result<Config, ConfigError> {
        Config::read(&Fields::new(config.as_object().unwrap(), "Net"), Version::V1_0_0, args)
    }

    fn refusal(config: Value) -> String {
        read(config, "").unwrap_err().to_string()
    }

    #[test]
    fn sets_come_from_the_runtime_then_the_shorthand_then_the_list() {
        let config = json!({
            "runtimeConfig": {"ipRanges": [[{"subnet": "10.3.0.0/24"}]]},
            "ipam": {"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.2.0.0/24"}, {"subnet": "10.4.0.0/24"}]],
                     "routes": [{"dst": "0.0.0.0/0"}]},
        });
        let config = read(config, "").unwrap();
        let sets: Vec<String> = config.sets.iter().map(ToString::to_string).collect();
        assert_eq!(
            sets,
            [
                "10.3.0.1-10.3.0.254",
                "10.1.0.1-10.1.0.254",
                "10.2.0.1-10.2.0.254,10.4.0.1-10.4.0.254"
            ]
        );
        assert_eq!(config.data_dir, DEFAULT_DATA_DIR);
        assert_eq!(config.routes.len(), 1);
    }

    #[test]
    fn wanted_addresses_by_all_three_ways() {
        let config = json!({
            "args": {"cni": {"ips": ["10.1.0.3/24"]}}, "runtimeConfig": {"ips": ["10.1.0.4"]},
            "ipam": {"subnet": "10.1.0.0/24"},
        });
        let wanted = read(config, "IP=10.1.0.2/16").unwrap().wanted;
        assert_eq!(
            wanted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.1.0.2", "10.1.0.3", "10.1.0.4"]
        );
    }

    #[test]
    fn refusals_in_upstreams_words() {
        assert_eq!(refusal(json!({})), "IPAM config missing 'ipam' key");
        assert_eq!(refusal(json!({"ipam": {}})), "no IP ranges specified");
        assert_eq!(
            refusal(json!({"ipam": {"ranges": [[]]}})),
            "invalid range set 0: empty range set"
        );
        let overlap = json!({"ipam": {"subnet": "10.1.0.0/16", "ranges": [[{"subnet": "10.2.0.0/24"}], [{"subnet": "10.1.2.0/24"}]]}});
        assert_eq!(refusal(overlap), "range set 0 overlaps with 2");
        assert_eq!(refusal(json!({"ipam": {"subnet": "x"}})), "invalid CIDR address: x");
        assert!(refusal(json!({"ipam": {"ranges": [{"subnet": "10.0.0.0/8"}]}})).contains("ranges"));
    }

    #[test]
    fn old_versions_hold_one_address_per_family() {
        let config = json!({"ipam": {"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]]}});
        let fields = Fields::new(config.as_object().unwrap(), "Net");
        let error = Config::read(&fields, Version::V0_2_0, "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "CNI version 0.2.0 does not support more than 1 address per family"
        );
        let dual = json!({"ipam": {"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}});
        assert!(Config::read(&Fields::new(dual.as_object().unwrap(), "Net"), Version::V0_2_0, "").is_ok());
    }

    proptest::proptest! {
        #[test]
        fn any_configuration_is_read_or_refused(subnet in "\\PC{0,20}", start in "[0-9a-f.:/]{0,20}", args in "\\PC{0,20}") {
            let _ = read(json!({"ipam": {"subnet": subnet, "rangeStart": start}, "args": {"cni": {"ips": [start]}}}), &args);
        }
    }
}
