//! Logins that plugins give: credential provider plugins (KEP-2133), with tokens of pods' service accounts (KEP-4412).
//!
//! Owns the plugins, what they answered (until it expires, and no more than [`cache`] holds) and their calls under way: what two
//! pods ask at once is asked once, and each plugin runs [`RUNS_MAX`] times at once at most. A plugin that fails gives no login,
//! which is told in the log: the pull then says what it lacks. Tokens and answers are never told.

mod answer;
mod cache;
pub mod config;
mod exec;
mod pattern;

use super::credentials::{Credential, Keyring, Origin};
use super::reference;
use crate::id::PodUid;
use crate::metrics::ProviderMetrics;
use crate::objects::{ObjectError, Objects, TokenRequestKey};
use answer::Answer;
use cache::{Cache, Good, Logins};
use client::Clock;
use config::{Config, Provider, TokenAttributes};
pub use exec::{ExecError, Program};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use proto::cri as pb;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How often one plugin runs at a time.
const RUNS_MAX: usize = 16;
/// How long a call waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(60);
/// What a token lives, seconds: what the API server gives who asks for no time.
const TOKEN_SECONDS: i64 = 3600;

/// Shorter secrets are words, too.
const SECRET_MIN: usize = 8;

/// Runs a plugin: what it is to read, and what it says.
pub type Run = Arc<dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, ExecError>> + Send + Sync>;

/// The plugins of a node, as configured.
#[derive(Clone, Default)]
pub struct Setup {
    plugins: Vec<(Provider, Run)>,
    hash: Option<String>,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.plugins.iter().map(|(provider, _)| &provider.name);
        f.debug_list().entries(names).finish()
    }
}

/// Why plugins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Their directory.
    #[error("{0}")]
    Directory(String),
    /// Their configuration.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// A binary.
    #[error("{0}")]
    Binary(String),
}

impl Setup {
    /// Reads the configuration (`--image-credential-provider-config`) and looks for the plugins it names
    /// (`--image-credential-provider-bin-dir`). `tokens` is the gate of service account tokens.
    ///
    /// # Errors
    /// Anything that upstream does not start with, either.
    pub fn read(config: &Path, directory: &Path, tokens: bool) -> Result<Self, SetupError> {
        if let Err(error) = std::fs::metadata(directory) {
            let path = directory.display();
            return Err(SetupError::Directory(match error.kind() {
                std::io::ErrorKind::NotFound => format!("plugin binary directory {path} did not exist"),
                _ => format!("error inspecting binary directory {path}: {error}"),
            }));
        }
        let Config { providers, hash } = config::read(config, tokens)?;
        let with_binary = |provider: Provider| {
            let program = program(directory, &provider)?;
            Ok((provider, runner(program)))
        };
        Ok(Self {
            plugins: providers
                .into_iter()
                .map(with_binary)
                .collect::<Result<_, SetupError>>()?,
            hash: Some(hash),
        })
    }

    /// Plugins that are run as a test says.
    #[cfg(test)]
    pub(crate) fn scripted(plugins: Vec<(Provider, Run)>) -> Self {
        Self {
            plugins,
            hash: Some("sha256:test".to_owned()),
        }
    }
}

fn program(directory: &Path, provider: &Provider) -> Result<Program, SetupError> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(&provider.name);
    let shown = path.display();
    let why = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(SetupError::Binary(format!(
                "plugin binary executable {shown} did not exist"
            )));
        }
        Err(error) => Some(error.to_string()),
        Ok(found) if found.is_dir() => Some("is a directory".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Some("permission denied".to_owned()),
        Ok(_) => None,
    };
    if let Some(why) = why {
        return Err(SetupError::Binary(format!(
            "error inspecting binary executable {shown}: {why}"
        )));
    }
    Ok(Program {
        path,
        args: provider.args.clone(),
        env: provider.env.clone(),
    })
}

