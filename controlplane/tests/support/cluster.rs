//! A daemon under test: started on a free loopback port in a temporary directory, ended when dropped.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long the daemon may take to be ready on a busy machine.
const READY_DEADLINE: Duration = Duration::from_secs(60);

const BINARY: &str = env!("CARGO_BIN_EXE_controlplane");

/// A running daemon with its data.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    port: u16,
    flags: Vec<String>,
    child: Child,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing is left to be done if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Cluster {
    /// Starts a daemon and waits until it says it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (port, flags) = (free_port(), flags.iter().map(|flag| (*flag).to_owned()).collect());
        let child = spawn(dir.path(), port, &flags);
        Self {
            dir,
            port,
            flags,
            child,
        }
    }

    /// Ends the daemon without warning and starts it again.
    #[allow(dead_code)]
    pub(crate) fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.dir.path(), self.port, &self.flags);
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// Runs kubectl as administrator; its output, which must be a success.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.kubectl_with(words, "")
    }

    /// As [`Cluster::kubectl`], with text on standard input.
    pub(crate) fn kubectl_with(&self, words: &[&str], input: &str) -> String {
        succeeded(words, &self.run(words, input)).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// `kubectl edit` with a command for an editor; what it printed, and whether it succeeded.
    #[allow(dead_code)]
    pub(crate) fn kubectl_edit(&self, editor: &str, words: &[&str]) -> Result<String, String> {
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("edit")
            .args(words)
            .env("HOME", self.dir.path())
            .env("KUBE_EDITOR", editor)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        succeeded(words, &output).map(|text| text + &told)
    }

    /// Runs kubectl as administrator; its error text, for it must fail.
    pub(crate) fn kubectl_fails(&self, words: &[&str], input: &str) -> String {
        succeeded(words, &self.run(words, input)).expect_err("kubectl succeeded")
    }

    /// Runs kubectl with the given credential flags (a token, or another kubeconfig) alone.
    pub(crate) fn as_token(&self, token: &[&str], words: &[&str]) -> Result<String, String> {
        let server = format!("--server=https://127.0.0.1:{}", self.port);
        let ca = format!(
            "--certificate-authority={}",
            self.dir.path().join("pki/ca.crt").display()
        );
        let mut all = vec!["--kubeconfig=/dev/null", server.as_str(), ca.as_str()];
        all.extend(token);
        all.extend(words);
        succeeded(&all, &self.run_plain(&all, ""))
    }

    /// A kubeconfig with a fresh client certificate, as the subcommand prints it.
    pub(crate) fn kubeconfig_for(&self, user: &str, group: &str) -> tempfile::NamedTempFile {
        let server = format!("https://127.0.0.1:{}", self.port);
        let words = [
            "kubeconfig",
            "--user",
            user,
            "--group",
            group,
            "--server",
            &server,
            "--data-dir",
        ];
        let output = Command::new(BINARY).args(words).arg(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&output.stdout).unwrap();
        file
    }

    /// Starts kubectl as administrator and reads its output while it runs.
    pub(crate) fn kubectl_lines(&self, words: &[&str]) -> Lines {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(words)
            .env("HOME", self.dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Lines { child, lines }
    }

    fn run(&self, words: &[&str], input: &str) -> Output {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        let mut all = vec![kubeconfig.as_str()];
        all.extend(words);
        self.run_plain(&all, input)
    }

    fn run_plain(&self, words: &[&str], input: &str) -> Output {
        let mut child = Command::new("kubectl")
            .args(words)
            // Discovery is cached under the home directory; each cluster has its own.
            .env("HOME", self.dir.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be installed");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn succeeded(words: &[&str], output: &Output) -> Result<String, String> {
    let _ = words;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + &text(&output.stderr))
    }
}

/// A kubectl that goes on, and what it prints.
pub(crate) struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    /// The next line, which must come.
    pub(crate) fn next_line(&mut self) -> String {
        self.lines.recv_timeout(READY_DEADLINE).expect("kubectl printed a line")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // Nothing is left to be done if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(output: std::process::ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn spawn(dir: &Path, port: u16, flags: &Vec<String>) -> Child {
    let mut child = Command::new(BINARY)
        .arg("--data-dir")
        .arg(dir)
        .args(["--bind-address=127.0.0.1", "--secure-port", &port.to_string()])
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines_of(child.stdout.take().unwrap());
    let line = lines.recv_timeout(READY_DEADLINE).expect("the daemon became ready");
    assert!(
        line.starts_with("controlplane is ready at https://127.0.0.1:"),
        "{line}"
    );
    child
}

/// Runs the daemon, which must end with exit code 1 by itself; its error text.
pub(crate) fn run_to_failure(flags: &[&str]) -> String {
    let output = Command::new(BINARY).args(flags).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
