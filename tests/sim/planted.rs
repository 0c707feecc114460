//! Faults of ours, planted to see that a judge finds them. Those of the product's own decisions sit behind its `test-util` feature
//! (`controlplane::planted`, `kubelet::planted`); the others are made here, around it.

use async_trait::async_trait;
use controlplane::apiserver::Reader;
use controlplane::apiserver::gate::Gate;
use controlplane::apiserver::handler_chain::HandlerChain;
use controlplane::apiserver::request::RequestInfo;
use controlplane::apiserver::status::ApiError;
use controlplane::apiserver::user::User;
use controlplane::planted::{self, Fault};
use kubelet::planted::Fault as OfKubelet;

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
    /// A kubelet decides wrongly.
    Kubelet(OfKubelet),
}

/// Those of the control plane: the fault, its name, and what the judge that finds it says.
const OF_CONTROL_PLANE: [(Planted, &str, &str); 5] = [
    (Planted::FitLeftOut, "fit-left-out", "is overcommitted"),
    (Planted::AlwaysAuthorized, "always-authorized", "was allowed to"),
    (
        Planted::UnavailableIgnored,
        "unavailable-ignored",
        "fewer are available than",
    ),
    (
        Planted::NoLiveLookup,
        "no-live-lookup",
        "was collected though its owner",
    ),
    (Planted::AnswersFirst, "answers-first", "was acknowledged and is lost"),
];

/// Those of kubelets.
const OF_KUBELET: [(OfKubelet, &str, &str); 15] = [
    (
        OfKubelet::ObjectBeforeEnd,
        "object-before-end",
        "left the API while a container",
    ),
    (
        OfKubelet::SandboxNotStopped,
        "sandbox-not-stopped",
        "left the API while its sandbox",
    ),
    (OfKubelet::SandboxKept, "sandbox-kept", "a sandbox of unknown pod"),
    (OfKubelet::DirectoryKept, "directory-kept", "directory of pod"),
    (OfKubelet::StartedTwice, "started-twice", "runs 2 times"),
    (OfKubelet::SandboxDoubled, "sandbox-doubled", "has 2 ready sandboxes"),
    (OfKubelet::InitLeftOut, "init-left-out", "before init container"),
    (OfKubelet::RestartsForgotten, "restarts-forgotten", "fell from"),
    (OfKubelet::EndToldEarly, "end-told-early", "is Failed while a container"),
    (OfKubelet::EndTakenBack, "end-taken-back", "went from Succeeded to"),
    (OfKubelet::EndUntold, "end-untold", "is Running without a sandbox"),
    (
        OfKubelet::AddressLeftOut,
        "address-left-out",
        "is Ready without an address",
    ),
    (
        OfKubelet::KeptForGood,
        "kept-for-good",
        "was started though the pod has left the API",
    ),
    (
        OfKubelet::KeptInVain,
        "kept-in-vain",
        "was not started without an API server",
    ),
    (
        OfKubelet::EndForgotten,
        "end-forgotten",
        "was run again though it had ended for good",
    ),
];

impl Planted {
    fn table() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        let of_kubelet = OF_KUBELET.map(|(fault, name, told)| (Self::Kubelet(fault), name, told));
        OF_CONTROL_PLANE.into_iter().chain(of_kubelet)
    }

    pub fn all() -> impl Iterator<Item = Self> {
        Self::table().map(|(planted, ..)| planted)
    }

    fn row(self) -> (Self, &'static str, &'static str) {
        let mut rows = Self::table();
        rows.find(|(planted, ..)| *planted == self)
            .expect("every fault has a row")
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|planted| planted.name() == name)
    }

    /// What the judge that finds it says.
    pub fn told_as(self) -> &'static str {
        self.row().2
    }

    /// Makes the product commit it, on this thread.
    pub fn plant(self) {
        match self {
            Self::FitLeftOut => planted::plant(Fault::FitLeftOut),
            Self::UnavailableIgnored => planted::plant(Fault::UnavailableIgnored),
            Self::NoLiveLookup => planted::plant(Fault::NoLiveLookup),
            Self::Kubelet(fault) => kubelet::planted::plant(fault),
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
