//! `serviceaccounts/token`: a token for an account, bound to a pod, secret or node if asked (control-plane contract §6).

use super::UnstoredEndpoints;
use crate::apiserver::ApiServer;
use crate::apiserver::authn::service_account::{Bound, Claims, Private};
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Validity if none is asked for, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// What the kubelet asks for pods' own tokens; such tokens live a year, so that clients that never reread them keep working.
const KUBELET_SECONDS: i64 = 3607;
const YEAR_SECONDS: i64 = 365 * 86_400;

/// Answers a TokenRequest.
pub(super) async fn create(
    endpoints: &UnstoredEndpoints,
    server: &ApiServer,
    info: &RequestInfo,
    mut request: Value,
) -> Result<Value, ApiError> {
    let reader = server.reader();
    reader.refresh().await.map_err(ApiError::internal)?;
    let account = reader
        .get("", "serviceaccounts", &info.namespace, &info.name)
        .ok_or_else(|| ApiError::not_found("", "serviceaccounts", &info.name))?;
    let audiences = audiences(endpoints, &request);
    let seconds = seconds(&request)?;
    check_metadata(info, &request, &account)?;
    let bound = bind(reader, info, &request["spec"]["boundObjectRef"])?;
    let own_audience = audiences == endpoints.tokens.audiences();
    let lifetime = lifetime(seconds, own_audience && bound.pod.is_some());
    let now = server.now().as_second();
    let claims = Claims {
        aud: audiences.clone(),
        exp: now + lifetime.real_seconds,
        iat: now,
        iss: endpoints.tokens.issuer().to_owned(),
        jti: server.uuid(),
        nbf: now,
        sub: format!("system:serviceaccount:{}:{}", info.namespace, info.name),
        private: Private {
            namespace: info.namespace.clone(),
            serviceaccount: identity(&info.name, &account),
            warnafter: lifetime.warn.then_some(now + seconds),
            ..bound
        },
    };
    let token = endpoints.tokens.sign(&claims).map_err(ApiError::internal)?;
    let expires = Timestamp::from_second(now + seconds).map_err(ApiError::internal)?;
    request["metadata"] = json!({"name": info.name, "namespace": info.namespace, "creationTimestamp": server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(seconds);
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
    Ok(request)
}

fn audiences(endpoints: &UnstoredEndpoints, request: &Value) -> Vec<String> {
    let given = request["spec"]["audiences"].as_array().into_iter().flatten();
    let given: Vec<String> = given.filter_map(Value::as_str).map(str::to_owned).collect();
    if given.is_empty() {
        endpoints.tokens.audiences().to_vec()
    } else {
        given
    }
}

fn seconds(request: &Value) -> Result<i64, ApiError> {
    let field = "spec.expirationSeconds";
    let given = &request["spec"]["expirationSeconds"];
    let seconds = match given {
        Value::Null => return Ok(DEFAULT_SECONDS),
        given => given.as_i64().unwrap_or_default(),
    };
    let why = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(seconds);
    };
    let errors = vec![FieldError::invalid(field, given.clone(), why)];
    Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", errors))
}

/// How long a token lives, and whether its use is reported as stale after the time that was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Lifetime {
    real_seconds: i64,
    warn: bool,
}

fn lifetime(asked: i64, pods_own: bool) -> Lifetime {
    let extended = pods_own && asked == KUBELET_SECONDS;
    Lifetime {
        real_seconds: if extended { YEAR_SECONDS } else { asked },
        warn: extended,
    }
}

/// Name, namespace and uid of the request's metadata are preconditions.
fn check_metadata(info: &RequestInfo, request: &Value, account: &Value) -> Result<(), ApiError> {
    let text = |field: &str| request["metadata"][field].as_str().unwrap_or_default();
    for (field, expected) in [("name", info.name.as_str()), ("namespace", info.namespace.as_str())] {
        let found = text(field);
        if !found.is_empty() && found != expected {
            return Err(ApiError::bad_request(format!(
                "the {field} of the provided object does not match the {field} sent on the request"
            )));
        }
    }
    let (wanted, uid) = (text("uid"), account["metadata"]["uid"].as_str().unwrap_or_default());
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the token request ({wanted}) does not match the UID of the service account ({uid}). \
             The account might have been deleted and then recreated"
        );
        return Err(ApiError::conflict("", "serviceaccounts", &info.name, &why));
    }
    Ok(())
}

fn identity(name: &str, object: &Value) -> Bound {
    Bound {
        name: name.to_owned(),
        uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
    }
}

/// What the token is bound to, as its private claims without the account.
fn bind(reader: &Reader, info: &RequestInfo, reference: &Value) -> Result<Private, ApiError> {
    let mut private = Private {
        namespace: String::new(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: Bound {
            name: String::new(),
            uid: String::new(),
        },
        warnafter: None,
    };
    if reference.is_null() {
        return Ok(private);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (resource, namespace) = match (text("apiVersion"), text("kind")) {
        ("v1" | "", "Pod") => ("pods", info.namespace.as_str()),
        ("v1" | "", "Secret") => ("secrets", info.namespace.as_str()),
        ("v1" | "", "Node") => ("nodes", ""),
        (version, kind) => {
            let why = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    let (name, wanted) = (text("name"), text("uid"));
    let object = reader
        .get("", resource, namespace, name)
        .ok_or_else(|| ApiError::not_found("", resource, name))?;
    let bound = identity(name, &object);
    if !wanted.is_empty() && wanted != bound.uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict("", resource, name, &why));
    }
    match resource {
        "pods" => {
            let own = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
            if own != info.name {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                    info.name
                )));
            }
            let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
            if !node.is_empty() {
                let found = reader.get("", "nodes", "", node);
                private.node = Some(identity(node, found.as_deref().unwrap_or(&Value::Null)));
            }
            private.pod = Some(bound);
        }
        "secrets" => private.secret = Some(bound),
        _ => private.node = Some(bound),
    }
    Ok(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_tokens_live_a_year() {
        assert_eq!(
            lifetime(3607, true),
            Lifetime {
                real_seconds: YEAR_SECONDS,
                warn: true
            }
        );
        for (asked, own) in [(3607, false), (3600, true), (7200, false)] {
            assert_eq!(
                lifetime(asked, own),
                Lifetime {
                    real_seconds: asked,
                    warn: false
                }
            );
        }
    }

    #[test]
    fn durations_have_bounds() {
        let of = |value: Value| seconds(&json!({"spec": {"expirationSeconds": value}}));
        assert_eq!(of(Value::Null).unwrap(), 3600);
        assert_eq!(of(json!(600)).unwrap(), 600);
        let error = of(json!(60)).unwrap_err();
        assert_eq!(
            error.message,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not \
             specify a duration less than 10 minutes"
        );
        assert!(of(json!((1_i64 << 32) + 1)).is_err());
    }
}
