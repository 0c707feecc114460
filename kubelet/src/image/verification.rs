//! Whether a pod may use an image that is already here (kubelet contract §6, `KubeletEnsureSecretPulledImages`). Pure.
//!
//! An image that was pulled with somebody's secret is nobody else's: who uses it must show a login it was pulled with, or
//! pull it again with a login of their own.

use super::credentials::{Credential, Origin};
use super::reference;
use client::ordered::Arrange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Secrets, and service accounts, remembered of one image name; more would only make records grow.
const SECRETS_MAX: usize = 100;

/// `imagePullCredentialsVerificationPolicy`: which images need no login once they are here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// All of them.
    NeverVerify,
    /// Those that no kubelet pulled.
    #[default]
    NeverVerifyPreloaded,
    /// Those named by these patterns: a name, or a path that ends in `/*`.
    NeverVerifyAllowlisted(Vec<String>),
    /// None.
    AlwaysVerify,
}

impl Policy {
    /// Whether an image needs a login.
    fn verifies(&self, image: &str, pulled_by_kubelet: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloaded => pulled_by_kubelet,
            Self::NeverVerifyAllowlisted(patterns) => {
                let name = reference::name(image);
                !patterns.iter().any(|pattern| match pattern.strip_suffix("/*") {
                    Some(path) => name.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')),
                    None => name == pattern,
                })
            }
            Self::AlwaysVerify => true,
        }
    }
}

/// A secret an image was pulled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PullSecret {
    /// Its namespace; the order of fields is the order of secrets.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The hash of the login.
    pub credential_hash: String,
}

/// A service account with whose token a plugin gave the login an image was pulled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct PullServiceAccount {
    /// Its namespace; the order of fields is the order of service accounts.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl PullServiceAccount {
    /// The service account of a login, if it comes from one.
    fn of(credential: &Credential) -> Option<Self> {
        match &credential.origin {
            Origin::Node | Origin::Secret { .. } => None,
            Origin::ServiceAccount { uid, namespace, name } => Some(Self {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
            }),
        }
    }
}

impl PullSecret {
    /// The secret of a login, if it comes from one.
    fn of(credential: &Credential) -> Option<Self> {
        match &credential.origin {
            Origin::Node | Origin::ServiceAccount { .. } => None,
            Origin::Secret { uid, namespace, name } => Some(Self {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                credential_hash: credential.hash(),
            }),
        }
    }

    fn is_at(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }

    fn has_login_of(&self, other: &Self) -> bool {
        !self.credential_hash.is_empty() && self.credential_hash == other.credential_hash
    }
}

/// What one image name was pulled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Access {
    /// Secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<PullSecret>,
    /// Service accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// No login, or the node's: every pod may use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
    /// What a newer kubelet adds, kept for it.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

impl Access {
    /// What a pull with this login, or without any, gives.
    pub fn of(used: Option<&Credential>) -> Self {
        let (secret, account) = (used.and_then(PullSecret::of), used.and_then(PullServiceAccount::of));
        Self {
            node_pods_accessible: secret.is_none() && account.is_none(),
            kubernetes_secrets: secret.into_iter().collect(),
            kubernetes_service_accounts: account.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds what another pull gave; tells whether that changed anything.
    pub fn merge(&mut self, other: &Self) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        if other.node_pods_accessible {
            *self = other.clone();
            return true;
        }
        let before = (
            self.kubernetes_secrets.clone(),
            self.kubernetes_service_accounts.clone(),
        );
        for secret in &other.kubernetes_secrets {
            self.kubernetes_secrets.retain(|known| !known.is_at(secret));
            if self.kubernetes_secrets.len() < SECRETS_MAX {
                self.kubernetes_secrets.push(secret.clone());
            }
        }
        self.kubernetes_secrets.arrange();
        let accounts = &mut self.kubernetes_service_accounts;
        for account in &other.kubernetes_service_accounts {
            if !accounts.contains(account) && accounts.len() < SECRETS_MAX {
                accounts.push(account.clone());
            }
        }
        accounts.arrange();
        before.0 != self.kubernetes_secrets || before.1 != self.kubernetes_service_accounts
    }
}

/// What is known of an image's coming here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// A kubelet pulled it, or began to.
    pub pulled_by_kubelet: bool,
    /// By registry and repository, with Docker's defaults.
    pub access: BTreeMap<String, Access>,
}

/// Whether an image that is here may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Usable,
    /// It may, and this secret is to be remembered for it.
    UsableBy(Access),
    /// It has to be pulled with a login of the pod's own.
    MustPull,
}

