//! The seven versions of the specification (contract §1.1). Membership is exact; there are no ranges.

use std::fmt;

/// A version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

/// Every version, oldest first.
pub const ALL: [Version; 7] = [
    Version::V0_1_0,
    Version::V0_2_0,
    Version::V0_3_0,
    Version::V0_3_1,
    Version::V0_4_0,
    Version::V1_0_0,
    Version::V1_1_0,
];

/// The version plugins announce as their own.
pub const CURRENT: Version = Version::V1_1_0;

impl Version {
    /// Reads `cniVersion`; empty means 0.1.0, anything unknown is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::V0_1_0);
        }
        ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The text used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_is_exact_and_empty_is_the_oldest() {
        assert_eq!(Version::parse(""), Some(Version::V0_1_0));
        for version in ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
        }
        for text in ["1.0", "v1.0.0", "0.5.0", "1.2.0", " 1.0.0"] {
            assert_eq!(Version::parse(text), None);
        }
        assert!(ALL.is_sorted());
    }
}
