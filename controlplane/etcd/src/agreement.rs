//! Whether the members have the same data (pure, but for [`heard`], which asks them).
//!
//! A member that was restored from a snapshot alone, or whose files were damaged, goes on in its cluster: raft's log is the others', and what
//! it is applied to is not. etcd itself looks only when it is told to (`--experimental-initial-corrupt-check`). Owns the proof: a revision
//! follows from what of the log has been applied. What becomes of a member that is found out is [`crate::rpc`]'s.

use proto::etcd::StatusResponse;
use std::time::Duration;

/// What a member says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) member: u64,
    cluster: u64,
    leader: u64,
    pub(crate) revision: i64,
    /// How large its file is, in bytes.
    pub(crate) size: i64,
    /// The last entry of the log it knows to be agreed on.
    agreed: u64,
    applied: u64,
}

impl From<StatusResponse> for Said {
    fn from(status: StatusResponse) -> Self {
        let header = status.header.unwrap_or_default();
        Self {
            member: header.member_id,
            cluster: header.cluster_id,
            leader: status.leader,
            revision: header.revision,
            size: status.db_size,
            agreed: status.raft_index,
            applied: status.raft_applied_index,
        }
    }
}

/// How often all are asked, one time after the other: what each said is of a moment before anything of the next time.
const TIMES: usize = 4;
/// The time by which all are to have applied what was agreed on before, and how often they are asked for that, and after which pause each.
const APPLIED: usize = 2;
const BEHIND: (usize, Duration) = (15, Duration::from_millis(20));

/// What a member said, if it did each time.
pub(crate) type Heard = Option<[Said; TIMES]>;

/// The member that was heard last.
pub(crate) fn member(heard: &Heard) -> Option<u64> {
    heard.as_ref().map(|said| said[TIMES - 1].member)
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing speaks against it.
    Same,
    /// These have other data than the others, which are more: by their numbers among those who were asked.
    Others(Vec<usize>),
    /// Some have other data than others, and nobody can say who is right.
    Unclear,
    /// Some follow nobody yet, or not the same leader: they cannot be compared.
    Unsettled,
}

/// Asks until all have been asked often enough; `ask` gives what each of some says.
pub(crate) async fn heard<F>(count: usize, ask: impl Fn(Vec<usize>) -> F) -> Vec<Heard>
where
    F: Future<Output = Vec<Option<Said>>>,
{
    let mut said: Vec<Vec<Said>> = vec![Vec::new(); count];
    for time in 0..TIMES {
        // Who has not answered is not waited for again.
        let asked: Vec<usize> = (0..count).filter(|member| said[*member].len() == time).collect();
        let mut answers = ask(asked.clone()).await;
        if time == APPLIED {
            let agreed = said
                .iter()
                .filter_map(|said| said.get(time - 1))
                .map(|said| said.agreed)
                .max();
            let is_behind = |said: &Said| Some(said.applied) < agreed;
            // What is agreed on comes to the others with what is next, or a heartbeat.
            let mut tries = BEHIND.0;
            while tries > 0 && answers.iter().flatten().any(is_behind) {
                tries -= 1;
                tokio::time::sleep(BEHIND.1).await;
                answers = ask(asked.clone()).await;
            }
        }
        for (member, answer) in asked.iter().zip(answers) {
            said[*member].extend(answer);
        }
    }
    said.into_iter().map(|said| said.try_into().ok()).collect()
}

/// It is one member each time: its address may be that of several.
fn is_one(said: &[Said; TIMES]) -> bool {
    let of = |said: &Said| (said.member, said.cluster);
    said.iter().all(|other| of(other) == of(&said[0]))
}

/// The leader it follows all the time, if there is one.
fn leader(said: &[Said; TIMES]) -> Option<u64> {
    let leader = said[0].leader;
    (leader != 0 && said.iter().all(|other| other.leader == leader)).then_some(leader)
}

/// `one` had a revision which the other, having applied all that `one` can have had, has not reached since.
fn is_ahead(one: &[Said; TIMES], other: &[Said; TIMES]) -> bool {
    one[1].agreed <= other[2].applied && one[0].revision > other[3].revision
}

