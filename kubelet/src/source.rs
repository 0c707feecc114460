//! Where desired pods come from. A source delivers all its pods at once, every time, and nothing before it knows them all.

pub mod apiserver;

use crate::id::PodUid;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every pod that should be on this node; `None` until the source has delivered once.
pub type Pods = Option<Arc<BTreeMap<PodUid, Arc<Pod>>>>;
