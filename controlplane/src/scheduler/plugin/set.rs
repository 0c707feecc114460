//! Some of the plugins, as a number. Pure.

use super::Plugin;

/// Some plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginSet(u32);

impl PluginSet {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// With one more.
    #[must_use]
    pub fn with(self, plugin: Plugin) -> Self {
        Self(self.0 | 1 << plugin as u32)
    }

    /// Whether it is one of them.
    pub fn has(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u32) != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether both have one.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Each.
    pub fn each(self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL.into_iter().filter(move |plugin| self.has(*plugin))
    }
}
