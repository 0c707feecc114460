//! Names of Secrets that specs mention, and whether their volumes need claims: a Secret stays as long as a pod names it. Pure.

use serde::{Deserialize, Deserializer};

/// What the volumes of a pod need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Whether any needs a PersistentVolumeClaim, or has one made for it.
    pub need_claims: bool,
    /// Names of the Secrets in them.
    pub secrets: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

/// A field whose value says something by being there.
#[derive(Deserialize)]
struct There {}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ByName {
    secret_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ByReference {
    secret_ref: Option<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Csi {
    node_publish_secret_ref: Option<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Option<Vec<Source>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Source {
    secret: Option<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<There>,
    ephemeral: Option<There>,
    secret: Option<ByName>,
    azure_file: Option<ByName>,
    projected: Option<Projected>,
    csi: Option<Csi>,
    cephfs: Option<ByReference>,
    flex_volume: Option<ByReference>,
    rbd: Option<ByReference>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<ByReference>,
    iscsi: Option<ByReference>,
    storageos: Option<ByReference>,
}

impl Volume {
    fn secrets(self) -> impl Iterator<Item = String> {
        let named = [self.secret, self.azure_file].into_iter().flatten();
        let sources = self.projected.and_then(|projected| projected.sources);
        let projected = sources.into_iter().flatten().map(|source| source.secret);
        let by_reference = [
            self.cephfs,
            self.flex_volume,
            self.rbd,
            self.scale_io,
            self.iscsi,
            self.storageos,
        ];
        let referred = by_reference.into_iter().flatten().map(|by| by.secret_ref);
        let published = self.csi.map(|csi| csi.node_publish_secret_ref);
        let references = projected.chain(referred).chain(published);
        named
            .filter_map(|by| by.secret_name)
            .chain(names(references.flatten()))
            .filter(|name| !name.is_empty())
    }
}

impl<'de> Deserialize<'de> for Volumes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all: Option<Vec<Volume>> = Deserialize::deserialize(deserializer)?;
        let all = all.unwrap_or_default();
        let needs_claim = |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        Ok(Self {
            need_claims: all.iter().any(needs_claim),
            secrets: all.into_iter().flat_map(Volume::secrets).collect(),
        })
    }
}

fn names(all: impl Iterator<Item = Named>) -> impl Iterator<Item = String> {
    all.filter_map(|named| named.name).filter(|name| !name.is_empty())
}

/// Names in a pod's `imagePullSecrets`.
pub(super) fn pulling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let all: Option<Vec<Named>> = Deserialize::deserialize(deserializer)?;
    Ok(names(all.into_iter().flatten()).collect())
}

/// Names of the Secrets that a container's `envFrom` takes variables from.
pub(super) fn sources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let all: Option<Vec<ByReference>> = Deserialize::deserialize(deserializer)?;
    Ok(names(all.into_iter().flatten().filter_map(|source| source.secret_ref)).collect())
}

/// Names of the Secrets in a container's `env`.
pub(super) fn variables<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct From {
        secret_key_ref: Option<Named>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Variable {
        value_from: Option<From>,
    }
    let all: Option<Vec<Variable>> = Deserialize::deserialize(deserializer)?;
    let from = all.into_iter().flatten().filter_map(|variable| variable.value_from);
    Ok(names(from.filter_map(|from| from.secret_key_ref)).collect())
}
