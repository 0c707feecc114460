//! How device plugins make themselves known: the Registration service on `device-plugins/kubelet.sock` (kubelet contract §8), and the
//! entry for those that others found ([`Devices::register`]).

#[cfg(test)]
mod tests;

use super::plugin::{CallError, Plugin, devices, refused};
use super::{Devices, socket};
use crate::host::directory::Directory;
use crate::plugin::{self as found, Handler, Refusal};
use crate::rpc::{Methods, decoded};
use crate::wake;
use bytes::Bytes;
use futures::FutureExt;
use prost::Message;
use proto::api::names::is_extended_resource;
use proto::device_plugin as pb;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The version plugins must have.
pub(crate) const VERSION: &str = "v1beta1";
const SOCKET: &str = "kubelet.sock";
/// How often a plugin's lists are taken.
const LISTS_EVERY: Duration = Duration::from_secs(1);
/// How long until a socket that could not be made is tried again, as upstream's.
const RETRY: Duration = Duration::from_secs(1);

/// Why a plugin is not registered; in upstream's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It speaks another version.
    #[error("requested API version {0:?} is not supported by kubelet. Supported version is [{VERSION:?}]")]
    Version(String),
    /// None of its versions is known.
    #[error("manager version, {VERSION}, is not among plugin supported versions [{0}]")]
    Versions(String),
    /// Its resource is none that plugins can have.
    #[error("the ResourceName {0:?} is invalid")]
    Resource(String),
    /// Its socket is elsewhere.
    #[error("the endpoint {0:?} is not the name of a socket in the device plugins' directory")]
    Endpoint(String),
    /// There are too many resources.
    #[error("there is no room for the resource {0:?}: {max} are known", max = super::state::RESOURCES_MAX)]
    TooMany(String),
    /// It does not answer.
    #[error(transparent)]
    Dial(CallError),
    /// It does not say what it wants to be asked.
    #[error("failed to get device plugin options: {0}")]
    Options(CallError),
}

/// Whether an endpoint is a file's bare name, and not our own socket's.
fn is_bare(endpoint: &str) -> bool {
    let mut parts = Path::new(endpoint).components();
    let first = parts.next();
    matches!(first, Some(Component::Normal(name)) if name == endpoint)
        && parts.next().is_none()
        && ![SOCKET, super::checkpoint::FILE].contains(&endpoint)
}

/// Takes on device plugins that were found by their sockets.
struct Found {
    devices: Devices,
    shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Handler for Found {
    async fn register(&self, plugin: &found::Plugin) -> Result<(), Refusal> {
        let (resource, versions) = (&plugin.name, &plugin.versions);
        Devices::validate(resource, versions).map_err(|error| Refusal::Invalid(error.to_string()))?;
        if !plugin.endpoint.is_absolute() {
            let endpoint = plugin.endpoint.display();
            return Err(Refusal::Invalid(format!(
                "the endpoint {endpoint} is no absolute path of a socket"
            )));
        }
        let sockets = (plugin.endpoint.as_path(), plugin.socket.as_path());
        let registered = self.devices.register(resource, sockets, &self.shutdown);
        registered.await.map_err(|error| Refusal::Failed(error.to_string()))
    }

    fn deregister(&self, plugin: &found::Plugin) {
        self.devices.deregister(&plugin.name, &plugin.socket);
    }
}

impl Devices {
    /// Whether a plugin that somebody else found could be registered.
    ///
    /// # Errors
    /// Its resource or its versions are none we know.
    pub fn validate(resource: &str, versions: &[String]) -> Result<(), RegisterError> {
        if !versions.iter().any(|version| version == VERSION) {
            return Err(RegisterError::Versions(versions.join(" ")));
        }
        match is_extended_resource(resource) {
            true => Ok(()),
            false => Err(RegisterError::Resource(resource.to_owned())),
        }
    }

    /// Registers the plugin at the first of two sockets for a resource; who had it before has it no longer. It is listened to from now on,
    /// until it goes or `shutdown`. At the second socket it made itself known: it stays for as long as that one does.
    ///
    /// # Errors
    /// It does not answer, or the name is none of a plugin's.
    pub async fn register(
        &self,
        resource: &str,
        (socket, registration): (&Path, &Path),
        shutdown: &CancellationToken,
    ) -> Result<(), RegisterError> {
        if !is_extended_resource(resource) {
            return Err(RegisterError::Resource(resource.to_owned()));
        }
        let plugin = Plugin::dial(socket, registration, self.unread())
            .await
            .map_err(RegisterError::Dial)?;
        self.take_plugin(resource, plugin, shutdown).await?;
        tracing::info!(resource, socket = %socket.display(), "a device plugin is registered");
        Ok(())
    }

