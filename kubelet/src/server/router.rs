//! What a path means and what is needed to be allowed there (kubelet contract §12). Pure.

use super::request::RequestPath;
use hyper::{Method, StatusCode};

/// A pod, perhaps pinned by UID, and a container in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    /// Empty for port-forward.
    pub(super) container: String,
}

/// Where there is something, as `/statusz` tells it.
pub(super) const PATHS: &[&str] = &[
    "/attach",
    "/checkpoint",
    "/configz",
    "/containerLogs",
    "/debug/flags/v",
    "/debug/pprof",
    "/exec",
    "/flagz",
    "/healthz",
    "/logs",
    "/metrics",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
    "/statusz",
];

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Healthz,
    Pods,
    Configz,
    Summary,
    RunningPods,
    Metrics,
    MetricsCadvisor,
    MetricsProbes,
    MetricsResource,
    MetricsSlis,
    Statusz,
    Flagz,
    Profile,
    LogLevel,
    NodeLogs,
    ContainerLogs(Target),
    Checkpoint(Target),
    Run(Target),
    Exec(Target),
    Attach(Target),
    PortForward(Target),
}

/// The API verb of a method; empty for methods that have none. Whoever gets into a container may do what he likes there, so
/// that needs `create`, also over a WebSocket, which begins with a GET.
pub(super) fn verb(method: &Method, path: &RequestPath) -> &'static str {
    if ["exec", "attach", "portForward", "run"]
        .iter()
        .any(|root| path.is_in(root))
    {
        return "create";
    }
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Subresources of `nodes` of which one must be allowed, in the order they are tried.
pub(super) fn subresources(path: &RequestPath) -> &'static [&'static str] {
    let is = |root: &str| path.is_in(root);
    if is("pods") || is("runningpods") {
        &["pods", "proxy"]
    } else if is("healthz") {
        &["healthz", "proxy"]
    } else if is("configz") {
        &["configz", "proxy"]
    } else if is("stats") {
        &["stats"]
    } else if is("metrics") {
        &["metrics"]
    } else if is("logs") {
        &["log"]
    } else if is("checkpoint") {
        &["checkpoint"]
    } else if is("statusz") {
        &["statusz"]
    } else if is("flagz") {
        &["configz"]
    } else {
        &["proxy"]
    }
}

/// Whether the read-only port has it: nothing there can change anything or tell a secret.
pub(super) fn is_read_only(route: &Route) -> bool {
    matches!(
        route,
        Route::Healthz
            | Route::Pods
            | Route::Summary
            | Route::Metrics
            | Route::MetricsCadvisor
            | Route::MetricsProbes
            | Route::MetricsResource
            | Route::MetricsSlis
    )
}

/// `/{ns}/{pod}[/{uid}]/{container}`.
fn in_pod(parts: &[String]) -> Option<Target> {
    let (namespace, pod, uid, container) = match parts {
        [namespace, pod, container] => (namespace, pod, None, container),
        [namespace, pod, uid, container] => (namespace, pod, Some(uid.clone()), container),
        _ => return None,
    };
    Some(Target {
        namespace: namespace.clone(),
        pod: pod.clone(),
        uid,
        container: container.clone(),
    })
}

fn pod_only(parts: &[String]) -> Option<Target> {
    let (namespace, pod, uid) = match parts {
        [namespace, pod] => (namespace, pod, None),
        [namespace, pod, uid] => (namespace, pod, Some(uid.clone())),
        _ => return None,
    };
    Some(Target {
        namespace: namespace.clone(),
        pod: pod.clone(),
        uid,
        container: String::new(),
    })
}

