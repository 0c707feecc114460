//! Clients over HTTP/2: kubeconfig or in-cluster configuration in, `kube::Client` out.
//!
//! One connection carries all requests and watches, and another one where they are nearly as many as servers take on one (HTTP/1.1 only
//! where the server offers nothing else). Pings notice a dead server within 45 seconds, as upstream's client does. Never retries a request:
//! callers know what may be repeated.

use crate::early;
use crate::identity::{Closing, Identity};
use crate::kubeconfig;
use crate::observe::Observed;
pub use crate::observe::{Observer, Request};
use crate::outbound;
use crate::spread::Spread;
use http::HeaderValue;
use http::header::USER_AGENT;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// `User-Agent` of every request, such as `kubelet/v1.36.0 (linux/amd64)`.
    pub user_agent: String,
    /// Longest wait for TCP and TLS together.
    pub connect_timeout: Duration,
    /// Silence after which a ping is sent.
    pub ping_after: Duration,
    /// Longest wait for the ping's answer before the connection counts as dead.
    pub ping_timeout: Duration,
    /// A client certificate that may change, instead of the configuration's.
    pub identity: Option<Identity>,
    /// Who is told of every request once its answer begins.
    pub observer: Option<Observer>,
}

impl Options {
    /// Upstream's timeouts (ping after 30 s, dead after 15 s more) and the given user agent.
    pub fn new(user_agent: impl Into<String>) -> Self {
        Self {
            user_agent: user_agent.into(),
            connect_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            identity: None,
            observer: None,
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read, parsed, or names something missing.
    #[error("kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// The kubeconfig is sound, but what it says of the cluster cannot be followed.
    #[error("kubeconfig {path}: cluster {cluster:?}: {why}")]
    Cluster {
        /// The file.
        path: PathBuf,
        /// The cluster's name in it.
        cluster: String,
        /// Which fields, and why not.
        why: &'static str,
    },
    /// Not inside a cluster, or the mounted files are unusable.
    #[error("in-cluster configuration")]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The kubeconfig is sound, but its certificates, keys or credentials are not usable.
    #[error("credentials of {origin}")]
    Credentials {
        /// The file, or the server's URL.
        origin: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// `tls-server-name` is not a host name.
    #[error("{origin}: tls-server-name {name:?} is not a host name")]
    ServerName {
        /// The file, or the server's URL.
        origin: String,
        /// The value given.
        name: String,
    },
    /// The user agent is not a header value.
    #[error("user agent {0:?} is not a valid header value")]
    UserAgent(String),
}

/// A client for the current context of a kubeconfig file. Paths inside it are relative to the file.
pub async fn from_kubeconfig(path: &Path, options: &Options) -> Result<kube::Client, ConnectError> {
    let config = read_kubeconfig(path).await?;
    from_config_named(config, &format!("kubeconfig {}", path.display()), options)
}

/// The configuration a kubeconfig file's current context describes.
pub async fn read_kubeconfig(path: &Path) -> Result<kube::Config, ConnectError> {
    let fail = |source| ConnectError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = kubeconfig::read(path).map_err(fail)?;
    let cluster = current_cluster(&kubeconfig);
    if let Some((name, why)) = cluster.and_then(|(name, cluster)| Some((name, impossible(cluster)?))) {
        return Err(ConnectError::Cluster {
            path: path.to_owned(),
            cluster: name.to_owned(),
            why,
        });
    }
    let authority = cluster.and_then(|(_, cluster)| authority_file(cluster));
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(fail)?;
    // Read again from time to time, so that a server certificate of a new CA is accepted without a restart.
    config.root_cert_file = authority;
    Ok(config)
}

/// The current context's cluster, and its name.
fn current_cluster(kubeconfig: &Kubeconfig) -> Option<(&str, &Cluster)> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == *name)?;
    Some((name, cluster.cluster.as_ref()?))
}

/// Why a cluster cannot be connected to as its settings say; those of TLS as client-go has them.
fn impossible(cluster: &Cluster) -> Option<&'static str> {
    let has_authority = cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
    if has_authority && cluster.insecure_skip_tls_verify == Some(true) {
        return Some(
            "certificate-authority beside insecure-skip-tls-verify: specifying a root certificates file with the insecure flag is not allowed",
        );
    }
    let why = "proxy-url: connections through a proxy are not supported, take it out to connect to the server itself";
    cluster.proxy_url.as_ref().map(|_| why)
}

