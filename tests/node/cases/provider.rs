//! A registry with TLS and a login (Debian's docker-registry), whose login a credential provider plugin gives, shown the token of
//! the pod's service account: by tag, by digest, not at all, and with a wrong login.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, ensure};

use crate::cases::pod::{delete, run_and_wait};
use crate::cases::registry::{self, pod};
use crate::cluster::Cluster;
use crate::command::{Background, fail, run, succeed};
use crate::wait;

const ADDRESS: &str = "127.0.0.1:5058";
const IMAGE: &str = "127.0.0.1:5058/private:1";
/// `{"auths":{"127.0.0.1:5058":{"username":"test","password":"wrong"}}}`, in base64.
const WRONG: &str = "eyJhdXRocyI6eyIxMjcuMC4wLjE6NTA1OCI6eyJ1c2VybmFtZSI6InRlc3QiLCJwYXNzd29yZCI6Indyb25nIn19fQ==";

/// A certificate for the registry, and the runtime's word that it is good.
fn trust(cluster: &Cluster) -> anyhow::Result<()> {
    let directory = cluster.path("registry-tls");
    fs::create_dir_all(&directory)?;
    let path = |file: &str| directory.join(file).display().to_string();
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=registry",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            &path("tls.key"),
            "-out",
            &path("tls.crt"),
        ],
    )?;
    let hosts = cluster.path("containerd/certs.d").join(ADDRESS);
    fs::create_dir_all(&hosts)?;
    let text = format!(
        "server = \"https://{ADDRESS}\"\n[host.\"https://{ADDRESS}\"]\ncapabilities = [\"pull\", \"resolve\", \"push\"]\nca = \"{}\"\n",
        path("tls.crt")
    );
    Ok(fs::write(hosts.join("hosts.toml"), text)?)
}

/// A plugin that notes what it is asked, and gives the login to who shows a token.
fn plugin(cluster: &Cluster) -> anyhow::Result<()> {
    let directory = cluster.path("provider/bin");
    fs::create_dir_all(&directory)?;
    let asked = cluster.path("provider/asked").display().to_string();
    let script = format!(
        r#"#!/bin/sh
request=$(cat)
echo "$request" | sed 's/"serviceAccountToken":"[^"]*"/"serviceAccountToken":"..."/' >>{asked}
password=none
case $request in *serviceAccountToken*) password=$PASSWORD ;; esac
echo '{{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry",
"cacheDuration":"1h","auth":{{"{ADDRESS}":{{"username":"test","password":"'$password'"}}}}}}'
"#
    );
    let path = directory.join("login");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let config = format!(
        r#"apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: login
  matchImages: ["{ADDRESS}/private"]
  defaultCacheDuration: 1m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  env: [{{name: PASSWORD, value: secret}}]
  tokenAttributes: {{serviceAccountTokenAudience: registry, cacheType: ServiceAccount, requireServiceAccount: true}}
"#
    );
    Ok(fs::write(cluster.path("provider/config.yaml"), config)?)
}

/// The cluster's kubelet, with the plugin.
fn kubelet(cluster: &Cluster) -> anyhow::Result<Background> {
    cluster.kill("kubelet")?;
    let mut command = cluster.kubelet();
    for (flag, path) in [
        ("--image-credential-provider-config", "provider/config.yaml"),
        ("--image-credential-provider-bin-dir", "provider/bin"),
    ] {
        command.arg(flag).arg(cluster.path(path));
    }
    Background::start(command)
}

/// Waits until the pod's container waits for that reason; gives its message.
fn waits(cluster: &Cluster, name: &str, reason: &str) -> anyhow::Result<String> {
    wait::until(60, "the reason why it does not run", || {
        // Of one moment: reasons of failed pulls come and go.
        let state = "{.status.containerStatuses[0].state.waiting.";
        let told = cluster.get(&["pod", name], &format!("{state}reason}} {state}message}}"))?;
        let (found, message) = told.split_once(' ').with_context(|| told.clone())?;
        ensure!(found == reason, "{name} waits with {found:?}");
        Ok(message.to_owned())
    })
}

