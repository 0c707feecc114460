//! Netlink, and what goes with it: the kernel's links, addresses, routes, queues, connections and rules, asked and changed
//! without a child process. Shared by the CNI plugins and the kubelet. Owns no state and no policy: what is to be there,
//! under which name, is its users'.
//!
//! | module | owns |
//! |---|---|
//! | [`codec`], [`wire`] | building and reading messages (pure), and the kernel's numbers |
//! | [`socket`] | the one blocking socket, with retries for interrupted dumps |
//! | [`link`], [`address`], [`route`], [`traffic`], [`conntrack`] | the messages this project needs |
//! | [`vxlan`], [`neighbour`], [`marked_route`] | tunnels, whom they lead to, and routes that say whose they are |
//! | [`monitor`] | what the kernel tells of changes |
//! | [`nft`] | nf_tables: a pure codec, batches, listing of rules |
//! | [`netns`] | network namespaces: checks, and work done inside one |
//! | [`sysctl`] | kernel switches under `/proc/sys/net` |
//! | [`cidr`] | an address with its prefix length |
//! | [`errno`] | the kernel's errors in the words of Go programs |

pub mod address;
pub mod cidr;
pub mod codec;
pub mod conntrack;
pub mod errno;
pub mod link;
pub mod marked_route;
pub mod monitor;
pub mod neighbour;
pub mod netns;
pub mod nft;
pub mod route;
pub mod socket;
mod sys;
pub mod sysctl;
pub mod traffic;
pub mod vxlan;
pub mod wire;

pub use socket::{Error, Protocol, Socket};
