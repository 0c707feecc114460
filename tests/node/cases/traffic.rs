//! Services of every kind on two nodes: every way to one, every policy that says where it leads, and what a client sees as they change.
//! Clients are pods, the first node, and somebody outside of the cluster.

mod net;
mod stage;

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use anyhow::{Context, ensure};

use self::net::{Ear, Flow, Outside, send_sctp_init};
use self::stage::{From, POD, Stage, Told, begin, end};
use crate::cluster::{Cluster, NODE};
use crate::command::{fail, finish, run, succeed};
use crate::wait;

/// All of it, on two nodes that are there for it alone.
pub(crate) fn every_kind(cluster: &Cluster) -> anyhow::Result<()> {
    let stage = begin(cluster).inspect_err(|_| drop(end(cluster)))?;
    // One that fails says nothing of the next.
    let mut failed = Vec::new();
    for (what, check) in [
        ("ways and ports", ways as fn(&Stage<'_>) -> anyhow::Result<()>),
        ("SCTP", sctp),
        ("flows of UDP", udp_flows),
        ("a load balancer's address", balanced),
        ("source ranges", source_ranges),
        ("internal policy", internal_policy),
        ("hairpin", hairpin),
        ("topology", topology),
        ("affinity", affinity),
        ("ExternalName", external_name),
    ] {
        if let Err(error) = check(&stage) {
            failed.push(format!("{what}: {error:#}"));
        }
    }
    drop(stage);
    end(cluster)?;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// By the cluster's address, a name, an external address and a port of either node, from everywhere; each port leads to its own; the
/// address that is seen is the client's where it comes from inside, and the node's where it has been led on from outside.
fn ways(stage: &Stage<'_>) -> anyhow::Result<()> {
    let ip = stage.cluster_ip("all")?;
    let own = stage.cluster.get(&["pod", "client"], "{.status.podIP}")?;
    for (from, at) in [
        (POD, ip.clone()),
        (POD, "all".to_owned()),
        (POD, "203.0.113.9".to_owned()),
        (POD, format!("{}:30081", stage.nodes[1])),
        (From::Node, ip.clone()),
        (From::Node, "203.0.113.9".to_owned()),
        (From::Outside, "203.0.113.9".to_owned()),
        (From::Outside, format!("{}:30081", stage.nodes[0])),
    ] {
        let told = stage.answers(from, &at, &[0, 1])?;
        ensure!(told.iter().all(|told| told.page == "web"), "{at}: {told:?}");
        match from {
            From::Outside => ensure!(
                told.iter().all(|told| told.client != Outside::ADDRESS),
                "{at}: not masqueraded: {told:?}"
            ),
            // At the other node's port a pod is a client from another network.
            From::Pod(_) if at == ip || at == "all" => {
                ensure!(told.iter().all(|told| told.client == own), "{at}: not {own}: {told:?}");
            }
            _ => {}
        }
    }
    for (from, at) in [
        (POD, format!("{ip}:81")),
        (From::Outside, format!("{}:30082", stage.nodes[0])),
    ] {
        let told = stage.answers(from, &at, &[0, 1])?;
        ensure!(told.iter().all(|told| told.page == "admin"), "{at}: {told:?}");
    }
    // At the node's address in the cluster alone, as upstream's mode has it.
    stage.refused(From::Outside, &format!("{}:30081", Outside::NODE))?;
    // One number is two ports, of two protocols.
    let outside = stage.outside.namespace()?;
    for (from, at) in [
        (None, format!("{ip}:80")),
        (Some(&outside), format!("{}:30081", stage.nodes[0])),
    ] {
        let mut seen = BTreeSet::new();
        wait::until(20, "both answer", || {
            let answer = Flow::to(from, &at)?
                .ask()
                .with_context(|| format!("{at}, after {seen:?}"))?;
            let name = answer.split(' ').nth(1).context(answer.clone())?;
            seen.insert(name.to_owned());
            ensure!(seen == BTreeSet::from(stage.pods.clone()), "{at}: {seen:?}");
            Ok(())
        })?;
    }
    // Nobody is there: that is said, whichever way; a port that it does not have as well.
    for at in [stage.cluster_ip("own")?, format!("{ip}:82")] {
        stage.refused(POD, &at)?;
        stage.refused(From::Node, &at)?;
    }
    stage.patch("all", r#"{"spec": {"selector": {"nobody": "yes"}}}"#)?;
    stage.refused(POD, &ip)?;
    stage.refused(From::Outside, "203.0.113.9")?;
    stage.refused(From::Outside, &format!("{}:30081", stage.nodes[0]))?;
    stage.patch("all", r#"{"spec": {"selector": {"nobody": null}}}"#)?;
    stage.answers(From::Outside, "203.0.113.9", &[0, 1]).map(drop)
}

/// An association's first packet arrives at the port of an endpoint, where the kernel follows SCTP. A pod has no sockets of it on
/// kernels without: what arrives there is listened for instead.
fn sctp(stage: &Stage<'_>) -> anyhow::Result<()> {
    if !std::path::Path::new("/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established").exists() {
        println!("     not tested: this kernel does not follow SCTP");
        return Ok(());
    }
    let ears = [Ear::of(&stage.names[0])?, Ear::of(&stage.names[1])?];
    let ip = stage.cluster_ip("all")?.parse()?;
    for (number, ear) in ears.iter().enumerate() {
        let path = "{.status.podIP}";
        let pod = stage.cluster.get(&["pod", &stage.pods[number]], path)?;
        let mut port = 40_000 + 1_000 * u16::try_from(number)?;
        wait::until(20, "an INIT arrives", || {
            // Each is an association of its own, and so a new choice.
            port += 1;
            send_sctp_init(std::net::SocketAddrV4::new(ip, 80), port)?;
            let targets = ear.sctp_targets();
            let wanted = format!("{pod}:36412").parse()?;
            ensure!(targets.contains(&wanted), "{targets:?}, not {wanted}");
            ensure!(targets.iter().all(|target| *target == wanted), "{targets:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// A flow stays with its endpoint as long as that is one, and no longer: not even when there is no other.
fn udp_flows(stage: &Stage<'_>) -> anyhow::Result<()> {
    stage.label("flows", &[0, 1])?;
    let outside = stage.outside.namespace()?;
    let ip = stage.cluster_ip("flows")?;
    let flows = [
        Flow::to(None, &format!("{ip}:53"))?,
        Flow::to(Some(&outside), &format!("{}:30053", stage.nodes[0]))?,
    ];
    let answers = |flow: &Flow, pod: usize| {
        wait::until(20, "one of the endpoints answers", || {
            let answer = flow.ask().with_context(|| format!("{} of {:?}", pod, stage.pods))?;
            let name = answer.split(' ').nth(1).context(answer.clone())?;
            ensure!(name == stage.pods[pod], "{answer}, not {}", stage.pods[pod]);
            Ok(())
        })
    };
    // Either is one's turn: whoever it had, the flow goes to the other, who still listens, and back.
    for pod in [0, 1, 0] {
        stage.label("flows", &[pod])?;
        for flow in &flows {
            answers(flow, pod)?;
        }
    }
    stage.label("flows", &[0, 1])?;
    for flow in &flows {
        let first = flow.ask()?;
        ensure!(first.contains(&stage.pods[0]), "a flow moved for no reason: {first}");
    }
    stage.label("flows", &[0])?;
    stage.label("flows", &[])?;
    for flow in &flows {
        wait::until(20, "the last one is not asked any more", || {
            let answer = flow.ask();
            // A program on the node itself is told at once that it may not send.
            let refused = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
            let is_refused = |error: &Error| refused.contains(&error.kind());
            ensure!(answer.as_ref().is_err_and(is_refused), "{answer:?}");
            Ok(())
        })?;
    }
    stage.label("flows", &[1])?;
    for flow in &flows {
        answers(flow, 1)?;
    }
    Ok(())
}

/// The address that somebody outside of the cluster gave the Service.
const BALANCER: &str = "203.0.113.20";

/// What a balancer learns at the port of a node.
fn health(stage: &Stage<'_>, node: usize, port: &str, code: &str, endpoints: usize) -> anyhow::Result<()> {
    let url = format!("http://{}:{port}/healthz", stage.nodes[node]);
    wait::until(20, "the node tells how many it has", || {
        let text = run("curl", &["-sS", "--max-time", "2", "-w", "\n%{http_code}", &url])?;
        let (body, status) = text.rsplit_once('\n').context(text.clone())?;
        let body: serde_json::Value = serde_json::from_str(body).context(text.clone())?;
        ensure!(status == code, "{url}: {text}");
        ensure!(
            body["localEndpoints"] == endpoints && body["service"]["name"] == "balanced",
            "{url}: {text}"
        );
        Ok(())
    })
}

/// External policy Local: who comes from outside is led to a pod of that node, which sees who it is, or nowhere; who comes from
/// inside to every pod. The node says how many it has.
fn balanced(stage: &Stage<'_>) -> anyhow::Result<()> {
    let status = format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{BALANCER}"}}]}}}}}}"#);
    stage
        .cluster
        .kubectl(&["patch", "service", "balanced", "--subresource=status", "-p", &status])?;
    let check = stage.service("balanced", "{.spec.healthCheckNodePort}")?;
    ensure!(!check.is_empty() && check != "0", "no health check's port: {check:?}");
    let node_port = format!("{}:30083", stage.nodes[0]);
    stage.refused(From::Outside, BALANCER)?;
    stage.label("balanced", &[0, 1])?;
    for at in [BALANCER, &node_port] {
        let told = stage.answers(From::Outside, at, &[0])?;
        ensure!(
            told.iter().all(|told| told.client == Outside::ADDRESS),
            "the client is not seen: {told:?}"
        );
    }
    stage.answers(POD, BALANCER, &[0, 1])?;
    stage.answers(From::Node, BALANCER, &[0, 1])?;
    health(stage, 0, &check, "200", 1)?;
    health(stage, 1, &check, "200", 1)?;
    stage.label("balanced", &[1])?;
    health(stage, 0, &check, "503", 0)?;
    health(stage, 1, &check, "200", 1)?;
    stage.dropped(From::Outside, BALANCER)?;
    stage.dropped(From::Outside, &node_port)?;
    stage.answers(POD, BALANCER, &[1])?;
    stage.patch("balanced", r#"{"spec": {"externalTrafficPolicy": "Cluster"}}"#)?;
    let told = stage.answers(From::Outside, BALANCER, &[1])?;
    ensure!(told.iter().all(|told| told.client != Outside::ADDRESS), "{told:?}");
    let url = format!("http://{}:{check}/healthz", stage.nodes[0]);
    wait::until(20, "nobody is asked for health any more", || {
        let mut command = std::process::Command::new("curl");
        command.args(["-sS", "--max-time", "2", &url]);
        fail(command, None)
    })
    .map(drop)
}

/// Ranges guard the balancer's address, against everybody else, and not the node port.
fn source_ranges(stage: &Stage<'_>) -> anyhow::Result<()> {
    let ranges = |ranges: &str| {
        stage.patch(
            "balanced",
            &format!(r#"{{"spec": {{"loadBalancerSourceRanges": {ranges}}}}}"#),
        )
    };
    ranges(r#"["192.0.2.128/25"]"#)?;
    stage.dropped(From::Outside, BALANCER)?;
    stage.answers(From::Outside, &format!("{}:30083", stage.nodes[0]), &[1])?;
    ranges(r#"["192.0.2.128/25", "198.51.100.0/24"]"#)?;
    stage.answers(From::Outside, BALANCER, &[1]).map(drop)
}

/// Who asks from a node is led to that node's pod, or nowhere.
fn internal_policy(stage: &Stage<'_>) -> anyhow::Result<()> {
    let ip = stage.cluster_ip("inner")?;
    stage.label("inner", &[0, 1])?;
    stage.answers(POD, &ip, &[0])?;
    stage.answers(From::Node, &ip, &[0])?;
    stage.answers(From::Pod(&stage.pods[1]), &ip, &[1])?;
    stage.label("inner", &[1])?;
    stage.dropped(POD, &ip)?;
    stage.answers(From::Pod(&stage.pods[1]), &ip, &[1])?;
    stage.label("inner", &[])?;
    stage.refused(POD, &ip)
}

/// A pod reaches itself through its Service, by each of its addresses.
fn hairpin(stage: &Stage<'_>) -> anyhow::Result<()> {
    for pod in [0, 1] {
        stage.label("own", &[pod])?;
        stage.answers(From::Pod(&stage.pods[pod]), &stage.cluster_ip("own")?, &[pod])?;
        stage.answers(From::Pod(&stage.pods[pod]), "203.0.113.9", &[0, 1])?;
    }
    Ok(())
}

/// A pod of the same zone, or of the same node, if there is one; otherwise any.
fn topology(stage: &Stage<'_>) -> anyhow::Result<()> {
    let ip = stage.cluster_ip("near")?;
    let second = format!("{NODE}-2");
    for (node, zone) in [(NODE, "here"), (&second, "there")] {
        let label = format!("topology.kubernetes.io/zone={zone}");
        stage.cluster.kubectl(&["label", "node", node, &label])?;
    }
    stage.label("near", &[0, 1])?;
    stage.answers(POD, &ip, &[0, 1])?;
    for distribution in ["PreferClose", "PreferSameNode"] {
        stage.patch(
            "near",
            &format!(r#"{{"spec": {{"trafficDistribution": "{distribution}"}}}}"#),
        )?;
        stage.answers(POD, &ip, &[0]).context(distribution)?;
        stage
            .answers(From::Pod(&stage.pods[1]), &ip, &[1])
            .context(distribution)?;
        stage.label("near", &[1])?;
        stage.answers(POD, &ip, &[1]).context(distribution)?;
        stage.label("near", &[0, 1])?;
        stage.answers(POD, &ip, &[0]).context(distribution)?;
    }
    // Where both nodes are in one zone, either pod is as near.
    let label = "topology.kubernetes.io/zone=here";
    stage
        .cluster
        .kubectl(&["label", "node", &second, label, "--overwrite"])?;
    stage.patch("near", r#"{"spec": {"trafficDistribution": "PreferSameZone"}}"#)?;
    stage.answers(POD, &ip, &[0, 1]).map(drop)
}

/// Who was led to a pod stays with it, whatever the Service becomes otherwise; but not when the time is over.
fn affinity(stage: &Stage<'_>) -> anyhow::Result<()> {
    let ip = stage.cluster_ip("sticky")?;
    let one = |from: From<'_>, at: &str| -> anyhow::Result<String> {
        let told = stage.ask(from, at)?;
        let pods: BTreeSet<&str> = told.iter().map(|told| told.pod.as_str()).collect();
        ensure!(pods.len() == 1, "{at}: {pods:?}");
        Ok(told[0].pod.clone())
    };
    let ask = [(POD, ip.clone()), (From::Outside, format!("{}:30084", stage.nodes[0]))];
    let before = [one(ask[0].0, &ask[0].1)?, one(ask[1].0, &ask[1].1)?];
    let ports = r#"{"spec": {"ports": [{"name": "more", "port": 82, "targetPort": "admin"}]}}"#;
    stage.patch("sticky", ports)?;
    wait::until(20, "the new port is there", || one(POD, &format!("{ip}:82")).map(drop))?;
    for ((from, at), before) in ask.iter().zip(&before) {
        let after = one(*from, at)?;
        ensure!(after == *before, "{at}: {before}, then {after}");
    }
    stage.patch("sticky", r#"{"spec": {"sessionAffinity": "None"}}"#)?;
    stage.answers(POD, &ip, &[0, 1])?;
    // The other's turn comes when the client has been away for a second; half of the times.
    let brief = stage.cluster_ip("brief")?;
    let mut seen = BTreeSet::new();
    wait::until(60, "another is asked", || {
        seen.insert(Told::read(&succeed(stage.command(From::Node, &brief, 1), None)?)?.pod);
        if seen.len() < 2 {
            // To ask is to stay: nothing tells that the time is over.
            std::thread::sleep(Duration::from_millis(1_100));
        }
        ensure!(seen.len() == 2, "{seen:?}");
        Ok(())
    })
}

const NAME_OF_ANOTHER: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: changing}
spec: {type: ExternalName, externalName: all.default.svc.cluster.local}
"#;

/// From and to a name of another's, by either kind of Service that has an address.
fn external_name(stage: &Stage<'_>) -> anyhow::Result<()> {
    let name = "changing.default.svc.cluster.local";
    let says = |said: &dyn Fn(&str) -> bool| {
        wait::until(20, "the name says what the Service is", || {
            let mut answers = Vec::new();
            for kind in ["-type=cname", "-type=a"] {
                let command = ["exec", "client", "--", "nslookup", kind, name];
                let (_, output) = finish(stage.cluster.kubectl_command(&command), None)?;
                answers.push(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            let answers = answers.concat();
            ensure!(said(&answers), "{answers}");
            Ok(())
        })
    };
    let all = stage.cluster_ip("all")?;
    let alias = "canonical name = all.default.svc.cluster.local";
    for node_port in ["", "30085"] {
        stage.cluster.apply(NAME_OF_ANOTHER)?;
        says(&|text| text.contains(alias) && text.contains(&all))?;
        stage.answers(POD, "changing", &[0, 1])?;
        ensure!(stage.cluster_ip("changing")?.is_empty(), "an address is left");
        if !node_port.is_empty() {
            stage.refused(From::Outside, &format!("{}:{node_port}", stage.nodes[0]))?;
        }
        let (kind, port) = match node_port {
            "" => ("ClusterIP", String::new()),
            number => ("NodePort", format!(", nodePort: {number}")),
        };
        stage.label("changing", &[1])?;
        stage.cluster.apply(&format!(
            r#"
apiVersion: v1
kind: Service
metadata: {{name: changing}}
spec:
  type: {kind}
  selector: {{changing: "yes"}}
  ports: [{{port: 80, targetPort: web{port}}}]
"#
        ))?;
        let own = stage.cluster_ip("changing")?;
        ensure!(own.parse::<std::net::Ipv4Addr>().is_ok(), "{own:?}");
        says(&|text| !text.contains("canonical") && text.contains(&own))?;
        stage.answers(POD, "changing", &[1])?;
        if !node_port.is_empty() {
            stage.answers(From::Outside, &format!("{}:{node_port}", stage.nodes[0]), &[1])?;
        }
    }
    stage.cluster.apply(NAME_OF_ANOTHER)?;
    says(&|text| text.contains(alias))?;
    stage.refused(From::Outside, &format!("{}:30085", stage.nodes[0]))
}