    /// A plugin that was dialled answers for a resource from now on.
    pub(super) async fn take_plugin(
        &self,
        resource: &str,
        plugin: Plugin,
        shutdown: &CancellationToken,
    ) -> Result<(), RegisterError> {
        let options = plugin.options().await.map_err(RegisterError::Options)?;
        let Some(connected) = self.connect(resource, plugin.clone(), options) else {
            return Err(RegisterError::TooMany(resource.to_owned()));
        };
        // Not before: names of those that cannot be are without end.
        self.metrics().registered(resource);
        let (shutdown, replaced) = (shutdown.clone(), connected.replaced.clone());
        tokio::spawn(
            async move {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {}
                    () = replaced.cancelled() => {}
                    error = listen(&connected, &plugin) => {
                        let (resource, error) = (&connected.resource, error.to_string());
                        tracing::error!(resource, error, "ListAndWatch ended unexpectedly for device plugin");
                    }
                }
            }
            .boxed(),
        );
        Ok(())
    }

    /// Ends what is there with the plugin of a resource that made itself known at a socket: all its devices are ill from now on. One that
    /// took its place from another socket stays, whatever endpoint both name.
    pub fn deregister(&self, resource: &str, registration: &Path) {
        self.cut(resource, registration);
    }

    /// Who works with device plugins that put their socket into the directory of all plugins. They are listened to until `shutdown`.
    pub fn handler(&self, shutdown: CancellationToken) -> Arc<dyn Handler> {
        Arc::new(Found {
            devices: self.clone(),
            shutdown,
        })
    }

    /// Serves the Registration service until shut down.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            match begin(self.directory()) {
                Ok(listener) => {
                    let handler = socket::handler(Registrar::methods(self.clone(), shutdown.clone()));
                    return socket::serve(listener, handler, shutdown).await;
                }
                Err(error) => {
                    let directory = self.directory().display();
                    tracing::error!(%directory, %error, "device plugins cannot register, trying again");
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }
}

/// Takes what a plugin lists, until it goes. Of lists that come faster than one in a while the newest counts: each is written to disk,
/// and told to the API server.
async fn listen(connected: &super::Connected, plugin: &Plugin) -> CallError {
    let mut lists = match plugin.watch().await {
        Ok(lists) => lists,
        Err(error) => return error,
    };
    let (mut newest, mut due) = (None, Instant::now());
    let mut unread = connected.devices.unread().share();
    loop {
        let told = tokio::select! {
            biased;
            () = wake::at(newest.as_ref().map(|_| due)) => None,
            told = lists.message() => Some(told),
        };
        match (told, newest.take()) {
            (Some(Ok(Some(list))), _) => {
                if let Err(status) = unread.hold(list.len()) {
                    return refused(&status);
                }
                newest = Some(list);
            }
            (Some(Ok(None)), _) => return refused(&Status::unavailable("the device plugin ended its list")),
            (Some(Err(status)), _) => return refused(&status),
            (None, Some(list)) => {
                // It is decoded at once, and what is kept of it is bounded elsewhere.
                drop(unread.hold(0));
                if let Err(error) = take(connected, list).await {
                    return error;
                }
                due = Instant::now() + LISTS_EVERY;
            }
            (None, None) => {}
        }
    }
}

async fn take(connected: &super::Connected, list: Bytes) -> Result<(), CallError> {
    connected.list(devices(&connected.resource, list)?).await
}

/// Makes the directory as plugins expect it, without sockets of an earlier kubelet's plugins, which tells them to register again.
fn begin(directory: &Path) -> io::Result<tokio::net::UnixListener> {
    socket::make_directory(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            std::fs::remove_file(entry.path())?;
        }
    }
    // Upstream's sign that the directory is there for old plugins.
    Directory::open(directory, Path::new("."))?.touch("DEPRECATION")?;
    socket::listen(&directory.join(SOCKET))
}

struct Registrar {
    devices: Devices,
    shutdown: CancellationToken,
}

impl Registrar {
    fn methods(devices: Devices, shutdown: CancellationToken) -> Methods {
        let registrar = Arc::new(Self { devices, shutdown });
        Arc::new(move |path, request| {
            let registrar = registrar.clone();
            let answer = async move { registrar.register(decoded(request)?).await };
            (path == "/v1beta1.Registration/Register").then(|| answer.boxed())
        })
    }

    async fn register(&self, request: pb::RegisterRequest) -> Result<Vec<u8>, Status> {
        match self.try_register(&request).await {
            Ok(()) => Ok(pb::Empty {}.encode_to_vec()),
            Err(error) => {
                let resource = request.resource_name;
                tracing::info!(resource, %error, "Bad registration request from device plugin");
                Err(Status::unknown(error.to_string()))
            }
        }
    }

    async fn try_register(&self, request: &pb::RegisterRequest) -> Result<(), RegisterError> {
        if request.version != VERSION {
            return Err(RegisterError::Version(request.version.clone()));
        }
        if !is_extended_resource(&request.resource_name) {
            return Err(RegisterError::Resource(request.resource_name.clone()));
        }
        if !is_bare(&request.endpoint) {
            return Err(RegisterError::Endpoint(request.endpoint.clone()));
        }
        let socket: PathBuf = self.devices.directory().join(&request.endpoint);
        self.devices
            .register(&request.resource_name, (&socket, &socket), &self.shutdown)
            .await
    }
}
