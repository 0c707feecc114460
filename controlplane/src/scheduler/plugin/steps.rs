//! The steps of a cycle plugin by plugin, for who takes their time. Of most cycles nobody is told: the clock takes longer than many a
//! plugin. Pure.

use super::{Plugin, Rejection};
use std::fmt;

/// A step of one plugin. They may stand within one another: who is asked whom to evict asks filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A plugin is asked from now on.
    Begin,
    /// The one that was asked last has answered: who, at which point, and upstream's name of what it said.
    End(Plugin, &'static str, &'static str),
}

/// Who is told of steps, if anybody.
#[derive(Clone, Copy, Default)]
pub struct Told<'t>(Option<&'t dyn Fn(Step)>);

impl fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "somebody" } else { "nobody" })
    }
}

impl<'t> Told<'t> {
    /// This one is told.
    pub fn to(somebody: &'t dyn Fn(Step)) -> Self {
        Self(Some(somebody))
    }

    /// Asks a plugin at a point.
    pub fn around<T>(
        self,
        (plugin, point): (Plugin, &'static str),
        ask: impl FnOnce() -> T,
        said: impl FnOnce(&T) -> &'static str,
    ) -> T {
        let Some(tell) = self.0 else { return ask() };
        tell(Step::Begin);
        let answer = ask();
        tell(Step::End(plugin, point, said(&answer)));
        answer
    }
}

/// Upstream's name of a filter's answer.
pub(super) fn of_filter(answer: &Result<(), Rejection>) -> &'static str {
    match answer {
        Ok(()) => "Success",
        Err(rejection) if rejection.resolvable => "Unschedulable",
        Err(_) => "UnschedulableAndUnresolvable",
    }
}
