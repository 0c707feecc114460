//! Facts about the machine, read from injected `/proc`, `/sys` and `/etc`.

use client::ordered::Arrange;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Where the facts are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            etc: "/etc".into(),
        }
    }
}

/// What the node object says of the machine; read once at start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Logical CPUs.
    pub cpus: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of swap.
    pub swap: i64,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// SMBIOS product UUID, or the machine id where there is none.
    pub system_uuid: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// Kernel release.
    pub kernel: String,
    /// `PRETTY_NAME` of os-release.
    pub os_image: String,
    /// Existing `cpuN/thermal_throttle` directories.
    pub thermal_paths: Vec<String>,
}

fn text(path: &Path) -> String {
    fs::read_to_string(path)
        .map(|t| t.trim().to_owned())
        .unwrap_or_default()
}

/// `Name:   123 kB` of meminfo, in bytes.
fn meminfo(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: i64 = line
        .and_then(|l| l.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    kib.saturating_mul(1024)
}

fn pretty_name(text: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    value
        .map(|v| v.trim_matches(['"', '\'']).to_owned())
        .unwrap_or_default()
}

impl Machine {
    /// Reads the machine.
    pub fn read(roots: &Roots) -> Self {
        let info = text(&roots.proc.join("meminfo"));
        let machine_id = text(&roots.etc.join("machine-id"));
        let uuid = text(&roots.sys.join("class/dmi/id/product_uuid"));
        let cpuinfo = text(&roots.proc.join("cpuinfo"));
        let cpus = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpus: i64::try_from(if cpus > 0 { cpus } else { available }).unwrap_or(1),
            memory: meminfo(&info, "MemTotal"),
            swap: meminfo(&info, "SwapTotal"),
            system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
            machine_id,
            boot_id: text(&roots.proc.join("sys/kernel/random/boot_id")),
            kernel: text(&roots.proc.join("sys/kernel/osrelease")),
            os_image: pretty_name(&text(&roots.etc.join("os-release"))),
            thermal_paths: thermal_paths(&roots.sys),
        }
    }

    /// Whether swap space is in use as such (more than a header line in `/proc/swaps`).
    pub fn swap_is_on(roots: &Roots) -> bool {
        text(&roots.proc.join("swaps")).lines().count() > 1
    }
}

fn thermal_paths(sys: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sys.join("devices/system/cpu")) else {
        return Vec::new();
    };
    let mut out: Vec<String> = entries
        .flatten()
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|p| p.is_dir())
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    out.arrange();
    out
}

/// The kernel's host name, lower case.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().to_lowercase()
}

/// The address packets for elsewhere leave from, of IPv6 rather than of IPv4 if asked for; nothing is sent to find out.
pub fn route_address(prefers_v6: bool) -> Option<IpAddr> {
    let probe = |bind: &str, to: &str| -> Option<IpAddr> {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(to).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified()).then_some(address)
    };
    let v4 = || probe("0.0.0.0:0", "192.0.2.1:9");
    let v6 = || probe("[::]:0", "[2001:db8::1]:9");
    match prefers_v6 {
        true => v6().or_else(v4),
        false => v4().or_else(v6),
    }
}

/// That address, or loopback where there is no route.
pub fn default_address(prefers_v6: bool) -> IpAddr {
    route_address(prefers_v6).unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

/// Size and free space of the file system `path` is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes in all.
    pub capacity: i64,
    /// Bytes nothing is in; some file systems keep a part of them for root.
    pub free: i64,
    /// Bytes an ordinary user may still take.
    pub available: i64,
    /// Inodes in all.
    pub inodes: i64,
    /// Inodes free.
    pub inodes_free: i64,
}

impl Disk {
    /// Bytes and inodes something is in, as `df` tells them: what is kept for root and not taken is not in use.
    pub fn used(&self) -> (Option<u64>, Option<u64>) {
        let used = |all: i64, free: i64| u64::try_from(all.saturating_sub(free)).ok();
        (used(self.capacity, self.free), used(self.inodes, self.inodes_free))
    }
}

/// Reads [`Disk`]; zeros where the path is not there.
pub fn disk(path: &Path) -> Disk {
    let Ok(stat) = nix::sys::statvfs::statvfs(path) else {
        return Disk::default();
    };
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.fragment_size())).unwrap_or(i64::MAX);
    Disk {
        capacity: bytes(stat.blocks()),
        free: bytes(stat.blocks_free()),
        available: bytes(stat.blocks_available()),
        inodes: i64::try_from(stat.files()).unwrap_or(i64::MAX),
        inodes_free: i64::try_from(stat.files_available()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_machine_from_its_files() {
        let dir = tempfile::tempdir().expect("temp dir");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
            fs::write(path, text).expect("file");
        };
        put("proc/meminfo", "MemTotal:        2048 kB\nSwapTotal:       0 kB\n");
        put("proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\n");
        put("proc/sys/kernel/random/boot_id", "b-1\n");
        put("proc/sys/kernel/osrelease", "6.1.0\n");
        put("proc/swaps", "Filename Type Size Used Priority\n");
        put("etc/machine-id", "m-1\n");
        put("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
        fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0/thermal_throttle")).expect("dirs");
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
            etc: dir.path().join("etc"),
        };
        let machine = Machine::read(&roots);
        assert_eq!((machine.cpus, machine.memory, machine.swap), (2, 2048 * 1024, 0));
        assert_eq!((machine.system_uuid.as_str(), machine.boot_id.as_str()), ("m-1", "b-1"));
        assert_eq!(machine.os_image, "Debian GNU/Linux 12");
        assert_eq!(machine.thermal_paths.len(), 1);
        assert!(!Machine::swap_is_on(&roots));
        put(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",
        );
        assert!(Machine::swap_is_on(&roots));
    }
}
