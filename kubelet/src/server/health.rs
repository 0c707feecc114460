//! `/healthz` and its single checks: that the kubelet answers, and that the loop over its pods comes around.

use super::answer::{self, Answer};
use super::request::Query;
use crate::heartbeat::Heartbeat;
use crate::metrics::HealthMetrics;
use std::fmt::Write;

/// The checks, by upstream's names.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// What checks need.
#[derive(Clone)]
pub struct Health {
    /// The sign of life of the loop over pods.
    pub heartbeat: Heartbeat,
    /// Counts what checks say.
    pub metrics: HealthMetrics,
}

impl Health {
    /// Answers a path of parts below `/healthz`.
    pub(super) fn answer(&self, below: &[String], query: &Query) -> Answer {
        match below {
            [] => self.all(query),
            [one] => match CHECKS.into_iter().find(|check| check == one) {
                Some(check) if self.is_well(check) => answer::text(200, "ok"),
                Some(_) => answer::text(500, "internal server error: reason withheld\n"),
                None => answer::not_found(),
            },
            _ => answer::not_found(),
        }
    }

    fn is_well(&self, check: &'static str) -> bool {
        let well = check != "syncloop" || self.heartbeat.check().is_ok();
        self.metrics.checked(check, well);
        well
    }

    fn all(&self, query: &Query) -> Answer {
        let (excluded, verbose) = (query.all("exclude"), query.first("verbose").is_some());
        let (mut text, mut well) = (String::new(), true);
        for check in CHECKS {
            let _ = if excluded.iter().any(|name| name == check) {
                writeln!(text, "[+]{check} excluded: ok")
            } else if self.is_well(check) {
                writeln!(text, "[+]{check} ok")
            } else {
                well = false;
                writeln!(text, "[-]{check} failed: reason withheld")
            };
        }
        let unknown = excluded.iter().filter(|name| !CHECKS.contains(&name.as_str()));
        let unknown: Vec<String> = unknown.take(CHECKS.len()).map(|name| format!("{name:?}")).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(",");
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {unknown}"
            );
        }
        match (well, verbose) {
            (false, _) => answer::text(500, &(text + "healthz check failed\n")),
            (true, true) => answer::text(200, &(text + "healthz check passed\n")),
            (true, false) => answer::text(200, "ok"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use http_body_util::BodyExt;
    use std::time::Duration;

    async fn ask(health: &Health, below: &[&str], query: &str) -> (u16, String) {
        let below: Vec<String> = below.iter().map(ToString::to_string).collect();
        let answer = health.answer(&below, &Query::parse(query));
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_named_and_counted() {
        let health = Health {
            heartbeat: Heartbeat::new(Duration::from_secs(60)),
            metrics: Metrics::new("n").health,
        };
        assert_eq!(health.metrics.text().lines().filter(|l| !l.starts_with('#')).count(), 0);
        let ok = |text: &str| (200, text.to_owned());
        assert_eq!(ask(&health, &[], "").await, ok("ok"));
        let all = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
        assert_eq!(ask(&health, &[], "verbose").await, ok(all));
        for (path, code) in [("ping", 200), ("syncloop", 200), ("nothing", 404)] {
            assert_eq!(ask(&health, &[path], "").await.0, code, "{path}");
        }
        tokio::time::advance(Duration::from_secs(301)).await;
        let (code, text) = ask(&health, &[], "").await;
        assert!(code == 500 && text.contains("[-]syncloop failed"), "{text}");
        assert_eq!(ask(&health, &["syncloop"], "").await.0, 500);
        let (code, text) = ask(&health, &[], "exclude=syncloop&exclude=x&verbose=1").await;
        assert!(code == 200 && text.contains("no matches for \"x\""), "{text}");
        let text = health.metrics.text();
        for line in [
            r#"kubernetes_healthcheck{name="syncloop",type="healthz"} 0"#,
            r#"kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 2"#,
            r#"kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 5"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
