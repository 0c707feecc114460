//! A batch: changes the kernel makes all together or not at all. Pure.

use super::expression::Expression;
use super::wire::*;
use crate::codec::{Attributes, Message};
use crate::wire::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO};

/// A chain, named with its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain<'a> {
    /// Family of the table.
    pub family: Family,
    /// Name of the table.
    pub table: &'a str,
    /// Name of the chain.
    pub name: &'a str,
}

/// Where packets enter a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain<'a> {
    /// `nat` or `filter`.
    pub kind: &'a str,
    /// Hook number: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
    pub hook: u32,
    /// Order among the chains of the hook.
    pub priority: i32,
}

/// Where in its chain a new rule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before all others.
    First,
    /// Behind all others.
    Last,
}

/// What a rule carries beside its expressions; both may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a> {
    /// Shown by nft.
    pub comment: &'a str,
    /// Invisible; says whose the rule is.
    pub label: &'a str,
}

/// Changes under construction.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<Message>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The changes, in order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends a change made elsewhere in this module.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Makes a table unless it exists.
    pub fn add_table(&mut self, family: Family, name: &str, comment: Option<&str>) {
        let mut message = start(NFT_MSG_NEWTABLE, NLM_F_CREATE, family).attr_str(NFTA_TABLE_NAME, name);
        if let Some(comment) = comment {
            message = message.attr(NFTA_TABLE_USERDATA, &comment_data(comment));
        }
        self.messages.push(message);
    }

    /// Deletes a table and everything in it.
    pub fn delete_table(&mut self, family: Family, name: &str) {
        self.messages
            .push(start(NFT_MSG_DELTABLE, 0, family).attr_str(NFTA_TABLE_NAME, name));
    }

    /// Makes a chain unless it exists.
    pub fn add_chain(&mut self, chain: Chain<'_>, base: Option<BaseChain<'_>>, comment: Option<&str>) {
        let mut message = named_chain(NFT_MSG_NEWCHAIN, NLM_F_CREATE, chain);
        if let Some(base) = base {
            let hook = Attributes::new()
                .attr_be32(NFTA_HOOK_HOOKNUM, base.hook)
                .attr_be32(NFTA_HOOK_PRIORITY, base.priority as u32);
            message = message
                .nested(NFTA_CHAIN_HOOK, hook)
                .attr_str(NFTA_CHAIN_TYPE, base.kind);
        }
        if let Some(comment) = comment {
            message = message.attr(NFTA_CHAIN_USERDATA, &comment_data(comment));
        }
        self.messages.push(message);
    }

    /// Deletes a chain, which nothing may refer to any more.
    pub fn delete_chain(&mut self, chain: Chain<'_>) {
        self.messages.push(named_chain(NFT_MSG_DELCHAIN, 0, chain));
    }

    /// Deletes every rule of a chain.
    pub fn flush_chain(&mut self, chain: Chain<'_>) {
        self.messages.push(named_rule(NFT_MSG_DELRULE, 0, chain));
    }

    /// Appends a rule; the kernel tells its handle.
    pub fn add_rule(&mut self, chain: Chain<'_>, expressions: &[Expression], comment: Option<&str>) {
        self.push_rule(NLM_F_APPEND, chain, expressions, comment, "");
    }

    /// Puts a rule before the others of its chain.
    pub fn insert_rule(&mut self, chain: Chain<'_>, expressions: &[Expression], comment: Option<&str>) {
        self.push_rule(0, chain, expressions, comment, "");
    }

    /// Adds a rule with an invisible label, by which [`super::Rule::label`] knows it again, and a comment unless it is empty.
    pub fn add_labelled_rule(&mut self, chain: Chain<'_>, place: Place, expressions: &[Expression], words: Words<'_>) {
        let flags = if place == Place::Last { NLM_F_APPEND } else { 0 };
        let comment = Some(words.comment).filter(|comment| !comment.is_empty());
        self.push_rule(flags, chain, expressions, comment, words.label);
    }

    /// Appends a rule with an invisible mark, by which [`super::Rule::mark`] knows it again.
    pub fn add_marked_rule(&mut self, chain: Chain<'_>, expressions: &[Expression], mark: u8) {
        let message = rule_message(NLM_F_CREATE | NLM_F_APPEND, chain, expressions);
        self.messages
            .push(message.attr(NFTA_RULE_USERDATA, &[UDATA_MARK, 1, mark]));
    }

    fn push_rule(
        &mut self,
        flags: u16,
        chain: Chain<'_>,
        expressions: &[Expression],
        comment: Option<&str>,
        label: &str,
    ) {
        let mut message = rule_message(NLM_F_CREATE | NLM_F_ECHO | flags, chain, expressions);
        let mut data = comment.map(comment_data).unwrap_or_default();
        if !label.is_empty() {
            data.extend(text_data(UDATA_LABEL, label));
        }
        if !data.is_empty() {
            message = message.attr(NFTA_RULE_USERDATA, &data);
        }
        self.messages.push(message);
    }

    /// Deletes a rule by its handle.
    pub fn delete_rule(&mut self, chain: Chain<'_>, handle: u64) {
        let message = named_rule(NFT_MSG_DELRULE, 0, chain);
        self.messages
            .push(message.attr(NFTA_RULE_HANDLE, &handle.to_be_bytes()));
    }
}

fn rule_message(flags: u16, chain: Chain<'_>, expressions: &[Expression]) -> Message {
    let list = expressions.iter().fold(Attributes::new(), |list, expression| {
        list.nested(NFTA_LIST_ELEM, expression.encode())
    });
    named_rule(NFT_MSG_NEWRULE, flags, chain).nested(NFTA_RULE_EXPRESSIONS, list)
}

