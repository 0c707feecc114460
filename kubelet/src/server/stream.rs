//! exec, attach, port-forward and run: the runtime names a URL, and the upgraded connection is tunnelled to it: byte by byte, or
//! translated where the client speaks a newer protocol than runtimes do.

mod tunnel;

use super::Server;
use super::answer::{self, Answer};
use super::request::Query;
use super::router::Target;
use super::share::{Share, Shares};
use crate::id::PodUid;
use crate::metrics::Begun;
use crate::pod::view::PodSnapshot;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use crate::runtime::{ExecOutput, RuntimeError};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, UPGRADE};
use proto::cri;
use std::sync::Arc;
use std::time::Duration;
use streaming::translate::Streams;
use streaming::websocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tunnel::Way;

/// When to come again to a runtime that has too many streams waiting, as upstream says (the time its tokens live).
const BUSY_WAIT: Duration = Duration::from_secs(60);

fn failed(error: &RuntimeError) -> Answer {
    let text = format!("{error}\n");
    if error.is_exhausted() {
        return answer::busy(&text, BUSY_WAIT);
    }
    answer::text(if error.is_not_found() { 404 } else { 500 }, &text)
}

fn find_pod(server: &Server, target: &Target) -> Result<Arc<PodSnapshot>, Box<Answer>> {
    let found = server.parts.pods.get(&target.namespace, &target.pod);
    let matches = |s: &Arc<PodSnapshot>| target.uid.is_none() || s.pod.metadata.uid == target.uid;
    found
        .filter(matches)
        .ok_or_else(|| Box::new(answer::text(404, "pod does not exist\n")))
}

fn find_container(server: &Server, target: &Target) -> Result<ObservedContainer, Box<Answer>> {
    let snapshot = find_pod(server, target)?;
    let runs = snapshot
        .observed
        .containers
        .iter()
        .filter(|c| c.name == target.container);
    let mut running = runs.filter(|c| c.state == ContainerState::Running);
    let missing = || {
        let text = format!("container not found ({:?})\n", target.container);
        Box::new(answer::text(500, &text))
    };
    running.next().cloned().ok_or_else(missing)
}

/// What a request wants to be upgraded to. WebSockets that speak an older protocol than ours go to the runtime as they are,
/// as upstream's do.
fn way_of(
    request: &Request<Incoming>,
    newest: &'static str,
    translated: impl FnOnce(HeaderMap) -> Way,
) -> Result<Way, Box<Answer>> {
    let upgrade = request.headers().get(UPGRADE).and_then(|v| v.to_str().ok());
    if websocket::is_asked_for(request.headers()) {
        if !websocket::offers(request.headers(), newest) {
            return Ok(Way::AsItIs);
        }
        // Judged before the runtime is asked for a stream that would then be left lying.
        let accepted = websocket::accept(request.headers(), newest);
        let refused = |error: websocket::HandshakeError| Box::new(answer::text(400, &format!("{error}\n")));
        return accepted.map(translated).map_err(refused);
    }
    if upgrade.is_some_and(|upgrade| upgrade.to_ascii_lowercase().contains("spdy/3.1")) {
        return Ok(Way::AsItIs);
    }
    let text = "unable to upgrade: missing upgrade headers in request\n";
    Err(Box::new(answer::text(400, text)))
}

/// The streams and the terminal a request asks for.
fn wanted(query: &Query) -> Result<Streams, Box<Answer>> {
    let tty = query.on("tty");
    let wanted = Streams {
        stdin: query.on("input"),
        stdout: query.on("output"),
        // A terminal has one output.
        stderr: query.on("error") && !tty,
        tty,
    };
    if wanted.stdin || wanted.stdout || wanted.stderr {
        Ok(wanted)
    } else {
        let text = "you must specify at least 1 of stdin, stdout, stderr\n";
        Err(Box::new(answer::text(400, text)))
    }
}

/// What a stream holds while it is open.
struct Place {
    _among_all: OwnedSemaphorePermit,
    _of_pod: Share<PodUid>,
    /// The request, which is under way until its stream ends.
    _request: Option<Arc<Begun>>,
}

impl Place {
    /// A place for a request, or why there is none.
    fn take<B>(
        all: &Arc<Semaphore>,
        of_pods: &Shares<PodUid>,
        pod: &PodUid,
        request: &Request<B>,
    ) -> Result<Self, &'static str> {
        let of_pod = of_pods.take(pod.clone());
        let of_pod = of_pod.ok_or("too many streams are open into this pod\n")?;
        let among_all = all.clone().try_acquire_owned();
        Ok(Self {
            _among_all: among_all.map_err(|_| "too many streams are open on this node\n")?,
            _of_pod: of_pod,
            _request: request.extensions().get().cloned(),
        })
    }
}

/// Asks the runtime for a stream into a pod and passes the request on to it, if there is room for another.
async fn proxied(
    server: &Server,
    pod: &PodUid,
    url: impl Future<Output = Result<String, RuntimeError>>,
    request: Request<Incoming>,
    way: Way,
) -> Answer {
    let place = match Place::take(&server.streams, &server.of_pods, pod, &request) {
        Ok(place) => place,
        Err(why) => return answer::text(429, why),
    };
    match url.await {
        Err(error) => failed(&error),
        Ok(url) => tunnel::tunnel(&url, request, way, server.settings.stream_idle, place).await,
    }
}

