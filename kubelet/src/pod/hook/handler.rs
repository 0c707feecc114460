//! One `exec`, `httpGet` or `sleep` handler, carried out now (kubelet contract §4.3).
//!
//! Owns what a handler does and the words of its failure. Never decides when a hook runs or whether it already did: a hook
//! ends when its future is dropped, which is how grace periods bound it. One that hangs ends after [`DEADLINE`].

#[cfg(test)]
mod tests;

use crate::id::ContainerId;
use crate::probe::check::{CheckError, port};
use crate::probe::http::{self, Question, Trouble};
use crate::runtime::{Runtime, RuntimeError};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler};
use std::time::Duration;

/// How hooks introduce themselves to HTTP servers.
const AGENT: &str = "kube-lifecycle/1.36";

/// The most a command or a request may take. Upstream has no such bound: a runtime that hangs would keep the pod starting
/// for ever and say nothing.
pub const DEADLINE: Duration = crate::runtime::EXEC_SYNC_MAX;

/// What a hook is run against.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The container's spec: its name, and its ports for those given by name.
    pub container: &'a Container,
    /// The instance.
    pub id: &'a ContainerId,
    /// The pod in messages, `name_namespace(uid)`.
    pub pod: &'a str,
    /// The pod's address, if it has one.
    pub pod_ip: Option<&'a str>,
}

/// How a hook went that worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// As asked.
    Plainly,
    /// Over plain HTTP although HTTPS was asked for: the host and port that answered so.
    WithoutTls(String),
}

/// Why a hook failed; `Display` is the message of a container that waits with `PostStartHookError`. What follows from it stands
/// in [`crate::pod::failure`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// A command that could not be run, or did not end with 0.
    #[error(
        "Exec lifecycle hook ([{words}]) for Container {container:?} in Pod {pod:?} failed - error: {why}, message: {output:?}"
    )]
    Exec {
        /// The command.
        words: String,
        /// The container's name.
        container: String,
        /// The pod.
        pod: String,
        /// What went wrong.
        why: CommandError,
        /// What it wrote.
        output: String,
    },
    /// A request without an answer.
    #[error("HTTP lifecycle hook ({path}) for Container {container:?} in Pod {pod:?} failed - error: {why}")]
    Http {
        /// The path asked for.
        path: String,
        /// The container's name.
        container: String,
        /// The pod.
        pod: String,
        /// What went wrong.
        why: RequestError,
    },
    /// A handler that is none this kubelet knows.
    #[error("Cannot run handler: invalid handler: {0}")]
    Invalid(String),
}

/// Why a hook's command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The runtime did not run it to its end.
    #[error(transparent)]
    Run(RuntimeError),
    /// It ended with another code than 0.
    #[error("command '{command}' exited with {code}: {stderr}")]
    Exit {
        /// The command.
        command: String,
        /// The code.
        code: i32,
        /// What it wrote to standard error.
        stderr: String,
    },
}

/// Why a hook's request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It names no host, and the pod has none.
    #[error("failed to find networking container: the pod has no address")]
    NoAddress,
    /// Its port is none of the container's, or none at all.
    #[error(transparent)]
    Port(CheckError),
    /// Nobody answered.
    #[error("Get \"{url}\": {trouble}")]
    Ask {
        /// What was asked for.
        url: String,
        /// Why not.
        trouble: Trouble,
    },
    /// Nobody answered within [`DEADLINE`].
    #[error("context deadline exceeded")]
    Deadline,
}

/// Runs a handler to its end, or to [`DEADLINE`]; a `sleep` takes as long as it says.
pub async fn run(runtime: &dyn Runtime, handler: &LifecycleHandler, target: &Target<'_>) -> Result<Done, HookError> {
    if let Some(exec) = &handler.exec {
        let command = exec.command.clone().unwrap_or_default();
        return run_command(runtime, &command, target).await;
    }
    if let Some(get) = &handler.http_get {
        let asked = tokio::time::timeout(DEADLINE, ask(get, target)).await;
        let asked = asked.unwrap_or(Err(RequestError::Deadline));
        return asked.map_err(|why| HookError::Http {
            path: get.path.clone().unwrap_or_default(),
            container: target.container.name.clone(),
            pod: target.pod.to_owned(),
            why,
        });
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        return Ok(Done::Plainly);
    }
    Err(HookError::Invalid(serde_json::to_string(handler).unwrap_or_default()))
}

async fn run_command(runtime: &dyn Runtime, command: &[String], target: &Target<'_>) -> Result<Done, HookError> {
    // Hooks have no timeout of their own, and their words are not expanded.
    let ran = tokio::time::timeout(DEADLINE, runtime.exec_sync(target.id, command, Duration::ZERO)).await;
    let ran = ran.unwrap_or_else(|_| Err(RuntimeError::deadline("ExecSync")));
    let (why, output) = match ran {
        Ok(output) if output.exit_code == 0 => return Ok(Done::Plainly),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let written = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr;
            let why = CommandError::Exit {
                command: command.join(" "),
                code: output.exit_code,
                stderr,
            };
            (why, written)
        }
        Err(error) => (CommandError::Run(error), String::new()),
    };
    Err(HookError::Exec {
        words: command.join(" "),
        container: target.container.name.clone(),
        pod: target.pod.to_owned(),
        why,
        output,
    })
}

/// Any answer is a success, whatever its status.
async fn ask(get: &HTTPGetAction, target: &Target<'_>) -> Result<Done, RequestError> {
    let host = get.host.as_deref().filter(|host| !host.is_empty()).or(target.pod_ip);
    let host = host.ok_or(RequestError::NoAddress)?;
    let https = get
        .scheme
        .as_deref()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let port = port(&get.port, target.container).map_err(RequestError::Port)?;
    let path = get.path.as_deref().unwrap_or("/");
    let mut question = Question::new(https, host, port, path, get.http_headers.as_ref());
    question.agent = AGENT;
    match http::follow(&mut question.clone()).await {
        // One that leads elsewhere is an answer like any other.
        Ok(_) => Ok(Done::Plainly),
        Err(Trouble::Plaintext) => {
            let authority = question.authority();
            let mut plain = question.clone();
            plain.https = false;
            plain
                .headers
                .retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            let again = http::follow(&mut plain).await;
            again
                .map(|_| Done::WithoutTls(authority))
                .map_err(|_| unanswered(&question, Trouble::Plaintext))
        }
        Err(trouble) => Err(unanswered(&question, trouble)),
    }
}

fn unanswered(question: &Question, trouble: Trouble) -> RequestError {
    let url = question.url();
    RequestError::Ask { url, trouble }
}
