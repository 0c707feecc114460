//! A store that is restored from a backup beneath clients and watchers that know what is there no more: what was acknowledged before and
//! after is one history, and what came between is gone for everybody; nobody is told half of each.

use super::*;
use crate::backup::command::BUMP;
use crate::store::disk::snapshot::{self, Beginning, Part};
use faults::history::{Event, Part as Seen};
use std::collections::HashMap;

/// Puts the backup in the place of what is there.
fn restore(directory: &Path, (format, revision): (u64, Revision), records: Vec<(String, Vec<u8>)>) {
    let begins = Beginning {
        format,
        revision: revision + BUMP,
        replaces: true,
    };
    let mut records = records.into_iter();
    snapshot::write(directory, begins, &mut || Ok(records.next())).unwrap();
}

/// Acknowledged writes up to a revision, which a backup of it holds.
fn held(events: &[Event], revision: Revision) -> Vec<Event> {
    let mut begun = HashMap::new();
    let mut held = Vec::new();
    for event in events {
        match event {
            Event::Began(number, ask) => drop(begun.insert(*number, ask.clone())),
            Event::Ended(number, Answer::Done(at)) if *at <= revision => {
                held.push((*at, *number, begun.remove(number)))
            }
            _ => {}
        }
    }
    held.sort_by_key(|(at, ..)| *at);
    let both = held.into_iter().flat_map(|(at, number, ask)| {
        let ask = ask.expect("what is answered was asked");
        [Event::Began(number, ask), Event::Ended(number, Answer::Done(at))]
    });
    both.collect()
}

/// What each watcher saw of one of the two.
fn parts(watchers: &[Watcher], is_of: impl Fn(&Seen) -> bool) -> Vec<Watcher> {
    let of = |watcher: &Watcher| Watcher {
        name: watcher.name.clone(),
        parts: watcher.parts.iter().filter(|part| is_of(part)).cloned().collect(),
    };
    watchers.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_there_before_is_told_of_what_was_restored_and_of_nothing_in_between() {
    for seed in 0..2 {
        let directory = tempfile::tempdir().unwrap();
        let load = Load::start(seed);
        let disk = Arc::new(Disk::open(directory.path()).unwrap());
        load.door.send_replace(Some(Arc::clone(&disk) as Arc<dyn Store>));
        load.goes_on(WRITES).await;
        let (mut begins, mut records) = ((0, 0), Vec::new());
        let read = disk.snapshots().read(&mut |part| {
            match part {
                Part::Begin { format, revision } => begins = (format, revision),
                Part::Record(key, record) => records.push((key.to_owned(), record.to_vec())),
            }
            Ok(())
        });
        read.unwrap();
        load.goes_on(WRITES).await;
        load.close(disk).await;
        let (saved, cut) = (begins.1, load.events.lock().unwrap().len());
        restore(directory.path(), begins, records);

        let disk = Arc::new(Disk::open(directory.path()).unwrap());
        load.door.send_replace(Some(Arc::clone(&disk) as Arc<dyn Store>));
        load.goes_on(WRITES).await;
        let ended = load.ended(&*disk).await;
        let (before, after) = ended.events.split_at(cut);
        let anew = |part: &Seen| part.revision > BUMP;
        let old = parts(&ended.seen, |part| !anew(part));
        let is_mixed = |step: &faults::history::Told| step.revision > BUMP;
        let mut steps = old
            .iter()
            .flat_map(|watcher| &watcher.parts)
            .flat_map(|part| &part.steps);
        assert!(
            !steps.any(is_mixed),
            "seed {seed}: who was there goes on as if nothing had been"
        );
        assert_eq!(faults::judge(before, &old, 0), [""; 0], "seed {seed}");

        let new = parts(&ended.seen, anew);
        assert!(
            new.iter().all(|watcher| !watcher.parts.is_empty()),
            "seed {seed}: {new:?}"
        );
        let all = [&held(before, saved)[..], after].concat();
        let wrong = faults::judge(&all, &new, ended.newest);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}
