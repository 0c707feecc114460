//! What every cluster has from its first second: namespaces, default RBAC, priority classes, flow control, the range of Services, the Services
//! `kubernetes` and `kube-dns`.
//!
//! Runs at each start before `/readyz` turns ok, through the API server itself as a typed identity, and writes only what is missing.
//! These Services, their range, what holds Services' addresses and flow control's objects are looked after as long as the server runs.
//! Owns these objects' content; the default service accounts and root CA config maps are controllers' work.

pub mod addresses;
pub mod flow_control;
pub mod identity;
pub mod legacy_tokens;
pub(crate) mod live;
mod objects;
pub mod policy;
pub mod ports;
mod services;

use crate::apiserver::ApiServer;
use crate::apiserver::reader::Reader;
use crate::apiserver::user::User;
use crate::resource::{Kind, Registry};
use crate::store::StoreError;
use futures::{StreamExt, TryStreamExt};
use live::Live;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Writes in flight at a time: enough for the store to commit them in a few batches.
const AT_ONCE: usize = 64;
/// How often the Service `kubernetes` is looked after; upstream's kubernetesservice controller does so every 10 s.
const LOOK: Duration = Duration::from_secs(5);
/// How long what failed rests.
const RETRY: Duration = Duration::from_secs(1);

/// Why the cluster's first objects could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// An object could not be written.
    #[error("cannot write {kind} {name}")]
    Write {
        /// Kind.
        kind: String,
        /// Name, with its namespace.
        name: String,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The table of defaults holds something that is not served.
    #[error("{0} is not a kind this API server has")]
    UnknownKind(String),
    /// The store does not answer.
    #[error("cannot read the store")]
    Store(#[source] StoreError),
}

/// What the first objects say of this control plane.
#[derive(Clone, Debug)]
pub struct Facts {
    /// First address of the Service range.
    pub cluster_ip: IpAddr,
    /// The ranges of Services, the primary first; nothing is said of them where there are none.
    pub service_ranges: Vec<String>,
    /// Address of the cluster's DNS; `None` keeps no Service of it.
    pub cluster_dns: Option<IpAddr>,
    /// Address others reach the API server at.
    pub advertise: IpAddr,
    /// Its port.
    pub port: u16,
    /// The CA client certificates are accepted from, for API servers beside this one.
    pub client_ca_pem: String,
}

/// Makes what is missing and repairs what has lost parts. Idempotent.
///
/// # Errors
/// Names the object that could not be written.
pub async fn run(server: &ApiServer, facts: &Facts) -> Result<(), BootstrapError> {
    let reader = server.reader();
    reader.refresh().await.map_err(BootstrapError::Store)?;
    let client = server.client_as(apiserver());
    // Namespaces first: what lies in them is refused before they are there.
    let mut rest = policy::cluster_roles();
    rest.extend(policy::cluster_role_bindings());
    rest.extend(policy::namespaced());
    rest.extend(objects::priority_classes());
    rest.push(objects::authentication(facts));
    rest.push(objects::cluster_info(facts));
    for batch in [objects::namespaces(), rest] {
        ensure(server, &client, &batch).await?;
    }
    // Without them the server has the mandatory ones built in; they are tried again as long as it runs. What cannot be written (an
    // object that is too large, a full disk) must not keep away whoever can mend that.
    if let Err(error) = flow_control::ensure(server, &client).await {
        tracing::warn!(
            error = detailed(&error),
            "flow control's objects are not as they should be, retrying"
        );
    }
    if let Err(error) = ports::look(server, &mut ports::Leaked::default()).await {
        tracing::warn!(%error, "what says which node ports are taken is not as it should be, retrying");
    }
    let live = match Live::of(server, facts) {
        Some(mut live) => live.look().await,
        None => Ok(BTreeSet::from([facts.advertise])),
    };
    // An etcd without space takes no record of this server, and the Service's address may be somebody else's; neither must keep the server
    // from starting: whoever can mend that needs it. Both are looked after as long as it runs.
    let kept = match live {
        Ok(live) => ensure(server, &client, &objects::kubernetes_service(facts, &live)).await,
        Err(error) => Err(BootstrapError::Store(error)),
    };
    if let Err(error) = kept {
        tracing::warn!(
            error = detailed(&error),
            "the Service kubernetes is not as it should be"
        );
    }
    if let Err(error) = keep_cluster_services(server, &client, facts).await {
        tracing::warn!(
            error = detailed(&error),
            "the range of Services, or the Service of the cluster's DNS, is not as it should be"
        );
    }
    Ok(())
}

/// The range of Services and the Service of the cluster's DNS.
async fn keep_cluster_services(server: &ApiServer, client: &kube::Client, facts: &Facts) -> Result<(), BootstrapError> {
    services::ensure_ranges(server, client, facts).await?;
    match services::missing_dns(server, facts) {
        Some(missing) => ensure(server, client, &[missing]).await,
        None => Ok(()),
    }
}

/// Puts the Services `kubernetes` (with its Endpoints and its EndpointSlice, which list all API servers that live) and `kube-dns` and the range of Services back whenever they are missing or changed, until shutdown;
/// publishes the CA of client certificates anew when it is another one. At the end this server is not listed any more.
pub async fn keep_service(
    server: ApiServer,
    facts: Facts,
    client_ca_pem: watch::Receiver<String>,
    shutdown: CancellationToken,
) {
    let mut keeper = Keeper {
        client: server.client_as(apiserver()),
        live: Live::of(&server, &facts),
        listed: BTreeSet::from([facts.advertise]),
        server,
        facts,
        told: String::new(),
    };
    let mut next = Instant::now() + LOOK;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep_until(next) => {
                keeper.look(&client_ca_pem).await;
                next = Instant::now() + LOOK;
            }
            () = changed(&mut keeper.live) => keeper.list_who_lives().await,
        }
    }
    keeper.leave().await;
}

