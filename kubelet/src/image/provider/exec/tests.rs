//! Plugins that behave, and plugins that do not: real processes, shells all of them.

use super::*;
use std::path::Path;

fn shell(script: &str) -> Program {
    Program {
        path: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("OWN".into(), "set".into())],
    }
}

async fn said(script: &str) -> Result<String, String> {
    let answer = run(&shell(script), b"request").await;
    answer
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| error.to_string())
}

/// Waits until no process has that number.
async fn gone(file: &Path) {
    let pid = std::fs::read_to_string(file).expect("its number");
    let status = format!("/proc/{}/stat", pid.trim());
    let runs = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
    while runs() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_plugin_reads_the_request_and_answers() {
    assert_eq!(said("cat; echo \" $OWN\"").await, Ok("request set\n".into()));
    assert_eq!(said("echo answer").await, Ok("answer\n".into()), "who does not read it");
}

#[tokio::test]
async fn a_failure_is_told_with_what_it_complained_of() {
    assert_eq!(
        said("echo no login >&2; exit 3").await,
        Err("exit status 3: no login".into())
    );
    assert_eq!(said("kill -9 $$").await, Err("signal: 9: ".into()));
    let long = said("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1")
        .await
        .expect_err("it failed");
    assert_eq!(long.len(), "exit status 1: ".len() + COMPLAINT_MAX);
    let absent = run(
        &Program {
            path: "/nowhere/plugin".into(),
            ..shell("")
        },
        b"",
    )
    .await;
    assert!(matches!(absent, Err(ExecError::Start(_))));
}

#[tokio::test]
async fn a_plugin_that_never_stops_talking_is_killed() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec cat /dev/zero", file.display());
    assert_eq!(said(&script).await, Err("the answer has more than 262144 bytes".into()));
    gone(&file).await;
}

#[tokio::test]
async fn who_is_left_behind_does_not_hold_the_answer() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; echo answer", file.display());
    assert_eq!(said(&script).await, Ok("answer\n".into()));
    gone(&file).await;
    // Nor does one that closed what it was given stay.
    std::fs::remove_file(&file).expect("removed");
    let script = format!(
        "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > {}; echo answer",
        file.display()
    );
    assert_eq!(said(&script).await, Ok("answer\n".into()));
    gone(&file).await;
    // One that left the group lives on, but holds nobody.
    let script = format!(
        "setsid sleep 1000 & until read -r p c s o g session r </proc/$!/stat && [ $session = $! ]; do :; done; echo $! > {}; \
         echo answer",
        file.display()
    );
    assert_eq!(said(&script).await, Ok("answer\n".into()));
    let pid: i32 = std::fs::read_to_string(&file)
        .expect("its number")
        .trim()
        .parse()
        .expect("a number");
    let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_is_killed_with_its_children() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait", file.display());
    let program = shell(&script);
    let run = run(&program, b"");
    let mut run = std::pin::pin!(run);
    // Time stands still until its child is there.
    let begun = async {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut run => panic!("it hangs"),
        () = begun => {}
    }
    assert!(matches!(run.await, Err(ExecError::Deadline(_))));
    tokio::time::resume();
    gone(&file).await;
}
