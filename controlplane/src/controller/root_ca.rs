//! The root certificate in every namespace: config map `kube-root-ca.crt`, restored when edited.

use super::harness::{Controller, Wiring};
use super::informers::{Informers, is_open};
use super::well_known::root_ca::NAME;
use super::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use tokio::sync::watch;

const DATA_KEY: &str = "ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such \
                           as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                           distributions of Kubernetes clusters.";

/// The controller. Its keys are namespaces.
pub struct RootCas {
    /// The shared informers.
    pub informers: Informers,
    /// The bundle, in PEM, as it is now.
    pub pem: watch::Receiver<String>,
}

impl Controller for RootCas {
    const NAME: &'static str = "root-ca-cert-publisher";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.namespaces);
        wiring.on(&self.informers.root_cas, |change| {
            vec![Key::new("", change.key.namespace.clone())]
        });
        let namespaces = self.informers.namespaces.clone();
        wiring.on_value(self.pem.clone(), move || {
            namespaces
                .list()
                .iter()
                .map(|namespace| Key::of(&**namespace))
                .collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let open = self.informers.namespaces.get_key(key).is_some_and(|n| is_open(&n));
        let existing = self.informers.root_cas.get(&key.name, NAME);
        let writes = if open {
            plan(&key.name, existing.as_deref(), &self.pem.borrow())
        } else {
            None
        };
        Plan {
            writes: writes.into_iter().collect(),
            ..Plan::default()
        }
    }
}

/// The write that makes the config map right, if any.
pub fn plan(namespace: &str, existing: Option<&ConfigMap>, pem: &str) -> Option<Write> {
    let data = Some(BTreeMap::from([(DATA_KEY.to_owned(), pem.to_owned())]));
    match existing {
        None => {
            let annotations = BTreeMap::from([(ANNOTATION.to_owned(), DESCRIPTION.to_owned())]);
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(NAME.into()),
                    namespace: Some(namespace.into()),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                },
                data,
                ..ConfigMap::default()
            };
            Some(Write::create(write::CONFIG_MAPS, &map))
        }
        // Who describes it in other words may do so, as upstream.
        Some(map) if map.data == data && map.annotations().get(ANNOTATION).is_some_and(|text| !text.is_empty()) => None,
        Some(map) => {
            let mut map = ConfigMap { data, ..map.clone() };
            map.annotations_mut()
                .insert(ANNOTATION.to_owned(), DESCRIPTION.to_owned());
            Some(Write::replace(write::CONFIG_MAPS, &map))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::Verb;

    #[test]
    fn made_when_missing_and_restored_when_edited() {
        let Some(Write {
            verb: Verb::Create(body),
            ..
        }) = plan("ns", None, "PEM")
        else {
            panic!()
        };
        let mut map: ConfigMap = serde_json::from_value(body).unwrap();
        assert_eq!(plan("ns", Some(&map), "PEM"), None);
        map.data.as_mut().unwrap().insert("ca.crt".into(), "evil".into());
        let write = plan("ns", Some(&map), "PEM").unwrap();
        let Verb::Replace(body) = write.verb else { panic!() };
        assert_eq!(body["data"]["ca.crt"], "PEM");
        let mut map: ConfigMap = serde_json::from_value(body).unwrap();
        for (said, becomes) in [
            (Some("ours"), None),
            (Some(""), Some(DESCRIPTION)),
            (None, Some(DESCRIPTION)),
        ] {
            map.metadata.annotations = said.map(|text| BTreeMap::from([(ANNOTATION.to_owned(), text.to_owned())]));
            let told = plan("ns", Some(&map), "PEM").map(|write| match write.verb {
                Verb::Replace(body) => body["metadata"]["annotations"][ANNOTATION].clone(),
                other => panic!("{other:?}"),
            });
            assert_eq!(told, becomes.map(|text| text.into()), "{said:?}");
        }
    }
}
