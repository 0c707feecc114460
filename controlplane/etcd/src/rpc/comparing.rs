//! Which members are believed: those whose data are the others' ([`agreement`]), looked at whenever a connection to one is new (it may have
//! been restored meanwhile), and now and then.
//!
//! Owns what becomes of a member that has other data: it is left out, and where something has been read from it, nothing goes on. Never
//! waits for those that do not answer.

use super::{At, Rpc};
use crate::agreement::{self, Finding, Heard, Said};
use crate::verdict::Verdict;
use proto::etcd::StatusRequest;
use proto::etcd::maintenance_client::MaintenanceClient;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often all are looked at whatever happens.
const EVERY: Duration = Duration::from_secs(10);
/// What a look finds is found a second time, so much later: a member that was started just now may not have heard yet what is agreed on.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause before those are asked once more that follow nobody yet, and how often all are.
const SETTLES: Duration = Duration::from_millis(200);
const TRIES: usize = 6;
/// How long is compared at most: whoever waits for an answer waits for that, too.
const COMPARES: Duration = Duration::from_secs(4);
/// How long is waited for what a member says of itself.
const SAYS: Duration = Duration::from_secs(1);
/// With every so manieth look the data themselves are compared: five minutes.
const HASHES_EVERY: u32 = 30;

/// Connections to a member, by their numbers from 1 on.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The last that was looked at: its member has the same data as the others, as far as can be seen.
    trusted: AtomicU64,
    /// The last of which an answer was taken.
    believed: AtomicU64,
    /// The member behind it whose data came to something else than the others' at one revision; 0 for none.
    pub(super) differs: AtomicU64,
}

/// Why nobody can be believed.
pub(super) enum Doubt {
    /// Some have other data than others, and too few answer.
    Lasting(String),
    /// It may be over in a moment.
    Passing(&'static str),
}

impl Rpc {
    /// Whether an answer of a member that has come just now is believed.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn trust(&self, member: usize) -> Result<(), (Verdict, String)> {
        let Some(one) = self.members.get(member).filter(|_| self.members.len() > 1) else {
            return Ok(());
        };
        let connection = one.connections.load(Ordering::SeqCst);
        if one.looked.trusted.load(Ordering::SeqCst) != connection {
            let _comparing = self.comparing.lock().await;
            // Somebody may have looked while this one waited.
            if one.looked.trusted.load(Ordering::SeqCst) != connection {
                // Who cannot be compared in time is taken for what it was: nothing speaks against it.
                let looked = tokio::time::timeout(COMPARES, self.look()).await.unwrap_or(Ok(()));
                looked.map_err(|doubt| match doubt {
                    Doubt::Lasting(why) => (Verdict::Unsure, why),
                    Doubt::Passing(why) => (Verdict::Unsure, why.to_owned()),
                })?;
                if one.connections.load(Ordering::SeqCst) != connection {
                    // Who was looked at need not be who answered: it may have come back with other data.
                    let why = "its connection was lost before it could be compared";
                    return Err((Verdict::Unsure, why.to_owned()));
                }
                if !self.health.is_out(member) {
                    // Nothing speaks against it, if only because it says nothing of itself.
                    one.looked.trusted.store(connection, Ordering::SeqCst);
                }
            }
        }
        if let Err(error) = self.over.check() {
            return Err((Verdict::Over, error.to_string()));
        }
        if self.health.is_out(member) {
            return Err((Verdict::Unsure, "it has other data than the other members".to_owned()));
        }
        one.looked.believed.store(connection, Ordering::SeqCst);
        Ok(())
    }

    /// Looks at all members now and then, until it is aborted.
    pub(crate) async fn compare(self: Arc<Self>) {
        let mut looks = 0_u32;
        while self.members.len() > 1 {
            tokio::time::sleep(EVERY).await;
            let comparing = self.comparing.lock().await;
            if let Err(Doubt::Lasting(why)) = self.look().await {
                // Whom it has asked so far may be either.
                self.over.end(&why);
            }
            drop(comparing);
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(HASHES_EVERY) {
                self.compare_hashes_and_tell(At::Work).await;
            }
        }
    }

