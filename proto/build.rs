//! Compiles the protocol files to gRPC bindings with protox, so no protoc is needed on the machine.
//!
//! Each file is behind the cargo feature of its name; a crate that needs none pays for none.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let wanted: [(&str, &str, &[&str]); 9] = [
        ("CRI", "cri", &["cri.proto"]),
        ("CONTAINERD", "containerd", &["containerd_events.proto"]),
        ("ETCD", "etcd", &["etcd.proto"]),
        ("HEALTH", "health", &["health.proto"]),
        ("PLUGIN", "plugin", &["plugin_registration.proto"]),
        ("DRA", "dra", &["dra_v1.proto", "dra_v1beta1.proto", "dra_health.proto"]),
        ("DEVICES", "device_plugin", &["device_plugin.proto"]),
        ("DEVICES", "pod_resources", &["pod_resources.proto"]),
        ("DEVICES", "pod_resources_v1alpha1", &["pod_resources_v1alpha1.proto"]),
    ];
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for (feature, place, files) in wanted {
        if std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some() {
            let descriptors = protox::compile(files, ["proto"])?;
            // A place of each one's own: packages of several are called `v1` or `v1alpha1`.
            let place = out.join(place);
            std::fs::create_dir_all(&place)?;
            // The bindings' own server half is what the tests' scripted runtimes implement, and what answers device plugins.
            tonic_prost_build::configure()
                .build_transport(true)
                .out_dir(place)
                .compile_fds(descriptors)?;
        }
    }
    Ok(())
}
