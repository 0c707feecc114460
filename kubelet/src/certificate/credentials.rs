//! How this kubelet proves itself to the API server: by its kubeconfig, or by a certificate it asks for and keeps fresh.
//!
//! Without `rotateCertificates` the kubeconfig is used as it is; `--bootstrap-kubeconfig` makes it once if it is missing or expired.
//! With it, the kubeconfig says where the API server is and points at the store; the certificate comes and goes by itself.

use super::request::{RequestError, Wanted, obtain};
use super::rotation::{Clients, Expired, Rotation, watch_expiry};
use super::store::{Pair, Store};
use super::{CertificateError, write};
use crate::config::Config;
use base64::Engine;
use client::connect::{self, ConnectError, Observer, Options};
use client::{Clock, Identity, IdentityError};
use jiff::Timestamp;
use kube::config::{AuthInfo, Cluster};
use rcgen::KeyPair;
use serde_json::json;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long the one certificate of a bootstrap without rotation is waited for.
const ONE_SHOT_PATIENCE: Duration = Duration::from_secs(3600);
/// How long the API server is waited for before that, and how often it is asked.
const SERVER_PATIENCE: Duration = Duration::from_secs(60);
const SERVER_PAUSE: Duration = Duration::from_secs(1);
/// Keeps the key of a bootstrap across restarts, so that they ask under one name.
const KEY_FILE: &str = "kubelet-client.key.tmp";

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A kubeconfig is of no use.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] CertificateError),
    /// The certificate there is cannot be used.
    #[error("client certificate {path}")]
    Identity {
        /// Where it stands.
        path: PathBuf,
        /// What is wrong with it.
        source: IdentityError,
    },
    /// A kubeconfig names no cluster or no user in its current context.
    #[error("kubeconfig {path}: {why}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The first certificate was not given.
    #[error("bootstrap by {path}")]
    Bootstrap {
        /// The bootstrap kubeconfig.
        path: PathBuf,
        /// Why not.
        source: RequestError,
    },
}

/// How the API server is reached.
pub struct Connected {
    /// As this node.
    pub client: kube::Client,
    /// The same over connections of its own: questions that strangers cause hold up nothing else, as upstream's heartbeats
    /// have a client of their own.
    pub reviews: kube::Client,
    /// What keeps the certificate fresh, if that is asked for.
    pub renewal: Option<ClientCertificateRenewal>,
}

/// What keeps the client certificate fresh.
pub struct ClientCertificateRenewal {
    rotation: Rotation,
    identity: Identity,
    clock: Arc<dyn Clock>,
}

impl ClientCertificateRenewal {
    /// The newest pair.
    pub fn current(&self) -> watch::Receiver<Option<Arc<Pair>>> {
        self.rotation.current.subscribe()
    }

    /// Runs until told to stop; ends early when there is no valid certificate and no hope of one.
    ///
    /// # Errors
    /// See [`Expired`].
    pub async fn run(self, stop: CancellationToken) -> Result<(), Expired> {
        let (current, server) = (
            self.rotation.current.subscribe(),
            self.rotation.server_is_there.subscribe(),
        );
        let installing = install(self.identity, current.clone());
        tokio::select! {
            biased;
            () = self.rotation.run(stop) => Ok(()),
            () = installing => Ok(()),
            expired = watch_expiry(current, server, self.clock) => Err(expired),
        }
    }
}

/// Hands each new pair to the connections.
async fn install(identity: Identity, mut current: watch::Receiver<Option<Arc<Pair>>>) {
    // The one there at the start is in use already.
    current.mark_unchanged();
    while current.changed().await.is_ok() {
        let pair = current.borrow_and_update().clone();
        if let Some(Err(error)) = pair.map(|pair| identity.set(pair.pem.as_bytes())) {
            tracing::error!(%error, "the new client certificate cannot be used");
        }
    }
    std::future::pending::<()>().await;
}

