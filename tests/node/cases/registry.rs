//! A registry with a login (Debian's docker-registry): who shows it gets the image, who does not gets neither the registry's copy
//! nor the one that is already on the node.

use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::Cluster;
use crate::command::run;
use crate::wait;

const ADDRESS: &str = "127.0.0.1:5057";
const IMAGE: &str = "127.0.0.1:5057/private:1";
/// What a pod's spec says of the secret.
const WITH_LOGIN: &str = "imagePullSecrets: [{name: login}]";
/// User `test` with the password `secret`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "test:$2b$04$2avRbqyWQtBjzEWd/gu42.ey0VIU8Rpw05/vj5nhfOAvbDxDBLLjG\n";
/// `{"auths":{"127.0.0.1:5057":{"username":"test","password":"secret"}}}`, in base64.
const LOGIN: &str = "eyJhdXRocyI6eyIxMjcuMC4wLjE6NTA1NyI6eyJ1c2VybmFtZSI6InRlc3QiLCJwYXNzd29yZCI6InNlY3JldCJ9fX0=";

/// A process that ends with its owner.
pub(super) struct Registry(Child);

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a registry that keeps its things in that directory, wants a login, and serves TLS if it has a certificate.
pub(super) fn start(cluster: &Cluster, directory: &str, address: &str, tls: bool) -> anyhow::Result<Registry> {
    let directory = cluster.path(directory);
    fs::create_dir_all(&directory)?;
    let path = |file: &str| directory.join(file).display().to_string();
    fs::write(path("htpasswd"), HTPASSWD)?;
    let served = if tls {
        format!(", tls: {{certificate: {}, key: {}}}", path("tls.crt"), path("tls.key"))
    } else {
        String::new()
    };
    let scheme = if tls { "https" } else { "http" };
    let config = format!(
        "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'{served}}}\nauth: \
         {{htpasswd: {{realm: test, path: {}}}}}\n",
        path("data"),
        path("htpasswd")
    );
    fs::write(path("config.yml"), config)?;
    let child = Command::new("docker-registry")
        .args(["serve", &path("config.yml")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(path("log"))?)
        .spawn()
        .context("starting docker-registry (hack/test installs it)")?;
    let registry = Registry(child);
    wait::until(60, "the registry answers, and wants a login", || {
        let code = run(
            "curl",
            &[
                "-sk",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                &format!("{scheme}://{address}/v2/"),
            ],
        )?;
        ensure!(code == "401", "it answers {code}");
        Ok(())
    })?;
    Ok(registry)
}

/// Puts busybox there under the private name, and leaves nothing of that name on the node.
pub(super) fn fill(cluster: &Cluster, image: &str, how: &[&str]) -> anyhow::Result<()> {
    let names = cluster.ctr(&["images", "list", "-q"])?;
    let busybox = names
        .lines()
        .find(|name| name.contains("busybox"))
        .context("no busybox on the node")?;
    let mut push = vec!["images", "push"];
    push.extend(how);
    push.extend(["--user", "test:secret", image, busybox]);
    cluster.ctr(&push)?;
    Ok(())
}

/// A pod that sleeps, with further lines of its spec.
pub(super) fn pod(name: &str, image: &str, policy: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  {more}
  containers:
  - {{name: c, image: "{image}", imagePullPolicy: {policy}, command: [sleep, "100000"]}}
"#
    )
}

fn refused(cluster: &Cluster, name: &str, policy: &str, reasons: &[&str]) -> anyhow::Result<()> {
    cluster.apply(&pod(name, IMAGE, policy, ""))?;
    wait::until(60, "the reason why it does not run", || {
        let reason = cluster.get(&["pod", name], "{.status.containerStatuses[0].state.waiting.reason}")?;
        ensure!(reasons.contains(&reason.as_str()), "{name} waits with {reason:?}");
        Ok(())
    })
}

/// A pod with the secret runs; one without it does not, though the image is here by then, also after a restart of the kubelet.
pub(crate) fn private_image(cluster: &Cluster) -> anyhow::Result<()> {
    let _registry = start(cluster, "registry", ADDRESS, false)?;
    fill(cluster, IMAGE, &["--plain-http"])?;
    refused(
        cluster,
        "stranger",
        "IfNotPresent",
        &["ErrImagePull", "ImagePullBackOff"],
    )?;
    delete(cluster, "stranger")?;
    cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Secret
metadata: {{name: login}}
type: kubernetes.io/dockerconfigjson
data: {{.dockerconfigjson: {LOGIN}}}
"#
    ))?;
    run_and_wait(cluster, "owner", &pod("owner", IMAGE, "IfNotPresent", WITH_LOGIN))?;
    refused(
        cluster,
        "stranger",
        "IfNotPresent",
        &["ErrImagePull", "ImagePullBackOff"],
    )?;
    refused(cluster, "never", "Never", &["ErrImageNeverPull"])?;
    delete(cluster, "stranger")?;
    delete(cluster, "never")?;

    cluster.kill("kubelet")?;
    cluster.up()?;
    refused(cluster, "never", "Never", &["ErrImageNeverPull"])?;
    run_and_wait(cluster, "second", &pod("second", IMAGE, "Never", WITH_LOGIN))?;
    for name in ["never", "second", "owner"] {
        delete(cluster, name)?;
    }
    cluster.kubectl(&["delete", "secret", "login"])?;
    cluster.ctr(&["images", "remove", IMAGE]).map(drop)
}