fn differ(one: &[Said; TIMES], other: &[Said; TIMES]) -> bool {
    let is_of_one = one[0].cluster == other[0].cluster && leader(one).is_some() && leader(one) == leader(other);
    is_of_one && (is_ahead(one, other) || is_ahead(other, one))
}

/// What comes of what was heard.
pub(crate) fn judge(heard: &[Heard]) -> Finding {
    let heard = heard.iter().enumerate();
    let heard = heard.filter_map(|(number, said)| Some((number, said.as_ref().filter(|said| is_one(said))?)));
    let heard: Vec<(usize, &[Said; TIMES])> = heard.collect();
    // Of a member with several addresses the first counts.
    let is_first = |at: &usize| {
        heard[..*at]
            .iter()
            .all(|(_, before)| before[0].member != heard[*at].1[0].member)
    };
    let voices: Vec<&[Said; TIMES]> = (0..heard.len()).filter(is_first).map(|at| heard[at].1).collect();
    let agree = |said: &[Said; TIMES]| voices.iter().filter(|voice| !differ(said, voice)).count();
    let (most, others): (Vec<_>, Vec<_>) = heard.iter().partition(|(_, said)| agree(said) * 2 > voices.len());
    let others: Vec<usize> = others.into_iter().map(|(number, _)| number).collect();
    let leads = |said: &&[Said; TIMES]| leader(said);
    let is_settled = voices
        .iter()
        .all(|voice| leader(voice).is_some() && leads(voice) == voices.first().and_then(leads));
    match (most.is_empty(), others.is_empty()) {
        (true, false) => Finding::Unclear,
        (false, false) => Finding::Others(others),
        (_, true) if is_settled => Finding::Same,
        (_, true) => Finding::Unsettled,
    }
}

/// What is said of a member that has other data than the others, to people.
pub(crate) fn text(url: &str, member: usize, heard: &[Heard]) -> String {
    let last = |number: usize| heard[number].as_ref().map(|said| said[TIMES - 1]);
    let own = last(member).unwrap_or_default();
    let others = (0..heard.len()).filter_map(last);
    let theirs = others
        .filter(|other| other.member != own.member)
        .map(|other| other.revision)
        .max();
    format!(
        "{url} (member {:x}) has other data than the other members of etcd (revision {} where they have {}): it was restored from a \
         snapshot alone, or its files are damaged; what is read from it is wrong. `etcdctl member remove {0:x}` at one of the others, remove \
         its data directory, and `etcdctl member add` it anew",
        own.member,
        own.revision,
        theirs.unwrap_or_default(),
    )
}