    /// Leaves out who has other data than most, and takes back who has not any more.
    ///
    /// # Errors
    /// Nobody can say who is right.
    pub(super) async fn look(&self) -> Result<(), Doubt> {
        let mut before = None;
        for _ in 0..TRIES {
            let (finding, heard, connections) = self.find().await;
            let pause = match &finding {
                Finding::Same if heard.iter().flatten().count() * 2 > heard.len() => {
                    self.act(&[], &heard, &connections);
                    return Ok(());
                }
                // Of too few nothing can be said; they may only be late.
                Finding::Same | Finding::Unsettled => SETTLES,
                Finding::Others(others) if before.as_ref() == Some(&finding) => {
                    self.act(others, &heard, &connections);
                    return Ok(());
                }
                Finding::Unclear if before.as_ref() == Some(&finding) => {
                    let urls: Vec<&str> = self.members.iter().map(|member| member.url.as_str()).collect();
                    return Err(Doubt::Lasting(agreement::unclear(&urls, &heard)));
                }
                _ => AGAIN,
            };
            before = Some(finding);
            tokio::time::sleep(pause).await;
        }
        match before {
            // Some are away, or cut off from the others: nothing speaks against those that answer.
            Some(Finding::Same | Finding::Unsettled) => Ok(()),
            _ => Err(Doubt::Passing(
                "some members of etcd seem to have other data than others, and cannot be compared yet",
            )),
        }
    }

    fn act(&self, others: &[usize], heard: &[Heard], connections: &[u64]) {
        let numbers = (0..heard.len()).filter(|number| heard[*number].is_some());
        for number in numbers {
            if others.contains(&number) {
                let text = agreement::text(self.url(number), number, heard);
                self.leave_out(number, &text, At::Work);
                continue;
            }
            let differs = self.members[number].looked.differs.load(Ordering::SeqCst);
            if agreement::member(&heard[number]) == Some(differs) {
                // Its revision says nothing against it: what it has does.
                continue;
            }
            self.members[number]
                .looked
                .trusted
                .store(connections[number], Ordering::SeqCst);
            if self.health.leave_out(number, false) {
                tracing::info!(member = %self.url(number), "a member of etcd has the same data as the others again");
            }
        }
    }

    /// Nothing is read from a member any more; where something has been, and not only how far it is, nothing goes on.
    pub(super) fn leave_out(&self, member: usize, text: &str, at: At) {
        let is_new = self.health.leave_out(member, true);
        let one = &self.members[member];
        let connection = one.connections.load(Ordering::SeqCst);
        if at == At::Start {
            one.looked.believed.store(0, Ordering::SeqCst);
        }
        if one.looked.believed.load(Ordering::SeqCst) == connection {
            let why = format!("{text}. This control plane has read from it, and has to be started again");
            self.over.end(&why);
        } else if is_new {
            tracing::error!("{text}. It is not asked any more");
        }
    }

    /// What comes of what the members say; beside it, the connection over which each did so (0: over several).
    async fn find(&self) -> (Finding, Vec<Heard>, Vec<u64>) {
        let numbers = || -> Vec<u64> {
            let members = self.members.iter();
            members
                .map(|member| member.connections.load(Ordering::SeqCst))
                .collect()
        };
        let first = Mutex::new(None);
        let heard = agreement::heard(self.members.len(), |members| {
            // The second time, that is: the first may have made connections.
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            *first = match first.take() {
                None => Some((1, Vec::new())),
                Some((1, _)) => Some((2, numbers())),
                other => other,
            };
            self.say(members)
        });
        let heard = heard.await;
        let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
        let before = first.map(|(_, numbers)| numbers).unwrap_or_default();
        let last = numbers().into_iter().zip(before);
        let connections = last
            .map(|(last, before)| if last == before { last } else { 0 })
            .collect();
        (agreement::judge(&heard), heard, connections)
    }

    /// What each of some says of itself.
    pub(super) async fn say(&self, members: Vec<usize>) -> Vec<Option<Said>> {
        let says = members.into_iter().map(|member| async move {
            let mut client = MaintenanceClient::new(self.members[member].channel.clone());
            let said = tokio::time::timeout(SAYS, client.status(StatusRequest {})).await;
            said.ok()?.ok().map(|status| Said::from(status.into_inner()))
        });
        futures::future::join_all(says).await
    }
}
