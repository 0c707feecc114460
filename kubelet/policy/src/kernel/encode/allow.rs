//! The rules of what a pod is let have. Pure.

use netlink::nft::Batch;
use netlink::nft::expression::{Comparison, Verdict};
use netlink::nft::judge::{End, Judge, Known};
use netlink::nft::step::{Step, Word};

use super::{DENIED, FIRST, address_bytes, behind, chain, end, is_in, set_name, step, verdict};
use crate::change::{Allow, Chain};
use crate::range::Range;
use crate::spec::Direction;

/// Fills a chain that is new: what is let through, and that nothing else is.
pub(super) fn add_chain_rules(batch: &mut Batch, name: &str, content: &Chain) {
    for allow in &content.allows {
        batch.add_judgement(chain(name), &allow_rule(allow, content));
    }
    batch.add_judgement(chain(name), &[verdict(Verdict::Goto(DENIED.to_owned()))]);
}

/// Stops unless the address that `load` loads is in the range.
fn within(range: Range, load: Judge) -> Vec<Judge> {
    let all = if range.v4 { u128::from(u32::MAX) } else { u128::MAX };
    let compare = |how, number| step(Step::Compare(FIRST, how, address_bytes(range.v4, number)));
    match (range.first, range.last) {
        (0, last) if last == all => Vec::new(),
        (first, last) if first == last => vec![load, compare(Comparison::Equal, first)],
        (first, last) => vec![
            load,
            compare(Comparison::AtLeast, first),
            compare(Comparison::AtMost, last),
        ],
    }
}

fn allow_rule(allow: &Allow, content: &Chain) -> Vec<Judge> {
    let v4 = content.v4;
    let behind = behind(v4);
    let other = match content.direction {
        Direction::Ingress => End::Initiator,
        Direction::Egress => End::Responder,
    };
    let mut rule = Vec::new();
    if let Some(set) = allow.peers {
        rule.extend([end(other, v4, FIRST), is_in(&set_name(set))]);
    }
    if let Some(set) = allow.blocks {
        let protocol = Judge::Known(Known::Protocol, Word(behind));
        rule.extend([end(other, v4, FIRST), protocol, is_in(&set_name(set))]);
    }
    if let Some(range) = allow.within {
        rule.extend(within(range, end(other, v4, FIRST)));
    }
    if let Some(set) = allow.ports {
        rule.extend([
            Judge::Known(Known::Protocol, FIRST),
            Judge::Known(Known::Port, Word(1)),
            is_in(&set_name(set)),
        ]);
    }
    if let Some(set) = allow.places {
        rule.extend([
            end(End::Responder, v4, FIRST),
            Judge::Known(Known::Protocol, Word(behind)),
            Judge::Known(Known::Port, Word(behind + 1)),
            is_in(&set_name(set)),
        ]);
    }
    rule.push(verdict(Verdict::Return));
    rule
}
