//! nf_tables over netlink. [`expression`] and [`batch`] are pure codecs; [`Connection`] sends batches, lists rules and
//! deletes them, repeating its work when the rule set changed meanwhile.

pub mod batch;
pub mod bulk;
pub mod connection;
pub mod expression;
pub mod feature;
pub mod judge;
pub mod set;
pub mod step;
pub mod wire;

pub use batch::{BaseChain, Batch, Chain, Place, Words};
pub use connection::{Connection, Error, Rule};
pub use expression::Expression;
pub use wire::Family;
