//! The API server under load, without a node: requests a second, what one costs, how late watchers hear of writes, and memory.
//!
//! Works in a namespace of its own with config maps of a kilobyte. Times of watch events are taken within this process: each
//! write carries the moment it was sent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use futures::{AsyncBufReadExt, FutureExt};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use crate::figures::percentile;
use crate::processes::{Group, cpu, cpu_since};
use crate::{connect, custom, flood, idle, nodes, stored};

pub(crate) const NAMESPACE: &str = "podtool-api";
/// Requests under way at once.
pub(crate) const WORKERS: usize = 32;
/// Objects of one list.
const PAGE: usize = 500;
/// How long the last events may take to arrive, and a request to be answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Readers that do not read.
const STALLED: usize = 200;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    /// Creates, gets, patches and lists.
    Requests,
    /// 1,000 watchers at 50 writes a second, 50 at 1,000.
    Watches,
    /// 5,000 watchers, each of one node's pods, while pods are written.
    Nodes,
    /// 200 readers that do not read.
    Stalled,
    /// One user's flood, as another sees it.
    Flood,
    /// 10,000 custom objects beside 10,000 ConfigMaps: written, listed and watched.
    Custom,
    /// 1,000 definitions of custom resources; of those that are there already, what the server has. Only when it is named: nobody's
    /// other figures are to be taken beside them.
    Definitions,
    /// The server's memory beside the size of the objects that are there. Only when it is named.
    Stored,
}

/// Those that are not named do these.
const STAGES: [Stage; 6] = [
    Stage::Requests,
    Stage::Watches,
    Stage::Nodes,
    Stage::Stalled,
    Stage::Flood,
    Stage::Custom,
];

/// What is measured.
pub(crate) struct Plan {
    /// Empty for those of every run.
    pub(crate) stages: Vec<Stage>,
    /// Administrators' kubeconfigs of other API servers of the cluster, over which watches and their writes are spread.
    pub(crate) peers: Vec<PathBuf>,
    /// Objects that are written, read and listed.
    pub(crate) objects: usize,
    /// Whether they have nothing in common: of what objects have in common the server keeps little.
    pub(crate) are_unlike: bool,
    /// How long watches are measured, and a flood.
    pub(crate) time: Duration,
    /// The server's anonymous memory before there were any objects, in kB.
    pub(crate) empty_kb: u64,
}

/// Measures and prints; `server` is the API server's process.
///
/// # Errors
/// If the API server cannot be reached, or refuses a request of the measured kinds.
pub(crate) async fn measure(kubeconfig: &Path, server: Group, plan: Plan) -> anyhow::Result<()> {
    let client = connect::client(kubeconfig).await?;
    let mut clients = vec![client.clone()];
    for peer in &plan.peers {
        clients.push(connect::client(peer).await?);
    }
    let load = Load {
        client,
        clients,
        groups: [server, Group::own()],
        objects: plan.objects,
        are_unlike: plan.are_unlike,
        time: plan.time,
    };
    load.memory("before")?;
    let stages = match plan.stages.is_empty() {
        true => STAGES.to_vec(),
        false => plan.stages,
    };
    for stage in stages {
        match stage {
            Stage::Requests => load.each_request().await?,
            Stage::Watches => load.watches().await?,
            Stage::Nodes => nodes::measure(&load).await?,
            Stage::Stalled => load.stalled().await?,
            Stage::Flood => {
                flood::measure(kubeconfig, plan.time).await?;
                load.memory("after the flood")?;
            }
            Stage::Custom => custom::beside_built_in(&load).await?,
            Stage::Definitions => custom::definitions(&load).await?,
            Stage::Stored => stored::measure(&load, plan.empty_kb).await?,
        }
    }
    Ok(())
}

pub(crate) struct Load {
    pub(crate) client: Client,
    /// One for each API server, the first's among them.
    clients: Vec<Client>,
    /// The API server, and this program.
    pub(crate) groups: [Group; 2],
    pub(crate) objects: usize,
    are_unlike: bool,
    pub(crate) time: Duration,
}

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

fn object(number: usize, is_unlike: bool) -> Value {
    let data = if is_unlike { noise(number) } else { "x".repeat(1_000) };
    json!({"metadata": {"name": format!("m{number}")}, "data": {"k": data}})
}

/// A kilobyte that has nothing in common with another number's.
fn noise(number: usize) -> String {
    let mut state = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    });
    words.take(63).collect::<String>().split_off(8)
}

impl Load {
    /// The namespace, and in it the objects that are not there yet.
    async fn fill(&self) -> anyhow::Result<()> {
        self.namespace().await?;
        if self.get(self.objects - 1).await.is_ok() {
            return Ok(());
        }
        let creates = stream::iter(0..self.objects).map(|number| self.create(number));
        let creates = creates.buffer_unordered(WORKERS);
        creates.try_for_each(|_| std::future::ready(Ok(()))).await
    }

