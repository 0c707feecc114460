//! What a container's processes hold open, from `/proc`.

use super::numbers::Tasks;
use std::fs;
use std::path::Path;

/// How many open files of a container are looked at, and how many of its processes.
const FILES_MAX: usize = 2_000;
const PROCESSES_MAX: usize = 500;

/// Counts processes and what they hold open. What is too much to look at is not told.
pub(super) fn count(proc: &Path, processes: &[u32], tasks: &mut Tasks) {
    tasks.processes = u64::try_from(processes.len()).ok();
    if processes.len() > PROCESSES_MAX {
        return;
    }
    let mut budget = FILES_MAX;
    let mut open = Some((0, 0));
    for process in processes {
        let directory = proc.join(format!("{process}/fd"));
        open = open.and_then(|(files, sockets)| {
            let more = look_at(&directory, &mut budget)?;
            Some((files + more.0, sockets + more.1))
        });
    }
    tasks.open_files = open.map(|(files, _)| files);
    tasks.sockets = open.map(|(_, sockets)| sockets);
    let first = processes.iter().min();
    let limits = first.and_then(|process| fs::read_to_string(proc.join(format!("{process}/limits"))).ok());
    tasks.open_files_max = limits.and_then(|limits| open_files_max(&limits));
}

/// How many files are open and how many of them are sockets; nothing if they are more than the budget, which they are taken from. A
/// process that is gone holds nothing.
fn look_at(directory: &Path, budget: &mut usize) -> Option<(u64, u64)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Some((0, 0));
    };
    let (mut files, mut sockets) = (0, 0);
    for entry in entries.flatten() {
        *budget = budget.checked_sub(1)?;
        let target = fs::read_link(entry.path());
        let is_socket = target.is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        files += 1;
        sockets += u64::from(is_socket);
    }
    Some((files, sockets))
}

/// The soft limit of `Max open files  1024  4096  files`.
fn open_files_max(limits: &str) -> Option<i64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(-1),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_and_the_sockets_among_them_are_counted() {
        let dir = tempfile::tempdir().expect("temp dir");
        for (process, targets) in [(7, ["socket:[1]", "/dev/null"]), (8, ["pipe:[2]", "socket:[3]"])] {
            let directory = dir.path().join(format!("{process}/fd"));
            fs::create_dir_all(&directory).expect("dirs");
            for (number, target) in targets.iter().enumerate() {
                std::os::unix::fs::symlink(target, directory.join(number.to_string())).expect("link");
            }
        }
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096  files\n";
        fs::write(dir.path().join("7/limits"), limits).expect("file");
        let mut tasks = Tasks::default();
        // One that went meanwhile holds nothing.
        count(dir.path(), &[8, 7, 9], &mut tasks);
        assert_eq!((tasks.processes, tasks.open_files_max), (Some(3), Some(1024)));
        assert_eq!((tasks.open_files, tasks.sockets), (Some(4), Some(2)));
        assert_eq!(
            look_at(&dir.path().join("7/fd"), &mut 1),
            None,
            "more than there is time for"
        );
        let many: Vec<u32> = (0..501).collect();
        let mut tasks = Tasks::default();
        count(dir.path(), &many, &mut tasks);
        assert_eq!(
            (tasks.processes, tasks.open_files, tasks.sockets),
            (Some(501), None, None)
        );
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(open_files_max("Max open files unlimited unlimited files\n"), Some(-1));
        assert_eq!(open_files_max("Max processes 5 5\n"), None);
    }
}
