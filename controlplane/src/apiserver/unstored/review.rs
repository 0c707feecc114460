//! Reviews: questions about tokens, identities and rights, answered and never stored (control-plane contract §6). Pure but for
//! the state it reads.

use super::UnstoredEndpoints;
use crate::apiserver::authz::{Authz, Rule, node_of};
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use crate::resource::field_error::FieldError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Answers a review.
pub(super) fn create(
    endpoints: &UnstoredEndpoints,
    reader: &Reader,
    user: &User,
    info: &RequestInfo,
    mut review: Value,
) -> Result<Value, ApiError> {
    let authz = &endpoints.authz;
    let status = match info.resource.as_str() {
        "tokenreviews" => token(endpoints, reader, &review)?,
        "selfsubjectreviews" => json!({"userInfo": user_info(user)}),
        "subjectaccessreviews" => access(authz, reader, &subject(&review)?, "SubjectAccessReview", &review)?,
        "localsubjectaccessreviews" => {
            check_namespace(info, &review)?;
            access(authz, reader, &subject(&review)?, "LocalSubjectAccessReview", &review)?
        }
        "selfsubjectaccessreviews" => access(authz, reader, user, "SelfSubjectAccessReview", &review)?,
        "selfsubjectrulesreviews" => rules(authz, reader, user, &review)?,
        other => return Err(ApiError::not_found(&info.group, other, "")),
    };
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    if !review["spec"].is_object() && info.resource != "selfsubjectreviews" {
        review["spec"] = json!({});
    }
    review["status"] = status;
    Ok(review)
}

fn token(endpoints: &UnstoredEndpoints, reader: &Reader, review: &Value) -> Result<Value, ApiError> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences = texts(&review["spec"]["audiences"]);
    let asked = if audiences.is_empty() {
        endpoints.tokens.audiences().to_vec()
    } else {
        audiences.clone()
    };
    Ok(match endpoints.authn.token(token, &asked, reader) {
        Ok(answer) => json!({"authenticated": true, "user": user_info(&answer.user), "audiences": answer.audiences}),
        Err(why) => json!({"user": {}, "error": why}),
    })
}

/// A user as reviews show it.
fn user_info(user: &User) -> Value {
    let mut shown = json!({"username": user.name, "groups": user.groups});
    if let Some(uid) = &user.uid {
        shown["uid"] = json!(uid);
    }
    if !user.extra.is_empty() {
        shown["extra"] = json!(user.extra);
    }
    shown
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The user a review asks about.
fn subject(review: &Value) -> Result<User, ApiError> {
    let spec = &review["spec"];
    let user = User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().map(str::to_owned),
        groups: texts(&spec["groups"]),
        extra: extras(&spec["extra"]),
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let why = "at least one of user or group must be specified";
        let errors = vec![FieldError::invalid("spec.user", "", why)];
        return Err(ApiError::invalid(
            "authorization.k8s.io",
            "SubjectAccessReview",
            "",
            errors,
        ));
    }
    Ok(user)
}

fn extras(value: &Value) -> BTreeMap<String, Vec<String>> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, list)| (key.clone(), texts(list))).collect()
}

fn check_namespace(info: &RequestInfo, review: &Value) -> Result<(), ApiError> {
    let asked = review["spec"]["resourceAttributes"]["namespace"]
        .as_str()
        .unwrap_or_default();
    if asked == info.namespace {
        return Ok(());
    }
    let namespace = &info.namespace;
    Err(ApiError::bad_request(format!(
        "spec.resourceAttributes.namespace must match namespace: {namespace}"
    )))
}

fn access(authz: &Authz, reader: &Reader, user: &User, kind: &str, review: &Value) -> Result<Value, ApiError> {
    let info = question(kind, &review["spec"])?;
    let decision = authz.authorize(user, &info, reader);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    Ok(status)
}