fn runner(program: Program) -> Run {
    let program = Arc::new(program);
    Arc::new(move |request| {
        let program = program.clone();
        async move { exec::run(&program, &request).await }.boxed()
    })
}

/// The plugins of a node, ready to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Providers {
    plugins: Arc<Vec<Arc<Plugin>>>,
    objects: Arc<Objects>,
    clock: Arc<dyn Clock>,
}

/// What a call gives everybody who waits for it.
type Waiting = Shared<BoxFuture<'static, Option<Logins>>>;

struct Plugin {
    provider: Provider,
    run: Run,
    metrics: ProviderMetrics,
    turns: Semaphore,
    cache: Mutex<Cache>,
    under_way: Mutex<BTreeMap<String, Waiting>>,
}

/// A service account as a plugin is asked on its behalf.
#[derive(Clone, Default)]
struct Account {
    namespace: String,
    name: String,
    uid: String,
    annotations: BTreeMap<String, String>,
    token: String,
}

impl Account {
    /// Tells accounts apart without keeping them: all of it, and the token too if answers belong to one token.
    fn fingerprint(&self, with_token: bool) -> String {
        let token = if with_token { self.token.as_str() } else { "" };
        let own = [&self.namespace, &self.name, &self.uid].map(String::as_str);
        let annotations = self.annotations.iter().flat_map(|(key, value)| [key.as_str(), value]);
        let mut hasher = Sha256::new();
        for part in own.into_iter().chain([token]).chain(annotations) {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hex::encode(hasher.finalize())
    }
}

impl Providers {
    /// Plugins that ask the API server for pods' service accounts.
    pub fn new(setup: &Setup, objects: Arc<Objects>, clock: Arc<dyn Clock>, metrics: &ProviderMetrics) -> Self {
        if let Some(hash) = &setup.hash {
            metrics.configured(hash);
        }
        let plugins = setup.plugins.iter().map(|(provider, run)| {
            Arc::new(Plugin {
                provider: provider.clone(),
                run: run.clone(),
                metrics: metrics.clone(),
                turns: Semaphore::new(RUNS_MAX),
                cache: Mutex::default(),
                under_way: Mutex::default(),
            })
        });
        Self {
            plugins: Arc::new(plugins.collect()),
            objects,
            clock,
        }
    }

    /// The logins that fit an image, of all plugins that know it, in the order they are to be tried.
    pub async fn logins(&self, image: &str, pod: &Pod) -> Vec<Credential> {
        let repository = reference::repository(image);
        let asked = self.plugins.iter().filter(|plugin| plugin.knows(&repository));
        let answers = asked.map(|plugin| self.ask(plugin, &repository, pod));
        let answers = futures::future::join_all(answers).await;
        let mut keyring = Keyring::default();
        keyring.add_logins(answers.into_iter().flatten());
        keyring.matching(image)
    }

