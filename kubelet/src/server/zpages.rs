//! `/statusz` and `/flagz`: what this process is and how it was started, for people; as JSON for programs that ask for it by name.
//! Pure.

use super::answer::{self, Answer};
use crate::config::VERSION;
use hyper::header::{ACCEPT, HeaderMap};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
/// Versions of the JSON form, newest first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                       and is for debugging purposes only.\n";

/// The form a page is asked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json(&'static str),
}

/// The first form of a request's `Accept` that there is; nothing if there is none of them.
fn form(headers: &HeaderMap, kind: &str) -> Option<Form> {
    let Some(accept) = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .filter(|text| !text.is_empty())
    else {
        return Some(Form::Text);
    };
    accept.split(',').find_map(|media| {
        let mut parts = media.split(';').map(str::trim);
        let of = |name: &str| {
            let mut parameters = media.split(';').skip(1).filter_map(|text| text.trim().split_once('='));
            parameters.find(|(found, _)| *found == name).map(|(_, value)| value)
        };
        match parts.next()? {
            "text/plain" | "text/*" | "*/*" => Some(Form::Text),
            "application/json" if of("as") == Some(kind) && of("g") == Some(GROUP) => {
                let version = VERSIONS.into_iter().find(|version| of("v") == Some(version))?;
                Some(Form::Json(version))
            }
            _ => None,
        }
    })
}

fn page(headers: &HeaderMap, kind: &str, text: impl FnOnce() -> String, fields: impl FnOnce() -> Value) -> Answer {
    match form(headers, kind) {
        None => answer::text(
            406,
            "media type not acceptable: text/plain or application/json;as=...;v=...;g=...\n",
        ),
        Some(Form::Text) => answer::text(200, &text()),
        Some(Form::Json(version)) => {
            let mut object = fields();
            object["kind"] = kind.into();
            object["apiVersion"] = format!("{GROUP}/{version}").into();
            object["metadata"] = json!({"name": COMPONENT});
            answer::json(object.to_string())
        }
    }
}

/// Since when the process runs, its version, and the paths it has.
pub(super) fn status(headers: &HeaderMap, started: Timestamp, now: Timestamp, paths: &[&str]) -> Answer {
    let up = u64::try_from(now.duration_since(started).as_secs()).unwrap_or(0);
    let version = VERSION.trim_start_matches('v');
    let text = || {
        let since = started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y");
        let up = format!("{} hr {:02} min {:02} sec", up / 3600, up / 60 % 60, up % 60);
        let paths = paths.join(" ");
        format!(
            "\n{COMPONENT} statusz\n{WARNING}\nStarted: {since}\nUp: {up}\nGo version: none (rust)\nBinary version: {version}\n\
             Paths: {paths}\n"
        )
    };
    let fields = || {
        json!({"startTime": started.to_string(), "uptimeSeconds": up, "goVersion": "none (rust)", "binaryVersion": version,
            "paths": paths})
    };
    page(headers, "Statusz", text, fields)
}

/// The flags this process was started with.
pub(super) fn flags(headers: &HeaderMap, flags: &BTreeMap<String, String>) -> Answer {
    let text = || {
        let lines: String = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        format!("\n{COMPONENT} flagz\n{WARNING}\n{lines}")
    };
    page(headers, "Flagz", text, || json!({ "flags": flags }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn accepting(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().expect("a value"));
        }
        headers
    }

    async fn body(answer: Answer) -> (u16, String) {
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[test]
    fn forms_are_those_that_are_asked_for() {
        let json = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
        for (accept, expected) in [
            ("", Some(Form::Text)),
            ("text/html, text/plain;q=0.5", Some(Form::Text)),
            ("*/*", Some(Form::Text)),
            (json, Some(Form::Json("v1beta1"))),
            ("application/json;as=Statusz;v=v9;g=config.k8s.io", None),
            ("application/json;as=Flagz;v=v1beta1;g=config.k8s.io", None),
            ("application/json", None),
        ] {
            assert_eq!(form(&accepting(accept), "Statusz"), expected, "{accept}");
        }
    }

    #[tokio::test]
    async fn pages_say_what_is_known() {
        let started = Timestamp::from_second(1_700_000_000).expect("a time");
        let now = Timestamp::from_second(1_700_003_725).expect("a time");
        let (code, text) = body(status(&accepting(""), started, now, &["/pods"])).await;
        assert_eq!(code, 200);
        for line in [
            "kubelet statusz",
            "Started: Tue Nov 14 22:13:20 UTC 2023",
            "Up: 1 hr 02 min 05 sec",
            "Paths: /pods",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let json = "application/json;as=Flagz;v=v1alpha1;g=config.k8s.io";
        let given = BTreeMap::from([("v".to_owned(), "4".to_owned())]);
        let (_, text) = body(flags(&accepting(json), &given)).await;
        let object: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&object["kind"], &object["flags"]["v"]), (&json!("Flagz"), &json!("4")));
        assert_eq!(object["apiVersion"], "config.k8s.io/v1alpha1");
        assert!(body(flags(&accepting(""), &given)).await.1.ends_with("\nv=4\n"));
    }
}