/// The request a review asks about.
fn question(kind: &str, spec: &Value) -> Result<RequestInfo, ApiError> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    match (
        spec["resourceAttributes"].as_object(),
        spec["nonResourceAttributes"].as_object(),
    ) {
        (Some(_), None) => {
            let asked = &spec["resourceAttributes"];
            Ok(RequestInfo {
                is_resource: true,
                verb: text(asked, "verb"),
                group: text(asked, "group"),
                version: text(asked, "version"),
                namespace: text(asked, "namespace"),
                resource: text(asked, "resource"),
                subresource: text(asked, "subresource"),
                name: text(asked, "name"),
                field_selector: fields(&asked["fieldSelector"]),
                ..RequestInfo::default()
            })
        }
        (None, Some(_)) => {
            let asked = &spec["nonResourceAttributes"];
            Ok(RequestInfo {
                verb: text(asked, "verb"),
                path: text(asked, "path"),
                ..RequestInfo::default()
            })
        }
        (both, _) => {
            let why = if both.is_some() {
                "cannot be specified in combination with resourceAttributes"
            } else {
                "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            };
            let field = if both.is_some() {
                "spec.nonResourceAttributes"
            } else {
                "spec.resourceAttributes"
            };
            let errors = vec![FieldError::invalid(field, Value::Null, why)];
            Err(ApiError::invalid("authorization.k8s.io", kind, "", errors))
        }
    }
}

/// A field selector as text; of structured requirements only equality can be said.
fn fields(selector: &Value) -> String {
    if let Some(raw) = selector["rawSelector"].as_str() {
        return raw.to_owned();
    }
    let terms = selector["requirements"].as_array().into_iter().flatten();
    let terms = terms.filter_map(
        |term| match (term["operator"].as_str()?, texts(&term["values"]).as_slice()) {
            ("In", [value]) => Some(format!("{}={value}", term["key"].as_str()?)),
            _ => None,
        },
    );
    terms.collect::<Vec<_>>().join(",")
}

fn rules(authz: &Authz, reader: &Reader, user: &User, review: &Value) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rules = authz.rules_for(user, namespace, reader);
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) =
        rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let values = |rules: Vec<&Rule>| rules.into_iter().map(Rule::to_value).collect::<Vec<Value>>();
    let mut status = Map::new();
    status.insert("resourceRules".to_owned(), json!(values(resources)));
    status.insert("nonResourceRules".to_owned(), json!(values(paths)));
    // What a node may read follows from its pods and cannot be listed.
    let is_node = node_of(user).is_some();
    status.insert("incomplete".to_owned(), json!(is_node));
    if is_node {
        let why = "node authorizer does not support user rule resolution";
        status.insert("evaluationError".to_owned(), json!(why));
    }
    Ok(Value::Object(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_about_a_resource_or_a_path_never_both() {
        let resource =
            json!({"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "n"}});
        let info = question("SelfSubjectAccessReview", &resource).unwrap();
        assert!(info.is_resource && info.subresource == "log");
        let narrowed = json!({"resourceAttributes": {"fieldSelector": {"requirements": [
            {"key": "spec.nodeName", "operator": "In", "values": ["n1"]}, {"key": "x", "operator": "Exists"}]}}});
        let info = question("SelfSubjectAccessReview", &narrowed).unwrap();
        assert_eq!(info.field_selector, "spec.nodeName=n1");
        let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/metrics"}});
        assert_eq!(question("SelfSubjectAccessReview", &path).unwrap().path, "/metrics");
        for wrong in [
            json!({}),
            json!({"resourceAttributes": {}, "nonResourceAttributes": {}}),
        ] {
            assert_eq!(question("SelfSubjectAccessReview", &wrong).unwrap_err().code, 422);
        }
    }

    #[test]
    fn somebody_must_be_asked_about() {
        assert_eq!(subject(&json!({"spec": {}})).unwrap_err().code, 422);
        let user = subject(&json!({"spec": {"groups": ["g"], "extra": {"k": ["v"]}}})).unwrap();
        assert!(user.is_in("g") && user.extra["k"] == ["v"]);
    }
}