fn with_plugin(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "own", &pod("own", IMAGE, "IfNotPresent", ""))?;
    audiences(cluster, "own")?;
    let asked = fs::read_to_string(cluster.path("provider/asked"))?;
    ensure!(
        asked.contains(&format!(r#""image":"{ADDRESS}/private","serviceAccountToken":"...""#)),
        "{asked}"
    );
    let id = cluster.get(&["pod", "own"], "{.status.containerStatuses[0].imageID}")?;
    let (_, digest) = id.split_once('@').with_context(|| id.clone())?;
    for (name, image) in [
        ("digest", format!("{ADDRESS}/private@{digest}")),
        ("both", format!("{IMAGE}@{digest}")),
    ] {
        run_and_wait(cluster, name, &pod(name, &image, "Always", ""))?;
        delete(cluster, name)?;
    }
    run_and_wait(cluster, "again", &pod("again", IMAGE, "Never", ""))?;
    // Its login is given to it as well, but it has not pulled.
    cluster.kubectl(&["create", "serviceaccount", "stranger"])?;
    cluster.apply(&pod("stranger", IMAGE, "Never", "serviceAccountName: stranger"))?;
    waits(cluster, "stranger", "ErrImageNeverPull")?;
    cluster.apply(&pod("absent", &format!("{ADDRESS}/absent:1"), "Never", ""))?;
    let said = waits(cluster, "absent", "ErrImageNeverPull")?;
    ensure!(
        said == format!("Container image \"{ADDRESS}/absent:1\" is not present with pull policy of Never"),
        "{said}"
    );
    for name in ["own", "again", "stranger", "absent"] {
        delete(cluster, name)?;
    }
    cluster.kubectl(&["delete", "serviceaccount", "stranger"]).map(drop)
}

/// What lets nodes have tokens for the registry, which no pod's volume asks for.
const ALLOWED: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: registry-tokens}
rules: [{verbs: [request-serviceaccounts-token-audience], apiGroups: [""], resources: [registry]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: registry-tokens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: registry-tokens}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
"#;

/// With the kubelet's own credentials: a token for what was allowed, and for nothing else that the pod does not ask for.
fn audiences(cluster: &Cluster, pod: &str) -> anyhow::Result<()> {
    let kubeconfig = cluster.path("kubelet/kubeconfig").display().to_string();
    let uid = cluster.get(&["pod", pod], "{.metadata.uid}")?;
    let ask = |audience: &str| {
        let bound = [
            "--bound-object-kind=Pod",
            "--bound-object-name",
            pod,
            "--bound-object-uid",
            &uid,
        ];
        let mut all = vec![
            "--kubeconfig",
            &kubeconfig,
            "create",
            "token",
            "default",
            "--audience",
            audience,
        ];
        all.extend(bound);
        cluster.kubectl_command(&all)
    };
    succeed(ask("registry"), None)?;
    let said = fail(ask("other"), None)?;
    ensure!(
        said.contains("is not authorized to request tokens for this audience"),
        "{said}"
    );
    Ok(())
}

fn without_plugin(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: wrong}}\ntype: kubernetes.io/dockerconfigjson\ndata: {{.dockerconfigjson: {WRONG}}}\n"
    ))?;
    cluster.apply(&pod("wrong", IMAGE, "Always", "imagePullSecrets: [{name: wrong}]"))?;
    let said = waits(cluster, "wrong", "ImagePullBackOff")?;
    ensure!(
        said.starts_with(&format!("Back-off pulling image \"{IMAGE}\": ErrImagePull: "))
            && said.contains("401 Unauthorized"),
        "{said}"
    );
    cluster.apply(&pod("plain", IMAGE, "Never", ""))?;
    waits(cluster, "plain", "ErrImageNeverPull")?;
    delete(cluster, "wrong")?;
    delete(cluster, "plain")?;
    cluster.kubectl(&["delete", "secret", "wrong"]).map(drop)
}

/// Who a plugin speaks for gets the image, its account's pods get it from the node, and others do not.
pub(crate) fn plugin_over_tls(cluster: &Cluster) -> anyhow::Result<()> {
    trust(cluster)?;
    plugin(cluster)?;
    cluster.apply(ALLOWED)?;
    let _registry = registry::start(cluster, "registry-tls", ADDRESS, true)?;
    let hosts = cluster.path("containerd/certs.d").display().to_string();
    registry::fill(cluster, IMAGE, &["--hosts-dir", &hosts])?;
    let kubelet = kubelet(cluster)?;
    let outcome = with_plugin(cluster).and_then(|()| {
        let log = kubelet.output()?;
        ensure!(!log.contains("eyJ"), "a token is in the log:\n{log}");
        Ok(())
    });
    let outcome = outcome.map_err(|error| {
        let log = kubelet.output().unwrap_or_default();
        error.context(format!("the kubelet says\n{log}"))
    });
    drop(kubelet);
    cluster.up()?;
    outcome?;
    cluster.kubectl(&["delete", "clusterrole,clusterrolebinding", "registry-tokens"])?;
    without_plugin(cluster)?;
    fs::remove_dir_all(cluster.path("containerd/certs.d").join(ADDRESS))?;
    cluster.ctr(&["images", "remove", IMAGE]).map(drop)
}
