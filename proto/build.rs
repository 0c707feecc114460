//! Compiles the protocol files to gRPC bindings with protox, so no protoc is needed on the machine.
//!
//! Each file is behind the cargo feature of its name; a crate that needs none pays for none.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let wanted = [
        ("CARGO_FEATURE_CRI", "cri.proto"),
        ("CARGO_FEATURE_CONTAINERD", "containerd_events.proto"),
        ("CARGO_FEATURE_HEALTH", "health.proto"),
        ("CARGO_FEATURE_DEVICES", "device_plugin.proto"),
        ("CARGO_FEATURE_DEVICES", "pod_resources.proto"),
        ("CARGO_FEATURE_DEVICES", "pod_resources_v1alpha1.proto"),
    ];
    for (feature, file) in wanted {
        if std::env::var_os(feature).is_some() {
            let descriptors = protox::compile([file], ["proto"])?;
            // The bindings' own server half is what the tests' scripted runtimes implement, and what answers device plugins.
            let mut builder = tonic_prost_build::configure().build_transport(true);
            if feature == "CARGO_FEATURE_DEVICES" {
                // A directory for each: files are named by packages, and several protocols call theirs `v1alpha1`.
                let out = Path::new(&std::env::var("OUT_DIR")?).join(file.trim_end_matches(".proto"));
                std::fs::create_dir_all(&out)?;
                builder = builder.out_dir(out);
            }
            builder.compile_fds(descriptors)?;
        }
    }
    Ok(())
}