    pub(crate) async fn namespace(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        if self.send(Request::get(path), Vec::new()).await.is_err() {
            self.post("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}))
                .await?;
        }
        Ok(())
    }

    async fn each_request(&self) -> anyhow::Result<()> {
        let objects = self.objects;
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}))
            .await?;
        println!("{:<28} {:>9} {:>12} {:>12}", "", "per s", "server ms", "client ms");
        self.requests("create", objects, |load, number| load.create(number).boxed())
            .await?;
        self.requests("get", 2 * objects, |load, number| {
            load.get(number * 7 % load.objects).boxed()
        })
        .await?;
        self.requests("patch", objects / 2, |load, number| load.patch(number, "").boxed())
            .await?;
        self.requests("list of 500", objects.div_ceil(20), |load, _| load.list().boxed())
            .await?;
        self.memory(&format!("{objects} objects of 1 kB"))
    }

    async fn watches(&self) -> anyhow::Result<()> {
        self.fill().await?;
        println!(
            "{:<28} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "events/s", "p50 ms", "p99 ms", "max ms", "server %"
        );
        self.watched(1_000, 50).await?;
        self.watched(50, 1_000).await?;
        self.memory("after the watches")
    }

    pub(crate) async fn send(&self, request: http::request::Builder, body: Vec<u8>) -> anyhow::Result<usize> {
        send_by(&self.client, request, body).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> anyhow::Result<usize> {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request, serde_json::to_vec(object)?).await
    }

    async fn create(&self, number: usize) -> anyhow::Result<usize> {
        self.post(&collection(), &object(number, self.are_unlike)).await
    }

    async fn get(&self, number: usize) -> anyhow::Result<usize> {
        self.send(Request::get(format!("{}/m{number}", collection())), Vec::new())
            .await
    }

    async fn patch(&self, number: usize, value: &str) -> anyhow::Result<usize> {
        self.patch_by(&self.client, number, value).await
    }

    async fn patch_by(&self, client: &Client, number: usize, value: &str) -> anyhow::Result<usize> {
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{}/m{number}", collection()))
            .header("content-type", "application/merge-patch+json");
        let value = if value.is_empty() {
            number.to_string()
        } else {
            value.to_owned()
        };
        send_by(client, request, serde_json::to_vec(&json!({"data": {"v": value}}))?).await
    }

    async fn list(&self) -> anyhow::Result<usize> {
        self.send(Request::get(format!("{}?limit={PAGE}", collection())), Vec::new())
            .await
    }

    /// `count` requests, [`WORKERS`] at a time.
    async fn requests<'a>(
        &'a self,
        name: &str,
        count: usize,
        one: impl Fn(&'a Self, usize) -> futures::future::BoxFuture<'a, anyhow::Result<usize>>,
    ) -> anyhow::Result<()> {
        let before = cpu(&self.groups)?;
        let begin = Instant::now();
        let answers = stream::iter(0..count).map(|number| one(self, number));
        answers
            .buffer_unordered(WORKERS)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await
            .with_context(|| name.to_owned())?;
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        let used = cpu_since(&self.groups, &before)?;
        let each = |used: &Duration| used.as_secs_f64() * 1000.0 / count as f64;
        let costs: Vec<String> = used.iter().map(|used| format!("{:>12.3}", each(used))).collect();
        println!("{name:<28} {rate:>9.0} {}", costs.join(" "));
        Ok(())
    }

    /// `watchers` of the collection while `rate` writes a second are made.
    async fn watched(&self, watchers: usize, rate: usize) -> anyhow::Result<()> {
        let begin = Instant::now();
        let arrived = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        // The newest revision, so that nobody is sent the whole state first.
        let list = self
            .client
            .request::<Value>(Request::get(format!("{}?limit=1", collection())).body(Vec::new())?);
        let revision = list.await?["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0")
            .to_owned();
        let mark = format!("{watchers}at{rate}-");
        // Its own in each measurement: a patch that changes nothing is no event.
        let end = format!("{mark}end");
        for watcher in 0..watchers {
            let client = &self.clients[watcher % self.clients.len()];
            let path = format!("{}?watch=1&resourceVersion={revision}&timeoutSeconds=600", collection());
            let lines = client.request_stream(Request::get(path).body(Vec::new())?).await?;
            let (arrived, mark, end) = (Arc::clone(&arrived), mark.clone(), end.clone());
            tasks.spawn(async move {
                let mut times = Vec::new();
                let mut lines = std::pin::pin!(lines.lines());
                while let Some(Ok(line)) = lines.next().await {
                    if let Some(sent) = sent_at(&line, &mark) {
                        times.push(begin.elapsed().saturating_sub(sent));
                        arrived.fetch_add(1, Ordering::Relaxed);
                    }
                    if line.contains(&end) {
                        break;
                    }
                }
                times
            });
        }
        let before = cpu(&self.groups)?;
        let start = Instant::now();
        let writes = rate * self.time.as_secs() as usize;
        self.write_steadily(begin, &mark, writes, rate).await?;
        let expected = writes * watchers;
        let deadline = Instant::now() + PATIENCE;
        while arrived.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = start.elapsed();
        let used = cpu_since(&self.groups, &before)?;
        self.patch(0, &end).await?;
        let mut times = Vec::new();
        while let Some(one) = tasks.join_next().await {
            times.extend(one?);
        }
        anyhow::ensure!(times.len() == expected, "{} of {expected} events arrived", times.len());
        println!(
            "{:<28} {:>9.0} {:>9.1} {:>9.1} {:>9.1} {:>9.0}",
            format!("{watchers} watchers, {rate} writes/s"),
            expected as f64 / took.as_secs_f64(),
            percentile(&times, 50.0).as_secs_f64() * 1000.0,
            percentile(&times, 99.0).as_secs_f64() * 1000.0,
            times.iter().max().map_or(0.0, Duration::as_secs_f64) * 1000.0,
            used[0].as_secs_f64() / took.as_secs_f64() * 100.0,
        );
        Ok(())
    }

    /// Writes at an even pace, each carrying when it was sent; waits for the answers at the end.
    async fn write_steadily(&self, begin: Instant, mark: &str, writes: usize, rate: usize) -> anyhow::Result<()> {
        let start = tokio::time::Instant::now();
        let mut under_way = FuturesUnordered::new();
        for number in 0..writes {
            let due = start + Duration::from_secs_f64(number as f64 / rate as f64);
            loop {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(due) => break,
                    Some(answer) = under_way.next(), if !under_way.is_empty() => { let _: usize = answer?; }
                }
            }
            under_way.push(async move {
                let value = format!("{mark}{}", begin.elapsed().as_micros());
                let client = &self.clients[number % self.clients.len()];
                self.patch_by(client, number % (self.objects - 1).min(1_000) + 1, &value)
                    .await
            });
        }
        while let Some(answer) = under_way.next().await {
            answer?;
        }
        Ok(())
    }

    /// Readers that ask for everything and read nothing.
    async fn stalled(&self) -> anyhow::Result<()> {
        self.fill().await?;
        self.memory("before they come")?;
        let requests = (0..STALLED).map(|_| {
            let client = self.client.clone();
            tokio::spawn(async move {
                let request = Request::get(collection()).body(Vec::new().into())?;
                anyhow::Ok(client.send(request).await?)
            })
        });
        let mut requests: Vec<_> = requests.collect();
        tokio::time::sleep(Duration::from_secs(10)).await;
        self.memory("200 stalled readers, 10 s")?;
        let begin = Instant::now();
        self.get(1).await?;
        println!(
            "{:<28} {:>9.1} ms",
            "a get beside them",
            begin.elapsed().as_secs_f64() * 1000.0
        );
        // The others are refused for want of room, which the client's library answers by asking again and again.
        let mut replies = Vec::new();
        for one in requests.iter_mut().filter(|one| one.is_finished()) {
            replies.push(one.await?);
        }
        let served = replies
            .iter()
            .filter(|answer| answer.as_ref().is_ok_and(|reply| reply.status() == 200));
        println!("{:<28} {:>9}", "of them answered 200", served.count());
        tokio::time::sleep(Duration::from_secs(40)).await;
        self.memory("and 40 s later")?;
        requests.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    }

    pub(crate) fn memory(&self, when: &str) -> anyhow::Result<()> {
        let [proportional, anonymous] = idle::memory(&self.groups[0])?;
        println!("{when:<28} {proportional:>9.1} MB Pss, {anonymous:.1} anonymous");
        Ok(())
    }
}

async fn send_by(client: &Client, request: http::request::Builder, body: Vec<u8>) -> anyhow::Result<usize> {
    let text = tokio::time::timeout(PATIENCE, client.request_text(request.body(body)?)).await??;
    Ok(text.len())
}

/// When the write behind an event was sent, if it is one of this measurement's.
fn sent_at(line: &str, mark: &str) -> Option<Duration> {
    let (_, rest) = line.split_once(mark)?;
    let digits = rest.split_once('"')?.0;
    digits.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_are_unlike_have_nothing_in_common() {
        let all: Vec<String> = (0..100).map(noise).collect();
        assert!(all.iter().all(|text| text.len() == 1_000));
        let mut parts: Vec<&[u8]> = all.iter().flat_map(|text| text.as_bytes().windows(16)).collect();
        let count = parts.len();
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), count);
    }

    #[test]
    fn events_tell_when_they_were_sent() {
        let line = r#"{"type":"MODIFIED","object":{"data":{"v":"50at1000-1234567"}}}"#;
        assert_eq!(sent_at(line, "50at1000-"), Some(Duration::from_micros(1_234_567)));
        assert_eq!(sent_at(line, "1000at50-"), None);
    }
}
