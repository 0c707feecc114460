//! The build script of the programs of a node and of a control plane: how they are linked where they are shipped. What is the same
//! twice is there once (identical functions folded), addresses to relocate are packed, and what runs all day stands together
//! (`hot-functions` of the package), so that the pages between are not in memory. All are of LLD, which Rust links with on this one
//! target; elsewhere nothing is asked.

use std::env;

/// Names as the linker knows them, a line each, in the order they are to stand in; who is not there any more is passed over. `hack/order` writes it.
const HOT: &str = "hot-functions";

fn main() {
    println!("cargo:rerun-if-changed={HOT}");
    println!("cargo:rerun-if-env-changed=SKIFF_LINK_MAP");
    let of_cargo = |name: &str| env::var(name).expect("cargo gives it");
    if of_cargo("PROFILE") == "release" && of_cargo("TARGET") == "x86_64-unknown-linux-gnu" {
        let ask = |argument: &str| println!("cargo:rustc-link-arg-bins=-Wl,{argument}");
        ask("--icf=all");
        ask("-z,pack-relative-relocs");
        ask(&format!(
            "--symbol-ordering-file={}/{HOT}",
            of_cargo("CARGO_MANIFEST_DIR")
        ));
        ask("--no-warn-symbol-ordering");
        // What stands where, for hack/order: a folder.
        if let Ok(folder) = env::var("SKIFF_LINK_MAP") {
            ask(&format!("-Map={folder}/{}.map", of_cargo("CARGO_PKG_NAME")));
            ask("--no-demangle");
        }
    }
}
