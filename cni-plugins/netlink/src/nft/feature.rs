//! What a kernel's nf_tables lacks, by name: a refusal says only that something was not found or is not supported. Each feature
//! is tried in one batch that ends with taking everything away again, so nobody ever sees it.

use nix::errno::Errno;

use super::batch::{BaseChain, Batch, Chain};
use super::connection::{Connection, Error};
use super::expression::{MetaKey, Verdict};
use super::judge::{End, Judge, Known};
use super::set::{Data, Kind, NewSet, Part};
use super::step::{Change, Step, Word};
use super::wire::Family;

/// The table in which features are tried.
const TABLE: &str = "skiff-try";
const WORD: Word = Word(0);

/// A feature: what it is called where kernels are configured, and rules that need it.
#[derive(Clone, Copy)]
pub struct Feature {
    name: &'static str,
    /// The chain it is tried in.
    base: BaseChain<'static>,
    sets: &'static [NewSet<'static>],
    steps: fn(Family) -> Vec<Judge>,
}

const PREROUTING: BaseChain<'_> = BaseChain {
    kind: "nat",
    hook: 0,
    priority: -100,
};
const POSTROUTING: BaseChain<'_> = BaseChain {
    hook: 4,
    priority: 100,
    ..PREROUTING
};
const FORWARD: BaseChain<'_> = BaseChain {
    kind: "filter",
    hook: 2,
    priority: 0,
};

const fn set(name: &'static str, data: Data<'static>, kind: Kind) -> NewSet<'static> {
    NewSet {
        name,
        id: 1,
        key: &[Part::Word, Part::Port],
        data,
        kind,
    }
}

const CONNECTIONS: Feature = Feature {
    name: "connection tracking (CONFIG_NFT_CT)",
    base: FORWARD,
    sets: &[],
    steps: |_| vec![Judge::Known(Known::Protocol, WORD), Judge::Known(Known::Port, WORD)],
};
const ENDS: Feature = Feature {
    name: "addresses of a connection's ends (ct src and dst by family, Linux 4.17)",
    base: FORWARD,
    sets: &[],
    steps: |family| {
        let end = match family {
            Family::Ipv6 => Known::Ipv6(End::Initiator),
            _ => Known::Ipv4(End::Initiator),
        };
        vec![Judge::Known(end, WORD)]
    },
};
const DESTINATIONS: Feature = Feature {
    name: "translation of destinations (CONFIG_NFT_NAT)",
    base: PREROUTING,
    sets: &[],
    steps: |family| {
        vec![
            Judge::Step(Step::Load(WORD, vec![1; 16])),
            Judge::Step(Step::Load(Word(4), vec![0, 80, 0, 0])),
            Judge::Step(Step::Meta(MetaKey::TransportProtocol, Word(5))),
            Judge::Step(Step::Compare(Word(5), super::expression::Comparison::Equal, vec![6])),
            Judge::Step(Step::DestinationNat(family, WORD, Word(4))),
        ]
    },
};
const MASQUERADING: Feature = Feature {
    name: "masquerading (CONFIG_NFT_MASQ)",
    base: POSTROUTING,
    sets: &[],
    steps: |_| vec![Judge::Step(Step::Masquerade)],
};
const REJECTIONS: Feature = Feature {
    name: "rejections (CONFIG_NFT_REJECT)",
    base: FORWARD,
    sets: &[],
    steps: |family| vec![Judge::Step(Step::Reject(family))],
};
const RANDOM: Feature = Feature {
    name: "random numbers (CONFIG_NFT_NUMGEN)",
    base: FORWARD,
    sets: &[],
    steps: |_| vec![Judge::Step(Step::Random(2, WORD))],
};
const ADDRESS_TYPES: Feature = Feature {
    name: "types of addresses (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)",
    base: PREROUTING,
    sets: &[],
    steps: |_| vec![Judge::Step(Step::AddressType(false, WORD))],
};
const RANGES: Feature = Feature {
    name: "ranges in keys of several parts (Linux 5.6)",
    base: FORWARD,
    sets: &[set("ranges", Data::Nothing, Kind::Ranges)],
    steps: |_| {
        vec![
            Judge::Step(Step::Load(WORD, vec![0; 8])),
            Judge::Step(Step::In("ranges".into(), WORD, true)),
            Judge::Step(Step::Verdict(Verdict::Accept)),
        ]
    },
};
const MEMORY: Feature = Feature {
    name: "maps that rules write (dynamic sets, CONFIG_NF_TABLES)",
    base: FORWARD,
    sets: &[set("memory", Data::Parts(&[Part::Word]), Kind::Dynamic(16))],
    steps: |_| {
        vec![
            Judge::Step(Step::Load(WORD, vec![0; 8])),
            Judge::Step(Step::Load(Word(2), vec![0; 4])),
            Judge::Step(Step::Remember(Change::Update, "memory".into(), WORD, Word(2), 1)),
        ]
    },
};

