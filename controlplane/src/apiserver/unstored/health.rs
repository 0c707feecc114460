//! `/healthz`, `/livez`, `/readyz` and their single checks (control-plane contract §1).

use crate::apiserver::request::Query;
use crate::store::window::Window;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the store may take to answer, and the window to reach it.
const STORE_DEADLINE: Duration = Duration::from_secs(2);

/// Checks of all three roots, in the order they are printed.
const ALWAYS: [&str; 6] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
];
/// Checks of `/readyz` alone.
const READY: [&str; 3] = ["etcd-readiness", "informer-sync", "shutdown"];

/// The check that is there if values are encrypted through plugins.
const PLUGINS: &str = "kms-providers";

/// What the daemon says of itself. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Health {
    started: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    /// Whether the key management plugins are well; nothing if there are none.
    plugins: Arc<Mutex<Option<bool>>>,
}

impl Health {
    /// The first objects are there: `/readyz` may turn ok.
    pub fn set_started(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// The daemon drains: `/readyz` fails from now on.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the key management plugins are well; `None` for there being none.
    pub fn set_plugins(&self, are_well: Option<bool>) {
        *self.plugins.lock().unwrap_or_else(PoisonError::into_inner) = are_well;
    }

    fn plugins(&self) -> Option<bool> {
        *self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a health path: code and text; `None` if it is no health path.
    pub(super) async fn answer(&self, path: &str, query: &Query, window: &Window) -> Option<(u16, String)> {
        let (root, single) = match path.strip_prefix('/')?.split_once('/') {
            Some((root, check)) => (root, Some(check)),
            None => (path.strip_prefix('/')?, None),
        };
        if !matches!(root, "healthz" | "livez" | "readyz") {
            return None;
        }
        let plugins = self.plugins().map(|_| PLUGINS);
        let checks: Vec<&str> = checks(root).chain(plugins).collect();
        if let Some(check) = single {
            if !checks.contains(&check) {
                return None;
            }
            return Some(match self.passes(check, window).await {
                true => (200, "ok".to_owned()),
                false => (500, format!("internal server error: {check} failed\n")),
            });
        }
        let mut outcomes = Vec::new();
        for check in checks {
            let excluded = query.all("exclude").any(|name| name == check);
            outcomes.push((check, excluded, excluded || self.passes(check, window).await));
        }
        let unknown: Vec<&str> = query
            .all("exclude")
            .filter(|name| !outcomes.iter().any(|(check, _, _)| check == name))
            .collect();
        Some(render(root, &outcomes, &unknown, query.get("verbose").is_some()))
    }

    async fn passes(&self, check: &str, window: &Window) -> bool {
        match check {
            "etcd" | "etcd-readiness" => {
                let asked = tokio::time::timeout(STORE_DEADLINE, window.check()).await;
                matches!(asked, Ok(Ok(())))
            }
            PLUGINS => self.plugins() != Some(false),
            "shutdown" => !self.stopping.load(Ordering::Acquire),
            "informer-sync" => self.started.load(Ordering::Acquire),
            hook if hook.starts_with("poststarthook/") => self.started.load(Ordering::Acquire),
            _ => true,
        }
    }
}

/// The checks of a root.
pub(super) fn checks(root: &str) -> impl Iterator<Item = &'static str> {
    let ready = if root == "readyz" { &READY[..] } else { &[] };
    ALWAYS.iter().chain(ready).copied()
}

fn render(root: &str, outcomes: &[(&str, bool, bool)], unknown: &[&str], verbose: bool) -> (u16, String) {
    let passed = outcomes.iter().all(|(_, _, passes)| *passes);
    if passed && !verbose {
        return (200, "ok".to_owned());
    }
    let mut text = String::new();
    for (check, excluded, passes) in outcomes {
        text.push_str(&match (excluded, passes) {
            (true, _) => format!("[+]{check} excluded: ok\n"),
            (false, true) => format!("[+]{check} ok\n"),
            (false, false) => format!("[-]{check} failed: reason withheld\n"),
        });
    }
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|name| format!("\"{name}\"")).collect();
        let list = quoted.join(", ");
        text.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {list}\n"
        ));
    }
    text.push_str(&format!("{root} check {}\n", if passed { "passed" } else { "failed" }));
    (if passed { 200 } else { 500 }, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    async fn ask(health: &Health, path: &str, query: &str) -> Option<(u16, String)> {
        let window = Window::open(Arc::new(Memory::new())).await.unwrap();
        health.answer(path, &Query::parse(query), &window).await
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_follows_start_and_stop() {
        let health = Health::default();
        let (code, text) = ask(&health, "/readyz", "").await.unwrap();
        assert_eq!(code, 500);
        assert!(
            text.contains("[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n"),
            "{text}"
        );
        assert!(text.ends_with("readyz check failed\n"), "{text}");
        health.set_started();
        assert_eq!(ask(&health, "/readyz", "").await, Some((200, "ok".to_owned())));
        health.set_stopping();
        assert_eq!(ask(&health, "/readyz", "").await.unwrap().0, 500);
        assert_eq!(ask(&health, "/readyz", "exclude=shutdown").await.unwrap().0, 200);
        assert_eq!(ask(&health, "/livez", "").await.unwrap().0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn verbose_lists_and_single_checks_answer() {
        let health = Health::default();
        health.set_started();
        let (_, text) = ask(&health, "/healthz", "verbose&exclude=ping&exclude=nothing")
            .await
            .unwrap();
        assert!(
            text.starts_with("[+]ping excluded: ok\n[+]log ok\n[+]etcd ok\n"),
            "{text}"
        );
        assert!(
            text.contains("no matches for \"nothing\"") && text.ends_with("healthz check passed\n"),
            "{text}"
        );
        assert_eq!(ask(&health, "/livez/ping", "").await, Some((200, "ok".to_owned())));
        assert_eq!(ask(&health, "/livez/none", "").await, None);
        assert_eq!(ask(&health, "/elsewhere", "").await, None);
    }
}
