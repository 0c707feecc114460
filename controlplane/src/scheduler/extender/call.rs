//! Asks extenders. Owns the connections; every answer has a time and a size.

use super::message::{self, Filtered};
use super::{Extender, Source, Tls};
use crate::held::Node;
use crate::scheduler::plugin::default_preemption::Preemption;
use crate::scheduler::pod::PodInfo;
use client::connect;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::timeout;

/// What an answer may always be long.
const ANSWER_BYTES: usize = 1 << 20;
/// Victims that one question is about, in bytes; of more nodes it is asked only if none of the first will do.
const VICTIMS_BYTES: usize = 4 << 20;
/// Questions about one pod's victims.
const ROUNDS: usize = 4;
/// Extenders' scores go to 10, nodes' to 100.
const SCALE: i64 = 10;

/// An extender that can be asked.
pub struct Caller {
    extender: Extender,
    client: kube::Client,
}

/// What extenders left of the nodes.
#[derive(Debug, Default)]
pub struct Judged {
    /// Nodes that will do, with what extenders add to their scores.
    pub nodes: Vec<(String, i64)>,
    /// Why others will not, one text for each.
    pub refused: Vec<String>,
}

fn pem(source: &Source) -> Result<String, String> {
    match source {
        Source::Text(text) => Ok(text.clone()),
        Source::File(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")),
    }
}

fn configure(config: &mut kube::Config, tls: &Tls) -> Result<(), String> {
    config.accept_invalid_certs = tls.insecure;
    config.tls_server_name.clone_from(&tls.server_name);
    if let Some(authority) = &tls.authority {
        let text = pem(authority)?;
        let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let ders = ders.map_err(|error| format!("tlsConfig.caFile: {error}"))?;
        if ders.is_empty() {
            return Err("tlsConfig.caFile: holds no certificate".to_owned());
        }
        config.root_cert = Some(ders.iter().map(|der| der.to_vec()).collect());
    }
    if let Some((cert, key)) = &tls.identity {
        use base64::Engine;
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        config.auth_info.client_certificate_data = Some(encode(pem(cert)?));
        config.auth_info.client_key_data = Some(encode(pem(key)?).into());
    }
    Ok(())
}

impl Caller {
    /// Makes its client; nothing is sent yet.
    ///
    /// # Errors
    /// A file or certificate cannot be used.
    pub fn new(extender: Extender) -> Result<Self, String> {
        let url: http::Uri = extender
            .url_prefix
            .parse()
            .map_err(|error| format!("urlPrefix: {error}"))?;
        let mut config = kube::Config::new(url);
        configure(&mut config, &extender.tls)?;
        let mut options = connect::Options::new("kube-scheduler");
        options.connect_timeout = extender.timeout.min(options.connect_timeout);
        let client = connect::from_config(config, &options).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("tlsConfig: {error}: {}", cause.unwrap_or_default())
        })?;
        Ok(Self { extender, client })
    }

    /// Whether it is asked about the pod: of all, or of those that ask for what it manages.
    pub fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.extender.managed;
        managed.is_empty()
            || managed
                .iter()
                .any(|resource| pod.requests.scalar.contains_key(&resource.name))
    }

    async fn post(&self, verb: &str, body: &Value) -> Result<Value, String> {
        let bytes = body.to_string().into_bytes();
        // It may give back what it was given.
        let most = ANSWER_BYTES + 2 * bytes.len();
        let request = http::Request::post(format!("/{}", verb.trim_start_matches('/')));
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(bytes));
        let request = request.map_err(|error| error.to_string())?;
        let asking = async {
            let reply = self.client.send(request).await.map_err(|error| error.to_string())?;
            if reply.status() != http::StatusCode::OK {
                return Err(format!("answered {}", reply.status()));
            }
            let body = Limited::new(reply.into_body(), most).collect().await;
            let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| format!("the answer is no JSON: {error}"))
        };
        let asked = timeout(self.extender.timeout, asking).await;
        asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    fn told(&self, why: &str) -> String {
        format!("extender {}: {why}", self.extender.url_prefix)
    }

    fn question(&self, pod: &PodInfo, names: &[String], node: &dyn Fn(&str) -> Option<Arc<Node>>) -> Value {
        let whole = || {
            let nodes = names.iter().filter_map(|name| node(name));
            nodes.map(|node| node.shown()).collect()
        };
        message::question(pod, names, (!self.extender.knows_nodes).then(whole))
    }

    async fn filter(&self, body: &Value, names: &[String]) -> Result<Filtered, String> {
        let answer = self.post(&self.extender.filter, body).await?;
        message::filtered(&answer, names)
    }

    async fn scores(&self, body: &Value, names: &[String]) -> Result<BTreeMap<String, i64>, String> {
        let answer = self.post(&self.extender.prioritize, body).await?;
        message::scores(&answer, names)
    }

    /// The best candidates first: where those do not fit into one question, and none of them will do, the next are asked about.
    async fn preempt(
        &self,
        pod: &PodInfo,
        candidates: &[Preemption],
        on: &OnNode<'_>,
    ) -> Result<Vec<Preemption>, String> {
        let mut rest = candidates;
        for _ in 0..ROUNDS {
            let (body, asked) = message::victims(pod, rest, self.extender.knows_nodes, VICTIMS_BYTES);
            let answer = self.post(&self.extender.preempt, &body).await?;
            let (asked, later) = rest.split_at(asked);
            let left = message::preempted(&answer, pod, asked, on, self.extender.ignorable)?;
            if !left.is_empty() || later.is_empty() {
                return Ok(left);
            }
            rest = later;
        }
        tracing::warn!(pod = %pod.key, left_out = rest.len(), error = self.told("was not asked about all nodes: too many victims"));
        Ok(Vec::new())
    }

    /// Whether it binds pods.
    pub fn binds(&self) -> bool {
        !self.extender.bind.is_empty()
    }

    /// Has it bind the pod.
    ///
    /// # Errors
    /// It did not.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let answer = self.post(&self.extender.bind, &message::binding(pod, node)).await;
        answer
            .and_then(|answer| message::bound(&answer))
            .map_err(|why| self.told(&why))
    }
}

