//! The families of `/metrics/cadvisor`: cAdvisor's names, and what of the numbers each is. Pure.

use crate::host::machine::Disk;
use crate::host::traffic::{Carried, Traffic};
use crate::stats::diskstats::DiskIo;
use crate::stats::numbers::{Device, Numbers, Stall};
use jiff::Timestamp;
use std::fmt::Write;

/// Whose numbers they are.
pub(super) struct Subject {
    /// The container's label, and all others.
    pub(super) labels: (String, String),
    pub(super) numbers: Numbers,
    pub(super) started: Option<Timestamp>,
    pub(super) at: Timestamp,
    pub(super) interfaces: Vec<Traffic>,
    /// What it has of file systems, by device.
    pub(super) disks: Vec<(String, DiskUse)>,
}

/// A file system, and what somebody has of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskUse {
    pub(super) used: Option<u64>,
    pub(super) disk: Disk,
    /// What was done with it.
    pub(super) io: Option<DiskIo>,
}

/// One family whose samples have the labels of their subject alone.
struct Plain(&'static str, &'static str, &'static str, fn(&Numbers) -> Option<f64>);

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

fn number(number: Option<u64>) -> Option<f64> {
    number.map(|number| number as f64)
}

fn stalled(stall: Option<Stall>) -> Option<f64> {
    stall.map(|stall| stall.total_us as f64 / 1e6)
}

/// A limit of somebody who can be limited; 0 is none.
fn bound(has: bool, limit: Option<u64>) -> Option<f64> {
    has.then(|| limit.unwrap_or(0) as f64)
}

/// Of those with a quota.
fn in_periods(numbers: &Numbers, of: fn(&crate::stats::numbers::Periods) -> f64) -> Option<f64> {
    numbers.limits.quota_us?;
    numbers.cpu.periods.as_ref().map(of)
}

/// Families whose samples have the time they were measured at.
#[rustfmt::skip]
const MEASURED: &[Plain] = &[
    Plain("container_cpu_user_seconds_total", COUNTER, "CPU time used in user mode, in seconds", |n| seconds(n.cpu.user_nanos)),
    Plain("container_cpu_system_seconds_total", COUNTER, "CPU time used in the kernel, in seconds", |n| seconds(n.cpu.system_nanos)),
    Plain("container_cpu_cfs_periods_total", COUNTER, "Periods in which a quota was enforced", |n| in_periods(n, |p| p.elapsed as f64)),
    Plain("container_cpu_cfs_throttled_periods_total", COUNTER, "Periods in which it was held up by its quota", |n| in_periods(n, |p| p.throttled as f64)),
    Plain("container_cpu_cfs_throttled_seconds_total", COUNTER, "Time it was held up by its quota, in seconds", |n| in_periods(n, |p| p.throttled_nanos as f64 / 1e9)),
    Plain("container_cpu_cfs_burst_periods_total", COUNTER, "Periods in which it used quota it had saved", |n| in_periods(n, |p| p.bursts as f64)),
    Plain("container_cpu_cfs_burst_seconds_total", COUNTER, "Saved quota it used, in seconds", |n| in_periods(n, |p| p.burst_nanos as f64 / 1e9)),
    Plain("container_memory_cache", GAUGE, "Page cache, in bytes", |n| number(n.memory.parts.map(|p| p.cache))),
    Plain("container_memory_rss", GAUGE, "Anonymous memory, in bytes", |n| number(n.memory.rss())),
    Plain("container_memory_kernel_usage", GAUGE, "The kernel's own memory on its behalf, in bytes", |n| number(n.memory.kernel)),
    Plain("container_memory_mapped_file", GAUGE, "Mapped files, in bytes", |n| number(n.memory.parts.map(|p| p.mapped_file))),
    Plain("container_memory_swap", GAUGE, "Memory in swap, in bytes", |n| number(n.memory.swap)),
    Plain("container_memory_failcnt", COUNTER, "How often memory met its limit", |n| number(n.memory.limit_hits)),
    Plain("container_memory_usage_bytes", GAUGE, "Memory in use", |n| number(n.memory.usage)),
    Plain("container_memory_max_usage_bytes", GAUGE, "The most memory that was in use", |n| number(n.memory.peak)),
    Plain("container_memory_working_set_bytes", GAUGE, "Memory in use that cannot go at once", |n| number(n.memory.working_set)),
    Plain("container_memory_total_active_file_bytes", GAUGE, "Page cache that was used lately", |n| number(n.memory.parts.map(|p| p.active_file))),
    Plain("container_memory_total_inactive_file_bytes", GAUGE, "Page cache that was not used lately", |n| number(n.memory.parts.map(|p| p.inactive_file))),
    Plain("container_processes", GAUGE, "Processes in it", |n| number(n.tasks.processes)),
    Plain("container_file_descriptors", GAUGE, "Open files of its processes", |n| number(n.tasks.open_files)),
    Plain("container_sockets", GAUGE, "Open sockets of its processes", |n| number(n.tasks.sockets)),
    Plain("container_threads_max", GAUGE, "How many threads there may be; 0 is any number", |n| bound(n.tasks.threads.is_some(), n.tasks.threads_max)),
    Plain("container_threads", GAUGE, "Threads in it and below", |n| number(n.tasks.threads)),
    Plain("container_oom_events_total", COUNTER, "Processes that were killed for want of memory", |n| number(n.memory.oom_kills)),
    Plain("container_pressure_cpu_stalled_seconds_total", COUNTER, "Time in which all tasks waited for a CPU, in seconds", |n| stalled(n.pressure.cpu.map(|p| p.full))),
    Plain("container_pressure_cpu_waiting_seconds_total", COUNTER, "Time in which some task waited for a CPU, in seconds", |n| stalled(n.pressure.cpu.map(|p| p.some))),
    Plain("container_pressure_memory_stalled_seconds_total", COUNTER, "Time in which all tasks waited for memory, in seconds", |n| stalled(n.pressure.memory.map(|p| p.full))),
    Plain("container_pressure_memory_waiting_seconds_total", COUNTER, "Time in which some task waited for memory, in seconds", |n| stalled(n.pressure.memory.map(|p| p.some))),
    Plain("container_pressure_io_stalled_seconds_total", COUNTER, "Time in which all tasks waited for disks, in seconds", |n| stalled(n.pressure.io.map(|p| p.full))),
    Plain("container_pressure_io_waiting_seconds_total", COUNTER, "Time in which some task waited for disks, in seconds", |n| stalled(n.pressure.io.map(|p| p.some))),
];

/// Families of what it may use, which are of the moment they are read at.
#[rustfmt::skip]
const SPECIFIED: &[Plain] = &[
    Plain("container_spec_cpu_period", GAUGE, "The period of its quota, in microseconds", |n| number(n.limits.period_us)),
    Plain("container_spec_cpu_quota", GAUGE, "CPU time it may use in a period, in microseconds", |n| number(n.limits.quota_us)),
    Plain("container_spec_cpu_shares", GAUGE, "Its share of the CPUs", |n| number(n.limits.shares)),
    Plain("container_spec_memory_limit_bytes", GAUGE, "Memory it may use; 0 is any", |n| bound(n.limits.has.1 || n.limits.memory.is_some(), n.limits.memory)),
    Plain("container_spec_memory_swap_limit_bytes", GAUGE, "Swap it may use; 0 is any", |n| bound(n.limits.has.1, n.limits.swap)),
    Plain("container_spec_memory_reservation_limit_bytes", GAUGE, "Memory that is kept for it", |n| bound(n.limits.has.1, n.limits.reservation)),
];

/// One sample more for each of a subject's parts: labels and value.
type Samples = fn(&Subject, &mut dyn FnMut(&str, Option<f64>));

/// One family whose samples have more labels.
struct Parted(&'static str, &'static str, &'static str, Samples);

fn cpu_total(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>)) {
    add("cpu=\"total\",", seconds(subject.numbers.cpu.total_nanos));
}

fn failures(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>)) {
    let Some(parts) = subject.numbers.memory.parts else {
        return;
    };
    for (scope, (all, major)) in [("container", parts.own_faults), ("hierarchy", parts.faults)] {
        add(
            &format!("failure_type=\"pgfault\",scope=\"{scope}\","),
            Some(all as f64),
        );
        add(
            &format!("failure_type=\"pgmajfault\",scope=\"{scope}\","),
            Some(major as f64),
        );
    }
}