async fn changed(live: &mut Option<Live>) {
    match live {
        Some(live) => live.changed().await,
        None => std::future::pending().await,
    }
}

/// Who looks after what [`keep_service`] names.
struct Keeper {
    server: ApiServer,
    client: kube::Client,
    facts: Facts,
    live: Option<Live>,
    /// The addresses that are to be listed.
    listed: BTreeSet<IpAddr>,
    /// What was said last to be wrong.
    told: String,
}

impl Keeper {
    async fn look(&mut self, client_ca_pem: &watch::Receiver<String>) {
        let mut error = self.ensure_listed().await.err();
        if let Err(failed) = keep_cluster_services(&self.server, &self.client, &self.facts).await {
            error = error.or(Some(failed));
        }
        let newest = client_ca_pem.borrow().clone();
        if newest != self.facts.client_ca_pem {
            let published = Facts {
                client_ca_pem: newest,
                ..self.facts.clone()
            };
            let objects = [objects::authentication(&published), objects::cluster_info(&published)];
            match ensure(&self.server, &self.client, &objects).await {
                Ok(()) => self.facts = published,
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        self.tell(error);
    }

    /// Somebody began or ended, or may have.
    async fn list_who_lives(&mut self) {
        let Some(live) = &mut self.live else { return };
        match live.look().await {
            Ok(listed) if listed == self.listed => {}
            Ok(listed) => {
                self.listed = listed;
                let error = self.ensure_listed().await.err();
                self.tell(error);
            }
            Err(error) => {
                self.tell(Some(BootstrapError::Store(error)));
                // What failed at once is not asked again at once.
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn ensure_listed(&self) -> Result<(), BootstrapError> {
        let wanted = objects::kubernetes_service(&self.facts, &self.listed);
        ensure(&self.server, &self.client, &wanted).await
    }

    /// Once for each reason, not every five seconds.
    fn tell(&mut self, error: Option<BootstrapError>) {
        let text = error.as_ref().map(detailed).unwrap_or_default();
        if !text.is_empty() && text != self.told {
            tracing::warn!(
                error = text,
                "a Service of the cluster's own, their range, their endpoints or the published CA is not as it should be, retrying"
            );
        }
        self.told = text;
    }

    async fn leave(mut self) {
        let Some(live) = self.live.take() else { return };
        let left = async {
            self.listed = live.leave().await.map_err(BootstrapError::Store)?;
            // The last one erases nothing: clients that know no other address may come back.
            match self.listed.is_empty() {
                true => Ok(()),
                false => self.ensure_listed().await,
            }
        };
        match tokio::time::timeout(LOOK, left).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = detailed(&error), "this API server stays listed for a while"),
            Err(_) => tracing::warn!("this API server stays listed for a while: the store does not answer"),
        }
    }
}

fn apiserver() -> User {
    User::named("system:apiserver", &["system:masters"])
}

/// An error with its cause.
fn detailed(error: &BootstrapError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Writes those of the objects that are missing or not as wanted.
async fn ensure(server: &ApiServer, client: &kube::Client, batch: &[Value]) -> Result<(), BootstrapError> {
    let registry = server.registry();
    let writes: Vec<Write> = batch
        .iter()
        .map(|wanted| Write::plan(&registry, server.reader(), wanted))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    let sent = futures::stream::iter(writes).map(|write| write.send(client.clone()));
    sent.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// One write that is needed.
struct Write {
    kind: Arc<Kind>,
    object: Value,
    /// Whether the object is there and is to be replaced.
    replace: bool,
}

impl Write {
    /// What must be written so that `wanted` is there; `None` if nothing.
    fn plan(registry: &Registry, reader: &Reader, wanted: &Value) -> Result<Option<Self>, BootstrapError> {
        let text = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = registry
            .by_gvk(group, version, text("/kind"))
            .ok_or_else(|| BootstrapError::UnknownKind(format!("{api_version} {}", text("/kind"))))?;
        let stored = reader.get(group, &kind.plural, text("/metadata/namespace"), text("/metadata/name"));
        let (object, replace) = match stored {
            None => (Some(wanted.clone()), false),
            Some(stored) if group == policy_group() => (policy::missing(&stored, wanted), true),
            Some(stored) => (objects::repair(&stored, wanted), true),
        };
        Ok(object.map(|object| Self {
            kind: Arc::clone(kind),
            object,
            replace,
        }))
    }

    async fn send(self, client: kube::Client) -> Result<(), BootstrapError> {
        let text = |pointer: &str| self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let mut path = match &*self.kind.group {
            "" => format!("/api/{}", self.kind.version),
            group => format!("/apis/{group}/{}", self.kind.version),
        };
        if !namespace.is_empty() {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push_str(&format!("/{}", self.kind.plural));
        if self.replace {
            path.push_str(&format!("/{name}"));
        }
        let method = if self.replace {
            http::Method::PUT
        } else {
            http::Method::POST
        };
        let request = http::Request::builder().method(method).uri(path);
        let request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(self.object.to_string().into_bytes())
            .expect("the path is made of names that need no escaping");
        match client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            // Another start of ours was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(BootstrapError::Write {
                kind: self.kind.kind.to_string(),
                name: [namespace, name].join("/").trim_start_matches('/').to_owned(),
                source: Box::new(error),
            }),
        }
    }
}

fn policy_group() -> &'static str {
    crate::apiserver::authz::RBAC
}

#[cfg(test)]
mod tests;