/// What the path asks for.
pub(super) fn route(method: &Method, path: &RequestPath) -> Result<Route, StatusCode> {
    let Some((first, rest)) = path.parts().split_first() else {
        return Err(StatusCode::NOT_FOUND);
    };
    let (get, post) = (*method == Method::GET, *method == Method::POST);
    let (allowed, route) = match (first.as_str(), rest) {
        ("healthz", _) => (get, Some(Route::Healthz)),
        ("pods", []) => (get, Some(Route::Pods)),
        ("configz", []) => (get, Some(Route::Configz)),
        ("stats", [kind]) if kind == "summary" => (get || post, Some(Route::Summary)),
        ("runningpods", []) => (get, Some(Route::RunningPods)),
        ("metrics", []) => (get, Some(Route::Metrics)),
        ("metrics", [kind]) if kind == "cadvisor" => (get, Some(Route::MetricsCadvisor)),
        ("metrics", [kind]) if kind == "probes" => (get, Some(Route::MetricsProbes)),
        ("metrics", [kind]) if kind == "slis" => (get, Some(Route::MetricsSlis)),
        ("metrics", [kind]) if kind == "resource" => (get, Some(Route::MetricsResource)),
        ("statusz", []) => (get, Some(Route::Statusz)),
        ("flagz", []) => (get, Some(Route::Flagz)),
        ("debug", [kind, ..]) if kind == "pprof" => (get, Some(Route::Profile)),
        ("debug", [kind, flag]) if kind == "flags" && flag == "v" => (*method == Method::PUT, Some(Route::LogLevel)),
        ("logs", _) => (get, Some(Route::NodeLogs)),
        ("checkpoint", [_, _, _]) => (post, in_pod(rest).map(Route::Checkpoint)),
        ("containerLogs", [_, _, _]) => (get, in_pod(rest).map(Route::ContainerLogs)),
        ("run", _) => (post, in_pod(rest).map(Route::Run)),
        ("exec", _) => (get || post, in_pod(rest).map(Route::Exec)),
        ("attach", _) => (get || post, in_pod(rest).map(Route::Attach)),
        ("portForward", _) => (get || post, pod_only(rest).map(Route::PortForward)),
        _ => (true, None),
    };
    match (route, allowed) {
        (None, _) => Err(StatusCode::NOT_FOUND),
        (Some(_), false) => Err(StatusCode::METHOD_NOT_ALLOWED),
        (Some(route), true) => Ok(route),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let target = |uid: Option<&str>, container: &str| Target {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        };
        for (method, path, expected) in [
            (Method::GET, "/healthz", Ok(Route::Healthz)),
            (Method::GET, "/pods", Ok(Route::Pods)),
            (Method::GET, "/configz", Ok(Route::Configz)),
            (Method::POST, "/stats/summary", Ok(Route::Summary)),
            (Method::GET, "/stats/summary/x", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/runningpods/", Ok(Route::RunningPods)),
            (Method::GET, "/metrics", Ok(Route::Metrics)),
            (Method::GET, "/metrics/resource", Ok(Route::MetricsResource)),
            (
                Method::GET,
                "/containerLogs/ns/p/c",
                Ok(Route::ContainerLogs(target(None, "c"))),
            ),
            (Method::POST, "/exec/ns/p/c", Ok(Route::Exec(target(None, "c")))),
            (Method::POST, "/exec/ns/p/u/c", Ok(Route::Exec(target(Some("u"), "c")))),
            (Method::GET, "/attach/ns/p/c", Ok(Route::Attach(target(None, "c")))),
            (
                Method::POST,
                "/portForward/ns/p",
                Ok(Route::PortForward(target(None, ""))),
            ),
            (Method::POST, "/run/ns/p/c", Ok(Route::Run(target(None, "c")))),
            (Method::GET, "/run/ns/p/c", Err(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::POST, "/pods", Err(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::GET, "/containerLogs/ns/p", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/metrics/../pods", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/debug/pprof", Ok(Route::Profile)),
            (Method::GET, "/debug/pprof/heap", Ok(Route::Profile)),
            (Method::PUT, "/debug/flags/v", Ok(Route::LogLevel)),
            (Method::GET, "/debug/flags/v", Err(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::GET, "/debug", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/logs/", Ok(Route::NodeLogs)),
            (Method::GET, "/logs/pods/x", Ok(Route::NodeLogs)),
            (
                Method::POST,
                "/checkpoint/ns/p/c",
                Ok(Route::Checkpoint(target(None, "c"))),
            ),
            (Method::GET, "/checkpoint/ns/p/c", Err(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::POST, "/checkpoint/ns/p", Err(StatusCode::NOT_FOUND)),
            (Method::GET, "/statusz", Ok(Route::Statusz)),
            (Method::GET, "/flagz", Ok(Route::Flagz)),
            (Method::GET, "/metrics/probes", Ok(Route::MetricsProbes)),
            (Method::GET, "/metrics/slis", Ok(Route::MetricsSlis)),
        ] {
            assert_eq!(route(&method, &RequestPath::parse(path)), expected, "{method} {path}");
        }
    }

    #[test]
    fn what_is_needed_to_be_allowed() {
        for (path, expected) in [
            ("/pods", &["pods", "proxy"][..]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz/log", &["healthz", "proxy"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/stats/summary", &["stats"]),
            ("/logs/x", &["log"]),
            ("/exec/ns/p/c", &["proxy"]),
            ("/containerLogs/ns/p/c", &["proxy"]),
            ("/podsandmore", &["proxy"]),
            // A longer way to the same place needs the same right.
            ("//pods", &["pods", "proxy"]),
            ("/%70ods", &["pods", "proxy"]),
            ("/pods%2F..%2Fexec", &["pods", "proxy"]),
            ("/metrics/../exec/ns/p/c", &["metrics"]),
        ] {
            assert_eq!(subresources(&RequestPath::parse(path)), expected, "{path}");
        }
        let verb = |method, path| verb(&method, &RequestPath::parse(path));
        assert_eq!(
            (verb(Method::POST, "/pods"), verb(Method::HEAD, "/pods")),
            ("create", "")
        );
        for path in ["/exec/ns/p/c", "//attach/ns/p/c", "/portForward/ns/p", "/%65xec/ns/p/c"] {
            assert_eq!(verb(Method::GET, path), "create", "{path}");
        }
        assert_eq!(verb(Method::GET, "/containerLogs/ns/p/c"), "get");
    }
}
