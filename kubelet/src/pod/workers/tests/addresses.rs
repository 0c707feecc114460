//! Pods of two address families, over a whole kubelet.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_pod_is_told_its_addresses_in_the_nodes_order_whatever_the_runtimes_is() {
    let bench = Bench::new();
    bench.runtime.set_first_address("fd00::5");
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let status = bench.api.status("p").expect("status");
    let ips: Vec<String> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    assert!(
        ips.len() == 2 && ips[0].starts_with("10.88.") && ips[1] == "fd00::5",
        "{ips:?}"
    );
    let hosts = bench.hosts_of("p");
    let own = hosts.lines().filter_map(|line| line.split_once('\t'));
    let own: Vec<&str> = own.filter(|(_, name)| *name == "p").map(|(ip, _)| ip).collect();
    assert_eq!(own, ips, "{hosts}");
    kubelet.kill().await;
}