/// The file of certificate authorities that a cluster names.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    // Data in the kubeconfig itself goes before the file.
    let file = cluster
        .certificate_authority
        .as_ref()
        .filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

/// A client from the service account files every pod has.
pub fn in_cluster(options: &Options) -> Result<kube::Client, ConnectError> {
    let config = kube::Config::incluster().map_err(|e| ConnectError::InCluster(Box::new(e)))?;
    from_config_named(config, "the pod's service account", options)
}

/// A client from a configuration made elsewhere.
pub fn from_config(config: kube::Config, options: &Options) -> Result<kube::Client, ConnectError> {
    let origin = config.cluster_url.to_string();
    from_config_named(config, &origin, options)
}

fn from_config_named(mut config: kube::Config, origin: &str, options: &Options) -> Result<kube::Client, ConnectError> {
    let credentials = |source| ConnectError::Credentials {
        origin: origin.to_owned(),
        source: Box::new(source),
    };
    let agent = HeaderValue::from_str(&options.user_agent);
    let agent = agent.map_err(|_| ConnectError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((USER_AGENT, agent));
    let server_name = config.tls_server_name.clone();
    let parsed = server_name.clone().map(ServerName::try_from).transpose();
    let parsed = parsed.map_err(|_| ConnectError::ServerName {
        origin: origin.to_owned(),
        name: server_name.unwrap_or_default(),
    })?;
    let transport = transport(&config, parsed, options).map_err(credentials)?;
    outbound::tell_of_proxy(&config.cluster_url);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(credentials)?)
        .layer(config.extra_headers_layer().map_err(credentials)?)
        .map_err(BoxError::from)
        .service(transport);
    let host = config.cluster_url.authority().map(http::uri::Authority::as_str);
    let service = Observed::new(service, options.observer.clone(), host.unwrap_or_default());
    Ok(kube::Client::new(service, config.default_namespace))
}

/// Why a server outside of Kubernetes gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// This machine's certificate authorities cannot be read.
    #[error("system certificates")]
    Certificates(#[source] std::io::Error),
    /// It cannot be reached, or does not speak HTTP.
    #[error("no answer")]
    Answer(#[from] hyper_util::client::legacy::Error),
}

/// Sends one request to any server: HTTP/1.1 over a connection of its own, and this machine's certificate authorities. By the
/// type of client that speaks to API servers, so that its code is there once.
///
/// # Errors
/// There is no answer; a status is none of them.
pub async fn ask(request: http::Request<Body>) -> Result<http::Response<Incoming>, AskError> {
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_native_roots()
        .map_err(AskError::Certificates)?
        .https_or_http()
        .enable_http1()
        .build();
    let connector = ServiceBuilder::new()
        .map_response(|stream: Stream| Identity::default().connection(stream))
        .service(https);
    let client: Transport =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(BoxCloneSyncService::new(connector));
    Ok(client.request(request).await?)
}

type Stream = hyper_rustls::MaybeHttpsStream<hyper_util::rt::TokioIo<tokio::net::TcpStream>>;
type Connector = BoxCloneSyncService<http::Uri, Closing<Stream>, BoxError>;
type Transport = hyper_util::client::legacy::Client<Connector, Body>;

fn transport(
    config: &kube::Config,
    server_name: Option<ServerName<'static>>,
    options: &Options,
) -> Result<Spread<Transport>, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(options.ping_after));
    let tls = tls(config, options.identity.as_ref())?;
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let https = match server_name {
        Some(name) => https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name)),
        None => https,
    };
    let https = https.enable_all_versions().wrap_connector(tcp);
    let connector = tower::timeout::Timeout::new(https, options.connect_timeout);
    let identity = options.identity.clone().unwrap_or_default();
    let connector = ServiceBuilder::new()
        .map_response(move |stream: Stream| identity.connection(stream))
        .map_err(early::explain)
        .service(connector);
    let connector = BoxCloneSyncService::new(connector);
    let (ping_after, ping_timeout) = (options.ping_after, options.ping_timeout);
    // Each has connections of its own.
    Ok(Spread::new(move || {
        hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(ping_after)
            .http2_keep_alive_timeout(ping_timeout)
            .http2_adaptive_window(true)
            .build(connector.clone())
    }))
}

