//! Which images need a login once they are here, and which plugins give logins.

use super::Reader;
use crate::config::{CredentialProviders, Flags, KubeletConfiguration};
use crate::image::reference;
use crate::image::verification::Policy;
use std::path::PathBuf;

const POLICY: &str = "imagePullCredentialsVerificationPolicy";
const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";

/// Either flag alone asks for plugins, too: what the other lacks is then told at the start.
pub(super) fn credential_providers(written: &KubeletConfiguration, flags: &Flags) -> Option<CredentialProviders> {
    let path = |flag| flags.text(flag).map(PathBuf::from).unwrap_or_default();
    let found = CredentialProviders {
        config: path("image-credential-provider-config"),
        directory: path("image-credential-provider-bin-dir"),
        tokens: !written.no_provider_tokens,
    };
    let is_asked = [&found.config, &found.directory]
        .iter()
        .any(|path| !path.as_os_str().is_empty());
    is_asked.then_some(found)
}

pub(super) fn verification(reader: &mut Reader, written: &KubeletConfiguration) -> Policy {
    let listed = written
        .preloaded_images_verification_allowlist
        .clone()
        .unwrap_or_default();
    let policy = written.image_pull_credentials_verification_policy.as_deref();
    if !listed.is_empty() && policy != Some("NeverVerifyAllowlistedImages") {
        let why = format!("can only be set with {POLICY} \"NeverVerifyAllowlistedImages\"");
        reader.wrong(ALLOWLIST, why);
    }
    for pattern in &listed {
        let name = pattern.strip_suffix("/*").unwrap_or(pattern);
        if name.is_empty() || name.contains('*') || reference::name(name) != name {
            let why =
                format!("{pattern:?} is neither an image name without tag and digest nor a path that ends in \"/*\"");
            reader.wrong(ALLOWLIST, why);
        }
    }
    match policy.unwrap_or_default() {
        "" | "NeverVerifyPreloadedImages" => Policy::NeverVerifyPreloaded,
        "NeverVerify" => Policy::NeverVerify,
        "NeverVerifyAllowlistedImages" => Policy::NeverVerifyAllowlisted(listed),
        "AlwaysVerify" => Policy::AlwaysVerify,
        other => {
            let names = "NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify";
            reader.wrong(POLICY, format!("{other:?} is none of {names}"));
            Policy::default()
        }
    }
}