    /// Forgets answers that have expired.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for plugin in self.plugins.iter() {
            lock(&plugin.cache).sweep(now);
        }
    }

    /// What one plugin gives a pod for a repository.
    async fn ask(&self, plugin: &Arc<Plugin>, repository: &str, pod: &Pod) -> Vec<(String, Credential)> {
        let account = match &plugin.provider.token {
            None => None,
            Some(attributes) => match self.account(attributes, pod).await {
                Ok(Known::NotAsked) => return Vec::new(),
                Ok(Known::Without) => None,
                Ok(Known::Account(account)) => Some(account),
                Err(error) => {
                    let (plugin, name) = (&plugin.provider.name, pod.metadata.name.as_deref());
                    tracing::error!(plugin, pod = name, %error, "no service account token for a credential provider");
                    return Vec::new();
                }
            },
        };
        let origin = match &account {
            None => Origin::Node,
            Some(account) => Origin::ServiceAccount {
                uid: account.uid.clone(),
                namespace: account.namespace.clone(),
                name: account.name.clone(),
            },
        };
        let logins = plugin.logins(repository, account.as_ref(), &self.clock).await;
        let logins = logins.iter().flat_map(|logins| logins.iter());
        let credential = |login: &answer::Login| Credential {
            auth: pb::AuthConfig {
                username: login.username.clone(),
                password: login.password.clone(),
                ..pb::AuthConfig::default()
            },
            origin: origin.clone(),
        };
        logins.map(|(key, login)| (key.clone(), credential(login))).collect()
    }

    /// The pod's service account, as the plugin wants to know it.
    async fn account(&self, attributes: &TokenAttributes, pod: &Pod) -> Result<Known, ObjectError> {
        let given = |text: &Option<String>| text.clone().unwrap_or_default();
        let namespace = given(&pod.metadata.namespace);
        let name = pod.spec.as_ref().map(|spec| given(&spec.service_account_name));
        let name = name.unwrap_or_default();
        if name.is_empty() {
            return Ok(if attributes.required {
                Known::NotAsked
            } else {
                Known::Without
            });
        }
        let found = self.objects.service_account(&namespace, &name).await?;
        let all = found.metadata.annotations.unwrap_or_default();
        let mut annotations = BTreeMap::new();
        for key in &attributes.required_keys {
            let Some(value) = all.get(key) else {
                tracing::debug!(
                    namespace,
                    name,
                    key,
                    "required annotation not found: the credential provider is not asked"
                );
                return Ok(Known::NotAsked);
            };
            annotations.insert(key.clone(), value.clone());
        }
        for key in &attributes.optional_keys {
            annotations.extend(all.get(key).map(|value| (key.clone(), value.clone())));
        }
        let uid = given(&found.metadata.uid);
        let key = TokenRequestKey {
            pod_uid: PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default()),
            pod_name: given(&pod.metadata.name),
            namespace: namespace.clone(),
            service_account: name.clone(),
            service_account_uid: uid.clone(),
            audience: attributes.audience.clone(),
            expiration_seconds: TOKEN_SECONDS,
        };
        let token = self.objects.token(&key).await?.value;
        Ok(Known::Account(Account {
            namespace,
            name,
            uid,
            annotations,
            token,
        }))
    }
}

