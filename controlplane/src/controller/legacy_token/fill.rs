//! Token controller: fills Secrets that ask for a token, and deletes those whose account is gone.
//!
//! Runs as the whole program, as upstream's: its writes are those of no controller's role.

use super::{Sign, Subject, account_of, is_of, refers_to};
use crate::controller::PROGRAM;
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::well_known::account_token;
use crate::controller::write::{self, Plan, Write};
use client::Key;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);
/// When an account is asked for again that could not be.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of a token's account.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Account {
    /// It is there.
    There(Arc<ServiceAccount>),
    /// The API server says that there is none of that name and UID.
    Gone,
    /// It was not found out.
    Unknown,
}

/// Accounts of tokens that went, by the Secret's key: they may name it yet.
type Left = Arc<Mutex<BTreeMap<Key, String>>>;

/// The controller. Its keys are Secrets.
pub struct Tokens {
    informers: Informers,
    root_ca_pem: watch::Receiver<String>,
    sign: Sign,
    /// What the API server said of accounts that no informer has, until the next plan.
    asked: Mutex<BTreeMap<Key, Account>>,
    left: Left,
}

impl Tokens {
    /// A controller that signs with `sign`.
    pub fn new(informers: Informers, root_ca_pem: watch::Receiver<String>, sign: Sign) -> Self {
        Self {
            informers,
            root_ca_pem,
            sign,
            asked: Mutex::default(),
            left: Left::default(),
        }
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<Key, Account>> {
        self.asked.lock().expect("no holder of this lock panics")
    }

    /// The account of a token, if the informer has it.
    fn known(&self, secret: &Secret) -> Option<Arc<ServiceAccount>> {
        let (name, uid) = account_of(secret);
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let account = self.informers.service_accounts.get(namespace, name)?;
        is_of(&account, uid).then_some(account)
    }
}

/// Asks the API server itself: an informer may be behind that of the Secret.
async fn ask(client: &kube::Client, secret: &Secret) -> Account {
    let (name, uid) = account_of(secret);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
    match timeout(DEADLINE, accounts.get_opt(name)).await {
        Ok(Ok(Some(account))) if is_of(&account, uid) => Account::There(Arc::new(account)),
        Ok(Ok(_)) => Account::Gone,
        Ok(Err(_)) | Err(_) => Account::Unknown,
    }
}

/// The keys of tokens among the Secrets that are an account's of that name.
fn tokens_of(informers: &Informers, account: &Key) -> Vec<Key> {
    let all = informers.account_tokens.list_namespace(&account.namespace);
    let own = all.iter().filter(|secret| account_of(secret).0 == account.name);
    own.map(|secret| Key::of(&**secret)).collect()
}

impl Controller for Tokens {
    const NAME: &'static str = PROGRAM;

