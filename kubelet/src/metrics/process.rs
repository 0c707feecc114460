//! `process_*`: what this process uses, read when asked. All names but one are upstream's: what Go counts as goroutines is
//! `process_tasks` here, because tasks are no goroutines and a dashboard's limits for those would mislead.

use crate::host::load::Load;
use crate::host::machine::Roots;
use std::fmt::Write;
use tokio::runtime::Handle;

/// Ticks of process times in a second, on every Linux.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// The lines, in Prometheus' classic text; what cannot be read is left out.
pub fn process(roots: &Roots) -> String {
    let own = |name: &str| std::fs::read_to_string(roots.proc.join("self").join(name)).unwrap_or_default();
    let stat = own("stat");
    // The name in parentheses may hold anything; fields are counted after it (field 3 is the first).
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    let limits = own("limits");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let most = line.split_whitespace().next()?;
        Some(most.parse::<f64>().unwrap_or(f64::INFINITY))
    };
    let files = std::fs::read_dir(roots.proc.join("self/fd"))
        .ok()
        .map(|list| list.count() as f64);
    let booted = Load::read(roots).booted;
    let started = booted
        .zip(number(22))
        .map(|(booted, ticks)| booted as f64 + ticks / TICKS);
    let used = number(14).zip(number(15)).map(|(user, system)| (user + system) / TICKS);
    // Outside a runtime (tests of this page) there is nobody to ask.
    let tasks = Handle::try_current()
        .ok()
        .map(|own| own.metrics().num_alive_tasks() as f64);
    let mut out = String::new();
    for (name, kind, help, value) in [
        ("process_cpu_seconds_total", "counter", "CPU time in seconds", used),
        (
            "process_max_fds",
            "gauge",
            "Most files that may be open",
            limit("Max open files"),
        ),
        ("process_open_fds", "gauge", "Open files", files),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory in use",
            number(24).map(|pages| pages * PAGE_BYTES),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970",
            started,
        ),
        (
            "process_tasks",
            "gauge",
            "Asynchronous tasks that have not ended",
            tasks,
        ),
        ("process_virtual_memory_bytes", "gauge", "Addresses in use", number(23)),
        (
            "process_virtual_memory_max_bytes",
            "gauge",
            "Most addresses that may be in use",
            limit("Max address space"),
        ),
    ] {
        if let Some(value) = value {
            let value = if value.is_infinite() {
                "+Inf".to_owned()
            } else {
                value.to_string()
            };
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_past_an_odd_name_and_what_is_missing_is_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        assert_eq!(process(&roots), "");
        std::fs::create_dir_all(dir.path().join("self/fd")).expect("made");
        let fields: Vec<String> = (3..=52).map(|field: u32| field.to_string()).collect();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).expect("written");
        write("self/stat", format!("1 (a ) b) {}", fields.join(" ")));
        write("stat", "btime 1000\n".into());
        write(
            "self/limits",
            "Max open files            1024    4096    files\nMax address space   unlimited  unlimited bytes\n".into(),
        );
        let text = process(&roots);
        for line in [
            "process_cpu_seconds_total 0.29",
            "process_resident_memory_bytes 98304",
            "process_start_time_seconds 1000.22",
            "process_max_fds 1024",
            "process_open_fds 0",
            "process_virtual_memory_max_bytes +Inf",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn tasks_are_counted_until_they_end() {
        let tasks = || {
            let text = process(&Roots::default());
            let line = text.lines().find_map(|line| line.strip_prefix("process_tasks "));
            line.expect("a count").parse::<u32>().expect("a number")
        };
        let before = tasks();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(ended);
        assert_eq!(tasks(), before + 1);
        end.send(()).expect("it waits");
        task.await.expect("no panic").expect("sent");
        assert_eq!(tasks(), before);
    }
}
