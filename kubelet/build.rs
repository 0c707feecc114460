//! How the program is linked where it is shipped: what is the same twice is there once (identical functions folded), addresses
//! to relocate are packed, and what runs all day stands together (`hot-functions`), so that the pages between are not in memory.
//! All are of LLD, which Rust links with on this one target; elsewhere nothing is asked.

use std::env;

/// Names as the linker knows them, a line each, in the order they are to stand in; who is not there any more is passed over. `hack/order` writes it.
const HOT: &str = "hot-functions";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={HOT}");
    println!("cargo:rerun-if-env-changed=SKIFF_LINK_MAP");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        let ask = |argument: &str| println!("cargo:rustc-link-arg-bins=-Wl,{argument}");
        ask("--icf=all");
        ask("-z,pack-relative-relocs");
        let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo gives it");
        ask(&format!("--symbol-ordering-file={directory}/{HOT}"));
        ask("--no-warn-symbol-ordering");
        // What stands where, for hack/order: a folder.
        if let Ok(map) = env::var("SKIFF_LINK_MAP") {
            ask(&format!("-Map={map}/kubelet.map"));
            ask("--no-demangle");
        }
    }
}