/// What is said where nobody knows who is right.
pub(crate) fn unclear(urls: &[&str], heard: &[Heard]) -> String {
    let said = urls.iter().zip(heard);
    let said = said.filter_map(|(url, said)| Some((url, said.as_ref()?[TIMES - 1])));
    let said: Vec<String> = said
        .map(|(url, said)| format!("{url} (member {:x}) revision {}", said.member, said.revision))
        .collect();
    format!(
        "the members of etcd have different data, and those that answer are too few to say which is right: {}; remove the one that was \
         restored from a snapshot alone (`etcdctl endpoint hashkv` compares them) with `etcdctl member remove`, and its data directory",
        said.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that goes from one state to the next.
    fn member(number: u64, revision: i64, applied: u64) -> Heard {
        let said = Said {
            member: number,
            cluster: 7,
            leader: 1,
            revision,
            size: 0,
            agreed: applied,
            applied,
        };
        Some([said; TIMES])
    }

    fn writes(heard: Heard, each: u64) -> Heard {
        heard.map(|mut said| {
            for (time, said) in (0..).zip(&mut said) {
                said.revision += (each * time) as i64;
                said.agreed += each * time;
                said.applied += each * time;
            }
            said
        })
    }

    #[test]
    fn who_has_other_data_at_the_same_place_is_found_and_nobody_else() {
        let (good, late) = (member(1, 66, 77), member(2, 60, 71));
        for (heard, expected) in [
            (vec![good, member(2, 66, 77), member(3, 66, 77)], Finding::Same),
            // It has applied less, and has that much less.
            (vec![good, late, member(3, 66, 77)], Finding::Same),
            (
                vec![good, member(2, 66, 77), member(3, 96, 77)],
                Finding::Others(vec![2]),
            ),
            (
                vec![member(1, 30, 77), member(2, 66, 77), member(3, 66, 77)],
                Finding::Others(vec![0]),
            ),
            // Not even with all that is left to apply.
            (
                vec![member(1, 66, 77), member(2, 66, 77), member(3, 90, 70)],
                Finding::Others(vec![2]),
            ),
            // It may come to what they have.
            (
                vec![member(1, 66, 77), member(2, 66, 77), member(3, 30, 70)],
                Finding::Same,
            ),
            (vec![good, None, member(3, 96, 77)], Finding::Unclear),
            (vec![good, None, None], Finding::Same),
            (vec![None; 3], Finding::Same),
            // Two addresses are one voice.
            (vec![good, good, member(3, 96, 77)], Finding::Unclear),
            (
                vec![good, member(2, 66, 77), member(3, 96, 77), member(3, 96, 77)],
                Finding::Others(vec![2, 3]),
            ),
        ] {
            assert_eq!(judge(&heard), expected, "{heard:?}");
        }
    }

    #[test]
    fn what_goes_on_while_they_are_asked_is_no_difference() {
        for each in [0, 1, 5, 1000] {
            for behind in 0..20 {
                let one = writes(member(1, 66, 77), each);
                let other = writes(member(2, 66 - behind, 77 - behind as u64), each);
                assert_eq!(judge(&[one, other]), Finding::Same, "{each} {behind}");
            }
        }
        let wrong = writes(member(3, 96, 77), 5);
        let heard = [writes(member(1, 66, 77), 5), writes(member(2, 66, 77), 5), wrong];
        assert_eq!(judge(&heard), Finding::Others(vec![2]));
    }

    #[test]
    fn who_does_not_take_part_or_is_several_is_not_judged() {
        let good = [member(1, 66, 77), member(2, 66, 77)];
        let alone = member(3, 96, 77).map(|said| said.map(|said| Said { leader: 0, ..said }));
        let elsewhere = member(3, 96, 77).map(|said| said.map(|said| Said { cluster: 8, ..said }));
        let mut several = member(3, 96, 77);
        several.iter_mut().for_each(|said| said[2].member = 4);
        let follows = member(3, 96, 77).map(|said| said.map(|said| Said { leader: 2, ..said }));
        for (other, expected) in [
            (alone, Finding::Unsettled),
            (follows, Finding::Unsettled),
            (elsewhere, Finding::Same),
            (several, Finding::Same),
        ] {
            assert_eq!(judge(&[good[0], good[1], other]), expected, "{other:?}");
        }
    }

    #[tokio::test]
    async fn who_does_not_answer_once_is_not_asked_again() {
        let asked = std::sync::Mutex::new(Vec::new());
        let heard = heard(2, |members| {
            asked.lock().unwrap().push(members.clone());
            let said = members.iter().map(|member| (*member == 0).then(Said::default));
            std::future::ready(said.collect())
        });
        let heard = heard.await;
        assert!(heard[0].is_some() && heard[1].is_none());
        assert_eq!(*asked.lock().unwrap(), [vec![0, 1], vec![0], vec![0], vec![0]]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_agreed_on_is_waited_for_and_not_for_ever() {
        for (applies_after, expected) in [(0, 4), (3, 7), (1000, TIMES + BEHIND.0)] {
            let asked = std::sync::atomic::AtomicUsize::new(0);
            let heard = heard(1, |_| {
                let asked = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let applied = if asked >= APPLIED + applies_after { 9 } else { 8 };
                let said = Said {
                    agreed: 9,
                    applied,
                    ..Said::default()
                };
                std::future::ready(vec![Some(said)])
            });
            assert!(heard.await[0].is_some());
            assert_eq!(asked.into_inner(), expected);
        }
    }

    #[test]
    fn it_is_named_with_what_helps() {
        let heard = [member(0x1f, 66, 77), member(2, 66, 77), member(0xabc, 96, 77)];
        let text = text("https://c:2379", 2, &heard);
        for part in [
            "https://c:2379 (member abc)",
            "revision 96 where they have 66",
            "`etcdctl member remove abc`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let unclear = unclear(&["https://a:2379", "https://b:2379"], &[heard[0], heard[2]]);
        assert!(
            unclear.contains("https://a:2379 (member 1f) revision 66, https://b:2379 (member abc) revision 96"),
            "{unclear}"
        );
    }
}
