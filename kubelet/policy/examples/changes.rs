//! How long deciding takes: 1,000 policies over 100 pods of this node (and 5,000 pods elsewhere) that all change, one policy
//! that changes, one pod elsewhere that comes. With the path of a network namespace (`/run/netns/x`) as argument, the kernel's
//! part is measured there too. Run it with `--release`.

use std::error::Error;
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

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    println!("{what}: {:.2} ms", begin.elapsed().as_secs_f64() * 1e3);
    done
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

fn main() -> Result<(), Box<dyn Error>> {
    let mut world = World::new();
    for number in 0..LOCAL {
        let (id, facts) = pod(number, "n1")?;
        world.set_pod(id, Some(facts));
    }
    for number in LOCAL..LOCAL + ELSEWHERE {
        let (id, facts) = pod(number, "other")?;
        world.set_pod(id, Some(facts));
    }
    let read = |port| {
        (0..POLICIES)
            .map(|number| policy(number, port))
            .collect::<Result<Vec<_>, _>>()
    };
    let (old, new, one, more) = (read(80)?, read(180)?, policy(7, 280)?, pod(LOCAL + ELSEWHERE, "other")?);
    let mut kernel = match std::env::args().nth(1) {
        Some(path) => Some(Kernel::open(Some(&path), Vec::new())?),
        None => None,
    };
    let mut put = |world: &mut World, what: &str, policies: Vec<(Key, Policy)>| -> Result<(), Box<dyn Error>> {
        let change = timed(&format!("{what}, deciding"), || {
            for (key, policy) in policies {
                world.set_policy(key, Some(policy));
            }
            world.take_change()
        });
        println!("  {}", size(&change));
        if let Some(kernel) = &mut kernel {
            timed(&format!("{what}, the kernel"), || kernel.apply(&change))?;
        }
        Ok(())
    };
    if let Some(path) = std::env::args().nth(1) {
        Kernel::open(Some(&path), Vec::new())?.replace(&world.whole())?;
    }
    put(&mut world, "1,000 new policies", old)?;
    put(&mut world, "1,000 changed policies", new)?;
    put(&mut world, "one changed policy", vec![one])?;
    let (id, facts) = more;
    world.set_pod(id, Some(facts));
    put(&mut world, "one new pod elsewhere", Vec::new())?;
    Ok(())
}
