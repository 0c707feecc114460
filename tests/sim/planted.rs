//! Faults of ours, planted to see that a judge finds them. Those of the product's own decisions sit behind its `test-util` feature
//! (`controlplane::planted`); the others are made here, around it.

use async_trait::async_trait;
use controlplane::apiserver::Reader;
use controlplane::apiserver::gate::Gate;
use controlplane::apiserver::handler_chain::HandlerChain;
use controlplane::apiserver::request::RequestInfo;
use controlplane::apiserver::status::ApiError;
use controlplane::apiserver::user::User;
use controlplane::planted::{self, Fault};

/// One planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The scheduler does not ask whether a pod fits.
    FitLeftOut,
    /// Every request is allowed.
    AlwaysAuthorized,
    /// A rollout may make every pod unavailable.
    UnavailableIgnored,
    /// The garbage collector takes an owner it does not know for gone.
    NoLiveLookup,
    /// The store answers before it commits.
    AnswersFirst,
}

impl Planted {
    pub const ALL: [Self; 5] = [
        Self::FitLeftOut,
        Self::AlwaysAuthorized,
        Self::UnavailableIgnored,
        Self::NoLiveLookup,
        Self::AnswersFirst,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::FitLeftOut => "fit-left-out",
            Self::AlwaysAuthorized => "always-authorized",
            Self::UnavailableIgnored => "unavailable-ignored",
            Self::NoLiveLookup => "no-live-lookup",
            Self::AnswersFirst => "answers-first",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|planted| planted.name() == name)
    }

    /// What the judge that finds it says.
    pub fn told_as(self) -> &'static str {
        match self {
            Self::FitLeftOut => "is overcommitted",
            Self::AlwaysAuthorized => "was allowed to",
            Self::UnavailableIgnored => "fewer are available than",
            Self::NoLiveLookup => "was collected though its owner",
            Self::AnswersFirst => "was acknowledged and is lost",
        }
    }

    /// Makes the product commit it, on this thread.
    pub fn plant(self) {
        match self {
            Self::FitLeftOut => planted::plant(Fault::FitLeftOut),
            Self::UnavailableIgnored => planted::plant(Fault::UnavailableIgnored),
            Self::NoLiveLookup => planted::plant(Fault::NoLiveLookup),
            Self::AlwaysAuthorized | Self::AnswersFirst => {}
        }
    }
}

/// The real chain, which allows everything.
pub struct Lax(pub HandlerChain);

#[async_trait]
impl Gate for Lax {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&self.0)
    }

    async fn authorize(&self, _user: &User, _info: &RequestInfo, _reader: &Reader) -> Result<(), ApiError> {
        Ok(())
    }
}
