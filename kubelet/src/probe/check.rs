//! One check, carried out now: exec, httpGet, tcpSocket or grpc (kubelet contract §4.4).

use super::grpc;
use super::http::{self, Question};
use crate::expansion::{START_BYTES_MAX, TooLong, expand};
use crate::id::ContainerId;
use crate::runtime::{Runtime, RuntimeError};
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::Code;

/// The most of a command's output that is told, bytes.
const OUTPUT_BYTES_MAX: usize = 10 * 1024;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether it passed.
    pub passed: bool,
    /// A warning although it passed.
    pub warning: bool,
    /// What to tell of it.
    pub message: String,
}

impl Report {
    /// It passed.
    pub fn passed() -> Self {
        Self {
            passed: true,
            warning: false,
            message: String::new(),
        }
    }

    /// It failed, and says why.
    pub fn failed(message: String) -> Self {
        Self {
            passed: false,
            warning: false,
            message,
        }
    }

    /// It passed, but not as it should.
    pub fn warned(message: String) -> Self {
        Self {
            passed: true,
            warning: true,
            message,
        }
    }
}

/// What is checked.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The container's spec.
    pub container: &'a Container,
    /// The instance.
    pub id: &'a ContainerId,
    /// The pod's address.
    pub pod_ip: &'a str,
}

/// How long one check may take.
pub fn timeout(probe: &Probe) -> Duration {
    let seconds = probe
        .timeout_seconds
        .and_then(|s| u64::try_from(s).ok())
        .filter(|s| *s > 0)
        .unwrap_or(1);
    Duration::from_secs(seconds)
}

/// Why a probe could not be carried out; `Display` is what the `Unhealthy` event says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A port that is none, by number or by a name the container does not have.
    #[error("invalid port number: {0}")]
    Port(String),
    /// A question no HTTP server can be asked.
    #[error("{0}")]
    Question(String),
    /// A probe of a kind there is none of.
    #[error("missing or unsupported probe handler for {0}")]
    NoHandler(String),
    /// A word with which the command is more than a process can be started with.
    #[error("exec.command[{0}]: command exceeds maximum size of 2MB")]
    Size(usize),
    /// The runtime could not run the command.
    #[error(transparent)]
    Exec(RuntimeError),
}

