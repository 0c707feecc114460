//! `controlplane token`: makes a bootstrap token in a running cluster and prints what a node joins with.
//!
//! The token is a Secret (control-plane contract §6), written through the API like anybody's; the kubeconfig printed carries
//! the token and nothing else.

use crate::controller::well_known::bootstrap_token::{NAME_PREFIX, NAMESPACE, SECRET_TYPE};
use anyhow::Context;
use clap::{Parser, ValueEnum};
use client::{Clock, SystemClock};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, PostParams};
use kube::config::{Cluster, Kubeconfig};
use rand::RngExt;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Deadline of the one request.
const DEADLINE: Duration = Duration::from_secs(30);
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// The group whose members' kubelet certificates are approved without a human.
const DEFAULT_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A kubeconfig for --bootstrap-kubeconfig.
    Kubeconfig,
    /// The token alone, for kubeadm join.
    Token,
}

/// Make a bootstrap token and print a kubeconfig that carries it, for a kubelet's --bootstrap-kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "controlplane token")]
struct Arguments {
    /// The control plane's data directory, where admin.kubeconfig is.
    #[arg(long, default_value = crate::config::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Another kubeconfig to make the token with.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// URL of the API server as the node reaches it (the kubeconfig's).
    #[arg(long)]
    server: Option<String>,
    /// How long the token lives, such as 24h; 0 for ever.
    #[arg(long, default_value = "24h", value_parser = ttl)]
    ttl: SignedDuration,
    /// What the token is for.
    #[arg(long, default_value = "")]
    description: String,
    /// Extra group of those who authenticate by the token, below system:bootstrappers:; may stand several times.
    #[arg(long = "group", default_value = DEFAULT_GROUP, value_parser = group)]
    groups: Vec<String>,
    /// What to print.
    #[arg(long, short, value_enum, default_value = "kubeconfig")]
    output: Output,
}

fn ttl(text: &str) -> Result<SignedDuration, String> {
    let parsed = if text == "0" {
        Ok(SignedDuration::ZERO)
    } else {
        text.parse()
    };
    match parsed {
        Ok(ttl) if ttl.is_negative() => Err("must not be negative".to_owned()),
        Ok(ttl) => Ok(ttl),
        Err(error) => Err(error.to_string()),
    }
}

fn group(text: &str) -> Result<String, String> {
    match text.strip_prefix("system:bootstrappers:") {
        Some(rest) if !rest.is_empty() && !rest.contains(',') => Ok(text.to_owned()),
        _ => Err("must begin with system:bootstrappers: and name one group".to_owned()),
    }
}

/// A token: `id.secret`.
struct Token {
    id: String,
    secret: String,
}

impl Token {
    fn random() -> Self {
        let mut random = rand::rng();
        let mut text = |length: usize| {
            let letters = (0..length).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())]));
            letters.collect::<String>()
        };
        Self {
            id: text(6),
            secret: text(16),
        }
    }

    fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// Runs the subcommand with the words after its name.
///
/// # Errors
/// A flag is missing or unknown, or the API server cannot be reached or refuses.
pub async fn run(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let words = std::iter::once("controlplane token".to_owned()).chain(words);
    let words = match Arguments::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if !error.use_stderr() => {
            error.print()?;
            return Ok(());
        }
        Err(error) => anyhow::bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    let own = words.kubeconfig.clone();
    let path = own.unwrap_or_else(|| words.data_dir.join("admin.kubeconfig"));
    let mut cluster = cluster(&path)?;
    if let Some(server) = &words.server {
        anyhow::ensure!(
            server.starts_with("https://"),
            "--server {server} must be an https:// URL"
        );
        cluster.server = Some(server.clone());
    }
    let token = Token::random();
    let options = client::connect::Options::new("controlplane token");
    let client = client::connect::from_kubeconfig(&path, &options).await?;
    let secret: Secret = serde_json::from_value(secret(&token, &words, SystemClock.now()))?;
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let created = tokio::time::timeout(DEADLINE, secrets.create(&PostParams::default(), &secret)).await;
    created
        .context("the API server did not answer in time")?
        .context("cannot create the token's Secret")?;
    match words.output {
        Output::Token => println!("{}", token.text()),
        Output::Kubeconfig => print!("{}", bootstrap_kubeconfig(&cluster, &token)?),
    }
    Ok(())
}