/// The clients of this node's name, and what keeps their certificate fresh if that is asked for.
///
/// # Errors
/// See [`CredentialError`].
pub async fn connect(
    config: &Config,
    kubeconfig: &Path,
    node: &str,
    clock: Arc<dyn Clock>,
    seed: u64,
    observer: Observer,
) -> Result<Connected, CredentialError> {
    let options = Options {
        observer: Some(observer),
        ..Options::new(format!("kubelet/{} (linux)", crate::config::VERSION))
    };
    let store = Store::client(&config.paths.cert_dir);
    let now = clock.now();
    let bootstrap = config.paths.bootstrap_kubeconfig.as_deref();
    let needed = bootstrap.filter(|_| match usable(kubeconfig, now) {
        Ok(()) => false,
        Err(why) => {
            tracing::info!(kubeconfig = %kubeconfig.display(), why, "bootstrapping client credentials");
            true
        }
    });
    if !config.rotate_certificates {
        if let Some(bootstrap) = needed {
            one_shot(
                bootstrap,
                kubeconfig,
                node,
                &store,
                &*clock,
                &options,
                &config.paths.cert_dir,
            )
            .await?;
        }
        warn_of_clock(kubeconfig, now);
        return Ok(Connected {
            client: connect::from_kubeconfig(kubeconfig, &options).await?,
            reviews: connect::from_kubeconfig(kubeconfig, &options).await?,
            renewal: None,
        });
    }
    if let Some(bootstrap) = needed {
        write_kubeconfig(bootstrap, kubeconfig, &store)?;
    }
    let first = first_pair(kubeconfig, &store, now)?;
    let identity = Identity::default();
    if let Some(pair) = &first {
        let path = store.current_path();
        let set = identity.set(pair.pem.as_bytes());
        set.map_err(|source| CredentialError::Identity { path, source })?;
    }
    let options = Options {
        identity: Some(identity.clone()),
        ..options
    };
    let own = connect::from_kubeconfig(kubeconfig, &options).await?;
    let reviews = connect::from_kubeconfig(kubeconfig, &options).await?;
    let bootstrap = match bootstrap.filter(|path| path.exists()) {
        Some(path) => Some(
            connect::from_kubeconfig(
                path,
                &Options {
                    identity: None,
                    ..options
                },
            )
            .await?,
        ),
        None => None,
    };
    let wanted = Wanted {
        node: node.to_owned(),
        serving: None,
    };
    let rotation = Rotation {
        wanted,
        host_ips: None,
        store,
        clients: Clients {
            own: own.clone(),
            bootstrap,
        },
        clock: clock.clone(),
        seed,
        current: watch::Sender::new(first.map(Arc::new)),
        server_is_there: watch::Sender::new(false),
    };
    let keeper = ClientCertificateRenewal {
        rotation,
        identity,
        clock,
    };
    Ok(Connected {
        client: own,
        reviews,
        renewal: Some(keeper),
    })
}

/// The user and the cluster of a kubeconfig's current context.
fn current(path: &Path) -> Result<(AuthInfo, Cluster), String> {
    let config = client::kubeconfig::read(path).map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
    let name = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|context| context.name == name);
    let context = context
        .and_then(|context| context.context)
        .ok_or("has no current context")?;
    let user = config
        .auth_infos
        .into_iter()
        .find(|user| Some(&user.name) == context.user.as_ref());
    let cluster = config
        .clusters
        .into_iter()
        .find(|cluster| cluster.name == context.cluster);
    let user = user.and_then(|user| user.auth_info).unwrap_or_default();
    let cluster = cluster.and_then(|cluster| cluster.cluster).ok_or("names no cluster")?;
    Ok((user, cluster))
}

/// The address of a kubeconfig's API server, where it is no name.
pub fn server_address(path: &Path) -> Option<IpAddr> {
    let (_, cluster) = current(path).ok()?;
    let server: http::Uri = cluster.server?.parse().ok()?;
    server.host()?.trim_matches(['[', ']']).parse().ok()
}

/// The certificate and key a user's entry holds or points at, in one PEM text.
fn pair_of(user: &AuthInfo) -> Result<Option<Pair>, String> {
    // As text: the key is wrapped in a type that hides it.
    let user = serde_json::to_value(user).map_err(|error| error.to_string())?;
    let part = |name: &str| -> Result<Option<String>, String> {
        if let Some(data) = user[format!("{name}-data")].as_str() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(data);
            let bytes = bytes.map_err(|error| format!("{name}-data: {error}"))?;
            return String::from_utf8(bytes)
                .map(Some)
                .map_err(|error| format!("{name}-data: {error}"));
        }
        match user[name].as_str() {
            Some(file) => fs::read_to_string(file)
                .map(Some)
                .map_err(|error| format!("{file}: {error}")),
            None => Ok(None),
        }
    };
    match (part("client-certificate")?, part("client-key")?) {
        (Some(certificate), Some(key)) => Pair::parse(format!("{certificate}\n{key}")).map(Some),
        _ => Ok(None),
    }
}

/// Whether a kubeconfig still serves; the error says why not.
fn usable(kubeconfig: &Path, now: Timestamp) -> Result<(), String> {
    let (user, _) = current(kubeconfig)?;
    match pair_of(&user)? {
        None => Err("holds no client certificate".to_owned()),
        Some(pair) if pair.not_after <= now => Err(format!("its client certificate expired at {}", pair.not_after)),
        Some(_) => Ok(()),
    }
}

/// A clock that is not set makes every certificate look like one of the future; say so rather than fail obscurely.
fn warn_of_clock(kubeconfig: &Path, now: Timestamp) {
    let pair = current(kubeconfig)
        .ok()
        .and_then(|(user, _)| pair_of(&user).ok().flatten());
    if let Some(pair) = pair {
        warn_if_early(&pair, now);
    }
}