/// `/exec`.
pub(super) async fn exec(server: &Server, target: &Target, query: &Query, request: Request<Incoming>) -> Answer {
    let asked = wanted(query).and_then(|wanted| Ok((wanted, find_container(server, target)?)));
    let (wanted, container) = match asked {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let way = match way_of(&request, websocket::V5, |accepted| Way::Channels(wanted, accepted)) {
        Ok(way) => way,
        Err(answer) => return *answer,
    };
    let asked = cri::ExecRequest {
        container_id: container.id.to_string(),
        cmd: query.all("command"),
        tty: wanted.tty,
        stdin: wanted.stdin,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
    };
    proxied(server, &container.pod, server.parts.runtime.exec(asked), request, way).await
}

/// `/attach`.
pub(super) async fn attach(server: &Server, target: &Target, query: &Query, request: Request<Incoming>) -> Answer {
    let asked = wanted(query).and_then(|wanted| Ok((wanted, find_container(server, target)?)));
    let (wanted, container) = match asked {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let way = match way_of(&request, websocket::V5, |accepted| Way::Channels(wanted, accepted)) {
        Ok(way) => way,
        Err(answer) => return *answer,
    };
    let asked = cri::AttachRequest {
        container_id: container.id.to_string(),
        stdin: wanted.stdin,
        tty: wanted.tty,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
    };
    proxied(server, &container.pod, server.parts.runtime.attach(asked), request, way).await
}

/// `/portForward`.
pub(super) async fn port_forward(
    server: &Server,
    target: &Target,
    query: &Query,
    request: Request<Incoming>,
) -> Answer {
    let snapshot = match find_pod(server, target) {
        Ok(snapshot) => snapshot,
        Err(answer) => return *answer,
    };
    let Some(sandbox) = snapshot.observed.sandboxes.iter().find(|s| s.ready) else {
        return answer::text(500, &format!("pod {:?} is not running\n", target.pod));
    };
    let way = match way_of(&request, websocket::PORT_FORWARD, Way::Unwrapped) {
        Ok(way) => way,
        Err(answer) => return *answer,
    };
    let asked = cri::PortForwardRequest {
        pod_sandbox_id: sandbox.id.to_string(),
        port: query.all("port").iter().filter_map(|p| p.parse().ok()).collect(),
    };
    let url = server.parts.runtime.port_forward(asked);
    proxied(server, &snapshot.observed.uid, url, request, way).await
}

/// `/run`: runs a command to its end and answers with what it wrote.
pub(super) async fn run<B>(server: &Server, target: &Target, query: &Query, request: &Request<B>) -> Answer {
    let container = match find_container(server, target) {
        Ok(container) => container,
        Err(answer) => return *answer,
    };
    let command: Vec<String> = query
        .first("cmd")
        .unwrap_or_default()
        .split(' ')
        .map(str::to_owned)
        .collect();
    let _place = match Place::take(&server.streams, &server.of_pods, &container.pod, request) {
        Ok(place) => place,
        Err(why) => return answer::text(429, why),
    };
    let running = server.parts.runtime.exec_sync(&container.id, &command, Duration::ZERO);
    match running.await {
        Err(error) => failed(&error),
        Ok(output) => ran(&command, output),
    }
}

/// What a command that ran is answered with.
fn ran(command: &[String], output: ExecOutput) -> Answer {
    if output.exit_code != 0 {
        let (command, code) = (command.join(" "), output.exit_code);
        let complaint = String::from_utf8_lossy(&output.stderr);
        return answer::text(500, &format!("command '{command}' exited with {code}: {complaint}"));
    }
    let mut bytes = output.stdout;
    bytes.extend(output.stderr);
    answer::bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tonic::Code;

    #[test]
    fn a_runtime_that_has_too_many_streams_is_to_be_asked_later() {
        for (code, status, wait) in [
            (Code::ResourceExhausted, 429, Some("60")),
            (Code::NotFound, 404, None),
            (Code::Unknown, 500, None),
        ] {
            let answer = failed(&RuntimeError::new("Exec", code, "why"));
            let told = answer
                .headers()
                .get("retry-after")
                .and_then(|value| value.to_str().ok());
            assert_eq!((answer.status().as_u16(), told), (status, wait));
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_is_told_in_upstreams_words() {
        let command = ["cat", "x"].map(str::to_owned);
        let output = |exit_code| ExecOutput {
            exit_code,
            stdout: b"out\n".to_vec(),
            stderr: b"err\n".to_vec(),
        };
        for (code, status, text) in [(0, 200, "out\nerr\n"), (3, 500, "command 'cat x' exited with 3: err\n")] {
            let answer = ran(&command, output(code));
            assert_eq!(answer.status().as_u16(), status);
            assert_eq!(answer.into_body().collect().await.expect("body").to_bytes(), text);
        }
    }
}
