//! What a request asks for, read from its method and path alone (control-plane contract §2.1). Pure.

mod query;

pub use query::{Query, dry_run_problem};

/// The parsed meaning of a request: a verb on a resource, or a plain path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names a resource; otherwise only `path` and `verb` (the lower-case method) mean anything.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or the lower-case HTTP method.
    pub verb: String,
    /// The raw path without the query.
    pub path: String,
    /// API group, empty for core.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Namespace, empty at cluster scope (for the resource `namespaces`: the name).
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Object name, empty for collections (list and watch narrowed by `metadata.name=x` carry x).
    pub name: String,
    /// Path elements after the subresource (proxy paths).
    pub rest: String,
    /// The raw field selector of list, watch and deletecollection.
    pub field_selector: String,
    /// The raw label selector of list, watch and deletecollection.
    pub label_selector: String,
}

impl RequestInfo {
    /// Reads method, path (percent-encoded) and query.
    pub fn parse(method: &http::Method, path: &str, query: &Query) -> Self {
        let mut info = Self {
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
            ..Self::default()
        };
        let elements: Vec<String> = path.trim_matches('/').split('/').map(query::decode_path).collect();
        let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
        let rest = match elements.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                info.group = (*group).to_owned();
                info.version = (*version).to_owned();
                rest
            }
            _ => return info,
        };
        info.is_resource = true;
        let (watch_prefix, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        info.split(rest);
        info.choose_verb(method, query, watch_prefix);
        info
    }

    fn split(&mut self, elements: &[&str]) {
        let elements = match elements {
            ["namespaces", namespace, rest @ ..] => {
                self.namespace = (*namespace).to_owned();
                // `namespaces/x/status` and `/finalize` are the namespace's own.
                if rest.is_empty() || matches!(rest, ["status" | "finalize"]) {
                    elements
                } else {
                    rest
                }
            }
            elements => elements,
        };
        let text = |index: usize| {
            elements
                .get(index)
                .map_or(String::new(), |element| (*element).to_owned())
        };
        self.resource = text(0);
        self.name = text(1);
        self.subresource = text(2);
        self.rest = elements.get(3..).unwrap_or_default().join("/");
    }

    fn choose_verb(&mut self, method: &http::Method, query: &Query, watch_prefix: bool) {
        let verb = match method.as_str() {
            "POST" => "create",
            "GET" | "HEAD" if self.subresource.is_empty() && (watch_prefix || self.name.is_empty()) => {
                if watch_prefix || query.flag("watch") {
                    "watch"
                } else {
                    "list"
                }
            }
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if self.name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            other => &other.to_ascii_lowercase(),
        };
        self.verb = verb.to_owned();
        if !matches!(verb, "list" | "watch" | "deletecollection") {
            return;
        }
        self.field_selector = query.text("fieldSelector").to_owned();
        self.label_selector = query.text("labelSelector").to_owned();
        if self.name.is_empty() && verb != "deletecollection" {
            let selector = proto::api::selector::FieldSelector::parse(&self.field_selector);
            if let Some(name) = selector
                .ok()
                .as_ref()
                .and_then(|parsed| parsed.required("metadata.name"))
            {
                self.name = name.to_owned();
            }
        }
    }

    /// Whether the reply may take as long as the client stays (contract §8): no deadline applies.
    pub fn is_long_running(&self) -> bool {
        let parts = ["attach", "exec", "proxy", "log", "portforward"];
        self.is_resource && (self.verb == "watch" || parts.contains(&self.subresource.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query))
    }

    #[test]
    fn paths_and_methods_give_verbs_and_names() {
        // method, uri, verb, group, namespace, resource, name, subresource
        let table = [
            ("GET", "/api/v1/pods", "list", "", "", "pods", "", ""),
            ("GET", "/api/v1/pods?watch=1", "watch", "", "", "pods", "", ""),
            ("GET", "/api/v1/pods?watch=false", "list", "", "", "pods", "", ""),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods",
                "watch",
                "",
                "a",
                "pods",
                "",
                "",
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/x",
                "watch",
                "",
                "a",
                "pods",
                "x",
                "",
            ),
            ("GET", "/api/v1/namespaces/a/pods/x", "get", "", "a", "pods", "x", ""),
            ("GET", "/api/v1/namespaces/a", "get", "", "a", "namespaces", "a", ""),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update",
                "",
                "a",
                "namespaces",
                "a",
                "finalize",
            ),
            (
                "PATCH",
                "/api/v1/namespaces/a/status",
                "patch",
                "",
                "a",
                "namespaces",
                "a",
                "status",
            ),
            ("POST", "/api/v1/namespaces", "create", "", "", "namespaces", "", ""),
            (
                "POST",
                "/api/v1/namespaces/a/pods/x/binding",
                "create",
                "",
                "a",
                "pods",
                "x",
                "binding",
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "update",
                "apps",
                "a",
                "deployments",
                "d",
                "scale",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection",
                "apps",
                "a",
                "deployments",
                "",
                "",
            ),
            ("DELETE", "/api/v1/nodes/n", "delete", "", "", "nodes", "n", ""),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Dx",
                "list",
                "",
                "",
                "pods",
                "x",
                "",
            ),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get",
                "rbac.authorization.k8s.io",
                "",
                "clusterroles",
                "system:node",
                "",
            ),
        ];
        for (method, uri, verb, group, namespace, resource, name, subresource) in table {
            let info = parse(method, uri);
            assert!(info.is_resource, "{uri}");
            let found = (
                &*info.verb,
                &*info.group,
                &*info.namespace,
                &*info.resource,
                &*info.name,
                &*info.subresource,
            );
            assert_eq!(
                found,
                (verb, group, namespace, resource, name, subresource),
                "{method} {uri}"
            );
        }
    }

    #[test]
    fn other_paths_are_not_resources() {
        for uri in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/openapi/v3/api/v1",
        ] {
            let info = parse("GET", uri);
            assert!(!info.is_resource, "{uri}");
            assert_eq!((info.verb.as_str(), info.path.as_str()), ("get", uri));
        }
    }

    #[test]
    fn proxy_paths_keep_their_rest_and_are_long_running() {
        let info = parse("GET", "/api/v1/nodes/n:10250/proxy/a/b");
        assert_eq!((info.subresource.as_str(), info.rest.as_str()), ("proxy", "a/b"));
        assert!(info.is_long_running());
        let log = "/api/v1/namespaces/a/pods/x/log";
        assert!(parse("GET", &format!("{log}?follow=true")).is_long_running());
        assert!(parse("GET", log).is_long_running());
        assert!(!parse("GET", "/api/v1/pods").is_long_running());
    }
}