/// Carries a probe out. `Err` is a probe that could not be carried out, which says nothing about the container.
pub async fn check(runtime: &dyn Runtime, probe: &Probe, target: &Target<'_>) -> Result<Report, CheckError> {
    let limit = timeout(probe);
    if let Some(exec) = &probe.exec {
        return run_command(runtime, exec, target, limit).await;
    }
    if let Some(get) = &probe.http_get {
        let question = question(get, target)?;
        let url = question.url();
        return match tokio::time::timeout(limit, http::ask(question)).await {
            Ok(report) => report,
            Err(_) => Ok(Report::failed(format!(
                "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ))),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        return connect(tcp, target, limit).await;
    }
    if let Some(action) = &probe.grpc {
        let port = port(&IntOrString::Int(action.port), target.container)?;
        let service = action.service.as_deref().unwrap_or_default();
        return Ok(grpc::ask(&host_and_port(target.pod_ip, port), service, limit).await);
    }
    Err(CheckError::NoHandler(target.container.name.clone()))
}

async fn run_command(
    runtime: &dyn Runtime,
    exec: &ExecAction,
    target: &Target<'_>,
    limit: Duration,
) -> Result<Report, CheckError> {
    let command = words(exec, target.container)?;
    match runtime.exec_sync(target.id, &command, limit).await {
        Ok(output) if output.exit_code == 0 => Ok(Report::passed()),
        Ok(output) => {
            let mut bytes = output.stdout;
            bytes.extend(output.stderr);
            bytes.truncate(OUTPUT_BYTES_MAX);
            Ok(Report::failed(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Err(error) if error.code == Code::DeadlineExceeded => {
            let words = command.join(" ");
            let words = &words[..words.floor_char_boundary(OUTPUT_BYTES_MAX)];
            Ok(Report::failed(format!(
                "command timed out: {words:?} timed out after {}s",
                limit.as_secs()
            )))
        }
        Err(error) => Err(CheckError::Exec(error)),
    }
}

/// The words of a command, expanded.
fn words(exec: &ExecAction, container: &Container) -> Result<Vec<String>, CheckError> {
    let mut left = START_BYTES_MAX;
    let word = |(at, word): (usize, &String)| {
        let word = expand(word, left, |name| literal(name, container)).map_err(|TooLong| CheckError::Size(at))?;
        left = left.checked_sub(word.len() + 1).ok_or(CheckError::Size(at))?;
        Ok(word)
    };
    exec.command.iter().flatten().enumerate().map(word).collect()
}

fn question(get: &HTTPGetAction, target: &Target<'_>) -> Result<Question, CheckError> {
    let https = get
        .scheme
        .as_deref()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let host = get
        .host
        .as_deref()
        .filter(|host| !host.is_empty())
        .unwrap_or(target.pod_ip);
    let port = port(&get.port, target.container)?;
    Ok(Question::new(
        https,
        host,
        port,
        get.path.as_deref().unwrap_or("/"),
        get.http_headers.as_ref(),
    ))
}

/// Upstream's dialer sets SO_LINGER to a second. Ours does not: Linux keeps a closed connection as long with it as without, and a close that
/// lingers would block its thread for that second where the other side is silent.
async fn connect(tcp: &TCPSocketAction, target: &Target<'_>, limit: Duration) -> Result<Report, CheckError> {
    let port = port(&tcp.port, target.container)?;
    let host = tcp
        .host
        .as_deref()
        .filter(|host| !host.is_empty())
        .unwrap_or(target.pod_ip);
    let address = host_and_port(host, port);
    Ok(match tokio::time::timeout(limit, TcpStream::connect(&address)).await {
        Ok(Ok(_)) => Report::passed(),
        Ok(Err(error)) => Report::failed(dial_error(&address, &error)),
        Err(_) => Report::failed(format!("dial tcp {address}: i/o timeout")),
    })
}

fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A connection that failed, in the words users know.
pub(super) fn dial_error(address: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {why}")
}

/// A port by number, or by its name in the container.
pub(crate) fn port(wanted: &IntOrString, container: &Container) -> Result<u16, CheckError> {
    let invalid = |port: &dyn std::fmt::Display| CheckError::Port(port.to_string());
    match wanted {
        IntOrString::Int(number) => u16::try_from(*number)
            .ok()
            .filter(|p| *p > 0)
            .ok_or_else(|| invalid(number)),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name));
            let number = named.map(|port| port.container_port).or_else(|| name.parse().ok());
            number
                .and_then(|n| u16::try_from(n).ok())
                .filter(|p| *p > 0)
                .ok_or_else(|| invalid(name))
        }
    }
}

/// A variable as the container's environment gives it in so many words; nothing is known here of one that comes from elsewhere, which is
/// empty, as upstream has it.
fn literal<'a>(name: &str, container: &'a Container) -> Option<&'a str> {
    let variable = container.env.iter().flatten().rfind(|variable| variable.name == name)?;
    Some(variable.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::container;
    use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, EnvVarSource};

    #[test]
    fn ports_by_number_and_name() {
        let mut c = container("c");
        c.ports = Some(vec![ContainerPort {
            name: Some("web".into()),
            container_port: 8080,
            ..Default::default()
        }]);
        assert_eq!(port(&IntOrString::Int(80), &c), Ok(80));
        assert_eq!(port(&IntOrString::String("web".into()), &c), Ok(8080));
        assert_eq!(port(&IntOrString::String("81".into()), &c), Ok(81));
        assert!(port(&IntOrString::String("none".into()), &c).is_err());
        assert!(port(&IntOrString::Int(0), &c).is_err() && port(&IntOrString::Int(70000), &c).is_err());
    }

    #[test]
    fn commands_expand_literal_variables_only() {
        let mut c = container("c");
        let variable = |name: &str, value: Option<&str>| EnvVar {
            name: name.into(),
            value: value.map(str::to_owned),
            value_from: value.is_none().then(EnvVarSource::default),
        };
        let half = "h".repeat(START_BYTES_MAX / 2);
        c.env = Some(vec![
            variable("A", Some("x")),
            variable("FROM", None),
            variable("HALF", Some(&half)),
        ]);
        let all = |command: &[&str]| {
            let command = Some(command.iter().map(|word| (*word).to_owned()).collect());
            words(&ExecAction { command }, &c)
        };
        let cases = [
            ("<$(FROM)>", "<>"),
            ("$(A)/y", "x/y"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("a$b", "a$b"),
            ("$(A", "$(A"),
        ];
        for (word, expected) in cases {
            assert_eq!(all(&[word]), Ok(vec![expected.to_owned()]), "{word}");
        }
        assert!(all(&["x", "$(HALF)"]).is_ok());
        assert_eq!(all(&["x", "$(HALF)", "$(HALF)"]), Err(CheckError::Size(2)));
        assert_eq!(all(&["$(HALF)$(HALF)$(A)"]), Err(CheckError::Size(0)));
    }

    #[tokio::test]
    async fn a_tcp_probe_connects() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = i32::from(listener.local_addr().expect("address").port());
        let (c, id) = (container("c"), ContainerId::from("1"));
        let target = Target {
            container: &c,
            id: &id,
            pod_ip: "127.0.0.1",
        };
        let tcp = TCPSocketAction {
            host: None,
            port: IntOrString::Int(port),
        };
        assert_eq!(
            connect(&tcp, &target, Duration::from_secs(5)).await,
            Ok(Report::passed())
        );
        drop(listener);
        let report = connect(&tcp, &target, Duration::from_secs(5))
            .await
            .expect("carried out");
        assert_eq!(
            report.message,
            format!("dial tcp 127.0.0.1:{port}: connect: connection refused")
        );
    }
}
