//! What the cases are played on: two nodes, a pod on each that tells who asked, Services, and who asks them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::net::{Echo, Namespace, Outside};
use crate::cases::pod;
use crate::cases::service::{CLIENT, nodes};
use crate::cluster::{Cluster, NODE};
use crate::command::{fail, succeed};
use crate::wait;

/// On each node a pod with two pages, each of which tells its port's name, the pod's and where it was asked from.
const TELLERS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: tellers}
spec:
  selector: {matchLabels: {app: tellers}}
  template:
    metadata: {labels: {app: tellers}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        ports: [{name: web, containerPort: 8080}, {name: admin, containerPort: 8081}]
        command:
        - sh
        - -c
        - |
          for page in web admin; do
            mkdir -p /$page/cgi-bin && touch /$page/index.html
            printf '#!/bin/sh\necho Content-type: text/plain\necho\necho %s %s $REMOTE_ADDR\n' $page $(hostname) >/$page/cgi-bin/who
            chmod 755 /$page/cgi-bin/who
          done
          httpd -p 8081 -h /admin
          exec httpd -f -p 8080 -h /web
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
"#;

/// Which pods a Service has is said by labels that the test puts on them.
const SERVICES: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: all}
spec:
  type: NodePort
  selector: {app: tellers}
  externalIPs: [203.0.113.9]
  ports:
  - {name: web, port: 80, targetPort: web, nodePort: 30081}
  - {name: admin, port: 81, targetPort: admin, nodePort: 30082}
  - {name: udp, protocol: UDP, port: 80, targetPort: 5353, nodePort: 30081}
  - {name: sctp, protocol: SCTP, port: 80, targetPort: 36412, nodePort: 30081}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {balanced: "yes"}
  ports: [{name: web, port: 80, targetPort: web, nodePort: 30083}]
---
apiVersion: v1
kind: Service
metadata: {name: inner}
spec:
  internalTrafficPolicy: Local
  selector: {inner: "yes"}
  ports: [{port: 80, targetPort: web}]
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec:
  selector: {near: "yes"}
  ports: [{port: 80, targetPort: web}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec:
  type: NodePort
  selector: {app: tellers}
  sessionAffinity: ClientIP
  ports: [{name: web, port: 80, targetPort: web, nodePort: 30084}, {name: admin, port: 81, targetPort: admin}]
---
apiVersion: v1
kind: Service
metadata: {name: brief}
spec:
  selector: {app: tellers}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}
  ports: [{port: 80, targetPort: web}]
---
apiVersion: v1
kind: Service
metadata: {name: own}
spec:
  selector: {own: "yes"}
  ports: [{port: 80, targetPort: web}]
---
apiVersion: v1
kind: Service
metadata: {name: flows}
spec:
  type: NodePort
  selector: {flows: "yes"}
  ports: [{protocol: UDP, port: 53, targetPort: 5353, nodePort: 30053}]
"#;

/// So many answers in a row leave no room for chance: one of two pods is missed by all of them once in 4,096 times.
const ROUND: usize = 12;

/// The cluster with who is asked and who asks.
pub(super) struct Stage<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) outside: Outside,
    /// The pods of the first and of the second node, and their node's addresses.
    pub(super) pods: [String; 2],
    pub(super) nodes: [String; 2],
    pub(super) names: [Namespace; 2],
    _echoes: [Echo; 2],
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) enum From<'a> {
    Pod(&'a str),
    Node,
    Outside,
}

/// The pod on the first node that is nobody's endpoint.
pub(super) const POD: From<'static> = From::Pod("client");

/// What a teller says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    pub(super) page: String,
    pub(super) pod: String,
    pub(super) client: String,
}

impl Told {
    pub(super) fn read(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [page, pod, client] = words.as_slice() else {
            anyhow::bail!("no answer of a teller: {line:?}");
        };
        // The server tells addresses of IPv4 as its socket of IPv6 has them.
        let client = client.trim_matches(['[', ']']);
        Ok(Self {
            page: (*page).to_owned(),
            pod: (*pod).to_owned(),
            client: client.trim_start_matches("::ffff:").to_owned(),
        })
    }
}