/// `struct nfgenmsg` behind the header: family, version 0, resource 0.
pub(super) fn start(kind: u16, flags: u16, family: Family) -> Message {
    Message::new((NFNL_SUBSYS_NFTABLES << 8) | kind, flags, &[family as u8, 0, 0, 0])
}

pub(super) fn named_rule(kind: u16, flags: u16, chain: Chain<'_>) -> Message {
    start(kind, flags, chain.family)
        .attr_str(NFTA_RULE_TABLE, chain.table)
        .attr_str(NFTA_RULE_CHAIN, chain.name)
}

pub(super) fn named_chain(kind: u16, flags: u16, chain: Chain<'_>) -> Message {
    start(kind, flags, chain.family)
        .attr_str(NFTA_CHAIN_TABLE, chain.table)
        .attr_str(NFTA_CHAIN_NAME, chain.name)
}

/// The frame of a batch; `generation` makes the kernel refuse it when the rule set has changed since.
pub(super) fn frame(kind: u16, generation: Option<u32>) -> Message {
    let resource = NFNL_SUBSYS_NFTABLES.to_be_bytes();
    let message = Message::new(kind, 0, &[0, 0, resource[0], resource[1]]);
    match generation {
        Some(generation) => message.attr(NFNL_BATCH_GENID, &generation.to_be_bytes()),
        None => message,
    }
}

/// A comment as nft stores it: type, length, text and NUL; cut at the longest length nft accepts.
fn comment_data(comment: &str) -> Vec<u8> {
    text_data(UDATA_COMMENT, comment)
}

fn text_data(kind: u8, text: &str) -> Vec<u8> {
    let mut end = text.len().min(MAX_COMMENT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut data = vec![kind, end as u8 + 1];
    data.extend_from_slice(&text.as_bytes()[..end]);
    data.push(0);
    data
}

/// The comment in a listed rule's user data.
pub(super) fn read_comment(data: &[u8]) -> Option<String> {
    find_user_data(data, UDATA_COMMENT).map(crate::codec::read_text)
}

/// The label in a listed rule's user data.
pub(super) fn read_label(data: &[u8]) -> Option<String> {
    find_user_data(data, UDATA_LABEL).map(crate::codec::read_text)
}

/// The mark in a listed rule's user data.
pub(super) fn read_mark(data: &[u8]) -> Option<u8> {
    find_user_data(data, UDATA_MARK)?.first().copied()
}

fn find_user_data(mut data: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, rest @ ..] = data {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(value);
        }
        data = &rest[usize::from(*length)..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::expression::{Comparison, Side, Verdict, address_in, jump_targets};

    const CHAIN: Chain<'_> = Chain {
        family: Family::Inet,
        table: "t",
        name: "c",
    };

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_a_rule() {
        let mut batch = Batch::new();
        batch.add_rule(CHAIN, &[Expression::Verdict(Verdict::Goto("x".into()))], Some("hi"));
        assert_eq!(
            batch.messages()[0].encode(1, 0),
            [
                &[108, 0, 0, 0, 6, 10, 0x08, 0x0c, 1, 0, 0, 0, 0, 0, 0, 0][..], // NEWRULE, create|append|echo
                &[1, 0, 0, 0],                                                  // inet, version 0
                &[6, 0, 1, 0, b't', 0, 0, 0],
                &[6, 0, 2, 0, b'c', 0, 0, 0],
                &[60, 0, 4, 0x80], // expressions
                &[56, 0, 1, 0x80], // element
                &[
                    14, 0, 1, 0, b'i', b'm', b'm', b'e', b'd', b'i', b'a', b't', b'e', 0, 0, 0
                ],
                &[36, 0, 2, 0x80],
                &[8, 0, 1, 0, 0, 0, 0, 0],                   // into the verdict register
                &[24, 0, 2, 0x80, 20, 0, 2, 0x80],           // data, verdict
                &[8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc],       // goto
                &[6, 0, 2, 0, b'x', 0, 0, 0],                // x
                &[9, 0, 7, 0, 0, 3, b'h', b'i', 0, 0, 0, 0], // comment
            ]
            .concat()
        );
    }

    #[test]
    fn comments_are_cut_and_read_back() {
        assert_eq!(read_comment(&comment_data("net: a")).as_deref(), Some("net: a"));
        assert_eq!(
            read_comment(&comment_data(&"x".repeat(300))).unwrap().len(),
            MAX_COMMENT_BYTES
        );
        assert_eq!(read_comment(&[1, 2, 9, 9, 0, 2, b'a', 0]).as_deref(), Some("a"));
        assert_eq!(read_comment(&[0, 9, 1]), None);
    }

    #[test]
    fn a_whole_address_needs_no_mask() {
        let steps = |text: &str| address_in(Side::Source, Comparison::Equal, Cidr::parse(text).unwrap()).len();
        assert_eq!(
            (
                steps("10.0.0.1/32"),
                steps("10.0.0.1/24"),
                steps("fd00::/128"),
                steps("fd00::/64")
            ),
            (2, 3, 2, 3)
        );
    }

    #[test]
    fn jumps_are_found_in_listed_rules() {
        let list = Attributes::new()
            .nested(NFTA_LIST_ELEM, Expression::Masquerade.encode())
            .nested(
                NFTA_LIST_ELEM,
                Expression::Verdict(Verdict::Jump("CNI-x".into())).encode(),
            );
        let bytes = Message::new(0, 0, &[]).attributes(&list).encode(0, 0);
        assert_eq!(jump_targets(&bytes[16..]), ["CNI-x"]);
    }

    use crate::cidr::Cidr;
    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(bytes: Vec<u8>) {
            let _ = (read_comment(&bytes), jump_targets(&bytes));
        }
    }
}
