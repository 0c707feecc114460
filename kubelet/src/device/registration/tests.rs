//! Over real sockets: whoever waits here waits for what the sockets bring, never for time.

use super::*;
use crate::device::testing::{Sample, device, until, well};
use crate::metrics::Metrics;
use crate::rpc::budget::Budget;
use hyper_util::rt::TokioIo;
use proto::device_plugin::registration_client::RegistrationClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

const R: &str = "example.com/dev";

struct Node {
    directory: tempfile::TempDir,
    devices: Devices,
    metrics: Metrics,
    shutdown: CancellationToken,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temp dir");
        let metrics = Metrics::new("n");
        Self {
            devices: Devices::open(directory.path().join("device-plugins"), metrics.devices.clone()),
            directory,
            metrics,
            shutdown: CancellationToken::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("device-plugins").join(name)
    }

    /// Serves registrations; a client of them.
    async fn serve(&self) -> RegistrationClient<Channel> {
        let handler = socket::handler(Registrar::methods(self.devices.clone(), self.shutdown.clone()));
        let listener = begin(self.devices.directory()).expect("begins");
        tokio::spawn(socket::serve(listener, handler, self.shutdown.clone()));
        let path = self.path(SOCKET);
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        RegistrationClient::new(endpoint.connect_with_connector(connector).await.expect("connects"))
    }
}

fn request(version: &str, endpoint: &str, resource: &str) -> pb::RegisterRequest {
    pb::RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    }
}

