//! Where static pods come from.

use super::{Reader, given};
use crate::config::KubeletConfiguration;
use crate::source::StaticSources;
use std::time::Duration;

const CHECK: Duration = Duration::from_secs(20);

pub(super) fn read(reader: &mut Reader, written: &KubeletConfiguration) -> StaticSources {
    let url = written.static_pod_url.clone().filter(|url| !url.is_empty());
    if let Some(url) = &url {
        let parsed: Result<http::Uri, _> = url.parse();
        if !parsed.is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))) {
            reader.wrong("staticPodURL", format!("{url:?} is not of the form http://host/path"));
        }
    }
    let mut headers = Vec::new();
    for (name, values) in written.static_pod_url_header.iter().flatten() {
        for value in values {
            let sound = http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok();
            if !sound {
                // The value may be a secret.
                reader.wrong("staticPodURLHeader", format!("{name:?} is not a sound header"));
            }
            headers.push((name.clone(), value.clone()));
        }
    }
    StaticSources {
        path: given(written.static_pod_path.as_ref()),
        url,
        headers,
        file_check: reader.time("fileCheckFrequency", written.file_check_frequency.as_deref(), CHECK),
        http_check: reader.time("httpCheckFrequency", written.http_check_frequency.as_deref(), CHECK),
    }
}