/// The TLS configuration; with an identity of its own, sessions are not resumed, since that would bring back an older one.
fn tls(config: &kube::Config, identity: Option<&Identity>) -> Result<rustls::ClientConfig, kube::Error> {
    let Some(identity) = identity else {
        return config.rustls_client_config();
    };
    let mut plain = config.clone();
    let user = &mut plain.auth_info;
    user.client_certificate = None;
    user.client_certificate_data = None;
    user.client_key = None;
    user.client_key_data = None;
    let mut tls = plain.rustls_client_config()?;
    tls.client_auth_cert_resolver = Arc::new(identity.clone());
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    fn chain(error: &ConnectError) -> String {
        let (mut text, mut next) = (error.to_string(), error.source());
        while let Some(source) = next {
            text = format!("{text}: {source}");
            next = source.source();
        }
        text
    }

    async fn refusal(content: &str) -> String {
        let dir = std::env::temp_dir().join(format!("skiff-connect-{}-{:p}", std::process::id(), content));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("kubeconfig");
        std::fs::write(&path, content).unwrap();
        let error = from_kubeconfig(&path, &Options::new("test")).await.err().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        chain(&error)
    }

    #[tokio::test]
    async fn an_authority_in_a_file_is_read_again_and_one_in_the_kubeconfig_is_not() {
        let dir = std::env::temp_dir().join(format!("skiff-authority-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(vec![])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        std::fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
        let read = async |cluster: &str| {
            let path = dir.join("kubeconfig");
            let text = format!(
                "{HEAD}clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
            read_kubeconfig(&path).await.unwrap().root_cert_file
        };
        assert_eq!(read("certificate-authority: ca.pem").await, Some(dir.join("ca.pem")));
        let unnamed = read("certificate-authority-data: '', certificate-authority: ca.pem").await;
        assert_eq!(unnamed, Some(dir.join("ca.pem")), "no data say nothing");
        // "Cg==" is an empty line.
        assert_eq!(
            read("certificate-authority-data: Cg==, certificate-authority: ca.pem").await,
            None
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    const HEAD: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                        contexts: [{name: c, context: {cluster: k, user: u}}]\n";

    #[tokio::test]
    async fn errors_name_file_and_field() {
        let missing = from_kubeconfig(Path::new("/nonexistent/kubeconfig"), &Options::new("test")).await;
        assert!(chain(&missing.err().unwrap()).contains("/nonexistent/kubeconfig"));
        let cluster = |settings: &str| {
            format!(
                "{HEAD}clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1', {settings}}}}}]\n\
                 users: [{{name: u, user: {{}}}}]\n"
            )
        };
        let table = [
            ("{".to_owned(), "parse"),
            (format!("{HEAD}users: []\nclusters: []\n"), "cluster"),
            (
                format!("{HEAD}clusters: [{{name: k, cluster: {{}}}}]\nusers: [{{name: u, user: {{}}}}]\n"),
                "url",
            ),
            (
                format!(
                    "{HEAD}clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.pem}}}}]\n\
                     users: [{{name: u, user: {{}}}}]\n"
                ),
                "ca.pem",
            ),
            (
                format!(
                    "{HEAD}clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}}}]\n\
                     users: [{{name: u, user: {{client-certificate: nothere.pem, client-key: nothere.pem}}}}]\n"
                ),
                "nothere.pem",
            ),
            (
                cluster("insecure-skip-tls-verify: true, certificate-authority: ca.pem"),
                "specifying a root certificates file with the insecure flag is not allowed",
            ),
            (
                cluster("insecure-skip-tls-verify: true, certificate-authority-data: Cg=="),
                "specifying a root certificates file with the insecure flag is not allowed",
            ),
            (cluster("proxy-url: 'http://proxy:3128'"), "proxy-url"),
        ];
        for (content, want) in table {
            let text = refusal(&content).await;
            assert!(
                text.contains("kubeconfig") && text.to_lowercase().contains(want),
                "{text}"
            );
        }
    }
}