fn warn_if_early(pair: &Pair, now: Timestamp) {
    if let Some(message) = too_early(pair, now) {
        tracing::error!("{message}");
    }
}

/// What there is to say of a clock that is behind a certificate's start. The certificate is used all the same: the API server
/// goes by its own clock, and asking for another one would not set ours.
fn too_early(pair: &Pair, now: Timestamp) -> Option<String> {
    (now < pair.not_before).then(|| {
        format!(
            "the client certificate is valid from {}, and this machine's clock says {now}: is the clock set?",
            pair.not_before
        )
    })
}

/// The pair to begin with: the store's, or the kubeconfig's own; none if they are over.
fn first_pair(kubeconfig: &Path, store: &Store, now: Timestamp) -> Result<Option<Pair>, CredentialError> {
    let stored = store.current().unwrap_or_else(|error| {
        tracing::warn!(
            error = format!("{:#}", anyhow::Error::new(error)),
            "stored client certificate not used"
        );
        None
    });
    let (user, _) = current(kubeconfig).map_err(|why| CredentialError::Kubeconfig {
        path: kubeconfig.to_owned(),
        why,
    })?;
    let first = stored.or_else(|| pair_of(&user).ok().flatten());
    if let Some(pair) = &first {
        warn_if_early(pair, now);
    }
    Ok(first.filter(|pair| pair.not_after > now))
}

/// Writes the kubeconfig that points at the store, with the bootstrap's cluster.
fn write_kubeconfig(bootstrap: &Path, kubeconfig: &Path, store: &Store) -> Result<(), CredentialError> {
    let (_, cluster) = current(bootstrap).map_err(|why| CredentialError::Kubeconfig {
        path: bootstrap.to_owned(),
        why,
    })?;
    let pem = store.current_path().display().to_string();
    // JSON is YAML, and nothing in it can be misquoted.
    let text = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": {"client-certificate": pem, "client-key": pem}}],
        "contexts": [{"name": "default-context",
            "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}}],
        "current-context": "default-context",
    });
    let text = format!("{text:#}\n");
    if let Some(dir) = kubeconfig.parent() {
        fs::create_dir_all(dir).map_err(|source| CertificateError::Write {
            path: dir.to_owned(),
            source,
        })?;
    }
    Ok(write(kubeconfig, text.as_bytes(), 0o600)?)
}

/// Gets the one certificate of a kubelet that does not rotate, and writes its kubeconfig.
async fn one_shot(
    bootstrap: &Path,
    kubeconfig: &Path,
    node: &str,
    store: &Store,
    clock: &dyn Clock,
    options: &Options,
    cert_dir: &Path,
) -> Result<(), CredentialError> {
    let client = connect::from_kubeconfig(bootstrap, options).await?;
    await_server(&client).await;
    let failed = |source| CredentialError::Bootstrap {
        path: bootstrap.to_owned(),
        source,
    };
    let key_path = cert_dir.join(KEY_FILE);
    let key = cached_key(&key_path)?;
    let wanted = Wanted {
        node: node.to_owned(),
        serving: None,
    };
    let name = wanted.name(&key);
    let chain = obtain(&client, &wanted, &key, Some(name), ONE_SHOT_PATIENCE)
        .await
        .map_err(failed)?;
    store.update(&chain, &key.serialize_pem(), clock.now())?;
    write_kubeconfig(bootstrap, kubeconfig, store)?;
    if let Err(error) = fs::remove_file(&key_path) {
        tracing::warn!(path = %key_path.display(), %error, "bootstrap key not removed");
    }
    Ok(())
}

fn cached_key(path: &Path) -> Result<KeyPair, CredentialError> {
    let known = fs::read_to_string(path)
        .ok()
        .and_then(|pem| KeyPair::from_pem(&pem).ok());
    if let Some(key) = known {
        return Ok(key);
    }
    let key = KeyPair::generate().map_err(CertificateError::Make)?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(|source| CertificateError::Write {
            path: dir.to_owned(),
            source,
        })?;
    }
    write(path, key.serialize_pem().as_bytes(), 0o600)?;
    Ok(key)
}

/// Waits a little for the API server to answer at all; if it does not, the request will say why.
async fn await_server(client: &kube::Client) {
    let asking = async {
        loop {
            let request = http::Request::get("/healthz").body(Vec::new());
            let Ok(request) = request else { return };
            if client.request_text(request).await.is_ok() {
                return;
            }
            tokio::time::sleep(SERVER_PAUSE).await;
        }
    };
    if tokio::time::timeout(SERVER_PATIENCE, asking).await.is_err() {
        tracing::warn!("the API server does not say it is healthy");
    }
}

#[cfg(test)]
mod tests;
