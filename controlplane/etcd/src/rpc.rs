//! Requests to the cluster: the member that answers, deadlines, another member when one fails.
//!
//! Owns the channels, and looks whether all answers are of one history. Never repeats a request whose repetition could do harm: writes go
//! through `txn`, which knows what a lost answer may mean.

mod comparing;
mod hashing;

use crate::address::Address;
use crate::connect::{self, Connections};
use crate::history::History;
use crate::members::Members;
use crate::options::{Deadlines, OpenError, Options};
use crate::over::Over;
use crate::verdict::{self, Verdict};
use comparing::Looked;
pub(crate) use hashing::At;
use proto::etcd::kv_client::KvClient;
use proto::etcd::lease_client::LeaseClient;
use proto::etcd::maintenance_client::MaintenanceClient;
use proto::etcd::watch_client::WatchClient;
use proto::etcd::{
    CompactionRequest, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, TxnRequest, TxnResponse,
};
use std::sync::Arc;
use std::time::Duration;
use store::{Revision, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

/// Upstream's words for a request that nobody answered in time.
const TIMED_OUT: &str = "etcdserver: request timed out";
/// A key to ask the revision with: there is one key of the name at most, and it is small.
pub(crate) const COMPACT_KEY: &[u8] = b"compact_rev_key";

struct Member {
    url: String,
    channel: Channel,
    /// How often a connection to it was made.
    connections: Connections,
    looked: Looked,
}

/// See the module.
pub(crate) struct Rpc {
    members: Vec<Member>,
    health: Members,
    history: History,
    /// Held by who compares what the members have.
    comparing: Mutex<()>,
    pub(crate) over: Arc<Over>,
    pub(crate) deadlines: Deadlines,
}

/// What an attempt at one member came to.
pub(crate) struct Failed {
    pub(crate) verdict: Verdict,
    /// The reason, for people.
    pub(crate) text: String,
}

impl Rpc {
    /// Checks what is given; connects to nobody yet.
    pub(crate) fn new(options: &Options) -> Result<Self, OpenError> {
        let mut members = Vec::new();
        for url in &options.servers {
            let server = |why| OpenError::Server { url: url.clone(), why };
            let address = Address::parse(url).map_err(server)?;
            if address.is_tls() {
                // Said now, not at the first connection.
                connect::client_config(&options.tls).map_err(OpenError::Tls)?;
            }
            let connections = Connections::default();
            members.push(Member {
                url: url.clone(),
                channel: connect::channel(&address, &options.tls, &connections).map_err(server)?,
                connections,
                looked: Looked::default(),
            });
        }
        if members.is_empty() {
            return Err(OpenError::NoServer);
        }
        Ok(Self {
            health: Members::new(members.len()),
            members,
            history: History::new(),
            comparing: Mutex::default(),
            over: Arc::new(Over::new()),
            deadlines: options.deadlines,
        })
    }

    /// Waits until a member answers with a quorum behind it.
    pub(crate) async fn first_answer(&self, within: Duration) -> Result<(), OpenError> {
        let end = Instant::now() + within;
        let request = revision_request();
        let answer = self.read_until(end, |client| range_once(client, request.clone())).await;
        let answer = answer.map_err(|error| match error {
            StoreError::Refused(why) => OpenError::Refused(why),
            StoreError::Unusable(why) => OpenError::Unusable(why),
            error => OpenError::NoAnswer(error.to_string()),
        })?;
        let (answer, _) = answer;
        let began = self.answered(answer.header.as_ref(), 0);
        began.map(drop).map_err(|error| OpenError::NoAnswer(error.to_string()))
    }

    /// The newest revision that anybody has told of.
    pub(crate) fn newest(&self) -> Revision {
        self.history.newest()
    }

    /// Takes down what an answer says of itself; `asked` was the newest revision when it was asked for.
    fn answered(&self, header: Option<&ResponseHeader>, asked: Revision) -> Result<Revision, StoreError> {
        self.or_over(self.history.answered(header, asked))
    }

    /// Takes down which cluster tells something.
    pub(crate) fn told_by(&self, header: Option<&ResponseHeader>) -> Result<(), StoreError> {
        self.or_over(self.history.told_by(header))
    }

    /// What is of another history is of no use, and all that comes after it.
    fn or_over<T>(&self, told: Result<T, String>) -> Result<T, StoreError> {
        told.map_err(|why| {
            self.over.end(&why);
            // The first reason is the one that is told.
            self.over.check().err().unwrap_or(StoreError::Unusable(why))
        })
    }

    /// A linearizable range.
    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        let end = Instant::now() + self.deadlines.request;
        let answer = self.read_until(end, |client| range_once(client, request.clone()));
        let (answer, asked) = answer.await?;
        self.answered(answer.header.as_ref(), asked)?;
        Ok(answer)
    }

    /// The newest revision (linearizable).
    pub(crate) async fn revision(&self) -> Result<Revision, StoreError> {
        let answer = self.range(revision_request()).await?;
        Ok(answer.header.map_or(0, |header| header.revision) as Revision)
    }

    /// Forgets history up to a revision; one that is forgotten already is none the worse.
    pub(crate) async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let end = Instant::now() + self.deadlines.request;
        let revision = revision as i64;
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        let answer = self.read_until(end, |mut client| async move {
            client.compact(request).await.map(tonic::Response::into_inner)
        });
        match answer.await {
            Ok(_) | Err(StoreError::Compacted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// One attempt at a transaction, at the member whose turn it is.
    pub(crate) async fn txn_once(&self, request: TxnRequest, end: Instant) -> Result<TxnResponse, Failed> {
        let once = |channel| async move { kv(channel).txn(request).await };
        let (answer, asked) = self.attempt(end, once).await?;
        let answer = answer.into_inner();
        match self.answered(answer.header.as_ref(), asked) {
            Ok(_) => Ok(answer),
            // It may have been done, to what is there now.
            Err(error) => Err(Failed {
                verdict: Verdict::Over,
                text: error.to_string(),
            }),
        }
    }

    /// A transaction that may be done twice, repeated until somebody has answered.
    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        let end = Instant::now() + self.deadlines.request;
        loop {
            let failed = match self.txn_once(request.clone(), end).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            match failed.verdict {
                Verdict::Refused | Verdict::Compacted | Verdict::NoLease => {
                    return Err(StoreError::Refused(failed.text));
                }
                Verdict::Over => return Err(StoreError::Unusable(failed.text)),
                Verdict::NotDone | Verdict::Unsure if self.is_over(end) => return Err(unavailable(&failed.text)),
                Verdict::NotDone | Verdict::Unsure => {}
            }
        }
    }

    /// A request about leases that may be done twice.
    pub(crate) async fn lease<T, F>(&self, once: impl Fn(LeaseClient<Channel>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let end = Instant::now() + self.deadlines.request;
        let (answer, _) = self.repeated(end, |channel| once(LeaseClient::new(channel))).await?;
        Ok(answer)
    }

    /// How large a member's database is, in bytes: of the one whose turn it is.
    pub(crate) async fn size(&self) -> Result<u64, StoreError> {
        let end = Instant::now() + self.deadlines.request;
        let once = |channel| async move { MaintenanceClient::new(channel).status(StatusRequest {}).await };
        let (status, _) = self.repeated(end, once).await?;
        let status = status.into_inner();
        Ok(u64::try_from(status.db_size).unwrap_or_default())
    }

    /// A client for watches at the member whose turn it is, and that member's number.
    pub(crate) fn watch_client(&self) -> (usize, WatchClient<Channel>) {
        let (member, _) = self.health.choose(Instant::now());
        let client = WatchClient::new(self.members[member].channel.clone());
        (member, client.max_decoding_message_size(usize::MAX))
    }

    /// A member's watch broke, or tells nothing.
    pub(crate) fn failed(&self, member: usize) {
        self.health.failed(member, Instant::now());
    }

    /// Whether a member is slow, and another is asked for that.
    pub(crate) fn is_left(&self, member: usize) -> bool {
        self.health.is_left(member)
    }

    /// What a member is called in messages.
    pub(crate) fn url(&self, member: usize) -> &str {
        &self.members[member].url
    }

    /// Asks until somebody answers, or the end: for requests that may be done twice. Tells also what [`Rpc::attempt`] does.
    async fn read_until<T, F>(
        &self,
        end: Instant,
        once: impl Fn(KvClient<Channel>) -> F,
    ) -> Result<(T, Revision), StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.repeated(end, |channel| once(kv(channel))).await
    }

    async fn repeated<T, F>(&self, end: Instant, once: impl Fn(Channel) -> F) -> Result<(T, Revision), StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        loop {
            let failed = match self.attempt(end, &once).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            match failed.verdict {
                Verdict::Refused | Verdict::NoLease => return Err(StoreError::Refused(failed.text)),
                Verdict::Over => return Err(StoreError::Unusable(failed.text)),
                Verdict::Compacted => return Err(StoreError::Compacted { wanted: 0, oldest: 0 }),
                Verdict::NotDone | Verdict::Unsure if self.is_over(end) => return Err(unavailable(&failed.text)),
                Verdict::NotDone | Verdict::Unsure => {}
            }
        }
    }

    /// Whether nobody can be asked before the end any more.
    pub(crate) fn is_over(&self, end: Instant) -> bool {
        self.health.choose(Instant::now()).1 >= end
    }

    /// One attempt, begun when a member may be asked, and not after the end. Beside the answer stands the newest revision that had been told
    /// of when it was begun: that is later than when it was wanted.
    async fn attempt<T, F>(&self, end: Instant, once: impl FnOnce(Channel) -> F) -> Result<(T, Revision), Failed>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let (member, free) = self.health.choose(Instant::now());
        tokio::time::sleep_until(free.min(end)).await;
        let Member { url, channel, .. } = &self.members[member];
        let (began, asked) = (Instant::now(), self.newest());
        let deadline = end.min(began + self.deadlines.attempt);
        let (verdict, text) = match tokio::time::timeout_at(deadline, once(channel.clone())).await {
            Ok(Ok(answer)) => {
                let took = began.elapsed();
                match self.trust(member).await {
                    Ok(()) => {
                        self.health.answered(member, took);
                        return Ok((answer, asked));
                    }
                    Err(why) => why,
                }
            }
            Ok(Err(status)) => (verdict::of(&status), verdict::text(&status)),
            Err(_) => (Verdict::Unsure, "no answer in time".to_owned()),
        };
        match verdict {
            Verdict::Refused | Verdict::Compacted | Verdict::NoLease => {
                self.health.answered(member, began.elapsed());
                Err(Failed { verdict, text })
            }
            Verdict::NotDone | Verdict::Unsure | Verdict::Over => {
                self.health.failed(member, Instant::now());
                tracing::debug!(member = %url, reason = %text, "a member of etcd cannot serve a request");
                let text = format!("{url}: {text}");
                Err(Failed { verdict, text })
            }
        }
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(usize::MAX)
}

/// What to tell when nobody has answered in time, and why the last one has not.
pub(crate) fn unavailable(last: &str) -> StoreError {
    StoreError::Unavailable(format!("{TIMED_OUT} ({last})"))
}

fn revision_request() -> RangeRequest {
    RangeRequest {
        key: COMPACT_KEY.to_vec(),
        count_only: true,
        ..RangeRequest::default()
    }
}

async fn range_once(mut client: KvClient<Channel>, request: RangeRequest) -> Result<RangeResponse, Status> {
    client.range(request).await.map(tonic::Response::into_inner)
}

#[cfg(test)]
mod tests;
