//! Identities that travel between modules: pod UIDs, sandbox and container ids, pod full names.
//!
//! Owns cheap-to-clone newtypes. Never interprets what it names.

use std::fmt;
use std::sync::Arc;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the given text.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

identity!(
    /// The UID of a pod: the identity its worker, directories and cgroup are keyed by.
    PodUid
);
impl PodUid {
    /// The UID a file or cgroup is named after; `None` if the name can be no UID. Everything found on the node comes this way.
    pub fn from_file_name(name: &str) -> Option<Self> {
        Some(Self::from(name)).filter(Self::names_a_directory)
    }

    /// Whether it names one directory inside another: an empty one, or one with a path in it, would name the pods' own.
    pub fn names_a_directory(&self) -> bool {
        !matches!(self.as_str(), "" | "." | "..") && !self.as_str().contains(['/', '\0'])
    }
}

identity!(
    /// The runtime's id of a pod sandbox.
    SandboxId
);
identity!(
    /// The runtime's id of a container.
    ContainerId
);

/// A pod's namespace and name, which two pods of different UID may share one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullName {
    /// The namespace.
    pub namespace: String,
    /// The name inside it.
    pub name: String,
}

impl fmt::Display for FullName {
    /// Upstream's pod full name, `<name>_<namespace>` (kubelet contract §2).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.name, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_of_a_directory_is_no_uid() {
        for name in ["", ".", "..", "a/b", "/", "../x", "a\0"] {
            assert_eq!(PodUid::from_file_name(name), None, "{name:?}");
        }
        for name in ["5c5f1f4e-0000-4000-8000-000000000000", "0123456789abcdef", "a.b", "..."] {
            assert_eq!(PodUid::from_file_name(name), Some(PodUid::from(name)));
        }
    }

    #[test]
    fn full_names_print_as_upstream_writes_them() {
        let name = FullName {
            namespace: "default".into(),
            name: "web".into(),
        };
        assert_eq!(name.to_string(), "web_default");
    }
}
