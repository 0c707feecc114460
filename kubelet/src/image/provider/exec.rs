//! Running a plugin: the request on its input, the answer on its output, a minute at most.
//!
//! Owns the processes it starts: a plugin that hangs, says too much or leaves children behind is killed with its process group. A
//! child that left the group holds nothing of ours for longer than [`LINGER`]. Never logs what a plugin is told or says; of its
//! complaints the beginning is in the error.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// How long a plugin may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// How long output is waited for once the plugin itself has ended: others may hold it.
const LINGER: Duration = Duration::from_secs(1);
/// The most an answer may have.
pub(super) const ANSWER_MAX: usize = 256 * 1024;
/// What is kept of a plugin's complaints; the rest is read and dropped.
const COMPLAINT_MAX: usize = 4 * 1024;

/// A plugin's binary, and what it is always run with.
#[derive(Clone, Debug)]
pub struct Program {
    /// The binary.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to this process' environment.
    pub env: Vec<(String, String)>,
}

/// Why a plugin gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started, or its pipes failed.
    #[error("{0}")]
    Start(#[from] io::Error),
    /// It did not end in time.
    #[error("context deadline exceeded: {0}")]
    Deadline(String),
    /// It ended badly.
    #[error("{status}: {complaint}")]
    Failed {
        /// How, as Go says it.
        status: String,
        /// What it complained of.
        complaint: String,
    },
    /// It said more than an answer may have.
    #[error("the answer has more than {ANSWER_MAX} bytes")]
    TooLong,
}

/// The process group of a plugin: killed when this goes, unless everything of it has ended.
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // It may have ended by itself; there is nobody to tell.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a plugin once.
pub(super) async fn run(program: &Program, request: &[u8]) -> Result<Vec<u8>, ExecError> {
    let deadline = Instant::now() + DEADLINE;
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    // It returns when the binary was read, and that may lie on a file system that hangs.
    let spawned = client::blocking::spawn(move || command.spawn());
    let spawned = tokio::time::timeout_at(deadline, spawned).await;
    let spawned = spawned.map_err(|_| ExecError::Deadline("the plugin is not started".to_owned()))?;
    let mut child = spawned.map_err(io::Error::other)??;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let mut group = Group(id);
    let mut complaint = Vec::new();
    let talk = talk(&mut child, &mut group, request, &mut complaint);
    let talked = tokio::time::timeout_at(deadline, talk).await;
    let complaint = String::from_utf8_lossy(&complaint).trim_end().to_owned();
    match talked {
        Err(_) => Err(ExecError::Deadline(complaint)),
        Ok(Err(error)) => Err(error),
        Ok(Ok((status, answer))) if status.success() => Ok(answer),
        Ok(Ok((status, _))) => Err(ExecError::Failed {
            status: status_text(status),
            complaint,
        }),
    }
}

fn status_text(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal: {}", signal.unwrap_or_default()),
    }
}

async fn talk(
    child: &mut Child,
    group: &mut Group,
    request: &[u8],
    complaint: &mut Vec<u8>,
) -> Result<(ExitStatus, Vec<u8>), ExecError> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let leader = group.0;
    let mut answer = Vec::new();
    {
        let feed = async {
            if let Some(mut input) = input {
                // Who does not want to know the request need not read it.
                let _ = input.write_all(request).await;
            }
        };
        let pipes = async {
            let read = read_answer(output, &mut answer);
            let (_, read, _) = futures::future::join3(feed, read, read_complaint(errors, complaint)).await;
            read
        };
        let mut pipes = std::pin::pin!(pipes);
        let mut ended = std::pin::pin!(ended(leader));
        let mut are_closed = false;
        loop {
            tokio::select! {
                biased;
                read = &mut pipes, if !are_closed => {
                    read?;
                    are_closed = true;
                }
                ended = &mut ended => {
                    ended?;
                    // Whoever is left of its group is of no use. Until it is waited for, below, the group's number is nobody else's.
                    group.kill();
                    if !are_closed
                        && let Ok(read) = tokio::time::timeout(LINGER, &mut pipes).await
                    {
                        read?;
                    }
                    break;
                }
            }
        }
    }
    Ok((child.wait().await?, answer))
}

/// Waits until a child of this process has ended, and leaves it to be waited for.
async fn ended(child: Option<Pid>) -> io::Result<()> {
    let Some(child) = child else { return Ok(()) };
    let mut children = signal(SignalKind::child())?;
    let looked = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(child), looked) {
            Ok(WaitStatus::StillAlive) => drop(children.recv().await),
            Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn read_answer(from: Option<impl AsyncRead + Unpin>, answer: &mut Vec<u8>) -> Result<(), ExecError> {
    let Some(mut from) = from else { return Ok(()) };
    while from.read_buf(answer).await? > 0 {
        if answer.len() > ANSWER_MAX {
            return Err(ExecError::TooLong);
        }
    }
    Ok(())
}

async fn read_complaint(from: Option<impl AsyncRead + Unpin>, complaint: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut part = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        let room = COMPLAINT_MAX.saturating_sub(complaint.len());
        complaint.extend_from_slice(&part[..read.min(room)]);
    }
}

#[cfg(test)]
mod tests;
