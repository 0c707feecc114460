//! Commands of the tests: run to their end within a limit, or in the background. Nothing here knows a cluster.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, bail};

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    succeed(command, None)
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn succeed(command: Command, input: Option<&[u8]>) -> anyhow::Result<String> {
    let (line, output) = finish(command, input)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{line}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(text)
}

/// Runs a command that must fail by itself (not by a signal or a time limit); returns what it said.
pub(crate) fn fail(command: Command, input: Option<&[u8]>) -> anyhow::Result<String> {
    let (line, output) = finish(command, input)?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    match output.status.code() {
        Some(0) => bail!("{line}: succeeded, with\n{text}"),
        Some(code) if code < 124 => Ok(text),
        _ => bail!(
            "{line}: {} in place of an error of its own, with\n{text}",
            output.status
        ),
    }
}

/// Runs a command to its end; it is killed after two minutes.
pub(crate) fn finish(command: Command, input: Option<&[u8]>) -> anyhow::Result<(String, Output)> {
    let line = format!("{command:?}");
    let mut limited = Command::new("timeout");
    limited
        .args(["--kill-after=5", "120"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    limited
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = limited.spawn().with_context(|| line.clone())?;
    // Written beside the reading, or a command that answers early would block on a full pipe.
    let writer = child
        .stdin
        .take()
        .zip(input.map(<[u8]>::to_vec))
        .map(|(mut pipe, bytes)| {
            std::thread::spawn(move || {
                // A command that does not read its input to the end closes the pipe.
                let _ = pipe.write_all(&bytes);
            })
        });
    let output = child.wait_with_output().with_context(|| line.clone())?;
    if let Some(writer) = writer {
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("{line}: writing its input panicked"))?;
    }
    Ok((line, output))
}

/// A command that runs in the background with its output in a file; killed when dropped.
pub(crate) struct Background {
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Background {
    /// Starts the command.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let output = tempfile::NamedTempFile::new()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.reopen()?)
            .stderr(output.reopen()?)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        Ok(Self { child, output })
    }

    /// What it has written so far.
    pub(crate) fn output(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.output.path())?)
    }

    /// Whether it has ended by itself.
    pub(crate) fn ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