/// What translating to endpoints needs.
pub const TRANSLATING: &[Feature] = &[
    CONNECTIONS,
    DESTINATIONS,
    MASQUERADING,
    REJECTIONS,
    RANDOM,
    ADDRESS_TYPES,
    RANGES,
    MEMORY,
];
/// What judging connections needs.
pub const JUDGING: &[Feature] = &[CONNECTIONS, ENDS, RANGES];

/// Whether a refusal may come of something the kernel does not have. Any other failure (no memory, no right, a lost answer) says nothing of that.
fn may_lack(error: &Error) -> bool {
    let lacks = |errno| {
        matches!(
            errno,
            Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EAFNOSUPPORT
        )
    };
    matches!(error, Error::Commit(error) if error.errno().is_some_and(lacks))
}

/// The names of the features that `outcome` says are lacking.
fn lacking(features: &[Feature], mut outcome: impl FnMut(&Feature) -> Result<(), Error>) -> Vec<&'static str> {
    let lacks = |feature: &&Feature| outcome(feature).is_err_and(|error| may_lack(&error));
    features.iter().filter(lacks).map(|feature| feature.name).collect()
}

impl Connection {
    /// A refusal in the words of what the kernel lacks of `features` in `families` (`Ipv4`, `Ipv6`), if that may be why; else as it is.
    pub fn explain(&mut self, error: Error, families: &[Family], features: &[Feature]) -> Error {
        if !may_lack(&error) {
            return error;
        }
        let mut names: Vec<&str> = Vec::new();
        for family in families {
            for name in lacking(features, |feature| self.commit_bulk(&tried(feature, *family))) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        match error {
            Error::Commit(refusal) if !names.is_empty() => Error::Lacks(names.join("; "), refusal),
            error => error,
        }
    }
}

fn tried(feature: &Feature, family: Family) -> Batch {
    let chain = Chain {
        family,
        table: TABLE,
        name: "try",
    };
    let mut batch = Batch::new();
    batch.add_table(family, TABLE, None);
    for set in feature.sets {
        batch.add_set(family, TABLE, set);
    }
    batch.add_chain(chain, Some(feature.base), None);
    batch.add_judgement(chain, &(feature.steps)(family));
    batch.delete_table(family, TABLE);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};

    /// A rule that looks into a set that is not there is refused by any kernel, as one is that needs what the kernel does not have.
    const NONE_HAS: Feature = Feature {
        name: "what no kernel has",
        base: FORWARD,
        sets: &[],
        steps: |_| {
            vec![
                Judge::Step(Step::Load(WORD, vec![0; 8])),
                Judge::Step(Step::In("none".into(), WORD, true)),
            ]
        },
    };

    fn refused(errno: Errno) -> Error {
        Error::Commit(crate::Error::Refused(errno))
    }

    #[test]
    fn what_is_lacking_is_named_and_nothing_is_left() {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root makes namespaces");
            let mut connection = Connection::open().unwrap();
            let families = [Family::Ipv4, Family::Ipv6];
            for features in [TRANSLATING, JUDGING] {
                for family in families {
                    let outcome = |feature: &Feature| connection.commit_bulk(&tried(feature, family));
                    assert_eq!(lacking(features, outcome), [""; 0], "{family:?}");
                }
                // Where nothing is lacking the refusal is what it was.
                let explained = connection.explain(refused(Errno::ENOENT), &families, features);
                assert!(matches!(explained, Error::Commit(_)), "{explained}");
            }
            let features = [CONNECTIONS, NONE_HAS];
            let explained = connection.explain(refused(Errno::EINVAL), &families, &features);
            assert_eq!(
                explained.to_string(),
                "this kernel's nf_tables lacks: what no kernel has"
            );
            let cause = std::error::Error::source(&explained).map(ToString::to_string);
            assert_eq!(cause.as_deref(), Some("invalid argument"), "why it was asked");
            // Who is full has all.
            let explained = connection.explain(refused(Errno::ENOSPC), &families, &features);
            assert!(matches!(explained, Error::Commit(_)), "{explained}");
            for family in families {
                assert_eq!(connection.fingerprint(family, TABLE).unwrap(), None);
            }
        });
        thread.join().expect("the thread does not panic");
    }
    /// A kernel that is out of memory for a moment, or an answer that is lost, is no kernel without the feature.
    #[test]
    fn only_a_refusal_of_the_feature_says_that_it_is_lacking() {
        let outcomes = [
            Err(refused(Errno::ENOBUFS)),
            Err(refused(Errno::ENOMEM)),
            Err(refused(Errno::EPERM)),
            Err(Error::Contended),
            Err(Error::Commit(crate::Error::Receive(
                std::io::ErrorKind::WouldBlock.into(),
            ))),
            Ok(()),
            Err(refused(Errno::EOPNOTSUPP)),
            Err(refused(Errno::ENOENT)),
        ];
        let mut outcomes = outcomes.into_iter();
        let found = lacking(TRANSLATING, |_| outcomes.next().expect("one for each feature"));
        assert_eq!(found, [RANGES.name, MEMORY.name]);
    }
}