/// Finds a pod of a node by its UID.
pub type OnNode<'o> = dyn Fn(&str, &str) -> Option<Arc<PodInfo>> + Sync + 'o;

/// Asks the extenders that have a say in preemption, one after the other, who of the candidates should go for the pod; nobody, if
/// one of them leaves nobody.
///
/// # Errors
/// An extender failed that nobody is evicted without.
pub async fn preempt(
    callers: &[Arc<Caller>],
    pod: &PodInfo,
    mut candidates: Vec<Preemption>,
    on: &OnNode<'_>,
) -> Result<Vec<Preemption>, String> {
    for caller in callers.iter().filter(|caller| !caller.extender.preempt.is_empty()) {
        if candidates.is_empty() {
            break;
        }
        match caller.preempt(pod, &candidates, on).await {
            Ok(left) => candidates = left,
            Err(why) if caller.extender.ignorable => {
                tracing::warn!(pod = %pod.key, error = caller.told(&why), "skipped, as it is ignorable");
            }
            Err(why) => return Err(caller.told(&why)),
        }
    }
    Ok(candidates)
}

/// Asks the extenders that are interested in the pod, one after the other, which nodes will do, and then how good those are.
///
/// # Errors
/// An extender failed that pods are not scheduled without.
pub async fn judge(
    callers: &[Arc<Caller>],
    pod: &PodInfo,
    names: Vec<String>,
    node: &(dyn Fn(&str) -> Option<Arc<Node>> + Sync),
) -> Result<Judged, String> {
    let (mut names, mut refused) = (names, Vec::new());
    for caller in callers.iter().filter(|caller| !caller.extender.filter.is_empty()) {
        if names.is_empty() {
            break;
        }
        let body = caller.question(pod, &names, &node);
        match caller.filter(&body, &names).await {
            Ok(filtered) => {
                let (stay, go): (Vec<String>, Vec<String>) = names
                    .into_iter()
                    .partition(|name| filtered.nodes.contains(name) && !filtered.failed.contains_key(name));
                let why = |name: &String| filtered.failed.get(name).filter(|why| !why.is_empty()).cloned();
                refused.extend(
                    go.iter()
                        .map(|name| why(name).unwrap_or_else(|| caller.told("refused"))),
                );
                names = stay;
            }
            Err(why) if caller.extender.ignorable => {
                tracing::warn!(pod = %pod.key, error = caller.told(&why), "skipped, as it is ignorable");
            }
            Err(why) => return Err(caller.told(&why)),
        }
    }
    let mut nodes: BTreeMap<String, i64> = names.iter().map(|name| (name.clone(), 0)).collect();
    if names.len() > 1 {
        for caller in callers.iter().filter(|caller| !caller.extender.prioritize.is_empty()) {
            let body = caller.question(pod, &names, &node);
            match caller.scores(&body, &names).await {
                Ok(scores) => {
                    for (name, score) in scores {
                        *nodes.entry(name).or_default() += score * caller.extender.weight * SCALE;
                    }
                }
                // Wishes: the pod is scheduled without them.
                Err(why) => tracing::warn!(pod = %pod.key, error = caller.told(&why), "its scores do not count"),
            }
        }
    }
    Ok(Judged {
        nodes: nodes.into_iter().collect(),
        refused,
    })
}
