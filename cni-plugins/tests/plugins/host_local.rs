//! host-local as its own program.

use serde_json::{Value, json};

use crate::fixture::{Container, Host, address, failure, files};

fn config(host: &Host, ranges: Value) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pool", "type": "host-local",
        "ipam": {"type": "host-local", "dataDir": host.data_dir(), "ranges": ranges},
    })
}

#[test]
fn an_attachment_holds_one_address_per_set() {
    let (host, container) = (Host::new(), Container::new());
    let config = config(&host, json!([[{"subnet": "10.2.0.0/24"}], [{"subnet": "fd00:2::/64"}]]));
    let result = host.add(&container, &config);
    assert_eq!(
        result["ips"][0],
        json!({"address": "10.2.0.2/24", "gateway": "10.2.0.1"})
    );
    assert_eq!(
        result["ips"][1],
        json!({"address": "fd00:2::2/64", "gateway": "fd00:2::1"})
    );
    assert!(result.get("interfaces").is_none());
    let (code, text) = host.fail("ADD", &container, &config);
    let expected = format!(
        "failed to allocate for range 0: 10.2.0.2 has been allocated to {}, duplicate allocation is not allowed",
        container.id
    );
    assert_eq!((code, text), (999, expected));
    assert_eq!(host.reserved("pool"), ["10.2.0.2", "fd00:2::2"], "the first stays");
    host.succeed("CHECK", &container, &config);
    host.del(&container, &config);
    assert!(
        host.fail("CHECK", &container, &config)
            .1
            .contains("Failed to find address added by container")
    );
    host.del(&container, &config);
    assert!(host.reserved("pool").is_empty());
    assert_eq!(
        address(&host.add(&container, &config)).to_string(),
        "10.2.0.3",
        "round robin goes on"
    );
}

/// A node that is taken over: what older versions of upstream's plugin reserved is freed, of either family.
#[test]
fn reservations_of_older_versions_are_freed() {
    for content in ["ID", "ID\n", " \r\nID \r\n"] {
        let (host, container) = (Host::new(), Container::new());
        let config = config(&host, json!([[{"subnet": "10.2.9.0/24"}], [{"subnet": "fd00:9::/64"}]]));
        let overwrite = || {
            for address in ["10.2.9.2", "fd00:9::2"] {
                let path = std::path::Path::new(&host.data_dir()).join("pool").join(address);
                std::fs::write(path, content.replace("ID", &container.id)).unwrap();
            }
        };
        host.add(&container, &config);
        overwrite();
        host.succeed("CHECK", &container, &config);
        assert!(
            host.fail("ADD", &container, &config)
                .1
                .contains("duplicate allocation is not allowed")
        );
        host.del(&container, &config);
        assert!(host.reserved("pool").is_empty(), "{content:?}");
        // Files that were there before this program was.
        overwrite();
        host.del(&Container::new(), &config);
        assert_eq!(host.reserved("pool").len(), 2, "{content:?}");
        host.del(&container, &config);
        assert!(host.reserved("pool").is_empty(), "{content:?}");
    }
}

#[test]
fn wanted_addresses() {
    let host = Host::new();
    let container = Container::new();
    let mut config = config(&host, json!([[{"subnet": "10.2.1.0/24"}], [{"subnet": "10.2.2.0/24"}]]));
    config["runtimeConfig"] = json!({"ips": ["10.2.2.77/24"]});
    let mut variables = host.variables("ADD", &container);
    variables.insert("CNI_ARGS", "IgnoreUnknown=1;IP=10.2.1.88;K8S_POD_NAME=x".into());
    let output = host.call(&variables, &config);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.2.1.88/24");
    assert_eq!(result["ips"][1]["address"], "10.2.2.77/24");
    let other = Container::new();
    let (_, text) = host.fail("ADD", &other, &config);
    assert_eq!(
        text,
        "failed to allocate for range 1: requested IP address 10.2.2.77 is not available in range set 10.2.2.1-10.2.2.254"
    );
    config["runtimeConfig"] = json!({"ips": ["10.99.0.1", "10.2.1.1"]});
    assert_eq!(
        host.fail("ADD", &other, &config).1,
        "failed to allocate for range 0: requested ip 10.2.1.1 is subnet's gateway"
    );
    config["runtimeConfig"] = json!({"ips": ["10.99.0.1"]});
    assert_eq!(
        host.fail("ADD", &other, &config).1,
        "failed to allocate all requested IPs: 10.99.0.1"
    );
    assert_eq!(
        host.reserved("pool"),
        ["10.2.1.88", "10.2.2.77"],
        "what was given is taken back"
    );
}

#[test]
fn resolv_conf_is_passed_on() {
    let (host, container) = (Host::new(), Container::new());
    let path = host.folder.path().join("resolv.conf");
    std::fs::write(&path, "nameserver 192.0.2.3\nsearch a.example b.example\n").unwrap();
    let mut config = config(&host, json!([[{"subnet": "10.2.3.0/24"}]]));
    config["ipam"]["resolvConf"] = json!(path);
    let result = host.add(&container, &config);
    assert_eq!(
        result["dns"],
        json!({"nameservers": ["192.0.2.3"], "search": ["a.example", "b.example"]})
    );
}

#[test]
fn hostile_names_and_places_change_nothing() {
    let (host, container) = (Host::new(), Container::new());
    let config = config(&host, json!([[{"subnet": "10.2.4.0/24"}]]));
    let before = files(host.folder.path());
    for id in ["..", "../../etc", "a/b", "a b", "-x"] {
        let mut variables = host.variables("ADD", &container);
        variables.insert("CNI_CONTAINERID", id.into());
        assert_eq!(
            failure(&host.call(&variables, &config)),
            (4, "invalid characters in containerID".into()),
            "{id}"
        );
    }
    for name in ["..", "a/b", "/etc", " "] {
        let mut config = config.clone();
        config["name"] = json!(name);
        assert_eq!(host.fail("ADD", &container, &config).0, 7, "{name}");
    }
    assert_eq!(files(host.folder.path()), before);
    let mut long = config.clone();
    long["name"] = json!("n".repeat(300));
    assert!(host.fail("ADD", &container, &long).1.contains("file name too long"));
    let mut read_only = config.clone();
    read_only["ipam"]["dataDir"] = json!("/proc/sys");
    let (code, text) = host.fail("ADD", &container, &read_only);
    assert!(code == 999 && text.starts_with("mkdir /proc/sys/pool: "), "{text}");
    let mut variables = host.variables("ADD", &container);
    variables.insert("CNI_CONTAINERID", "i".repeat(300));
    assert!(host.call(&variables, &config).status.success(), "a long ID is allowed");
}

#[test]
fn five_hundred_at_once_get_five_hundred_addresses() {
    const CALLS: usize = 500;
    const THREADS: usize = 25;
    let host = Host::new();
    let container = Container::new();
    let config = config(&host, json!([[{"subnet": "10.4.0.0/16"}]]));
    let call = |number: usize| {
        let mut variables = host.variables("ADD", &container);
        variables.insert("CNI_CONTAINERID", format!("c{number}"));
        let output = host.call(&variables, &config);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        address(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let addresses: Vec<_> = std::thread::scope(|scope| {
        let work = |thread: usize| (thread..CALLS).step_by(THREADS).map(call).collect::<Vec<_>>();
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
    assert_eq!(distinct.len(), CALLS);
    assert_eq!(host.reserved("pool").len(), CALLS);
}
