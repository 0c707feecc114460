//! The process that holds a pod's namespaces open.
//!
//! Owns nothing but its own end: it reaps every orphan handed to it (it is process 1 when the pod shares one process
//! namespace) and exits 0 on TERM or INT. It never opens a file, starts a process or allocates after its start.

use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "-v" || arg == "--version") {
        println!("pause {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    // Blocked signals stay pending until taken, also for process 1, to which the kernel never delivers an unblocked
    // signal that has its default action. So nothing can arrive unseen between two turns of the loop.
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGTERM);
    awaited.add(Signal::SIGINT);
    awaited.add(Signal::SIGCHLD);
    if let Err(error) = awaited.thread_block() {
        eprintln!("pause: blocking signals: {error}");
        return ExitCode::FAILURE;
    }
    loop {
        match awaited.wait() {
            Ok(Signal::SIGCHLD) => reap(),
            Ok(_) => return ExitCode::SUCCESS,
            Err(Errno::EINTR) => {}
            Err(error) => {
                eprintln!("pause: waiting for a signal: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// Collects every child that has ended: several exits may be merged into one SIGCHLD.
fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
