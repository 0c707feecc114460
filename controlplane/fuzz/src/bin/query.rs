//! Any text as the target of a request: what it asks for, and its selectors, or a refusal; a selector that was read means the
//! same when it is written and read again (contract §2.1, §2.8).

#![no_main]

use controlplane::apiserver::request::{Query, RequestInfo};
use http::Method;
use libfuzzer_sys::fuzz_target;
use proto::api::selector::{FieldSelector, Selector};

fuzz_target!(|target: &str| {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let info = RequestInfo::parse(&method, path, &query);
        let _ = FieldSelector::parse(&info.field_selector);
        if let Ok(selector) = Selector::parse(&info.label_selector) {
            let again = Selector::parse(&selector.to_string()).expect("our own text");
            assert_eq!(again.requirements(), selector.requirements(), "{selector}");
        }
    }
});
