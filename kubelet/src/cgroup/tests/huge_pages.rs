//! Limits of huge pages, in files.

use super::*;

#[tokio::test]
async fn huge_pages_that_are_reserved_are_limited_as_those_in_use_where_the_kernel_counts_them() {
    let settings = || CgroupSettings {
        huge_page_sizes: vec!["2MB".into(), "1GB".into()],
        ..settings()
    };
    let pod =
        pod(r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"},"limits":{"hugepages-2Mi":"4Mi"}}}]}"#);
    let (v1, v2) = (v1_mount(), v2_mount());
    fs::create_dir(v1.path().join("hugetlb")).expect("tree");
    for (mount, tree, suffix) in [(&v1, "hugetlb/", "limit_in_bytes"), (&v2, "", "max")] {
        let at = |size: &str, what: &str| {
            let cgroup = mount.path().join(format!("{tree}skiff/kubepods/burstable/podu-1"));
            cgroup.join(format!("hugetlb.{size}.{what}{suffix}"))
        };
        put(at("2MB", "rsvd."), "");
        let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
        cgroups.setup().await.expect("setup");
        cgroups.ensure_pod(&pod, nobody()).await.expect("ensure");
        let limit = (4 << 20).to_string();
        assert_eq!(
            (read(at("2MB", "")), read(at("2MB", "rsvd."))),
            (limit.clone(), limit),
            "{suffix}"
        );
        assert_eq!(read(at("1GB", "")), "0", "{suffix}");
        assert!(
            !at("1GB", "rsvd.").exists(),
            "{suffix}: a kernel that does not count them"
        );
    }
}
