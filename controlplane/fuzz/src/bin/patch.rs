//! Any object and any change to it, in the four forms of patches: a new object or a refusal; applying the same configuration
//! twice is applying it once, and so are the merging patches (contract §2.5).
//!
//! The input is one line of JSON for the object and the rest for the change.

#![no_main]

use controlplane::managed_fields::{Apply, Live, Scope, Typing, Writer, take, track};
use controlplane::patch::{json_patch, merge_patch, strategic_patch};
use controlplane::schema::{Media, decode, normalize, parse};
use controlplane_fuzz::kind_of;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (object, change) = (&bytes[..end], &bytes[end + 1..]);
    let (Ok(named), Ok(change)) = (parse(object, Media::Json), parse(change, Media::Json)) else {
        return;
    };
    let Some(kind) = kind_of(&named) else {
        return;
    };
    let Ok(read) = decode(kind, object, Media::Json) else {
        return;
    };
    let original = read.value;
    let _ = json_patch(kind, &original, &change);
    if let Ok(once) = merge_patch(kind, &original, &change) {
        assert_eq!(merge_patch(kind, &once, &change).expect("again"), once);
    }
    let _ = strategic_patch(kind, &original, &change);

    let (Some(typing), mut config) = (Typing::of_kind(kind), change) else {
        return;
    };
    if !config.is_object() || normalize(kind, &mut config).is_err() {
        return;
    }
    let writer = |manager| Writer {
        manager,
        api_version: &kind.api_version,
        subresource: "",
        now: Timestamp::UNIX_EPOCH,
    };
    let scope = Scope::of(kind, "");
    let mut made = original;
    let owners = track(typing, scope, None, &mut made, &writer("first"));
    take(&mut config);
    for force in [false, true] {
        let apply = Apply {
            typing,
            scope,
            writer: writer("second"),
            force,
        };
        let live = Live {
            object: &made,
            owners: owners.as_deref(),
        };
        let Ok(once) = apply.to(live, &config) else {
            continue;
        };
        let live = Live {
            object: &once.object,
            owners: once.owners.as_deref(),
        };
        let twice = apply.to(live, &config).expect("what was applied can be applied again");
        assert_eq!(twice.object, once.object);
    }
});