/// What is known of a pod's service account.
enum Known {
    /// The plugin is not asked for this pod.
    NotAsked,
    /// The pod has none.
    Without,
    /// This one.
    Account(Account),
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text on one line and without these secrets, whole or, as it may have been cut, begun at its end.
fn tellable(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= SECRET_MIN) {
        text = text.replace(secret.as_str(), "...");
        let cuts = (SECRET_MIN..secret.len()).rev();
        let begun = cuts.filter_map(|cut| secret.get(..cut));
        if let Some(rest) = begun.filter_map(|begun| text.strip_suffix(begun)).next() {
            text = format!("{rest}...");
        }
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Forgets a call when it ends, however it ends.
struct Ends(Arc<Plugin>, String);

impl Drop for Ends {
    fn drop(&mut self) {
        lock(&self.0.under_way).remove(&self.1);
    }
}

impl Plugin {
    fn knows(&self, repository: &str) -> bool {
        self.provider.images.iter().any(|pattern| pattern.fits(repository))
    }

    async fn logins(
        self: &Arc<Self>,
        repository: &str,
        account: Option<&Account>,
        clock: &Arc<dyn Clock>,
    ) -> Option<Logins> {
        let registry = repository.split('/').next().unwrap_or_default();
        let per_token = self.provider.token.as_ref().is_some_and(|token| token.for_one_token);
        let owner = account
            .map(|account| account.fingerprint(per_token))
            .unwrap_or_default();
        let (image, registry) = (Good::Image(repository.to_owned()), Good::Registry(registry.to_owned()));
        let now = clock.now();
        let kept = [image, registry, Good::Everything]
            .into_iter()
            .find_map(|good| lock(&self.cache).get(&(good, owner.clone()), now));
        if kept.is_some() {
            return kept;
        }
        self.call(repository, account, owner, clock).await
    }

    /// Keeps an answer as long as it is good.
    fn keep(&self, answer: Answer, repository: String, owner: String, now: Timestamp) -> Logins {
        let logins = Logins::new(answer.logins);
        let cache = answer.cache.unwrap_or(self.provider.cache);
        if !cache.is_zero() {
            let good = match answer.scope {
                answer::Scope::Image => Good::Image(repository),
                answer::Scope::Registry => Good::Registry(repository.split('/').next().unwrap_or_default().to_owned()),
                answer::Scope::Global => Good::Everything,
            };
            lock(&self.cache).put((good, owner), logins.clone(), now, cache);
        }
        logins
    }

    /// Asks the plugin, or waits for what somebody else asks of it just now. `owner` is whose the answer is.
    async fn call(
        self: &Arc<Self>,
        repository: &str,
        account: Option<&Account>,
        owner: String,
        clock: &Arc<dyn Clock>,
    ) -> Option<Logins> {
        let asker = account.map(|account| account.fingerprint(true)).unwrap_or_default();
        let key = format!("{asker} {repository}");
        let own_key = key.clone();
        let waiting = {
            let mut under_way = lock(&self.under_way);
            let begin = || {
                let (plugin, own_key) = (self.clone(), own_key);
                let (repository, account) = (repository.to_owned(), account.cloned().unwrap_or_default());
                let clock = clock.clone();
                // A task: who asked may have gone when the plugin answers. A runtime that ends drops it here, under this lock,
                // which its end takes: so that is made by its first turn.
                let answered = tokio::spawn(
                    async move {
                        let _ends = Ends(plugin.clone(), own_key);
                        let answer = plugin.run_once(&repository, &account).await?;
                        Some(plugin.keep(answer, repository, owner, clock.now()))
                    }
                    .boxed(),
                );
                answered.map(|ended| ended.ok().flatten()).boxed().shared()
            };
            under_way.entry(key).or_insert_with(begin).clone()
        };
        waiting.await
    }

    /// A plugin's complaint on one line, without the token it was given and the passwords it gave.
    fn tellable(&self, complaint: &str, account: &Account) -> String {
        let mut secrets = lock(&self.cache).passwords();
        secrets.push(account.token.clone());
        tellable(complaint, &secrets)
    }

    async fn run_once(&self, repository: &str, account: &Account) -> Option<Answer> {
        let (plugin, version) = (&self.provider.name, &self.provider.api_version);
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN_MAX, self.turns.acquire()).await else {
            tracing::error!(
                plugin,
                image = repository,
                "credential provider plugin is not run: too many of it hang"
            );
            return None;
        };
        let request = answer::request(version, repository, &account.token, &account.annotations);
        let begun = tokio::time::Instant::now();
        let said = (self.run)(request).await;
        self.metrics.ran(plugin, begun.elapsed(), said.is_ok());
        let said = match said {
            Ok(said) => said,
            Err(error) => {
                let image = repository;
                let error = self.tellable(&error.to_string(), account);
                tracing::error!(
                    plugin,
                    image,
                    "error execing credential provider plugin {plugin} for image {image}: {error}"
                );
                return None;
            }
        };
        let answer = answer::read(&said, version);
        let answer = answer.inspect_err(|error| {
            tracing::error!(plugin, image = repository, %error, "failed getting credential from external registry credential provider");
        });
        let answer = answer.ok()?;
        // Kept for the account it would outlive the token.
        let per_token = self.provider.token.as_ref().is_some_and(|token| token.for_one_token);
        let echoed = |login: &answer::Login| login.password == account.token;
        if !account.token.is_empty() && !per_token && answer.logins.values().any(echoed) {
            tracing::error!(
                plugin,
                image = repository,
                "credential provider plugin returned the service account token as the password, which is not allowed when \
                 service account cache type is not set to 'Token'"
            );
            return None;
        }
        Some(answer)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