/// The cluster of the kubeconfig's current context.
fn cluster(path: &std::path::Path) -> anyhow::Result<Cluster> {
    let config = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
    let current = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|context| context.name == current);
    let name = context
        .and_then(|context| context.context)
        .map(|context| context.cluster);
    let cluster = config
        .clusters
        .into_iter()
        .find(|cluster| Some(&cluster.name) == name.as_ref());
    cluster
        .and_then(|cluster| cluster.cluster)
        .with_context(|| format!("kubeconfig {} names no cluster in its current context", path.display()))
}

fn secret(token: &Token, words: &Arguments, now: Timestamp) -> Value {
    let mut data = json!({
        "token-id": token.id, "token-secret": token.secret,
        "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        "auth-extra-groups": words.groups.join(","),
    });
    if !words.description.is_empty() {
        data["description"] = json!(words.description);
    }
    if !words.ttl.is_zero() {
        let end = now.saturating_add(words.ttl).unwrap_or(Timestamp::MAX);
        data["expiration"] = json!(end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "stringData": data,
        "metadata": {"name": format!("{NAME_PREFIX}{}", token.id), "namespace": NAMESPACE},
    })
}

/// The kubeconfig a kubelet asks for its first certificate with.
fn bootstrap_kubeconfig(cluster: &Cluster, token: &Token) -> anyhow::Result<String> {
    let user = "tls-bootstrap-token-user";
    let context = format!("{user}@kubernetes");
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": serde_json::to_value(cluster)?}],
        "users": [{"name": user, "user": {"token": token.text()}}],
        "contexts": [{"name": context, "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": context, "preferences": {},
    });
    Ok(serde_json::to_string_pretty(&config)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(extra: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["controlplane token"].iter().chain(extra))
    }

    #[test]
    fn a_token_is_what_the_authenticator_takes() {
        let token = Token::random();
        let now = "2027-01-15T08:00:00Z".parse().unwrap();
        let object = secret(&token, &words(&[]).unwrap(), now);
        let data = &object["stringData"];
        assert_eq!(data["expiration"], "2027-01-16T08:00:00Z");
        assert_eq!(data["auth-extra-groups"], DEFAULT_GROUP);
        assert_eq!((token.id.len(), token.secret.len()), (6, 16));
        assert_eq!(object["metadata"]["name"], format!("bootstrap-token-{}", token.id));
        let for_ever = secret(&token, &words(&["--ttl=0", "--description=x"]).unwrap(), now);
        assert_eq!(for_ever["stringData"].get("expiration"), None);
        assert_eq!(for_ever["stringData"]["description"], "x");
    }

    #[test]
    fn bad_words_are_named() {
        for (flag, part) in [
            ("--ttl=-1h", "negative"),
            ("--ttl=x", "--ttl"),
            ("--group=system:masters", "--group"),
        ] {
            let error = words(&[flag]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_kubeconfig_carries_the_cluster_and_the_token() {
        let cluster = Cluster {
            server: Some("https://192.0.2.1:6443".to_owned()),
            certificate_authority_data: Some("Q0E=".to_owned()),
            ..Cluster::default()
        };
        let token = Token::random();
        let text = bootstrap_kubeconfig(&cluster, &token).unwrap();
        let read = Kubeconfig::from_yaml(&text).unwrap();
        let found = read.clusters[0].cluster.clone().unwrap();
        assert_eq!(found.certificate_authority_data.as_deref(), Some("Q0E="));
        assert!(text.contains(&token.text()) && text.contains("https://192.0.2.1:6443"));
    }
}
