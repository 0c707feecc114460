//! What the page says of the machine itself: its CPUs, its memory, its software.

use super::label;
use crate::host::machine::{Machine, Roots};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Facts {
    machine: Machine,
    /// Cores and sockets its CPUs are of; nothing where the machine does not say.
    topology: Option<(usize, usize)>,
}

impl Facts {
    /// Reads them.
    pub(super) fn read(roots: &Roots) -> Self {
        Self {
            machine: Machine::read(roots),
            topology: topology(roots),
        }
    }

    /// Writes them as families.
    pub(super) fn write(&self, out: &mut String) {
        let of = &self.machine;
        let (boot, machine, system) = (label(&of.boot_id), label(&of.machine_id), label(&of.system_uuid));
        let labels = format!("{{boot_id={boot},machine_id={machine},system_uuid={system}}}");
        let mut one = |name, help, value: f64| gauge(out, name, help, &[(labels.clone(), value)]);
        one("machine_cpu_cores", "Logical CPUs", of.cpus as f64);
        if let Some((cores, sockets)) = self.topology {
            one("machine_cpu_physical_cores", "Cores", cores as f64);
            one("machine_cpu_sockets", "Sockets", sockets as f64);
        }
        one("machine_memory_bytes", "Memory there is", of.memory as f64);
        one("machine_swap_bytes", "Swap there is", of.swap as f64);
        gauge(
            out,
            "machine_scrape_error",
            "1 if the machine could not be read",
            &[(String::new(), 0.0)],
        );
        let (kernel, os) = (label(&of.kernel), label(&of.os_image));
        let software = format!(
            "{{cadvisorRevision=\"\",cadvisorVersion=\"\",dockerVersion=\"\",kernelVersion={kernel},osVersion={os}}}"
        );
        gauge(
            out,
            "cadvisor_version_info",
            "1, with the kernel and the system in its labels",
            &[(software, 1.0)],
        );
    }
}

/// Writes a family of gauges: labels in their braces, and values.
pub(super) fn gauge(out: &mut String, name: &str, help: &str, samples: &[(String, f64)]) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

fn topology(roots: &Roots) -> Option<(usize, usize)> {
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(roots.sys.join("devices/system/cpu")).ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number.is_none_or(|number| number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        let told = |file| fs::read_to_string(entry.path().join("topology").join(file)).ok();
        // A CPU that is off is of none.
        let (Some(core), Some(socket)) = (told("core_id"), told("physical_package_id")) else {
            continue;
        };
        cores.insert((socket.clone(), core));
        sockets.insert(socket);
    }
    (!cores.is_empty()).then_some((cores.len(), sockets.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_told_with_its_cores() {
        let dir = tempfile::tempdir().expect("temp dir");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
            fs::write(path, text).expect("file");
        };
        for (cpu, core, socket) in [(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 0, 1)] {
            put(
                &format!("devices/system/cpu/cpu{cpu}/topology/core_id"),
                &format!("{core}\n"),
            );
            put(
                &format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
                &format!("{socket}\n"),
            );
        }
        put("devices/system/cpu/cpufreq/x", "");
        put("devices/system/cpu/cpu4/online", "0\n");
        put("meminfo", "MemTotal: 2 kB\nSwapTotal: 1 kB\n");
        put("machine-id", "m\"1\n");
        let roots = Roots {
            proc: dir.path().to_owned(),
            sys: dir.path().to_owned(),
            etc: dir.path().to_owned(),
        };
        let mut out = String::new();
        Facts::read(&roots).write(&mut out);
        let labels = r#"{boot_id="",machine_id="m\"1",system_uuid="m\"1"}"#;
        for line in [
            format!("machine_cpu_physical_cores{labels} 3"),
            format!("machine_cpu_sockets{labels} 2"),
            format!("machine_memory_bytes{labels} 2048"),
            format!("machine_swap_bytes{labels} 1024"),
            "machine_scrape_error 0".to_owned(),
        ] {
            assert!(out.lines().any(|found| found == line), "{line} in {out}");
        }
    }
}
