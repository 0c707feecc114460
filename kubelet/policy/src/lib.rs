//! NetworkPolicy (networking.k8s.io/v1): which traffic of this node's pods is let through. Enforced by the kernel in a table of
//! our own, `skiff_policy`; nothing is asked of user space for a packet.
//!
//! | module | owns |
//! |---|---|
//! | [`selector`], [`range`], [`spec`], [`facts`] | what policies and pods mean: labels, blocks, ports, defaults (pure) |
//! | [`world`] | the cluster as far as policies go, and what the kernel must hold because of it (pure) |
//! | [`change`] | what is to become of the table, as values (pure) |
//! | [`kernel`] | the table's bytes, and this node's kernel |
//! | [`gate`] | a pod's addresses before its containers start |
//! | [`last`] | what was known last, for a start without an API server |
//! | `strain` | whether the kernel is given less than there is, as it has no room |
//! | [`run`] | the one loop |
//! | [`run_by_the_last`] | what holds until the cluster can be read |
//! | [`settings`] | what the node decides, and what is told of failures |
//!
//! It never makes or changes an interface, a route, an address or a kernel switch, and never touches another table.
//!
//! # What holds
//! - **Where packets are judged.** In the forward hook: behind the translation of destinations (so the pod behind a Service
//!   counts, by its own address and port) and before that of sources. Traffic between a pod and its own node passes the input
//!   and output hooks and is always allowed, as the API has it; so are kubelet's probes. What the node itself sends to a
//!   Service whose endpoint is on it is not judged either.
//! - **Pods of one bridge.** Where br_netfilter is on for a family, bridged packets pass the forward hook. Where it is not,
//!   frames from pod to pod are given the bridge's own hardware address by a table of the bridge family, so that the node
//!   routes them (one hop more; neighbour discovery stays as it is). Bridges are known by carrying an address of the node's
//!   pod ranges, and looked at when a pod comes and every [`settings::LOOK_PERIOD`]: until then a switch that is turned off
//!   meanwhile hides packets. Judging in the bridge family itself would need nf_conntrack_bridge, and could not see
//!   translated addresses.
//! - **Link-local addresses** (fe80::/10) are in no policy and in no pod's status. While the cluster has any policy, pods of
//!   one bridge do not reach each other from or to them, pods without policies neither; neighbour discovery goes on. With
//!   br_netfilter on for IPv6 that holds for every bridge of the node, for the forward hook is not told which one it is.
//! - **Packets for all or several** (broadcast, multicast) have no one end that could be judged. While the cluster has any
//!   policy, those from addresses of the node's ranges do not pass from pod to pod of a bridge, nor are they routed; pods without
//!   policies do not get them neither. Frames to all or several carry no packet to an address of these ranges. Neighbour discovery
//!   and the reports of multicast listeners go on.
//! - **Established connections.** No packet passes because an earlier one did: each is judged by its connection's two ends,
//!   both ways. A connection that becomes denied stops with the batch that says so, and goes on if it is allowed again.
//!   Answers to allowed connections pass, and errors (ICMP) about them. A connection conntrack has never seen, in the middle
//!   of its life when the first policy comes, is taken for one begun by whoever sends next.
//! - **Packets without a connection** (invalid, or exempt from tracking by somebody) pass isolated pods only where all
//!   traffic is allowed.
//! - **New pods.** While there is any policy, addresses of this node's ranges that are no known pod's are held back, so
//!   nothing reaches a sandbox, or leaves it, before [`gate::Gate::prepare`] has put its rules there. Other users of
//!   addresses in these ranges are held back too.
//! - **Without any policy** there is no table, no rule, and, [`settings::KEEP_PERIOD`] after the last, no copy of the cluster's pods.
//! - **Without an API server** what stands in the kernel stands on. After a boot nothing does: then a cluster that had no policies
//!   last has none, and of one that had some the containers start and their traffic is held back, but for static pods'
//!   ([`run_by_the_last`]).
//! - **ICMP** has no ports: rules with ports do not let it through, rules without do. Named ports of egress rules are the
//!   destination pod's. Pods in the node's network are no peers by selector, only by address.
//! - **Failures** leave what the kernel holds in force. What a policy asks that cannot be done is told as
//!   [`settings::Notice::Flawed`], and lets nothing through. So are rules beyond what is bounded: [`spec::MOST_RULES`],
//!   [`spec::MOST_SELECTIONS`] and [`spec::MOST_RANGES`] of one policy.
//! - **What a node has for policies** is bounded: members of all sets of peers together, requirements of their selectors, ranges
//!   of addresses and ports, rules of the kernel's ([`world::Shortage`]). Where that does not do for all, it is shared out by the
//!   policies' namespaces: those with no more than an equal part have all they ask for, the biggest users' newest sets are
//!   empty (and some of their pods without any rule that lets something through), which is told as a flaw, until there is
//!   room again. A kernel that has no room for it again and again is given half, for some minutes: not nothing.
//! - **An address that is used again** while the API server still shows its old pod: see [`gate`].
//!
//! Sources are believed: a pod that sends with another pod's address is not found out here (the bridge plugin's
//! `macspoofchk` and filters of addresses are another matter).

mod away;
pub mod change;
mod decide;
pub mod facts;
pub mod gate;
mod keep;
pub mod kernel;
pub mod last;
pub mod range;
mod run;
pub mod selector;
pub mod settings;
pub mod spec;
mod strain;
pub mod world;

pub use away::run_by_the_last;
pub use run::{Sources, remove, run};
