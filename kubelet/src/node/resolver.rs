//! Tells on the node when its resolver configuration is more than pods can be given. Changes nothing.

use crate::events::Severity;
use crate::parts::Parts;
use crate::pod::spec::{ResolvConf, search_limit_exceeded};
use crate::reason::event;
use client::beat;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(30);

/// What is wrong with the file now, if anything is.
fn complaint(path: &Path, cluster_domain: &str) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => search_limit_exceeded(&ResolvConf::parse(&text), path, cluster_domain),
        Err(error) => Some(format!("open {}: {error}", path.display())),
    }
}

/// Looks at the file now and then, and tells what is wrong with it when that is news. Ends with whoever awaits it.
pub(super) async fn watch(parts: Arc<Parts>) {
    let Some(path) = parts.context.resolv_conf.clone() else {
        return;
    };
    let mut told = None;
    loop {
        let (of, domain) = (path.clone(), parts.context.cluster_domain.clone());
        let found = client::blocking::spawn(move || complaint(&of, &domain)).await;
        let found = found.unwrap_or_default();
        if let Some(message) = found.as_ref().filter(|_| found != told) {
            let (recorder, node) = (&parts.recorder, &parts.context.node_name);
            let reason = event::CHECK_LIMITS_FOR_RESOLV_CONF;
            recorder.node(node, Severity::Warning, reason, message.clone());
        }
        told = found;
        beat::wait(EVERY).await;
    }
}
