//! Pulls of the scripted runtime.

use super::*;
use crate::runtime::fake::{FakeRuntime, Mishap};
use client::TokioClock;
use jiff::Timestamp;

struct Bench {
    fake: FakeRuntime,
    puller: Puller,
    given: Given,
    root: tempfile::TempDir,
}

impl Bench {
    /// Images whose pulls are written down as under way.
    fn intents(&self) -> usize {
        let folder = self.root.path().join("image_manager/pulling");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

fn bench(parallel: usize, rate: Rate) -> Bench {
    let clock = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
    let fake = FakeRuntime::new(clock.clone(), 1);
    let root = tempfile::tempdir().expect("temp dir");
    fake.set_latency("PullImage", Duration::from_secs(10));
    for image in ["a", "b", "c"] {
        fake.add_remote_image(image);
    }
    let records = Records::new(root.path(), clock);
    let given = Given::default();
    let puller = Puller::new(Arc::new(fake.clone()), (records, given.clone()), parallel, rate);
    Bench {
        fake,
        puller,
        given,
        root,
    }
}

fn pulls(fake: &FakeRuntime) -> usize {
    fake.calls().iter().filter(|call| call.starts_with("PullImage")).count()
}

#[tokio::test(start_paused = true)]
async fn one_image_is_pulled_once_for_everybody() {
    let Bench { fake, puller, .. } = &bench(5, Rate::UNBOUND);
    let results = futures::future::join_all((0..4).map(|_| puller.pull("a", &[], None))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(pulls(fake), 1);
    let other = pb::AuthConfig {
        username: "u".into(),
        ..pb::AuthConfig::default()
    };
    let both = futures::future::join(puller.pull("a", &[], None), puller.pull("a", &[other], None)).await;
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(pulls(fake), 3, "other credentials are another pull");
}

#[tokio::test(start_paused = true)]
async fn every_login_is_tried_and_what_each_says_is_told_once() {
    let Bench { fake, puller, .. } = &bench(5, Rate::UNBOUND);
    fake.add_private_image("private", "right");
    let login = |password: &str| pb::AuthConfig {
        password: password.into(),
        ..pb::AuthConfig::default()
    };
    let both = puller.pull("private", &[login("wrong"), login("right")], None).await;
    assert_eq!(both.map(|(pulled, _)| pulled.used), Ok(Some(1)));
    let none = puller.pull("private", &[login("wrong"), login("other")], None).await;
    let said = none.expect_err("none fits").to_string();
    assert_eq!(said.matches("no basic auth credentials").count(), 1, "{said}");
    let mishap = Mishap::Fail(RuntimeError::new("PullImage", Code::NotFound, "first"));
    fake.next("PullImage", mishap);
    let two = puller.pull("private", &[login("wrong"), login("other")], None).await;
    let said = two.expect_err("none fits").to_string();
    assert!(
        said.contains("[rpc error: code = NotFound desc = first, failed to resolve"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_so_many_run_at_a_time() {
    let Bench { puller, .. } = &bench(2, Rate::UNBOUND);
    let begun = Instant::now();
    let results = futures::future::join_all(["a", "b", "c"].map(|image| puller.pull(image, &[], None))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn more_pulls_than_the_rate_allows_are_turned_down_and_not_begun() {
    let rate = Rate {
        per_second: 1,
        burst: 2,
    };
    let Bench { fake, puller, .. } = &bench(5, rate);
    let results = futures::future::join_all(["a", "b", "c"].map(|image| puller.pull(image, &[], None))).await;
    let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(refused, [&PullError::Throttled]);
    assert_eq!(refused[0].to_string(), "pull QPS exceeded");
    assert_eq!(pulls(fake), 2);
    assert!(puller.pull("c", &[], None).await.is_ok(), "ten seconds later");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_hangs_ends_and_keeps_no_other_image_away() {
    let Bench { fake, puller, .. } = &bench(1, Rate::UNBOUND);
    fake.set_latency("PullImage", Duration::from_secs(7 * 24 * 3600));
    let begun = Instant::now();
    let hung = tokio::spawn({
        let puller = puller.clone();
        async move { puller.pull("a", &[], None).await }
    });
    while pulls(fake) == 0 {
        tokio::task::yield_now().await;
    }
    fake.set_latency("PullImage", Duration::from_secs(10));
    assert!(puller.pull("b", &[], None).await.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 60 + 10, "a minute, and its own time");
    let error = hung.await.expect("no panic").expect_err("too long");
    assert_eq!(error, PullError::Runtime(RuntimeError::deadline("PullImage")));
    assert_eq!(begun.elapsed(), PULL_MAX);
    assert!(puller.pull("a", &[], None).await.is_ok(), "the next try begins anew");
}

#[tokio::test(start_paused = true)]
async fn one_who_leaves_does_not_end_it_for_others() {
    let Bench { fake, puller, .. } = &bench(1, Rate::UNBOUND);
    let leaving = tokio::spawn({
        let puller = puller.clone();
        async move { puller.pull("a", &[], None).await }
    });
    tokio::task::yield_now().await;
    leaving.abort();
    assert!(puller.pull("a", &[], None).await.is_ok());
    assert_eq!(pulls(fake), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_pulled_is_noted_though_nobody_waited_for_it() {
    let bench = bench(1, Rate::UNBOUND);
    let leaving = tokio::spawn({
        let puller = bench.puller.clone();
        async move { puller.pull("a", &[], None).await }
    });
    while pulls(&bench.fake) == 0 {
        tokio::task::yield_now().await;
    }
    leaving.abort();
    assert!(leaving.await.is_err());
    assert!(bench.given.take_pulled().is_empty(), "not before it is there");
    while !bench.puller.joined().pulls.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let pulled: Vec<String> = bench.given.take_pulled().into_keys().collect();
    assert_eq!(pulled, [bench.fake.images()[0].id.clone()]);
}

/// Whoever edits a pod's image again and again while a registry hangs leaves nothing behind: neither a pull nor its intent.
#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_more_is_never_begun() {
    let bench = bench(1, Rate::UNBOUND);
    let (fake, puller) = (&bench.fake, &bench.puller);
    let ask = |image: String| {
        let puller = puller.clone();
        tokio::spawn(async move { puller.pull(&image, &[], None).await.map(|(pulled, _)| pulled) })
    };
    let first = ask("a".into());
    while pulls(fake) == 0 {
        tokio::task::yield_now().await;
    }
    let edits: Vec<_> = (0..100).map(|n| ask(format!("edit:{n}"))).collect();
    let (left, kept) = (ask("b".into()), ask("b".into()));
    while puller.joined().pulls.len() < 102 {
        tokio::task::yield_now().await;
    }
    for edit in edits {
        edit.abort();
        assert!(edit.await.is_err());
    }
    left.abort();
    while puller.joined().pulls.len() > 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.intents(), 1, "only of what has begun");
    // Another who comes back in time has it pulled all the same.
    let back = ask("c".into());
    assert!(first.await.is_ok_and(|a| a.is_ok()) && kept.await.is_ok_and(|b| b.is_ok()));
    assert!(back.await.is_ok_and(|c| c.is_ok()));
    assert_eq!(pulls(fake), 3);
    assert!(puller.joined().pulls.is_empty());
}