fn ulimits(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>)) {
    let most = subject.numbers.tasks.open_files_max;
    add("ulimit=\"max_open_files\",", most.map(|most| most as f64));
}

fn disks(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>), of: impl Fn(&DiskUse) -> Option<f64>) {
    for (device, used) in &subject.disks {
        add(&format!("device={},", super::label(device)), of(used));
    }
}

fn size(number: i64) -> Option<f64> {
    (number > 0).then_some(number as f64)
}

fn devices(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>), of: fn(&Device) -> u64) {
    for device in &subject.numbers.devices {
        add(
            &format!("device={},", super::label(&device.name)),
            Some(of(device) as f64),
        );
    }
}

/// Of a disk as a whole, which no cgroup's part of is known; cAdvisor's seconds are a millionth of these, because it takes the kernel's
/// milliseconds for nanoseconds.
fn machine(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>), of: fn(&DiskIo) -> f64) {
    disks(subject, add, |disk| disk.io.as_ref().map(of));
}

fn seconds_of(millis: u64) -> f64 {
    millis as f64 / 1e3
}

/// What the kernel's cost model (`io.cost`) counted, where it does.
fn costs(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>), place: usize) {
    for device in &subject.numbers.devices {
        let cost = device.cost_us.map(|cost| cost[place] as f64 / 1e6);
        add(&format!("device={},", super::label(&device.name)), cost);
    }
}

