//! What is compared: an engine makes batches durable and gives everything back after a crash. Reads are not compared, because the
//! control plane reads from memory only.

use bytes::Bytes;
use imbl::OrdMap;
use std::path::Path;
use std::sync::Arc;

pub mod etcd;
pub mod fjall;
pub mod log;
pub mod redb;

/// Everything the store holds, as the control plane's window has it in memory anyway.
pub type State = OrdMap<Arc<str>, Bytes>;

/// One write: the value, or `None` for a deletion.
pub type Write = (Arc<str>, Option<Bytes>);

/// A durable home for [`State`].
pub trait Engine: Send {
    /// Reads everything back.
    fn load(&mut self) -> anyhow::Result<State>;
    /// Returns once the batch is durable. `state` is what it leads to, batch included.
    fn commit(&mut self, batch: &[Write], state: &State) -> anyhow::Result<()>;
    /// The process that does the work, if it is another one.
    fn process(&self) -> Option<u32> {
        None
    }
}

/// The names [`open`] knows.
pub const NAMES: [&str; 5] = ["redb", "redb-quick", "fjall", "log", "etcd"];

/// Opens or makes the engine called `name` in `directory`.
pub fn open(name: &str, directory: &Path) -> anyhow::Result<Box<dyn Engine>> {
    std::fs::create_dir_all(directory)?;
    Ok(match name {
        "redb" => Box::new(redb::Redb::open(directory, false)?),
        "redb-quick" => Box::new(redb::Redb::open(directory, true)?),
        "fjall" => Box::new(fjall::Fjall::open(directory)?),
        "etcd" => Box::new(etcd::Server::open(directory)?),
        "log" => Box::new(log::Log::open(directory)?),
        other => anyhow::bail!("no engine {other}: {}", NAMES.join(", ")),
    })
}
