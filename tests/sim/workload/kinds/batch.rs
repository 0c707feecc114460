//! Jobs of both modes, which succeed, fail, rest and go, and CronJobs of every minute.

use super::{BATCH, End, Kinds, OBJECTS_MAX};
use crate::workload::{CRASHER, SERVERS, Step, WORKER, ask, create};
use rand::RngExt;
use serde_json::{Value, json};

/// Failures that misfortune alone never reaches.
const MANY: i32 = 1000;
/// Longer than the time between two Jobs of a CronJob.
const LONG_SECONDS: i32 = 70;

fn pods(image: &str, policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "batch"}}, "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 3,
        "containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}]}})
}

impl Kinds {
    pub(super) fn change_job(&mut self) -> Step {
        let existing: Vec<String> = self.jobs.keys().cloned().collect();
        let choice = self.rng.random_range(0..10);
        match self
            .pick(&existing)
            .filter(|_| existing.len() > OBJECTS_MAX || choice >= 5)
        {
            None => self.create_job(),
            Some(name) => {
                let path = format!("{BATCH}/jobs/{name}");
                match choice {
                    0..9 => ask("MERGE", &path, json!({"spec": {"suspend": choice % 2 == 0}})),
                    _ => {
                        self.jobs.remove(&name);
                        let policy = ["Background", "Foreground"][self.rng.random_range(0..2)];
                        ask("DELETE", &path, json!({"propagationPolicy": policy}))
                    }
                }
            }
        }
    }

    fn create_job(&mut self) -> Step {
        let name = self.name("work");
        let is_good = self.rng.random_bool(0.7);
        let (image, backoff) = if is_good {
            (WORKER, MANY)
        } else {
            (CRASHER, self.rng.random_range(0..2))
        };
        let policy = ["Never", "OnFailure"][self.rng.random_range(0..2)];
        let mut spec = json!({"completions": self.rng.random_range(1..6), "parallelism": self.rng.random_range(1..4),
            "backoffLimit": backoff, "template": pods(image, policy)});
        if self.rng.random_bool(0.5) {
            spec["completionMode"] = json!("Indexed");
            if !is_good && policy == "Never" {
                spec["backoffLimit"] = json!(MANY);
                spec["backoffLimitPerIndex"] = json!(backoff);
            }
        }
        let mut end = if is_good { End::Complete } else { End::Failed };
        if self.rng.random_bool(0.2) {
            spec["ttlSecondsAfterFinished"] = json!(self.rng.random_range(0..30));
            end = End::Either;
        }
        self.jobs.insert(name.clone(), end);
        create(
            &format!("{BATCH}/jobs"),
            json!({"metadata": {"name": name}, "spec": spec}),
        )
    }

    /// Whatever rests goes on.
    pub(super) fn resume_jobs(&self) -> Vec<Step> {
        let resume = |name: &String| {
            ask(
                "MERGE",
                &format!("{BATCH}/jobs/{name}"),
                json!({"spec": {"suspend": false}}),
            )
        };
        self.jobs.keys().map(resume).collect()
    }

    pub(super) fn change_cron_job(&mut self) -> Step {
        let existing: Vec<String> = self.cron_jobs.iter().cloned().collect();
        let choice = self.rng.random_range(0..10);
        match self
            .pick(&existing)
            .filter(|_| existing.len() >= OBJECTS_MAX || choice >= 4)
        {
            None => self.create_cron_job(),
            Some(name) => {
                let path = format!("{BATCH}/cronjobs/{name}");
                if choice < 8 {
                    return ask("MERGE", &path, json!({"spec": {"suspend": choice % 2 == 0}}));
                }
                self.cron_jobs.remove(&name);
                ask("DELETE", &path, json!({"propagationPolicy": "Background"}))
            }
        }
    }

    fn create_cron_job(&mut self) -> Step {
        let name = self.name("clock");
        self.cron_jobs.insert(name.clone());
        let policy = ["Allow", "Forbid", "Replace"][self.rng.random_range(0..3)];
        let mut job = json!({"backoffLimit": 1, "template": pods(WORKER, "Never")});
        if self.rng.random_bool(0.5) {
            job["template"] = pods(SERVERS[0], "Never");
            job["activeDeadlineSeconds"] = json!(LONG_SECONDS);
        }
        let spec = json!({"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": {"spec": job},
            "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1});
        create(
            &format!("{BATCH}/cronjobs"),
            json!({"metadata": {"name": name}, "spec": spec}),
        )
    }
}
