//! Plugins over real sockets.

use super::registry::{Handlers, Registry};
use super::testing::SamplePlugin;
use super::{Handler, Plugin, Refusal};
use crate::metrics::Metrics;
use crate::pod::view::PodView;
use proto::plugin_registration::PluginInfo;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Takes plugins on, except those whose name is refused so many times.
#[derive(Default)]
struct Keeper {
    /// What was asked, in order: `+name@endpoint` and `-name@endpoint`.
    calls: watch::Sender<Vec<String>>,
    refusals: std::sync::Mutex<usize>,
}

impl Keeper {
    fn note(&self, sign: &str, plugin: &Plugin) {
        let endpoint = plugin
            .endpoint
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let call = format!("{sign}{}@{endpoint}", plugin.name);
        self.calls.send_modify(|calls| calls.push(call));
    }

    async fn until(&self, expected: &[&str]) {
        let mut calls = self.calls.subscribe();
        let found = calls.wait_for(|calls| calls.len() >= expected.len()).await;
        assert_eq!(*found.expect("it lives"), expected);
    }
}

#[tonic::async_trait]
impl Handler for Keeper {
    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal> {
        if plugin.name == "invalid" {
            return Err(Refusal::Invalid("it is not wanted".to_owned()));
        }
        let mut refusals = self.refusals.lock().expect("not poisoned");
        if *refusals > 0 {
            *refusals -= 1;
            return Err(Refusal::Failed("not now".to_owned()));
        }
        self.note("+", plugin);
        Ok(())
    }

    fn deregister(&self, plugin: &Plugin) {
        self.note("-", plugin);
    }
}

struct Node {
    dir: TempDir,
    keeper: Arc<Keeper>,
    metrics: Metrics,
    _stop: DropGuard,
}

impl Node {
    /// A registry at work below `registry`, which nobody made.
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let keeper = Arc::new(Keeper::default());
        let handlers: Handlers = [(super::DRA, keeper.clone() as Arc<dyn Handler>)].into();
        let stop = CancellationToken::new();
        let metrics = Metrics::new("n");
        let registry = Registry::new(dir.path().join("registry"), handlers, metrics.plugins.clone());
        tokio::spawn(registry.run(stop.clone()));
        Self {
            dir,
            keeper,
            metrics,
            _stop: stop.drop_guard(),
        }
    }

    /// Waits until just these sockets are told, each with how far its plugin is.
    async fn until_told(&self, expected: &[(&str, &str)]) {
        let root = self.dir.path().join("registry");
        let line = |(name, state): &(&str, &str)| {
            let path = root.join(name);
            let path = path.display();
            format!("plugin_manager_total_plugins{{socket_path=\"{path}\",state=\"{state}_state_of_world\"}} 1")
        };
        let expected: BTreeSet<String> = expected.iter().map(line).collect();
        loop {
            let text = self.metrics.text(&PodView::default());
            let told = text
                .lines()
                .filter(|line| line.starts_with("plugin_manager_total_plugins"));
            if told.map(str::to_owned).collect::<BTreeSet<_>>() == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("registry").join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        path
    }
}

fn info(kind: &str, name: &str) -> PluginInfo {
    PluginInfo {
        r#type: kind.into(),
        name: name.into(),
        supported_versions: vec!["v1.DRAPlugin".into()],
        ..PluginInfo::default()
    }
}

#[tokio::test]
async fn a_plugin_is_registered_with_its_socket_and_goes_with_it() {
    let node = Node::start();
    let mut first = SamplePlugin::start(&node.path("a.sock"), info(super::DRA, "a"));
    assert!(first.told(1).await.plugin_registered);
    node.keeper.until(&["+a@a.sock"]).await;
    // One in a directory that is made while the registry runs, whose endpoint is elsewhere.
    let elsewhere = PluginInfo {
        endpoint: "/run/b/dra.sock".into(),
        ..info(super::DRA, "b")
    };
    let mut second = SamplePlugin::start(&node.path("deep/er/b.sock"), elsewhere);
    assert!(second.told(1).await.plugin_registered);
    node.keeper.until(&["+a@a.sock", "+b@dra.sock"]).await;
    let of_b = [("deep/er/b.sock", "desired"), ("deep/er/b.sock", "actual")];
    let of_both = [of_b[0], of_b[1], ("a.sock", "desired"), ("a.sock", "actual")];
    node.until_told(&of_both).await;
    drop(first);
    node.keeper.until(&["+a@a.sock", "+b@dra.sock", "-a@a.sock"]).await;
    node.until_told(&of_b).await;
    let _again = SamplePlugin::start(&node.path("a.sock"), info(super::DRA, "a"));
    node.keeper
        .until(&["+a@a.sock", "+b@dra.sock", "-a@a.sock", "+a@a.sock"])
        .await;
}

#[tokio::test]
async fn one_made_anew_at_once_is_registered_anew() {
    let node = Node::start();
    let path = node.path("a.sock");
    let mut first = SamplePlugin::start(&path, info(super::DRA, "a"));
    first.told(1).await;
    // The new socket takes the old one's place in one step, so that the path is never empty.
    let aside = node.dir.path().join("new.sock");
    let mut second = SamplePlugin::start(&aside, info(super::DRA, "a"));
    std::fs::rename(&aside, &path).expect("moved");
    assert!(second.told(1).await.plugin_registered);
    node.keeper.until(&["+a@a.sock", "-a@a.sock", "+a@a.sock"]).await;
}

#[tokio::test]
async fn what_is_refused_is_told_why() {
    let node = Node::start();
    let refused = |mut plugin: SamplePlugin| async move {
        let told = plugin.told(1).await;
        assert!(!told.plugin_registered);
        told.error
    };
    let path = node.path("csi.sock");
    let csi = SamplePlugin::start(&path, info(super::CSI, "c"));
    assert_eq!(
        refused(csi).await,
        format!(
            "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket {} (this kubelet does not mount \
             volumes of CSI drivers yet)",
            path.display()
        )
    );
    node.until_told(&[]).await;
    let invalid = SamplePlugin::start(&node.path("i.sock"), info(super::DRA, "invalid"));
    assert_eq!(
        refused(invalid).await,
        "RegisterPlugin error -- plugin validation failed with err: it is not wanted"
    );
}

#[tokio::test]
async fn one_that_failed_is_tried_again() {
    let node = Node::start();
    *node.keeper.refusals.lock().expect("not poisoned") = 1;
    let mut plugin = SamplePlugin::start(&node.path("a.sock"), info(super::DRA, "a"));
    let told = plugin.told(1).await;
    assert_eq!(
        told.error,
        "RegisterPlugin error -- plugin registration failed with err: not now"
    );
    assert!(plugin.told(2).await.plugin_registered);
    node.keeper.until(&["+a@a.sock"]).await;
}

#[tokio::test]
async fn one_that_never_answers_holds_up_nobody() {
    let node = Node::start();
    // It takes connections, and says nothing.
    let _silent = tokio::net::UnixListener::bind(node.path("0.sock")).expect("bound");
    let mut plugin = SamplePlugin::start(&node.path("a.sock"), info(super::DRA, "a"));
    assert!(plugin.told(1).await.plugin_registered);
}
