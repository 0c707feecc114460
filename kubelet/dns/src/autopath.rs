//! The search path answered in one question, as CoreDNS's plugin of this name does: who asks for the first name of its search path,
//! where nothing is, is answered what it would have found further on, behind a CNAME that says where. Pure.
//!
//! | rule | why |
//! |---|---|
//! | only for sources whose search path is known for certain | any other would get answers to names it never asks for |
//! | only names with fewer dots than `ndots` | others are asked as they are first |
//! | the first name that is there decides, with data of the type or without | so does a resolver that goes on without data at the next name by itself, and A and AAAA agree about what the name is |
//! | whatever fails on the way: the answer that nothing is there | the client goes on by itself, and meets the failure itself |
//!
//! One departure no responder can avoid: a name that is asked as it is, and is not there, looks the same as the first of a search.
//! It gets the answer of the search. So this is off unless it is asked for, as in CoreDNS's usual configuration.

use crate::wire::name::labels;
use crate::wire::{Name, Query, kind};
use std::net::IpAddr;
use std::sync::Arc;

/// The most names that are tried for one question: what a resolv.conf of a pod may have (kubelet contract, DNS), and the name itself.
const TRIED_MAX: usize = 33;

/// How a source looks for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath {
    /// The domains of `search`, in order; the first is the one of its namespace.
    pub domains: Vec<String>,
    /// With fewer dots than these a name is looked for in the domains first.
    pub ndots: usize,
}

/// The search path of a source, if it is known for certain that it has this one and no other. Asked on the thread that answers, for
/// names that are not there: it must not wait.
pub type SearchPaths = Arc<dyn Fn(IpAddr) -> Option<SearchPath> + Send + Sync>;

/// The names that are still to be tried for a question.
#[derive(Debug)]
pub struct Walk {
    /// In reverse.
    left: Vec<Name>,
}

impl Walk {
    /// Whether a question may be the first of a search in a namespace: then it is worth asking whose. `zone` is the cluster's.
    pub fn is_likely(query: &Query, zone: &Name) -> bool {
        let Some(svc) = Name::of(&[b"\x03svc", zone.wire()]) else {
            return false;
        };
        let below = query.lower.wire().strip_suffix(svc.wire());
        query.kind != kind::ANY && below.is_some_and(|below| labels(below).nth(1).is_some())
    }

    /// What is to be tried, if the question is the first name of the path.
    pub fn of(query: &Query, path: &SearchPath) -> Option<Self> {
        let (first, others) = path.domains.split_first()?;
        let first = Name::parse(first)?.lower();
        // Labels begin where labels of the name begin: what is in front of the suffix must end with one.
        let base = query.lower.wire().strip_suffix(first.wire())?;
        let count = labels(base).count();
        let is_whole = labels(base).map(|label| label.len() + 1).sum::<usize>() == base.len();
        if !is_whole || count == 0 || count > path.ndots {
            return None;
        }
        let base = query.name.wire().get(..base.len())?;
        let mut left = Vec::with_capacity(others.len() + 1);
        for domain in others.iter().take(TRIED_MAX - 1) {
            // A name that is too long nobody can ask for.
            left.extend(Name::of(&[base, Name::parse(domain)?.wire()]));
        }
        left.extend(Name::of(&[base, Name::ROOT.wire()]));
        left.reverse();
        Some(Self { left })
    }
}

impl Iterator for Walk {
    type Item = Name;

    fn next(&mut self) -> Option<Name> {
        self.left.pop()
    }
}

#[cfg(test)]
mod tests;