fn operations(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>)) {
    for device in &subject.numbers.devices {
        let (name, major, minor) = (super::label(&device.name), device.major, device.minor);
        for (operation, bytes) in [("Read", device.bytes.0), ("Write", device.bytes.1)] {
            let labels = format!("device={name},major=\"{major}\",minor=\"{minor}\",operation=\"{operation}\",");
            add(&labels, Some(bytes as f64));
        }
    }
}

fn interfaces(subject: &Subject, add: &mut dyn FnMut(&str, Option<f64>), received: bool, of: fn(&Carried) -> u64) {
    for interface in &subject.interfaces {
        let carried = match received {
            true => &interface.received,
            false => &interface.sent,
        };
        add(
            &format!("interface={},", super::label(&interface.name)),
            Some(of(carried) as f64),
        );
    }
}

#[rustfmt::skip]
const PARTED: &[Parted] = &[
    Parted("container_cpu_usage_seconds_total", COUNTER, "CPU time used, in seconds", cpu_total),
    Parted("container_memory_failures_total", COUNTER, "Page faults", failures),
    Parted("container_ulimits_soft", GAUGE, "Soft limits of its first process; -1 is none", ulimits),
    Parted("container_fs_inodes_free", GAUGE, "Inodes that are free", |s, add| disks(s, add, |d| size(d.disk.inodes).map(|_| d.disk.inodes_free as f64))),
    Parted("container_fs_inodes_total", GAUGE, "Inodes there are", |s, add| disks(s, add, |d| size(d.disk.inodes))),
    Parted("container_fs_limit_bytes", GAUGE, "Bytes the file system has", |s, add| disks(s, add, |d| size(d.disk.capacity))),
    Parted("container_fs_usage_bytes", GAUGE, "Bytes it has on the file system", |s, add| disks(s, add, |d| number(d.used))),
    Parted("container_fs_reads_bytes_total", COUNTER, "Bytes read", |s, add| devices(s, add, |d| d.bytes.0)),
    Parted("container_fs_reads_total", COUNTER, "Reads", |s, add| devices(s, add, |d| d.operations.0)),
    Parted("container_fs_writes_bytes_total", COUNTER, "Bytes written", |s, add| devices(s, add, |d| d.bytes.1)),
    Parted("container_fs_writes_total", COUNTER, "Writes", |s, add| devices(s, add, |d| d.operations.1)),
    Parted("container_fs_reads_merged_total", COUNTER, "Reads that were merged with others", |s, add| machine(s, add, |io| io.merged.0 as f64)),
    Parted("container_fs_writes_merged_total", COUNTER, "Writes that were merged with others", |s, add| machine(s, add, |io| io.merged.1 as f64)),
    Parted("container_fs_sector_reads_total", COUNTER, "Sectors read", |s, add| machine(s, add, |io| io.sectors.0 as f64)),
    Parted("container_fs_sector_writes_total", COUNTER, "Sectors written", |s, add| machine(s, add, |io| io.sectors.1 as f64)),
    Parted("container_fs_read_seconds_total", COUNTER, "Time reads took, in seconds", |s, add| machine(s, add, |io| seconds_of(io.took_ms.0))),
    Parted("container_fs_write_seconds_total", COUNTER, "Time writes took, in seconds", |s, add| machine(s, add, |io| seconds_of(io.took_ms.1))),
    Parted("container_fs_io_current", GAUGE, "Reads and writes under way", |s, add| machine(s, add, |io| io.now as f64)),
    Parted("container_fs_io_time_seconds_total", COUNTER, "Time in which some were under way, in seconds", |s, add| machine(s, add, |io| seconds_of(io.busy_ms))),
    Parted("container_fs_io_time_weighted_seconds_total", COUNTER, "Time in which some were under way times how many, in seconds", |s, add| machine(s, add, |io| seconds_of(io.weighted_ms))),
    Parted("container_fs_io_cost_usage_seconds_total", COUNTER, "Time of the device it used, in seconds", |s, add| costs(s, add, 0)),
    Parted("container_fs_io_cost_wait_seconds_total", COUNTER, "Time it waited for its part of the device, in seconds", |s, add| costs(s, add, 1)),
    Parted("container_fs_io_cost_indebt_seconds_total", COUNTER, "Time it owed some of the device, in seconds", |s, add| costs(s, add, 2)),
    Parted("container_fs_io_cost_indelay_seconds_total", COUNTER, "Time it was delayed for that, in seconds", |s, add| costs(s, add, 3)),
    Parted("container_blkio_device_usage_total", COUNTER, "Bytes read and written", operations),
    Parted("container_network_receive_bytes_total", COUNTER, "Bytes received", |s, add| interfaces(s, add, true, |c| c.bytes)),
    Parted("container_network_receive_packets_total", COUNTER, "Packets received", |s, add| interfaces(s, add, true, |c| c.packets)),
    Parted("container_network_receive_packets_dropped_total", COUNTER, "Received packets that were thrown away", |s, add| interfaces(s, add, true, |c| c.dropped)),
    Parted("container_network_receive_errors_total", COUNTER, "Receptions that failed", |s, add| interfaces(s, add, true, |c| c.errors)),
    Parted("container_network_transmit_bytes_total", COUNTER, "Bytes sent", |s, add| interfaces(s, add, false, |c| c.bytes)),
    Parted("container_network_transmit_packets_total", COUNTER, "Packets sent", |s, add| interfaces(s, add, false, |c| c.packets)),
    Parted("container_network_transmit_packets_dropped_total", COUNTER, "Packets to send that were thrown away", |s, add| interfaces(s, add, false, |c| c.dropped)),
    Parted("container_network_transmit_errors_total", COUNTER, "Transmissions that failed", |s, add| interfaces(s, add, false, |c| c.errors)),
];

