//! Under which name a runtime makes a container's cgroup below its pod's. Pure.

use crate::cgroup::CgroupDriver;

/// Where below its pod's a container's, or a sandbox's, cgroup may be: by containerd's name first, then by CRI-O's. Made as they are asked
/// for, because the first nearly always is it.
pub(super) fn paths(pod: &str, driver: CgroupDriver, id: &str) -> impl Iterator<Item = String> {
    let around = match driver {
        CgroupDriver::Cgroupfs => [("/", ""), ("/crio-", "")],
        CgroupDriver::Systemd => [("/cri-containerd-", ".scope"), ("/crio-", ".scope")],
    };
    around.into_iter().map(move |(before, behind)| {
        let mut path = String::with_capacity(pod.len() + before.len() + id.len() + behind.len());
        path.push_str(pod);
        path.push_str(before);
        path.push_str(id);
        path.push_str(behind);
        path
    })
}

/// The cgroup of a process among the lines of its `cgroup` file: of the unified tree, or of that with the memory controller.
pub(super) fn of_process(text: &str, unified: bool) -> Option<&str> {
    let mut lines = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let is_it = |controllers: &str| match unified {
        true => controllers.is_empty(),
        false => controllers.split(',').any(|name| name == "memory"),
    };
    let (_, path) = lines.find(|(controllers, _)| is_it(controllers))?;
    // A process outside of our cgroup namespace, or whose cgroup is gone, has a path that leads nowhere here.
    let leads_here = path.starts_with('/') && !path.contains("/..") && !path.ends_with(" (deleted)");
    leads_here.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_by_driver_and_runtime() {
        let paths = |driver| paths("/p", driver, "c1").collect::<Vec<_>>();
        assert_eq!(paths(CgroupDriver::Cgroupfs), ["/p/c1", "/p/crio-c1"]);
        assert_eq!(
            paths(CgroupDriver::Systemd),
            ["/p/cri-containerd-c1.scope", "/p/crio-c1.scope"]
        );
    }

    #[test]
    fn a_process_is_found_in_either_version() {
        let v1 = "9:name=systemd:/\n4:memory,misc:/system.slice/kubelet.service\n2:cpu,cpuacct:/x\n0::/u\n";
        for (text, unified, expected) in [
            (v1, false, Some("/system.slice/kubelet.service")),
            (v1, true, Some("/u")),
            ("0::/a:b\n", true, Some("/a:b")),
            ("0::/a (deleted)\n", true, None),
            ("0::/../a\n", true, None),
            ("0::/a\n", false, None),
            ("", true, None),
        ] {
            assert_eq!(of_process(text, unified), expected, "{text}");
        }
    }
}
