//! When certificates are renewed, and when the kubelet gives up.

use super::*;
use client::TokioClock;
use proptest::prelude::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pair(from: i64, until: i64) -> Pair {
    Pair {
        pem: String::new(),
        not_before: at(from),
        not_after: at(until),
    }
}

fn client() -> Wanted {
    Wanted {
        node: "n".into(),
        serving: None,
    }
}

proptest! {
    #[test]
    fn renewal_falls_between_70_and_90_percent(seed: u64, from in 0_i64..2_000_000_000, life in 1000_i64..100_000_000) {
        let pair = pair(from, from + life);
        let share = (deadline(&pair, seed).as_second() - from) * 1000 / life;
        prop_assert!((699..=900).contains(&share), "{share}");
        prop_assert_eq!(deadline(&pair, seed), deadline(&pair, seed));
    }
}

#[test]
fn what_is_missing_or_over_is_asked_for_at_once() {
    assert_eq!(wait(None, &client(), 1, at(0)), Duration::ZERO);
    assert_eq!(wait(Some(&pair(0, 1000)), &client(), 1, at(2000)), Duration::ZERO);
    let left = wait(Some(&pair(0, 1000)), &client(), 1, at(0)).as_secs();
    assert!((700..=900).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn five_minutes_without_a_certificate_end_the_kubelet_if_the_server_answers() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(at(1000)));
    let (pairs, current) = watch::channel(Some(Arc::new(pair(0, 1600))));
    let (there, server) = watch::channel(false);
    let began = tokio::time::Instant::now();
    let watching = tokio::spawn(watch_expiry(current, server, clock));
    // Valid until second 600; nobody answers until second 1200.
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert!(!watching.is_finished());
    there.send_replace(true);
    let expired = watching.await.unwrap();
    assert!(expired.since_seconds >= 600, "{expired}");
    assert!(began.elapsed() < Duration::from_secs(1220));
    drop(pairs);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_certificate_starts_the_time_anew() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(at(1000)));
    let (pairs, current) = watch::channel(None);
    let (_there, server) = watch::channel(true);
    let watching = tokio::spawn(watch_expiry(current, server, clock));
    tokio::time::sleep(Duration::from_secs(290)).await;
    pairs.send_replace(Some(Arc::new(pair(0, 5000))));
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert!(!watching.is_finished());
    pairs.send_replace(None);
    let expired = watching.await.unwrap();
    assert!((300..=320).contains(&expired.since_seconds), "{expired}");
}
