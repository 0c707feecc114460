//! Figures of this process, of a directory and of a series of times.

use std::path::Path;
use std::time::Duration;

/// A process in /proc: another one, or this.
fn place(process: Option<u32>) -> String {
    process.map_or("/proc/self".to_owned(), |process| format!("/proc/{process}"))
}

/// Pss and anonymous memory in kB of a process, or of this one.
pub fn memory_kb(process: Option<u32>) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(format!("{}/smaps_rollup", place(process)))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Ok((field("Pss:"), field("Anonymous:")))
}

/// Bytes a process, or this one, made the disk write.
pub fn written_bytes(process: Option<u32>) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("{}/io", place(process)))?;
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
    Ok(found.unwrap_or(0))
}

/// Blocks that the files under `directory` take, in bytes.
pub fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) => found.blocks() * 512,
        // Removed between the listing and now.
        Err(_) => 0,
    });
    sizes.sum()
}

/// The time below which `percent` of `sorted` are, in milliseconds.
pub fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}
