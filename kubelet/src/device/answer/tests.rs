use super::*;
use crate::device::testing::env;
use proto::device_plugin as pb;

fn key(key: &str, value: &str) -> cri::KeyValue {
    cri::KeyValue {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
    }
}

#[test]
fn everything_reaches_the_container_and_the_pods_own_words_hold() {
    let answer = pb::ContainerAllocateResponse {
        envs: [("A".to_owned(), "1".to_owned()), ("PATH".to_owned(), "/gpu".to_owned())].into(),
        mounts: vec![pb::Mount {
            container_path: "/lib/gpu".to_owned(),
            host_path: "/usr/gpu".to_owned(),
            read_only: true,
        }],
        devices: vec![pb::DeviceSpec {
            container_path: "/dev/gpu".to_owned(),
            host_path: "/dev/gpu0".to_owned(),
            permissions: "rw".to_owned(),
        }],
        annotations: [
            ("x".to_owned(), "y".to_owned()),
            ("own".to_owned(), "theirs".to_owned()),
        ]
        .into(),
        cdi_devices: vec![pb::CdiDevice {
            name: "vendor.com/gpu=0".to_owned(),
        }],
    };
    let extras = Extras::of([("example.com/gpu", answer)]);
    assert!(extras.needs_cdi());
    let mut config = cri::ContainerConfig {
        envs: vec![key("PATH", "/bin")],
        mounts: vec![cri::Mount::default()],
        annotations: [("own".to_owned(), "ours".to_owned())].into(),
        ..Default::default()
    };
    extras.apply(&mut config);
    assert_eq!(config.envs, [key("A", "1"), key("PATH", "/bin")]);
    let mount = &config.mounts[0];
    assert_eq!(
        (
            mount.container_path.as_str(),
            mount.host_path.as_str(),
            mount.readonly,
            config.mounts.len()
        ),
        ("/lib/gpu", "/usr/gpu", true, 2)
    );
    assert_eq!(config.devices[0].host_path, "/dev/gpu0");
    assert_eq!(config.devices[0].permissions, "rw");
    assert_eq!(
        (config.annotations["x"].as_str(), config.annotations["own"].as_str()),
        ("y", "ours")
    );
    assert_eq!(config.cdi_devices[0].name, "vendor.com/gpu=0");
}

#[test]
fn of_two_plugins_that_contradict_each_other_the_first_holds() {
    let extras = Extras::of([("a.com/x", env("V", "1")), ("b.com/x", env("V", "2"))]);
    let mut config = cri::ContainerConfig::default();
    extras.apply(&mut config);
    assert_eq!(config.envs, [key("V", "1")]);
    let mut none = cri::ContainerConfig::default();
    Extras::default().apply(&mut none);
    assert_eq!(none, cri::ContainerConfig::default());
}
