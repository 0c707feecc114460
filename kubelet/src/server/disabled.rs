//! Endpoints a configuration takes away (kubelet contract §12; `enableDebuggingHandlers` and its like). Pure.

use super::request::RequestPath;
use crate::config::Handlers;

/// What those are told who come by an endpoint that runs commands or shows logs.
pub(super) const DEBUG: &str = "Debug endpoints are disabled.\n";

/// Endpoints that run commands or show logs.
const DEBUGGING: &[&str] = &[
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "runningpods",
    "debug/pprof",
    "logs",
];

/// The text of the answer 405 to a path that is disabled.
pub(super) fn refusal(handlers: &Handlers, path: &RequestPath) -> Option<&'static str> {
    if !handlers.debugging {
        return DEBUGGING.iter().any(|root| path.is_in(root)).then_some(DEBUG);
    }
    if !handlers.profiling && path.is_in("debug/pprof") {
        return Some("profiling endpoint is disabled.\n");
    }
    if !handlers.flags && path.is_in("debug/flags/v") {
        return Some("flags endpoint is disabled.\n");
    }
    if !handlers.system_log && path.is_in("logs") {
        return Some("logs endpoint is disabled.\n");
    }
    None
}

/// Whether there is nothing at that path, not even a refusal: these come with the debugging endpoints and go with them.
pub(super) fn is_absent(handlers: &Handlers, path: &RequestPath) -> bool {
    !handlers.debugging && (path.is_in("configz") || path.is_in("debug/flags/v"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(handlers: &Handlers, path: &str) -> Option<&'static str> {
        super::refusal(handlers, &RequestPath::parse(path))
    }

    fn is_absent(handlers: &Handlers, path: &str) -> bool {
        super::is_absent(handlers, &RequestPath::parse(path))
    }

    #[test]
    fn what_is_switched_off_says_so() {
        let off = Handlers {
            debugging: false,
            ..Handlers::default()
        };
        for path in [
            "/run",
            "/exec/",
            "//exec/ns/p/c",
            "/%65xec/ns/p/c",
            "/exec%2Fns/p/c",
            "/attach/ns/p/c",
            "/portForward/ns/p",
            "/containerLogs/ns/p/c",
            "/runningpods/",
            "/debug/pprof/profile",
            "/logs/kubelet.log",
        ] {
            assert_eq!(refusal(&off, path), Some(DEBUG), "{path}");
            assert_eq!(refusal(&Handlers::default(), path), None, "{path}");
        }
        for path in ["/pods", "/metrics", "/stats/summary", "/healthz", "/runner"] {
            assert_eq!((refusal(&off, path), is_absent(&off, path)), (None, false), "{path}");
        }
        assert!(is_absent(&off, "/configz") && !is_absent(&Handlers::default(), "/configz"));
        let single = Handlers {
            profiling: false,
            flags: false,
            system_log: false,
            ..Handlers::default()
        };
        for (path, text) in [
            ("/debug/pprof/profile", "profiling endpoint is disabled.\n"),
            ("/debug/flags/v", "flags endpoint is disabled.\n"),
            ("/logs/x", "logs endpoint is disabled.\n"),
        ] {
            assert_eq!(refusal(&single, path), Some(text));
        }
        assert_eq!(refusal(&single, "/exec/ns/p/c"), None);
    }
}
