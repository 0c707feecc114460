//! Kinds of treatment: what a front's traffic meets, without saying whose it is.

pub(super) const COUNT_BITS: u32 = 12;
const AFFINITY_BITS: u32 = 17;

/// How traffic to an address is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// An endpoint is picked from the pool.
    Pick = 0,
    /// The same, and the source is masqueraded.
    Mark = 1,
    /// External traffic of policy Local: pods and this node are served from the whole cluster, others from `local-services`.
    Short = 2,
    /// An endpoint on this node is picked from the pool.
    Local = 3,
    /// The same, of internal traffic.
    Inner = 4,
}

/// A kind of treatment: one chain each, whatever the number of Services of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// The treatment.
    pub route: Route,
    /// Number of endpoints to pick from.
    pub count: u32,
    /// Seconds of session affinity, or 0.
    pub affinity: u32,
}

impl Class {
    /// One number for the whole of it.
    pub fn number(self) -> u32 {
        let affinity = self.affinity.min((1 << AFFINITY_BITS) - 1);
        (self.route as u32) << (COUNT_BITS + AFFINITY_BITS) | affinity << COUNT_BITS | self.count
    }

    /// The same class with another treatment.
    pub fn with(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// The name of its chain.
    pub fn chain(self) -> String {
        let route = match self.route {
            Route::Pick => "pick",
            Route::Mark => "mark",
            Route::Short => "short",
            Route::Local => "local",
            Route::Inner => "inner",
        };
        match self.affinity {
            0 => format!("{route}-{}", self.count),
            seconds => format!("{route}-{}-for-{seconds}s", self.count),
        }
    }

    /// The classes its chain goes to.
    pub fn needs(self) -> &'static [Route] {
        match self.route {
            Route::Pick | Route::Local => &[],
            Route::Mark => &[Route::Pick],
            Route::Short => &[Route::Pick, Route::Mark],
            Route::Inner => &[Route::Local],
        }
    }
}
