//! ServiceAccount: an account named `default` in every namespace that is not going away.

use super::harness::{Controller, Wiring};
use super::informers::{Informers, is_open};
use super::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

/// The account's name.
pub const NAME: &str = "default";

/// The controller. Its keys are namespaces.
pub struct ServiceAccounts {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for ServiceAccounts {
    const NAME: &'static str = "service-account-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.namespaces);
        wiring.on(&self.informers.service_accounts, |change| {
            let wanted = change.key.name == NAME && change.new.is_none();
            wanted
                .then(|| Key::new("", change.key.namespace.clone()))
                .into_iter()
                .collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let open = self.informers.namespaces.get_key(key).is_some_and(|n| is_open(&n));
        if !open || self.informers.service_accounts.get(&key.name, NAME).is_some() {
            return Plan::default();
        }
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(NAME.into()),
                namespace: Some(key.name.clone()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        Plan {
            writes: vec![Write::create(write::SERVICE_ACCOUNTS, &account)],
            ..Plan::default()
        }
    }
}
