//! Who is asking: the identity a request carries after authentication. Never decides what it may do.

use std::collections::BTreeMap;

/// An authenticated identity (control-plane contract §6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name, such as `system:node:n1` or `kubernetes-admin`.
    pub name: String,
    /// Stable identifier where the authenticator knows one.
    pub uid: Option<String>,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// Extra attributes by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An identity of the given name that belongs to `groups` and, as everyone authenticated, to `system:authenticated`.
    pub fn named(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut all: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        all.push("system:authenticated".to_owned());
        Self {
            name: name.into(),
            groups: all,
            ..Self::default()
        }
    }

    /// A service account's identity, as its token would give (contract §6).
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let own = format!("system:serviceaccounts:{namespace}");
        Self::named(
            format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &own],
        )
    }

    /// The program of the control plane that has this identity upstream, if it is one.
    pub fn program(&self) -> Option<&'static str> {
        match self.name.as_str() {
            "system:apiserver" => Some("kube-apiserver"),
            "system:kube-scheduler" => Some("kube-scheduler"),
            "system:kube-controller-manager" => Some("kube-controller-manager"),
            name if name.starts_with("system:serviceaccount:kube-system:") => Some("kube-controller-manager"),
            _ => None,
        }
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}
