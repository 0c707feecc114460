//! `faults etcd ROUNDS SEED`: rounds of a campaign against real members of etcd. `hack/faults` runs it.

use anyhow::{Context, ensure};
use faults::campaign::{self, FAULTS};
use faults::isolation;
use faults::members::Members;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, rounds, seed] = &arguments[..] else {
        anyhow::bail!("usage: faults etcd ROUNDS SEED");
    };
    ensure!(what == "etcd", "usage: faults etcd ROUNDS SEED");
    let rounds = rounds.parse().context("ROUNDS is a number")?;
    let seed = seed.parse().context("SEED is a number")?;
    if isolation::directory().is_none() {
        return isolation::again(&arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(rounds, seed))
}

async fn run(rounds: u64, seed: u64) -> anyhow::Result<()> {
    let mut members = Members::start(None)?;
    campaign::ready(&members).await?;
    let begin = std::time::Instant::now();
    let (mut failed, mut counts) = (0, [0; 4]);
    for number in 0..rounds {
        let (seed, fault) = (seed + number, FAULTS[(seed + number) as usize % FAULTS.len()]);
        let report = campaign::round(&mut members, seed, fault).await;
        let report = report.with_context(|| format!("seed {seed}: {fault:?}"))?;
        println!("{:5} s  seed {seed}: {fault:?}: {report}", begin.elapsed().as_secs());
        report
            .wrong
            .iter()
            .take(10)
            .for_each(|wrong| println!("         {wrong}"));
        failed += usize::from(!report.wrong.is_empty());
        counts
            .iter_mut()
            .zip(report.counts)
            .for_each(|(sum, count)| *sum += count);
    }
    let [answered, conflicts, not_done, unknown] = counts;
    println!("{rounds} rounds: {answered} answered, {conflicts} conflicts, {not_done} not done, {unknown} unknown");
    ensure!(failed == 0, "{failed} of {rounds} rounds are wrong");
    ensure!(
        unknown > 0 || rounds < FAULTS.len() as u64,
        "no write was lost on its way in all of that: nothing has been broken"
    );
    Ok(())
}