/// Judges.
pub fn judge(policy: &Policy, image: &str, known: &Known, credentials: &[Credential]) -> Verdict {
    if !policy.verifies(image, known.pulled_by_kubelet) {
        return Verdict::Usable;
    }
    let Some(access) = known.access.get(&reference::repository(image)) else {
        return Verdict::MustPull;
    };
    if access.node_pods_accessible {
        return Verdict::Usable;
    }
    let mut accounts = credentials.iter().filter_map(PullServiceAccount::of);
    if accounts.any(|shown| access.kubernetes_service_accounts.contains(&shown)) {
        return Verdict::Usable;
    }
    for shown in credentials.iter().filter_map(PullSecret::of) {
        for recorded in &access.kubernetes_secrets {
            match (recorded.is_at(&shown), recorded.has_login_of(&shown)) {
                (true, true) => return Verdict::Usable,
                // The same login in another secret, or the same secret with a new login.
                (false, true) | (true, false) => {
                    return Verdict::UsableBy(Access {
                        kubernetes_secrets: vec![shown],
                        ..Access::default()
                    });
                }
                (false, false) => {}
            }
        }
    }
    Verdict::MustPull
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::cri as pb;

    fn login(name: &str, password: &str) -> Credential {
        Credential {
            auth: pb::AuthConfig {
                username: "u".into(),
                password: password.into(),
                ..pb::AuthConfig::default()
            },
            origin: Origin::Secret {
                uid: format!("uid-{name}"),
                namespace: "ns".into(),
                name: name.into(),
            },
        }
    }

    fn known(image: &str, access: Access) -> Known {
        Known {
            pulled_by_kubelet: true,
            access: [(image.to_owned(), access)].into(),
        }
    }

    #[test]
    fn an_image_belongs_to_those_who_show_its_login() {
        let by_a = known("r.io/app", Access::of(Some(&login("a", "1"))));
        let judged = |known: &Known, shown: &[Credential]| judge(&Policy::default(), "r.io/app:1", known, shown);
        assert_eq!(judged(&by_a, &[]), Verdict::MustPull, "without a secret");
        assert_eq!(judged(&by_a, &[login("b", "2")]), Verdict::MustPull, "with another");
        assert_eq!(judged(&by_a, &[login("b", "2"), login("a", "1")]), Verdict::Usable);
        for shown in [login("copy", "1"), login("a", "rotated")] {
            let verdict = judged(&by_a, std::slice::from_ref(&shown));
            assert_eq!(verdict, Verdict::UsableBy(Access::of(Some(&shown))));
        }
        let node = Credential {
            origin: Origin::Node,
            ..login("a", "1")
        };
        assert_eq!(
            judged(&by_a, &[node]),
            Verdict::MustPull,
            "the node's login pulls it for all"
        );
        let other_name = known("r.io/other", Access::of(None));
        assert_eq!(
            judged(&other_name, &[]),
            Verdict::MustPull,
            "the same content by another name"
        );
        assert_eq!(judged(&known("r.io/app", Access::of(None)), &[]), Verdict::Usable);
        let begun = Known {
            pulled_by_kubelet: true,
            ..Known::default()
        };
        assert_eq!(
            judged(&begun, &[login("a", "1")]),
            Verdict::MustPull,
            "a pull nobody saw the end of"
        );
        assert_eq!(judged(&Known::default(), &[]), Verdict::Usable, "preloaded");
    }

    #[test]
    fn an_image_belongs_to_the_service_account_a_plugin_gave_its_login_for() {
        let account = |uid: &str| Credential {
            origin: Origin::ServiceAccount {
                uid: uid.into(),
                namespace: "ns".into(),
                name: "sa".into(),
            },
            ..login("-", "token")
        };
        let by_account = known("r.io/app", Access::of(Some(&account("1"))));
        let judged = |shown: &[Credential]| judge(&Policy::default(), "r.io/app:1", &by_account, shown);
        assert_eq!(judged(&[account("1")]), Verdict::Usable);
        assert_eq!(
            judged(&[account("2")]),
            Verdict::MustPull,
            "one of the same name, made anew"
        );
        assert_eq!(
            judged(&[login("-", "token")]),
            Verdict::MustPull,
            "a secret is no service account"
        );
        let mut access = Access::of(Some(&login("a", "1")));
        assert!(access.merge(&Access::of(Some(&account("1")))) && !access.merge(&Access::of(Some(&account("1")))));
        assert_eq!(
            (
                access.kubernetes_secrets.len(),
                access.kubernetes_service_accounts.len()
            ),
            (1, 1)
        );
        for number in 0..200 {
            access.merge(&Access::of(Some(&account(&number.to_string()))));
        }
        assert_eq!(access.kubernetes_service_accounts.len(), SECRETS_MAX);
    }

    #[test]
    fn policies() {
        let list = |patterns: &[&str]| {
            Policy::NeverVerifyAllowlisted(patterns.iter().map(|pattern| (*pattern).to_owned()).collect())
        };
        for (policy, pulled, preloaded) in [
            (Policy::NeverVerify, Verdict::Usable, Verdict::Usable),
            (Policy::NeverVerifyPreloaded, Verdict::MustPull, Verdict::Usable),
            (Policy::AlwaysVerify, Verdict::MustPull, Verdict::MustPull),
            (list(&["r.io/app"]), Verdict::Usable, Verdict::Usable),
            (list(&["r.io/*"]), Verdict::Usable, Verdict::Usable),
            (
                list(&["r.io/ap", "r/*", "r.io/app/*"]),
                Verdict::MustPull,
                Verdict::MustPull,
            ),
        ] {
            let by_a = known("r.io/app", Access::of(Some(&login("a", "1"))));
            assert_eq!(judge(&policy, "r.io/app:1", &by_a, &[]), pulled, "{policy:?}");
            assert_eq!(
                judge(&policy, "r.io/app:1", &Known::default(), &[]),
                preloaded,
                "{policy:?}"
            );
        }
    }

    #[test]
    fn access_grows_and_never_shrinks() {
        let (a, b) = (Access::of(Some(&login("a", "1"))), Access::of(Some(&login("b", "2"))));
        let mut access = b.clone();
        assert!(access.merge(&a) && !access.merge(&a));
        let names: Vec<_> = access.kubernetes_secrets.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(
            access.merge(&Access::of(Some(&login("a", "new")))),
            "a new login in the same secret"
        );
        assert_eq!(access.kubernetes_secrets.len(), 2);
        assert!(!access.merge(&Access::default()), "nothing adds nothing");
        assert!(access.merge(&Access::of(None)) && access.kubernetes_secrets.is_empty());
        assert!(!access.merge(&b), "what is everybody's stays so");
    }
}