    fn wire(&self, wiring: &mut Wiring) {
        let left = Arc::clone(&self.left);
        wiring.on(&self.informers.account_tokens, move |change| {
            if let (Some(old), None) = (&change.old, &change.new) {
                let mut left = left.lock().expect("no holder of this lock panics");
                left.insert(change.key.clone(), account_of(old).0.to_owned());
            }
            vec![change.key.clone()]
        });
        let informers = self.informers.clone();
        wiring.on(&self.informers.service_accounts, move |change| {
            // Only who comes and goes: what else becomes of an account is nothing to its tokens.
            match (&change.old, &change.new) {
                (Some(old), Some(new)) if old.metadata.uid == new.metadata.uid => Vec::new(),
                _ => tokens_of(&informers, &change.key),
            }
        });
        let informers = self.informers.clone();
        wiring.on_value(self.root_ca_pem.clone(), move || {
            let all = informers.account_tokens.list();
            all.iter().map(|secret| Key::of(&**secret)).collect()
        });
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let secret = self.informers.account_tokens.get_key(key)?;
        if self.known(&secret).is_some() {
            return None;
        }
        let key = key.clone();
        Some(Box::pin(async move {
            let account = ask(client, &secret).await;
            self.asked().insert(key, account);
        }))
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let asked = self.asked().remove(key);
        let Some(secret) = self.informers.account_tokens.get_key(key) else {
            return self.forget(key);
        };
        self.left.lock().expect("no holder of this lock panics").remove(key);
        let account = match self.known(&secret) {
            Some(account) => Account::There(account),
            None => asked.unwrap_or(Account::Unknown),
        };
        let ca = self.root_ca_pem.borrow().clone();
        match plan(&secret, &account, &ca, &*self.sign) {
            Ok(write) => Plan {
                writes: write.into_iter().collect(),
                again_in: (account == Account::Unknown).then_some(RETRY),
                ..Plan::default()
            },
            Err(error) => {
                tracing::error!(%key, error, "no token can be made for this Secret");
                Plan::default()
            }
        }
    }
}

impl Tokens {
    /// The Secret is gone: its account names it no longer.
    fn forget(&self, key: &Key) -> Plan {
        let mut left = self.left.lock().expect("no holder of this lock panics");
        let account = left.get(key);
        let account = account.and_then(|name| self.informers.service_accounts.get(&key.namespace, name));
        match account.filter(|account| refers_to(account, &key.name)) {
            Some(account) => Plan::of(vec![without(&account, &key.name)]),
            None => {
                left.remove(key);
                Plan::default()
            }
        }
    }
}

/// The account without what it says of a Secret.
fn without(account: &ServiceAccount, secret: &str) -> Write {
    let mut account = account.clone();
    if let Some(references) = &mut account.secrets {
        references.retain(|reference| reference.name.as_deref() != Some(secret));
    }
    account.secrets = account.secrets.filter(|references| !references.is_empty());
    Write::replace(write::SERVICE_ACCOUNTS, &account)
}

/// What a token's Secret needs.
///
/// # Errors
/// Why no token can be signed.
pub(super) fn plan(
    secret: &Secret,
    account: &Account,
    ca_pem: &str,
    sign: &dyn Fn(&Subject) -> Result<String, String>,
) -> Result<Option<Write>, String> {
    let account = match account {
        Account::There(account) => account,
        Account::Gone => return Ok(Some(Write::delete(write::SECRETS, secret))),
        Account::Unknown => return Ok(None),
    };
    if secret.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    let has = |key: &str| {
        secret
            .data
            .iter()
            .flatten()
            .any(|(known, value)| known == key && !value.0.is_empty())
    };
    let own_ca = secret.data.as_ref().and_then(|data| data.get("ca.crt"));
    let needs_ca = !ca_pem.is_empty() && own_ca.is_none_or(|own| own.0 != ca_pem.as_bytes());
    if has("token") && has("namespace") && !needs_ca {
        return Ok(None);
    }
    let mut filled = secret.clone();
    let data = filled.data.get_or_insert_default();
    if needs_ca {
        data.insert("ca.crt".to_owned(), ByteString(ca_pem.as_bytes().to_vec()));
    }
    let namespace = secret.metadata.namespace.clone().unwrap_or_default();
    if !has("namespace") {
        data.insert("namespace".to_owned(), ByteString(namespace.clone().into_bytes()));
    }
    let uid = account.metadata.uid.clone().unwrap_or_default();
    if !has("token") {
        let token = sign(&Subject {
            namespace,
            account: account.name_any(),
            account_uid: uid.clone(),
            secret: secret.name_any(),
        })?;
        data.insert("token".to_owned(), ByteString(token.into_bytes()));
    }
    let annotations = filled.metadata.annotations.get_or_insert_default();
    annotations.insert(account_token::ACCOUNT_NAME.to_owned(), account.name_any());
    annotations.insert(account_token::ACCOUNT_UID.to_owned(), uid);
    Ok(Some(Write::replace(write::SECRETS, &filled)))
}

#[cfg(test)]
mod tests;
