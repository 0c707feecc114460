//! Files of the node that shape its pods, read when they are needed: whoever changes them has every new pod see it.

use super::Executor;
use crate::pod::failure::NodeFileError;
use crate::pod::spec::ResolvConf;
use crate::pod_object;
use k8s_openapi::api::core::v1::Pod;
use std::path::Path;

impl Executor {
    /// The node's resolver configuration; empty where `resolvConf` names no file.
    pub(super) async fn resolver(&self) -> Result<ResolvConf, NodeFileError> {
        match &self.parts.context.resolv_conf {
            Some(path) => Ok(ResolvConf::parse(&self.node_file(path).await?)),
            None => Ok(ResolvConf::default()),
        }
    }

    /// The node's own hosts file, if the pod gets it: on the node's network.
    pub(super) async fn node_hosts(&self, pod: &Pod) -> Result<String, NodeFileError> {
        if !pod_object::host_network(pod) {
            return Ok(String::new());
        }
        self.node_file(&self.parts.context.hosts_path).await
    }

    async fn node_file(&self, path: &Path) -> Result<String, NodeFileError> {
        let owned = path.to_owned();
        let read = self
            .files
            .run(&path.to_string_lossy(), move || std::fs::read(owned))
            .await;
        let bytes = read.map_err(|why| NodeFileError::Work {
            path: path.to_owned(),
            why,
        })?;
        let bytes = bytes.map_err(|why| NodeFileError::Read {
            path: path.to_owned(),
            why,
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