/// Writes one family, if anybody has a sample of it.
struct Writer<'a> {
    out: &'a mut String,
    of: (&'static str, &'static str, &'static str),
    is_told: bool,
}

impl Writer<'_> {
    /// One sample, of a time or of now.
    fn add(&mut self, labels: &(String, String), more: &str, value: f64, at_ms: Option<i64>) {
        let (name, kind, help) = self.of;
        if !self.is_told {
            self.is_told = true;
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for part in [name, "{", &labels.0, more, &labels.1, "} "] {
            self.out.push_str(part);
        }
        // Nearly all are whole numbers, which are written faster as such.
        let whole = value as i64;
        let _ = match whole as f64 == value && whole.unsigned_abs() < 1 << 53 {
            true => write!(self.out, "{whole}"),
            false => write!(self.out, "{value}"),
        };
        let _ = match at_ms {
            Some(at_ms) => writeln!(self.out, " {at_ms}"),
            None => writeln!(self.out),
        };
    }
}

/// Prometheus text of all families, seen `now`.
pub(super) fn write(out: &mut String, subjects: &[Subject], now: Timestamp) {
    let at_ms = |subject: &Subject| subject.at.as_millisecond();
    for Plain(name, kind, help, of) in MEASURED {
        let mut writer = family(out, (name, kind, help));
        for subject in subjects {
            if let Some(value) = of(&subject.numbers) {
                writer.add(&subject.labels, "", value, Some(at_ms(subject)));
            }
        }
    }
    for Parted(name, kind, help, samples) in PARTED {
        let mut writer = family(out, (name, kind, help));
        for subject in subjects {
            samples(subject, &mut |more, value| {
                if let Some(value) = value {
                    writer.add(&subject.labels, more, value, Some(at_ms(subject)));
                }
            });
        }
    }
    for Plain(name, kind, help, of) in SPECIFIED {
        let mut writer = family(out, (name, kind, help));
        for subject in subjects {
            if let Some(value) = of(&subject.numbers) {
                writer.add(&subject.labels, "", value, None);
            }
        }
    }
    let started = (
        "container_start_time_seconds",
        GAUGE,
        "When it started, in seconds since 1970",
    );
    let mut writer = family(out, started);
    for (subject, started) in subjects.iter().filter_map(|subject| Some((subject, subject.started?))) {
        writer.add(&subject.labels, "", started.as_second() as f64, None);
    }
    let seen = (
        "container_last_seen",
        GAUGE,
        "When it was last seen, in seconds since 1970",
    );
    let mut writer = family(out, seen);
    for subject in subjects {
        writer.add(&subject.labels, "", now.as_second() as f64, Some(now.as_millisecond()));
    }
}

fn family<'a>(out: &'a mut String, of: (&'static str, &'static str, &'static str)) -> Writer<'a> {
    Writer {
        out,
        of,
        is_told: false,
    }
}