impl Stage<'_> {
    pub(super) fn command(&self, from: From<'_>, at: &str, times: usize) -> std::process::Command {
        let url = format!("http://{at}/cgi-bin/who");
        let mut curl = vec!["--max-time", "2", "--fail-early"];
        curl.extend(std::iter::repeat_n(url.as_str(), times));
        match from {
            From::Pod(name) => {
                let script = format!("for i in $(seq {times}); do wget -T 2 -qO- {url} || exit 1; done");
                self.cluster.kubectl_command(&["exec", name, "--", "sh", "-c", &script])
            }
            From::Node => {
                let mut command = std::process::Command::new("curl");
                command.arg("-sS").args(curl);
                command
            }
            From::Outside => self.outside.curl(&curl),
        }
    }

    /// A round of answers.
    pub(super) fn ask(&self, from: From<'_>, at: &str) -> anyhow::Result<Vec<Told>> {
        succeed(self.command(from, at, ROUND), None)?
            .lines()
            .map(Told::read)
            .collect()
    }

    /// Waits until a round is answered by all of these pods (0 is the first node's) and nobody else.
    pub(super) fn answers(&self, from: From<'_>, at: &str, pods: &[usize]) -> anyhow::Result<Vec<Told>> {
        let wanted: BTreeSet<&str> = pods.iter().map(|pod| self.pods[*pod].as_str()).collect();
        wait::until(20, "those who are wanted answer", || {
            let told = self.ask(from, at)?;
            let seen: BTreeSet<&str> = told.iter().map(|told| told.pod.as_str()).collect();
            ensure!(seen == wanted, "{at}: {seen:?} answer, not {wanted:?}");
            Ok(told)
        })
    }

    /// Waits until nobody is there: that is said, or (`dropped`) nothing is.
    pub(super) fn fails(&self, from: From<'_>, at: &str, dropped: bool) -> anyhow::Result<()> {
        let (words, kind) = match dropped {
            true => ("timed out", ErrorKind::TimedOut),
            false => ("Connection refused", ErrorKind::ConnectionRefused),
        };
        wait::until(20, words, || {
            if let From::Pod(_) = from {
                let error = fail(self.command(from, at, 1), None)?;
                ensure!(error.contains(words), "{at}: {error}");
                return Ok(());
            }
            let at = if at.contains(':') {
                at.to_owned()
            } else {
                format!("{at}:80")
            };
            let target: SocketAddr = at.parse()?;
            let connect = || Ok(TcpStream::connect_timeout(&target, Duration::from_secs(2)).map(drop));
            let outcome = match from {
                From::Outside => self.outside.namespace()?.inside(connect)?,
                _ => connect()?,
            };
            ensure!(
                outcome.as_ref().is_err_and(|error| error.kind() == kind),
                "{at}: {outcome:?}"
            );
            Ok(())
        })
        .with_context(|| at.to_owned())
    }

    pub(super) fn refused(&self, from: From<'_>, at: &str) -> anyhow::Result<()> {
        self.fails(from, at, false)
    }

    pub(super) fn dropped(&self, from: From<'_>, at: &str) -> anyhow::Result<()> {
        self.fails(from, at, true)
    }

    /// Puts a label on these pods, and takes it off the others.
    pub(super) fn label(&self, key: &str, pods: &[usize]) -> anyhow::Result<()> {
        for (number, pod) in self.pods.iter().enumerate() {
            let label = if pods.contains(&number) {
                format!("{key}=yes")
            } else {
                format!("{key}-")
            };
            self.cluster.kubectl(&["label", "pod", pod, &label, "--overwrite"])?;
        }
        Ok(())
    }

    pub(super) fn patch(&self, service: &str, patch: &str) -> anyhow::Result<()> {
        self.cluster
            .kubectl(&["patch", "service", service, "-p", patch])
            .map(drop)
    }

    pub(super) fn service(&self, name: &str, path: &str) -> anyhow::Result<String> {
        self.cluster.get(&["service", name], path)
    }

    pub(super) fn cluster_ip(&self, name: &str) -> anyhow::Result<String> {
        self.service(name, "{.spec.clusterIP}")
    }
}

fn up(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    let mut up = cluster.hack("up");
    up.args(["--nodes", &count.to_string()]);
    succeed(up, None)?;
    wait::until(60, "the nodes are ready", || nodes(cluster, count)).map(drop)
}

pub(super) fn begin(cluster: &Cluster) -> anyhow::Result<Stage<'_>> {
    up(cluster, 2)?;
    cluster.apply(TELLERS)?;
    cluster.apply(SERVICES)?;
    let client = CLIENT.replace("spec:", &format!("spec:\n  nodeName: {NODE}"));
    pod::run_and_wait(cluster, "client", &client)?;
    wait::until(60, "a pod of each node is ready", || {
        let path = "{.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let ready = cluster.get(&["pods", "-l", "app=tellers"], path)?;
        ensure!(ready == "True True", "{ready}");
        Ok(())
    })?;
    let on = |node: &str| -> anyhow::Result<(String, String, String)> {
        let field = format!("--field-selector=spec.nodeName={node}");
        let path = "{.items[0].metadata.name} {.items[0].metadata.uid} {.items[0].status.hostIP}";
        let text = cluster.get(&["pods", "-l", "app=tellers", &field], path)?;
        let words: Vec<&str> = text.split(' ').collect();
        let [name, uid, address] = words.as_slice() else {
            anyhow::bail!("{text:?}");
        };
        Ok(((*name).to_owned(), (*uid).to_owned(), (*address).to_owned()))
    };
    let (first, second) = (on(NODE)?, on(&format!("{NODE}-2"))?);
    let of_pod = |uid: &str| wait::until(20, "the pod's network is known", || Namespace::of_pod(uid));
    let names = [of_pod(&first.1)?, of_pod(&second.1)?];
    let echoes = [
        Echo::start(&names[0], &first.0, 5353)?,
        Echo::start(&names[1], &second.0, 5353)?,
    ];
    Ok(Stage {
        cluster,
        outside: Outside::new()?,
        pods: [first.0, second.0],
        nodes: [first.2, second.2],
        names,
        _echoes: echoes,
    })
}

/// Takes away what is there of it, also of one that did not come about.
pub(super) fn end(cluster: &Cluster) -> anyhow::Result<()> {
    let names = [
        "all", "balanced", "inner", "near", "sticky", "brief", "own", "flows", "changing",
    ];
    let there = "--ignore-not-found";
    cluster.kubectl(&[&["delete", "service", there], &names[..]].concat())?;
    cluster.kubectl(&["delete", "daemonset/tellers", "pod/client", there])?;
    cluster.kubectl(&["label", "node", NODE, "topology.kubernetes.io/zone-"])?;
    wait::until(60, "the pods are gone", || {
        let left = cluster.get(&["pods"], "{.items[*].metadata.name}")?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    up(cluster, 1)
}
