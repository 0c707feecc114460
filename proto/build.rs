//! Compiles the protocol files to gRPC bindings with protox, so no protoc is needed on the machine.
//!
//! Each file is behind the cargo feature of its name; a crate that needs none pays for none.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let wanted = [
        ("CARGO_FEATURE_CRI", "cri.proto"),
        ("CARGO_FEATURE_CONTAINERD", "containerd_events.proto"),
        ("CARGO_FEATURE_HEALTH", "health.proto"),
    ];
    for (feature, file) in wanted {
        if std::env::var_os(feature).is_some() {
            let descriptors = protox::compile([file], ["proto"])?;
            // The bindings' own server half is what the tests' scripted runtimes implement.
            tonic_prost_build::configure()
                .build_transport(true)
                .compile_fds(descriptors)?;
        }
    }
    Ok(())
}