fn counts(devices: &Devices) -> (usize, usize) {
    let told = devices.capacity();
    (
        told.capacity.get(R).copied().unwrap_or_default(),
        told.allocatable.get(R).copied().unwrap_or_default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_registers_lists_dies_and_comes_back() {
    let node = Node::new();
    let mut client = node.serve().await;
    let first = Sample::new(well(&["a", "b"]));
    first.serve(&node.path("dev.sock"));
    client
        .register(request(VERSION, "dev.sock", R))
        .await
        .expect("registers");
    until(&node.devices, |devices| counts(devices) == (2, 2)).await;
    first.lists(vec![
        device("a", true, &[]),
        device("b", false, &[]),
        device("c", true, &[1]),
    ]);
    until(&node.devices, |devices| counts(devices) == (3, 2)).await;
    first.dies();
    until(&node.devices, |devices| counts(devices) == (3, 0)).await;
    let second = Sample::new(well(&["a"]));
    second.serve(&node.path("dev.sock"));
    client
        .register(request(VERSION, "dev.sock", R))
        .await
        .expect("registers");
    until(&node.devices, |devices| counts(devices) == (1, 1)).await;
    let text = node.metrics.text(&Default::default());
    let line = r#"kubelet_device_plugin_registration_total{resource_name="example.com/dev"} 2"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[tokio::test]
async fn a_socket_that_nobody_listens_at_yet_is_waited_for() {
    let node = Node::new();
    let path = node.directory.path().join("dev.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket of nobody's"));
    let plugin = Sample::new(well(&["a"]));
    // The first try comes before it listens.
    let budget = Budget::new(0);
    let (dialled, ()) = tokio::join!(Plugin::dial(&path, &path, &budget), async { plugin.serve(&path) });
    assert!(dialled.is_ok(), "{dialled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plugin_of_the_resource_takes_over() {
    let node = Node::new();
    let mut client = node.serve().await;
    let (first, second) = (Sample::new(well(&["a"])), Sample::new(well(&["b", "c"])));
    first.serve(&node.path("1.sock"));
    second.serve(&node.path("2.sock"));
    client.register(request(VERSION, "1.sock", R)).await.expect("registers");
    until(&node.devices, |devices| counts(devices) == (1, 1)).await;
    client.register(request(VERSION, "2.sock", R)).await.expect("registers");
    until(&node.devices, |devices| counts(devices) == (2, 2)).await;
    first.dies();
    node.devices.deregister(R, &node.path("1.sock"));
    let taken = node.devices.plugin(R).expect("the second one's");
    assert!(
        taken.registered_at(&node.path("2.sock")),
        "the old one's socket is not the new one's end"
    );
    node.devices.deregister(R, &node.path("2.sock"));
    until(&node.devices, |devices| counts(devices) == (2, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_registrations_of_one_endpoint_the_old_ones_end_is_not_the_new_ones() {
    let node = Node::new();
    let endpoint = node.directory.path().join("dev.sock");
    Sample::new(well(&["a"])).serve(&endpoint);
    let handler = node.devices.handler(node.shutdown.clone());
    let plugin = |registration: &str| found::Plugin {
        name: R.to_owned(),
        socket: node.directory.path().join(registration),
        endpoint: endpoint.clone(),
        versions: vec![VERSION.to_owned()],
    };
    for registration in ["old-reg.sock", "new-reg.sock"] {
        handler.register(&plugin(registration)).await.expect("registers");
        until(&node.devices, |devices| counts(devices) == (1, 1)).await;
    }
    handler.deregister(&plugin("old-reg.sock"));
    assert!(node.devices.plugin(R).is_some(), "the new one answers");
    handler.deregister(&plugin("new-reg.sock"));
    until(&node.devices, |devices| counts(devices) == (1, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_in_upstreams_words() {
    let node = Node::new();
    let mut client = node.serve().await;
    let dial = format!(
        "failed to dial device plugin: {}: No such file or directory",
        node.path("none.sock").display()
    );
    for (request, why) in [
        (
            request("v1alpha", "d.sock", R),
            r#"requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]"#,
        ),
        (
            request(VERSION, "d.sock", "cpu"),
            r#"the ResourceName "cpu" is invalid"#,
        ),
        (
            request(VERSION, "d.sock", "kubernetes.io/x"),
            r#"the ResourceName "kubernetes.io/x" is invalid"#,
        ),
        (
            request(VERSION, "../d.sock", R),
            r#"the endpoint "../d.sock" is not the name of a socket"#,
        ),
        (
            request(VERSION, "", R),
            r#"the endpoint "" is not the name of a socket"#,
        ),
        (
            request(VERSION, SOCKET, R),
            r#"the endpoint "kubelet.sock" is not the name of a socket"#,
        ),
        (request(VERSION, "none.sock", R), dial.as_str()),
    ] {
        let refused = client.register(request.clone()).await.expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::Unknown);
        assert!(refused.message().starts_with(why), "{}: {request:?}", refused.message());
    }
    assert!(node.devices.capacity().capacity.is_empty());
}

#[tokio::test]
async fn old_sockets_go_and_everything_else_stays() {
    let node = Node::new();
    let directory = node.devices.directory().to_owned();
    std::fs::create_dir_all(&directory).expect("a directory");
    let old = std::os::unix::net::UnixListener::bind(node.path("old.sock")).expect("listens");
    drop(old);
    for file in ["kubelet_internal_checkpoint", "notes"] {
        std::fs::write(node.path(file), "x").expect("writes");
    }
    let _listener = begin(&directory).expect("begins");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .expect("lists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["DEPRECATION", "kubelet.sock", "kubelet_internal_checkpoint", "notes"]
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&node.path(SOCKET))), (0o750, 0o600));
}

/// Plugins may write in the directory, and nowhere else.
#[tokio::test]
async fn what_a_plugin_plants_leads_nowhere() {
    use std::os::unix::fs::symlink;
    let node = Node::new();
    let directory = node.devices.directory().to_owned();
    std::fs::create_dir_all(&directory).expect("a directory");
    let precious = node.path("precious");
    std::fs::write(&precious, "x").expect("writes");
    symlink(&precious, node.path("DEPRECATION")).expect("link");
    drop(begin(&directory).expect("begins"));
    std::fs::remove_file(node.path("DEPRECATION")).expect("removes");
    nix::unistd::mkfifo(&node.path("DEPRECATION"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    drop(begin(&directory).expect("begins, and waits for nobody"));
    for name in ["kubelet_internal_checkpoint", "kubelet_internal_checkpoint.tmp"] {
        symlink(&precious, node.path(name)).expect("link");
    }
    let checkpoint = node.path("kubelet_internal_checkpoint");
    crate::host::directory::replace(&checkpoint, b"state").expect("written");
    assert_eq!(std::fs::read_to_string(&checkpoint).expect("reads"), "state");
    assert_eq!(std::fs::read_to_string(&precious).expect("reads"), "x");
    symlink(&precious, node.path(SOCKET)).expect_err("the socket of the last");
    std::fs::remove_file(node.path(SOCKET)).expect("removes");
    symlink(&precious, node.path(SOCKET)).expect("link");
    socket::close_to_others(&node.path(SOCKET)).expect_err("no socket of ours");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&precious).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn watchers_may_ask_first() {
    let of = |versions: &[&str], resource| {
        let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
        Devices::validate(resource, &versions).map_err(|why| why.to_string())
    };
    assert_eq!(of(&["v1", "v1beta1"], R), Ok(()));
    assert_eq!(
        of(&["v1", "v2"], R),
        Err("manager version, v1beta1, is not among plugin supported versions [v1 v2]".to_owned())
    );
    assert!(of(&["v1beta1"], "requests.example.com/x").is_err());
    assert!(of(&["v1beta1"], &format!("example.com/{}", "x".repeat(64))).is_err());
}
