//! Acting as somebody else: `Impersonate-*` headers (control-plane contract §6).

use crate::apiserver::authz::{Authz, forbidden};
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use http::HeaderMap;
use std::collections::BTreeMap;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";

/// The identity the request wants to act as, if it names one.
///
/// # Errors
/// 403 if the user may not impersonate one of the parts; 400 if groups, uid or extras come without a user.
pub fn impersonate(user: &User, headers: &HeaderMap, authz: &Authz, reader: &Reader) -> Result<Option<User>, ApiError> {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect()
    };
    let name = all("impersonate-user").into_iter().next().unwrap_or_default();
    let (groups, uid) = (all("impersonate-group"), all("impersonate-uid").into_iter().next());
    let extra = extras(headers);
    if name.is_empty() {
        if groups.is_empty() && uid.is_none() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::internal(format!(
            "requested [{groups:?} {extra:?} {uid:?}] without impersonating a user"
        )));
    }
    let account = name
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'));
    let may = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let info = RequestInfo {
            is_resource: true,
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..RequestInfo::default()
        };
        let decision = authz.authorize(user, &info, reader);
        if decision.allowed {
            Ok(())
        } else {
            Err(forbidden(user, &info, &decision.reason))
        }
    };
    match account {
        Some((namespace, account)) => may("", "serviceaccounts", "", namespace, account)?,
        None => may("", "users", "", "", &name)?,
    }
    for group in &groups {
        may("", "groups", "", "", group)?;
    }
    if let Some(uid) = &uid {
        may(AUTHENTICATION, "uids", "", "", uid)?;
    }
    for (key, values) in &extra {
        for value in values {
            may(AUTHENTICATION, "userextras", key, "", value)?;
        }
    }
    let mut groups = groups;
    if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
        groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let everyone = if name == "system:anonymous" {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !groups.iter().any(|group| group == everyone) {
        groups.push(everyone.to_owned());
    }
    Ok(Some(User {
        name,
        uid,
        groups,
        extra,
    }))
}

fn extras(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA)
            && let Ok(value) = value.to_str()
        {
            extra.entry(unescape(key)).or_default().push(value.to_owned());
        }
    }
    extra
}

/// Header names cannot hold every key, so keys come percent-encoded.
fn unescape(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let decoded = match (first, tail) {
            (b'%', [high, low, ..]) => hex::decode([*high, *low]).ok(),
            _ => None,
        };
        match decoded {
            Some(byte) => {
                bytes.extend(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
