//! loopback.

use serde_json::json;

use crate::fixture::{Container, Host};

#[test]
fn lo_goes_up_and_down() {
    let (host, container) = (Host::new(), Container::new());
    container.namespace.ip(&["link", "set", "lo", "down"]);
    let config = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
    let mut variables = host.variables("ADD", &container);
    variables.insert("CNI_ARGS", "none".into());
    let output = host.call(&variables, &config);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        result["interfaces"],
        json!([{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": container.namespace.path()}])
    );
    assert_eq!(result["ips"][0], json!({"address": "127.0.0.1/8", "interface": 0}));
    let up = |container: &Container| {
        container.namespace.link("lo").unwrap()["flags"]
            .as_array()
            .unwrap()
            .contains(&json!("UP"))
    };
    assert!(up(&container));
    host.succeed("CHECK", &container, &config);
    host.del(&container, &config);
    assert!(!up(&container));
    assert_eq!(host.fail("CHECK", &container, &config).1, "loopback interface is down");
    let mut chained = config.clone();
    chained["prevResult"] = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.9/24"}]});
    assert_eq!(
        host.add(&container, &chained)["ips"],
        json!([{"address": "10.0.0.9/24"}])
    );
    container.namespace.ip(&["addr", "add", "192.0.2.9/32", "dev", "lo"]);
    assert!(host.fail("ADD", &container, &config).1.contains("non-loopback address"));
    let mut variables = host.variables("DEL", &container);
    variables.insert("CNI_NETNS", String::new());
    assert!(host.call(&variables, &config).status.success());
    variables.insert("CNI_NETNS", "/run/netns/sk-gone".into());
    assert!(host.call(&variables, &config).status.success());
}
