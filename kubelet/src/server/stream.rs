//! exec, attach, port-forward and run: the runtime names a URL, and the upgraded connection is tunnelled to it: byte by byte, or
//! translated where the client speaks a newer protocol than runtimes do.

mod tunnel;

use super::Server;
use super::answer::{self, Answer};
use super::request::Query;
use super::router::Target;
use crate::pod::view::PodSnapshot;
use crate::runtime::RuntimeError;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, UPGRADE};
use proto::cri;
use std::sync::Arc;
use std::time::Duration;
use streaming::translate::Streams;
use streaming::websocket;
use tunnel::Way;

fn failed(error: &RuntimeError) -> Answer {
    let code = if error.is_not_found() { 404 } else { 500 };
    answer::text(code, &format!("{error}\n"))
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

/// Asks the runtime for a stream and passes the request on to it, if there is room for another.
async fn proxied(
    server: &Server,
    url: impl Future<Output = Result<String, RuntimeError>>,
    request: Request<Incoming>,
    way: Way,
) -> Answer {
    let Ok(place) = server.streams.clone().try_acquire_owned() else {
        return answer::text(429, "too many streams are open on this node\n");
    };
    match url.await {
        Err(error) => failed(&error),
        Ok(url) => tunnel::tunnel(&url, request, way, server.settings.stream_idle, place).await,
    }
}

/// `/exec`.
pub(super) async fn exec(server: &Server, target: &Target, query: &Query, request: Request<Incoming>) -> Answer {
    let (container, wanted) = match (find_container(server, target), wanted(query)) {
        (Ok(container), Ok(wanted)) => (container, wanted),
        (Err(answer), _) | (_, Err(answer)) => return *answer,
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
    proxied(server, server.parts.runtime.exec(asked), request, way).await
}

/// `/attach`.
pub(super) async fn attach(server: &Server, target: &Target, query: &Query, request: Request<Incoming>) -> Answer {
    let (container, wanted) = match (find_container(server, target), wanted(query)) {
        (Ok(container), Ok(wanted)) => (container, wanted),
        (Err(answer), _) | (_, Err(answer)) => return *answer,
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
    proxied(server, server.parts.runtime.attach(asked), request, way).await
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
    proxied(server, server.parts.runtime.port_forward(asked), request, way).await
}

/// `/run`: runs a command to its end and answers with what it wrote.
pub(super) async fn run(server: &Server, target: &Target, query: &Query) -> Answer {
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
    match server
        .parts
        .runtime
        .exec_sync(&container.id, &command, Duration::ZERO)
        .await
    {
        Err(error) => failed(&error),
        Ok(output) => {
            let code = output.exit_code;
            let mut bytes = output.stdout;
            bytes.extend(output.stderr);
            if code != 0 {
                let text = String::from_utf8_lossy(&bytes);
                return answer::text(500, &format!("command terminated with exit code {code}: {text}\n"));
            }
            answer::bytes(bytes)
        }
    }
}
