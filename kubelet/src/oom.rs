//! Tells on the node of processes that the kernel killed because the machine had no memory left (kubelet contract §10).
//!
//! Reads the kernel's log (`/dev/kmsg`) from its end on. A container that ran into its own limit is its pod's to tell, by the runtime:
//! only where the whole machine ran out is an event of the node's. Where the log cannot be read, nothing is told and all else works.

use crate::events::Severity;
use crate::host::readiness;
use crate::parts::Parts;
use crate::reason::event;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

/// The longest record the kernel gives.
const RECORD_MAX: usize = 8192;
/// The facility of the kernel's own records; others are anybody's who may write the log.
const KERNEL: u32 = 0;

/// A process that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Victim {
    name: String,
    pid: u32,
}

/// Who was killed for want of the machine's own memory, of one record: `priority,sequence,time,flags;text` and more lines.
fn system_victim(record: &str) -> Option<Victim> {
    let (prefix, text) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    let told = text.lines().next()?.strip_prefix("oom-kill:constraint=")?;
    let (constraint, told) = told.split_once(',')?;
    // What is behind the constraint contains names of strangers' making: the process id is read from the end.
    if priority >> 3 != KERNEL || constraint == "CONSTRAINT_MEMCG" {
        return None;
    }
    let (told, _) = told.rsplit_once(",uid=")?;
    let (told, pid) = told.rsplit_once(",pid=")?;
    let (_, name) = told.rsplit_once(",task=")?;
    Some(Victim {
        name: name.to_owned(),
        pid: pid.parse().ok()?,
    })
}

/// The kernel's log.
struct KernelLog {
    file: AsyncFd<File>,
    buffer: Vec<u8>,
}

impl KernelLog {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file: readiness::watched(file, Interest::READABLE)?,
            buffer: vec![0; RECORD_MAX],
        })
    }

    /// The next record. Cancel safe: one is read at once or not at all.
    async fn next(&mut self) -> io::Result<String> {
        loop {
            let mut ready = self.file.readable_mut().await?;
            let buffer = &mut self.buffer;
            match ready.try_io(|file| file.get_mut().read(buffer)) {
                Err(_) => {}
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Ok(length)) => {
                    let record = self.buffer.get(..length).unwrap_or_default();
                    return Ok(String::from_utf8_lossy(record).into_owned());
                }
                // Records were written over before they were read: the next read goes on after the gap.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {}
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

/// Watches until shut down, or until the log can no longer be read.
pub async fn watch(parts: Arc<Parts>, path: PathBuf, shutdown: CancellationToken) {
    let watching = async {
        let mut log = KernelLog::open(&path)?;
        loop {
            if let Some(victim) = system_victim(&log.next().await?) {
                let (recorder, node) = (&parts.recorder, &parts.context.node_name);
                let message = told(&victim);
                recorder.node(node, Severity::Warning, event::SYSTEM_OOM, message);
            }
        }
    };
    let ended: io::Result<()> = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        ended = watching => ended,
    };
    if let Err(error) = ended {
        tracing::warn!(log = %path.display(), %error, "processes that the kernel kills for want of memory will not be told");
    }
}

fn told(victim: &Victim) -> String {
    format!(
        "System OOM encountered, victim process: {}, pid: {}",
        victim.name, victim.pid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOBAL: &str = "6,1234,5678901,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
        task_memcg=/kubepods/pod1/c,task=stress,pid=4711,uid=0\n SUBSYSTEM=memory\n";

    #[test]
    fn a_process_killed_for_the_whole_machine_is_told() {
        let victim = system_victim(GLOBAL).expect("a victim");
        assert_eq!(
            told(&victim),
            "System OOM encountered, victim process: stress, pid: 4711"
        );
        let of_cpus = GLOBAL.replace("CONSTRAINT_NONE", "CONSTRAINT_CPUSET");
        assert!(system_victim(&of_cpus).is_some());
    }

    #[test]
    fn limits_of_containers_strangers_and_nonsense_are_not() {
        let of_container = GLOBAL
            .replace("CONSTRAINT_NONE", "CONSTRAINT_MEMCG")
            .replace("global_oom", "oom_memcg=/kubepods/pod1");
        assert_eq!(system_victim(&of_container), None);
        assert_eq!(
            system_victim(&GLOBAL.replacen("6,", "14,", 1)),
            None,
            "a program wrote it"
        );
        for nonsense in [
            "",
            ";",
            "6",
            "6,1,2,-;hello",
            "6,1,2,-;oom-kill:constraint=",
            "x,1,2,-;oom-kill:constraint=A,pid=1,uid=0",
        ] {
            assert_eq!(system_victim(nonsense), None, "{nonsense}");
        }
        assert_eq!(system_victim(&GLOBAL.replace("pid=4711", "pid=many")), None);
    }

    #[test]
    fn a_name_that_pretends_changes_nothing_but_itself() {
        let pretends = GLOBAL.replace("task=stress", "task=a,pid=1,uid=0");
        let victim = system_victim(&pretends).expect("a victim");
        assert_eq!((victim.pid, victim.name.as_str()), (4711, "a,pid=1,uid=0"));
        let inside = GLOBAL.replace("CONSTRAINT_NONE", "CONSTRAINT_MEMCG").replace(
            "cpuset=/",
            "cpuset=x,mems_allowed=0,global_oom,constraint=CONSTRAINT_NONE",
        );
        assert_eq!(system_victim(&inside), None);
    }

    #[tokio::test]
    async fn records_are_read_as_they_come_and_a_log_that_ends_or_cannot_be_read_is_an_error() {
        use std::io::Write;
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let nonblocking = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&file, nonblocking).expect("set");
        let mut log = KernelLog {
            file: readiness::watched(file, Interest::READABLE).expect("watched"),
            buffer: vec![0; RECORD_MAX],
        };
        writer.write_all(GLOBAL.as_bytes()).expect("written");
        let record = log.next().await.expect("a record");
        assert!(system_victim(&record).is_some(), "{record}");
        drop(writer);
        assert!(log.next().await.is_err());
        assert!(KernelLog::open(Path::new("/nowhere/kmsg")).is_err());
    }
}
