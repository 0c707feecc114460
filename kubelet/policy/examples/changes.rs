//! How long deciding takes: 1,000 policies over 100 pods of this node (and 5,000 pods elsewhere) that all change, one policy
//! that changes, one pod elsewhere that comes; and the kernel's part of each, in the network namespace whose path
//! (`/run/netns/x`) is the argument, or in one that is made for it (by root, with `ip`). Run it with `--release`.
//!
//! The kernel's part is that of the batch alone, from its first byte to the kernel's answer: nobody who changes that much at once can do
//! with less. What is said beside it, saying, is making the batch.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use client::Key;
use policy::change::Change;
use policy::facts::{Facts, PodId};
use policy::kernel::Kernel;
use policy::spec::Policy;
use policy::world::World;
use serde_json::json;

const POLICIES: usize = 1000;
const LOCAL: usize = 100;
const ELSEWHERE: usize = 5000;
const ROUNDS: usize = 9;

fn pod(number: usize, node: &str) -> Result<(PodId, Facts), Box<dyn Error>> {
    let name = format!("p{number}");
    let object = json!({
        "metadata": {"namespace": "d", "name": name, "uid": name,
            "labels": {"app": format!("a{}", number % 50), "number": format!("{}", number % LOCAL)}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.{}.{}.{}", node.len(), number / 250, number % 250)}]}
    });
    let pod = serde_json::from_value(object)?;
    Ok((PodId::of(&pod), Facts::of(&pod, "n1")))
}

/// Policy `number`, about a tenth of the local pods; `port` makes it another.
fn policy(number: usize, port: usize) -> Result<(Key, Policy), Box<dyn Error>> {
    let numbers: Vec<String> = (0..LOCAL / 10)
        .map(|step| ((number + step * 10) % LOCAL).to_string())
        .collect();
    let object = json!({
        "metadata": {"namespace": "d", "name": format!("q{number}")},
        "spec": {"podSelector": {"matchExpressions": [{"key": "number", "operator": "In", "values": numbers}]},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": format!("a{}", number % 50)}}},
                                  {"ipBlock": {"cidr": format!("172.16.{}.0/24", number % 250), "except": ["172.16.0.1/32"]}}],
                         "ports": [{"port": port + number % 20}, {"port": "web"}]}]}
    });
    let object = serde_json::from_value(object)?;
    Ok((Key::of(&object), Policy::read(&object)))
}

/// Milliseconds of a piece of work.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let done = work();
    (done, begin.elapsed().as_secs_f64() * 1e3)
}

/// A network namespace that goes with this.
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Self, Box<dyn Error>> {
        let namespace = Self(format!("skp-changes-{}", std::process::id()));
        let outcome = Command::new("ip").args(["netns", "add", &namespace.0]).status()?;
        outcome
            .success()
            .then_some(namespace)
            .ok_or("no network namespace".into())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn size(change: &Change) -> String {
    format!(
        "{} sets, {} chains, {} rules, {} dispatches, {} sets revised",
        change.new_sets.len(),
        change.new_chains.len(),
        change
            .new_chains
            .iter()
            .map(|(_, chain)| chain.allows.len() + 1)
            .sum::<usize>(),
        change.dispatches.len(),
        change.revisions.len()
    )
}

/// A cluster without policies, and a kernel that holds that.
fn begin(path: &str) -> Result<(World, Kernel), Box<dyn Error>> {
    let mut world = World::new();
    for number in 0..LOCAL + ELSEWHERE {
        let (id, facts) = pod(number, if number < LOCAL { "n1" } else { "other" })?;
        world.set_pod(id, Some(facts));
    }
    let mut kernel = Kernel::open(Some(path), Vec::new())?;
    kernel.replace(&world.whole())?;
    Ok((world, kernel))
}

fn main() -> Result<(), Box<dyn Error>> {
    let made = match std::env::args().nth(1) {
        Some(_) => None,
        None => Some(Namespace::new()?),
    };
    let given = std::env::args().nth(1);
    let path = given.unwrap_or_else(|| format!("/run/netns/{}", made.as_ref().map_or("", |made| &made.0)));
    let mut figures: Vec<(&str, Vec<[f64; 3]>)> = Vec::new();
    for round in 0..ROUNDS {
        let (mut world, mut kernel) = begin(&path)?;
        let read = |port| {
            (0..POLICIES)
                .map(|number| policy(number, port))
                .collect::<Result<Vec<_>, _>>()
        };
        let steps = [
            ("1,000 new policies", read(80)?, None),
            ("1,000 changed policies", read(180)?, None),
            ("one changed policy", vec![policy(7, 280)?], None),
            (
                "one new pod elsewhere",
                Vec::new(),
                Some(pod(LOCAL + ELSEWHERE, "other")?),
            ),
        ];
        for (at, (what, policies, more)) in steps.into_iter().enumerate() {
            let (change, deciding) = timed(|| {
                for (key, policy) in policies {
                    world.set_policy(key, Some(policy));
                }
                if let Some((id, facts)) = more {
                    world.set_pod(id, Some(facts));
                }
                world.take_change()
            });
            let (applied, telling) = timed(|| kernel.apply(&change));
            applied?;
            let floor = kernel.last_took().as_secs_f64() * 1e3;
            if round == 0 {
                println!("{what}: {}", size(&change));
                figures.push((what, Vec::new()));
            }
            if let Some((_, all)) = figures.get_mut(at) {
                all.push([deciding, telling - floor, floor]);
            }
        }
        kernel.remove()?;
    }
    for (what, all) in &mut figures {
        all.sort_by(|a, b| f64::total_cmp(&a.iter().sum(), &b.iter().sum()));
        let parts = all.get(all.len() / 2).copied().unwrap_or_default();
        let [deciding, saying, floor] = parts;
        let whole: f64 = parts.iter().sum();
        let least = all.first().map_or(0.0, |parts| parts.iter().sum());
        println!(
            "{what}: {whole:.2} ms (deciding {deciding:.2}, saying {saying:.2}, the kernel {floor:.2}; median of {ROUNDS}, least {least:.2})"
        );
    }
    println!("goal: 1,000 changed policies <= 20 ms");
    Ok(())
}
