//! Any bytes as the body of a request, in each encoding: a tree and what is wrong with it, or a refusal; what was read is the
//! same whichever way it is written and read again (contract §1, §4).

#![no_main]

use controlplane::fuzzing;
use controlplane::schema::{Media, decode, normalize, parse};
use controlplane_fuzz::kind_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, body)) = bytes.split_first() else {
        return;
    };
    let media = [Media::Json, Media::Yaml, Media::Protobuf][usize::from(choice) % 3];
    let Ok(tree) = parse(body, media) else {
        return;
    };
    let Some(kind) = kind_of(&tree) else {
        return;
    };
    let Ok(read) = decode(kind, body, media) else {
        return;
    };
    let object = read.value;
    let mut again = object.clone();
    let problems = normalize(kind, &mut again).expect("what was read is of its kind");
    assert!(problems.is_empty() && again == object, "{problems:?} {object} {again}");
    let text = object.to_string();
    assert_eq!(decode(kind, text.as_bytes(), Media::Json).expect("JSON").value, object);
    // Zeros that Go cannot tell from nothing are left out: after one turn the form stays.
    if let Some(first) = fuzzing::protobuf(&object) {
        let back = decode(kind, &first, Media::Protobuf).expect("our own protobuf").value;
        let second = fuzzing::protobuf(&back).expect("the same kind");
        assert_eq!(decode(kind, &second, Media::Protobuf).expect("again").value, back);
    }
    let mut whole = object;
    kind.strategy.default(&mut whole);
    let _ = kind.validate(&whole);
    let _ = kind.validate_update(&whole, &whole, "");
});
