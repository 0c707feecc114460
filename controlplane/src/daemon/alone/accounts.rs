//! Clients of single controllers: each with the token of its own service account in kube-system.
//!
//! As upstream's `--use-service-account-credentials`: the account is made where it is not there, its token asked of the API server for an hour
//! and asked again before that is over, or when it is refused.

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

const NAMESPACE: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
/// How long a token is asked for.
const LIFE: Duration = Duration::from_secs(3600);
/// The share of its life after which a token is asked for anew, in percent.
const RENEW_PERCENT: u32 = 75;
const DEADLINE: Duration = Duration::from_secs(30);

/// Makes such clients.
#[derive(Clone)]
pub(super) struct Accounts {
    /// Who may make accounts and tokens.
    master: kube::Client,
    /// A connection without a credential.
    nobody: kube::Client,
}

/// A token, and when it is to be replaced.
struct Token {
    header: HeaderValue,
    renew_at: Instant,
}

type Held = Arc<Mutex<Option<Token>>>;

#[derive(Debug, thiserror::Error)]
enum AccountError {
    #[error("service account kube-system/{name}")]
    Asked { name: String, source: kube::Error },
    #[error("service account kube-system/{0}: no answer in time")]
    Late(String),
    #[error("service account kube-system/{0}: the API server gave no token")]
    NoToken(String),
}

impl Accounts {
    pub(super) fn new(master: kube::Client, nobody: kube::Client) -> Self {
        Self { master, nobody }
    }

    /// The client of the service account of that name.
    pub(super) fn client(&self, name: &str) -> kube::Client {
        let (accounts, name, held) = (self.clone(), name.to_owned(), Held::default());
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (accounts, name, held) = (accounts.clone(), name.clone(), held.clone());
            async move {
                let header = accounts.header(&name, &held).await;
                let header = header.map_err(|error| kube::Error::Service(Box::new(error)))?;
                request.headers_mut().insert(AUTHORIZATION, header.clone());
                let reply = accounts.nobody.send(request).await?;
                if reply.status() == StatusCode::UNAUTHORIZED {
                    // The account may be another one of this name by now; only the token that was refused is forgotten.
                    let mut held = held.lock().await;
                    if held.as_ref().is_some_and(|token| token.header == header) {
                        *held = None;
                    }
                }
                Ok::<_, kube::Error>(reply)
            }
        });
        kube::Client::new(service, "kube-system")
    }

    async fn header(&self, name: &str, held: &Held) -> Result<HeaderValue, AccountError> {
        let mut held = held.lock().await;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.header.clone());
        }
        let asked = timeout(DEADLINE, self.ask(name)).await;
        let token = asked.map_err(|_| AccountError::Late(name.to_owned()))??;
        let header = token.header.clone();
        *held = Some(token);
        Ok(header)
    }

    async fn ask(&self, name: &str) -> Result<Token, AccountError> {
        let failed = |source| AccountError::Asked {
            name: name.to_owned(),
            source,
        };
        if let Err(error) = self
            .send(Method::GET, &format!("{NAMESPACE}/{name}"), &Value::Null)
            .await
        {
            if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                return Err(failed(error));
            }
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": "kube-system"}});
            match self.send(Method::POST, NAMESPACE, &account).await {
                // Somebody else was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => drop(made.map_err(failed)?),
            }
        }
        let asked_at = Instant::now();
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": LIFE.as_secs()}});
        let reply = self
            .send(Method::POST, &format!("{NAMESPACE}/{name}/token"), &request)
            .await;
        let reply = reply.map_err(failed)?;
        let token = reply["status"]["token"].as_str().unwrap_or_default();
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header = header.map_err(|_| AccountError::NoToken(name.to_owned()))?;
        if token.is_empty() {
            return Err(AccountError::NoToken(name.to_owned()));
        }
        header.set_sensitive(true);
        Ok(Token {
            header,
            renew_at: asked_at + LIFE * RENEW_PERCENT / 100,
        })
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes);
        self.master.request(request.map_err(kube::Error::HttpError)?).await
    }
}
