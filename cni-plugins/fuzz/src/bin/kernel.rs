//! Any bytes as an answer of the kernel: the netlink and nf_tables readers take or refuse them, and end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netlink::nft::expression;
use netlink::{address, codec, link, route};

fuzz_target!(|bytes: &[u8]| {
    for message in codec::messages(bytes) {
        assert!(codec::attributes(message.body).count() <= bytes.len());
    }
    codec::attributes(bytes).for_each(|(_, value)| drop(codec::read_text(value)));
    let _ = link::Link::read(bytes);
    let _ = link::read_vlans(bytes);
    let _ = route::Route::read(bytes);
    let _ = address::Address::read(bytes);
    let _ = expression::jump_targets(bytes);
});
