//! Conversion between the versions' forms.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::protocol::version::ALL;

fn sample() -> CniResult {
    CniResult {
        interfaces: vec![Interface {
            name: "eth0".into(),
            mac: "00:11:22:33:44:55".into(),
            mtu: 1400,
            sandbox: "/run/netns/x".into(),
            ..Interface::default()
        }],
        ips: vec![
            IpConfig {
                interface: Some(0),
                address: Cidr::parse("10.1.0.2/24").unwrap(),
                gateway: Some("10.1.0.1".parse().unwrap()),
            },
            IpConfig {
                interface: Some(0),
                address: Cidr::parse("fd00::2/64").unwrap(),
                gateway: None,
            },
        ],
        routes: vec![
            Route {
                mtu: 1300,
                table: Some(7),
                ..Route::new(Cidr::parse("0.0.0.0/0").unwrap(), None)
            },
            Route::new(Cidr::parse("::/0").unwrap(), Some("fd00::1".parse().unwrap())),
        ],
        dns: Dns::default(),
    }
}

#[test]
fn each_version_has_its_form() {
    let newest = sample().render(Version::V1_1_0).unwrap();
    assert_eq!(
        newest,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "mtu": 1400, "sandbox": "/run/netns/x"}],
            "ips": [{"interface": 0, "address": "10.1.0.2/24", "gateway": "10.1.0.1"},
                    {"interface": 0, "address": "fd00::2/64"}],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1300, "table": 7}, {"dst": "::/0", "gw": "fd00::1"}],
        })
    );
    // 1.1 to 1.0 changes the version and nothing but the new interface fields.
    let one = sample().render(Version::V1_0_0).unwrap();
    assert_eq!(one["cniVersion"], "1.0.0");
    assert_eq!(one["interfaces"], newest["interfaces"]);
    assert!(one.get("dns").is_none());
    let four = sample().render(Version::V0_4_0).unwrap();
    assert_eq!(four["ips"][0]["version"], "4");
    assert_eq!(four["ips"][1]["version"], "6");
    assert_eq!(four["dns"], json!({}));
    assert!(four["interfaces"][0].get("mtu").is_none());
    assert_eq!(four["routes"][0]["table"], 7);
    assert_eq!(
        sample().render(Version::V0_2_0).unwrap(),
        json!({
            "cniVersion": "0.2.0",
            "ip4": {"ip": "10.1.0.2/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]},
            "ip6": {"ip": "fd00::2/64", "routes": [{"dst": "::/0", "gw": "fd00::1"}]},
            "dns": {},
        })
    );
}

#[test]
fn the_oldest_forms_need_an_address() {
    let error = CniResult::default().render(Version::V0_1_0).unwrap_err();
    assert_eq!(error.to_string(), "cannot convert: no valid IP addresses");
    assert!(CniResult::default().render(Version::V0_3_0).is_ok());
}

#[test]
fn a_result_without_version_takes_the_configurations() {
    let old = json!({"ip4": {"ip": "10.1.0.2/24", "routes": [{"dst": "10.0.0.0/8"}]}});
    let result = CniResult::parse(&old, Version::V0_2_0).unwrap();
    assert_eq!((result.ips.len(), result.routes.len()), (1, 1));
    assert!(CniResult::parse(&old, Version::V1_0_0).unwrap().ips.is_empty());
    let unknown = json!({"cniVersion": "7.0.0"});
    assert!(matches!(
        CniResult::parse(&unknown, Version::V1_0_0),
        Err(ResultError::Version(_))
    ));
}

fn any_cidr() -> impl Strategy<Value = Cidr> {
    prop_oneof![
        (any::<u32>(), 0u8..=32).prop_map(|(addr, prefix)| Cidr {
            addr: IpAddr::V4(addr.into()),
            prefix
        }),
        // Not an IPv4-mapped address: those read back as IPv4.
        (1u128 << 100.., 0u8..=128).prop_map(|(addr, prefix)| Cidr {
            addr: IpAddr::V6(addr.into()),
            prefix
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        address in any_cidr(), dst in any_cidr(), interface in proptest::option::of(0i64..9), mtu in 0i64..9000,
    ) {
        let mut result = sample();
        result.ips.push(IpConfig { interface, address, gateway: Some(address.addr) });
        result.routes.push(Route { mtu, ..Route::new(dst, None) });
        for version in ALL.into_iter().filter(|version| *version >= Version::V0_3_0) {
            let mut expected = result.clone();
            if version < Version::V1_0_0 {
                expected.interfaces.iter_mut().for_each(|interface| interface.mtu = 0);
            }
            let printed = result.render(version).unwrap();
            prop_assert_eq!(CniResult::parse(&printed, Version::V0_1_0).unwrap(), expected);
        }
        // The oldest form is a fixed point of itself.
        let old = result.render(Version::V0_2_0).unwrap();
        prop_assert_eq!(CniResult::parse(&old, Version::V0_2_0).unwrap().render(Version::V0_2_0).unwrap(), old);
    }
}
