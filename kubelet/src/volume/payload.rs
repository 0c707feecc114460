//! The files of a ConfigMap, Secret, downward or projected volume, computed from what was fetched. The computation is pure.

use super::SetUpError;
use super::plan::{Files, Keys, Part, TokenFile};
use super::uid_of;
use crate::downward::{self, Addresses, NodeAllocatable};
use crate::id::PodUid;
use crate::objects::{ObjectError, Objects, Token, TokenRequestKey};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mode of token files that only their owner (and group) may read.
const TOKEN_MODE: i32 = 0o600;

/// The most that the files of one pod's volumes may cost together, bytes: a manifest may ask for one key or annotation under any
/// number of paths.
const PAYLOADS_BYTES_MAX: usize = 64 << 20;
/// What a file or directory costs beside its bytes.
const INODE_BYTES: usize = 1 << 10;
/// The most of a path that is named, bytes.
const NAMED_BYTES_MAX: usize = 256;

/// What is left of it.
pub(super) struct Room(AtomicUsize);

impl Room {
    /// All of one pod's.
    pub(super) fn of_pod() -> Self {
        Self(AtomicUsize::new(PAYLOADS_BYTES_MAX))
    }

    /// Takes a file's place. What is written over had its place, too.
    fn take(&self, path: &str, bytes: usize) -> Result<(), SetUpError> {
        let inodes = 1 + path.matches('/').count();
        let cost = inodes * INODE_BYTES + path.len() + bytes;
        let order = Ordering::Relaxed;
        let taken = self.0.fetch_update(order, order, |left| left.checked_sub(cost));
        let shown = || path[..path.floor_char_boundary(NAMED_BYTES_MAX)].to_owned();
        taken.map(drop).map_err(|_| SetUpError::Size { path: shown() })
    }
}

/// One file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    /// Permission bits.
    pub(super) mode: u32,
    /// Owner, when it is not root.
    pub(super) owner: Option<u32>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The bytes may be a secret.
        write!(f, "File({} bytes, {:o})", self.bytes.len(), self.mode)
    }
}

/// Files by path inside the volume.
pub(super) type Payload = BTreeMap<String, File>;

/// What was fetched for one volume.
#[derive(Debug, Default)]
pub(super) struct FilesInput {
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
    secrets: BTreeMap<String, Arc<Secret>>,
    /// By path.
    tokens: BTreeMap<String, Token>,
    pub(super) pod_ips: Vec<String>,
    /// When a token has to be renewed first.
    pub(super) refresh_at: Option<Timestamp>,
}

impl FilesInput {
    pub(super) async fn fetch(objects: &Objects, uid: &PodUid, pod: &Pod, files: &Files) -> Result<Self, ObjectError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let mut input = Self {
            pod_ips: pod_ips(pod),
            ..Self::default()
        };
        for part in &files.parts {
            match part {
                Part::ConfigMap(keys) => {
                    let found = objects.config_map(uid, namespace, &keys.object).await?;
                    input.config_maps.extend(found.map(|o| (keys.object.clone(), o)));
                }
                Part::Secret(keys) => {
                    let found = objects.secret(uid, namespace, &keys.object).await?;
                    input.secrets.extend(found.map(|o| (keys.object.clone(), o)));
                }
                Part::Downward(_) => {}
                Part::Token(token) => {
                    let issued = objects.token(&token_key(pod, token)).await?;
                    let earliest = input
                        .refresh_at
                        .map_or(issued.refresh_at, |at| at.min(issued.refresh_at));
                    input.refresh_at = Some(earliest);
                    input.tokens.insert(token.path.clone(), issued);
                }
            }
        }
        Ok(input)
    }
}

/// Which token a file of the pod's holds.
pub(super) fn token_key(pod: &Pod, token: &TokenFile) -> TokenRequestKey {
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone());
    TokenRequestKey {
        pod_uid: uid_of(pod),
        pod_name: pod.metadata.name.clone().unwrap_or_default(),
        namespace: pod.metadata.namespace.clone().unwrap_or_else(|| "default".into()),
        service_account: account.filter(|a| !a.is_empty()).unwrap_or_else(|| "default".into()),
        service_account_uid: String::new(),
        audience: token.audience.clone(),
        expiration_seconds: token.expiration_seconds,
    }
}

fn pod_ips(pod: &Pod) -> Vec<String> {
    let ips = pod.status.as_ref().and_then(|s| s.pod_ips.as_ref());
    ips.into_iter().flatten().map(|ip| ip.ip.clone()).collect()
}

/// The one user all containers run as, if there is one.
fn common_user(pod: &Pod) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|s| s.run_as_user);
    let mut users = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|c| c.security_context.as_ref().and_then(|s| s.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first)
}

fn bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0o644) & 0o7777
}

/// Files as they come into being, each in its place.
struct Filling<'a> {
    files: Payload,
    room: &'a Room,
}

impl Filling<'_> {
    fn put(&mut self, path: &str, bytes: &[u8], mode: i32) -> Result<(), SetUpError> {
        self.put_owned(path, bytes, bits(mode), None)
    }

    fn put_owned(&mut self, path: &str, bytes: &[u8], mode: u32, owner: Option<u32>) -> Result<(), SetUpError> {
        self.room.take(path, bytes.len())?;
        let bytes = bytes.to_vec();
        self.files.insert(path.to_owned(), File { bytes, mode, owner });
        Ok(())
    }

    /// Puts an object's keys into the volume, or says which one is missing.
    fn put_keys(
        &mut self,
        keys: &Keys,
        data: &Data<'_>,
        default_mode: i32,
        missing: &'static str,
    ) -> Result<(), SetUpError> {
        if keys.items.is_empty() {
            return data
                .all()
                .try_for_each(|(key, bytes)| self.put(key, bytes, default_mode));
        }
        for item in &keys.items {
            match data.get(&item.key) {
                Some(bytes) => self.put(&item.path, bytes, item.mode.unwrap_or(default_mode))?,
                None if keys.optional => {}
                None => {
                    let key = item.key.clone();
                    return Err(SetUpError::KeyMissing { missing, key });
                }
            }
        }
        Ok(())
    }
}

/// What an object holds, where it holds it: one part of many may want a single key of it.
struct Data<'a> {
    text: Option<&'a BTreeMap<String, String>>,
    binary: Option<&'a BTreeMap<String, ByteString>>,
}

impl<'a> Data<'a> {
    fn of_map(map: &'a ConfigMap) -> Self {
        Self {
            text: map.data.as_ref(),
            binary: map.binary_data.as_ref(),
        }
    }

    fn of_secret(secret: &'a Secret) -> Self {
        Self {
            text: None,
            binary: secret.data.as_ref(),
        }
    }

    fn get(&self, key: &str) -> Option<&'a [u8]> {
        let binary = self.binary.and_then(|data| data.get(key));
        let text = || self.text.and_then(|data| data.get(key));
        binary
            .map(|bytes| bytes.0.as_slice())
            .or_else(|| text().map(String::as_bytes))
    }

    fn all(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let text = self.text.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes()));
        let binary = self.binary.into_iter().flatten();
        text.chain(binary.map(|(k, v)| (k.as_str(), v.0.as_slice())))
    }
}

/// All files of the volume, each with its place in `room`.
pub(super) fn payload(
    pod: &Pod,
    files: &Files,
    input: &FilesInput,
    addresses: Addresses<'_>,
    node: NodeAllocatable,
    room: &Room,
) -> Result<Payload, SetUpError> {
    let mut out = Filling {
        files: Payload::new(),
        room,
    };
    let mode = files.default_mode;
    for part in &files.parts {
        match part {
            Part::ConfigMap(keys) => match input.config_maps.get(&keys.object) {
                Some(map) => {
                    let missing = "configmap references non-existent config key";
                    out.put_keys(keys, &Data::of_map(map), mode, missing)?;
                }
                None if keys.optional => {}
                None => return Err(not_found("configmap", keys)),
            },
            Part::Secret(keys) => match input.secrets.get(&keys.object) {
                Some(secret) => {
                    let missing = "references non-existent secret key";
                    out.put_keys(keys, &Data::of_secret(secret), mode, missing)?;
                }
                None if keys.optional => {}
                None => return Err(not_found("secret", keys)),
            },
            Part::Downward(items) => {
                for item in items {
                    let text = match (&item.field_ref, &item.resource_field_ref) {
                        (Some(field), _) => downward::field_value(pod, field, addresses),
                        (None, Some(field)) => downward::resource_value(pod, None, field, node),
                        (None, None) => Ok(String::new()),
                    };
                    out.put(&item.path, text?.as_bytes(), item.mode.unwrap_or(mode))?;
                }
            }
            Part::Token(token) => {
                let issued = input.tokens.get(&token.path).ok_or(SetUpError::NoToken)?;
                let (mode, owner) = token_access(pod, mode);
                out.put_owned(&token.path, issued.value.as_bytes(), mode, owner)?;
            }
        }
    }
    Ok(out.files)
}

fn not_found(kind: &'static str, keys: &Keys) -> SetUpError {
    let name = keys.object.clone();
    SetUpError::ObjectMissing { kind, name }
}

/// Mode and owner of token files: private when someone in particular is to read them, the pod's group or its one user.
fn token_access(pod: &Pod, default_mode: i32) -> (u32, Option<u32>) {
    let group = super::fs_group(pod);
    let user = common_user(pod);
    let private = group.is_some() || user.is_some();
    let mode = bits(if private { TOKEN_MODE } else { default_mode });
    (mode, user.and_then(|u| u32::try_from(u).ok()))
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::pod::spec::testing::pod;

    fn input() -> FilesInput {
        let map = serde_json::json!({"data":{"a":"1","b":"2"},"binaryData":{"c":"AAE="}});
        let secret = serde_json::json!({"data":{"p":"c2VjcmV0"}});
        let token = Token {
            value: "jwt".into(),
            refresh_at: Timestamp::MAX,
        };
        FilesInput {
            config_maps: BTreeMap::from([("cm".into(), Arc::new(serde_json::from_value(map).expect("map")))]),
            secrets: BTreeMap::from([("s".into(), Arc::new(serde_json::from_value(secret).expect("secret")))]),
            tokens: BTreeMap::from([("token".into(), token)]),
            ..FilesInput::default()
        }
    }

    fn files(volume: &str, more: &str) -> Result<Vec<(String, String, u32)>, String> {
        let spec = format!(
            r#"{{"volumes":[{{"name":"v",{volume}}}],"containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]{more}}}"#
        );
        let pod = pod(&spec);
        let plans = plan::plans(&pod)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| e.to_string())?;
        let plan::Source::Files(files) = &plans[0].source else {
            return Err("not files".into());
        };
        let addresses = Addresses {
            pod_ips: &[],
            host_ips: &[],
        };
        let (node, room) = (NodeAllocatable::default(), Room::of_pod());
        let payload = payload(&pod, files, &input(), addresses, node, &room);
        let payload = payload.map_err(|error| error.to_string())?;
        let text = |f: File| String::from_utf8_lossy(&f.bytes).into_owned();
        Ok(payload
            .into_iter()
            .map(|(path, f)| (path, text(f.clone()), f.mode))
            .collect())
    }

    fn file(path: &str, text: &str, mode: u32) -> (String, String, u32) {
        (path.into(), text.into(), mode)
    }

    #[test]
    fn config_maps_and_secrets() {
        assert_eq!(
            files(r#""configMap":{"name":"cm"}"#, "").expect("files"),
            vec![
                file("a", "1", 0o644),
                file("b", "2", 0o644),
                file("c", "\0\u{1}", 0o644)
            ]
        );
        assert_eq!(
            files(r#""configMap":{"name":"cm","defaultMode":256,"items":[{"key":"a","path":"x/y"},{"key":"b","path":"z","mode":511}]}"#, "").expect("files"),
            vec![file("x/y", "1", 0o400), file("z", "2", 0o777)]
        );
        assert_eq!(
            files(r#""secret":{"secretName":"s"}"#, "").expect("files"),
            vec![file("p", "secret", 0o644)]
        );
        assert_eq!(
            files(r#""secret":{"secretName":"none","optional":true}"#, "").expect("files"),
            vec![]
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        for (volume, error) in [
            (r#""configMap":{"name":"none"}"#, "configmap \"none\" not found"),
            (r#""secret":{"secretName":"none"}"#, "secret \"none\" not found"),
            (
                r#""secret":{"secretName":"s","items":[{"key":"k","path":"k"}]}"#,
                "references non-existent secret key: k",
            ),
            (
                r#""configMap":{"name":"cm","items":[{"key":"k","path":"k"}]}"#,
                "configmap references non-existent config key: k",
            ),
            (
                r#""gitRepo":{"repository":"x"}"#,
                "MountVolume.SetUp failed for volume \"v\" : git-repo volume plugin has been disabled: clone into an emptyDir in an init container instead",
            ),
        ] {
            assert_eq!(files(volume, "").expect_err(volume), error);
        }
    }

    #[test]
    fn projections_and_token_modes() {
        let projected = r#""projected":{"sources":[{"serviceAccountToken":{"path":"token"}},{"configMap":{"name":"cm","items":[{"key":"a","path":"ca"}]}},
            {"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"fieldPath":"metadata.namespace"}}]}}]}"#;
        assert_eq!(
            files(projected, "").expect("files"),
            vec![
                file("ca", "1", 0o644),
                file("namespace", "shop", 0o644),
                file("token", "jwt", 0o644)
            ]
        );
        for more in [
            r#","securityContext":{"fsGroup":5}"#,
            r#","securityContext":{"runAsUser":7}"#,
        ] {
            let got = files(projected, more).expect("files");
            assert_eq!(got[2], file("token", "jwt", 0o600), "{more}");
        }
        for (context, owner) in [
            (r#"{"fsGroup":5}"#, None),
            (r#"{"runAsUser":7}"#, Some(7)),
            (r#"{"runAsUser":7,"fsGroup":5}"#, Some(7)),
        ] {
            let pod = pod(&format!(
                r#"{{"securityContext":{context},"containers":[{{"name":"c"}}]}}"#
            ));
            assert_eq!(token_access(&pod, 0o644), (0o600, owner), "{context}");
        }
    }

    #[test]
    fn one_key_under_many_paths_ends_where_there_is_no_room() {
        let map = serde_json::json!({"data": {"k": "x".repeat(1 << 20)}});
        let input = FilesInput {
            config_maps: BTreeMap::from([("cm".into(), Arc::new(serde_json::from_value(map).expect("map")))]),
            ..FilesInput::default()
        };
        let items = |n: usize| {
            let items = (0..n).map(|n| format!(r#"{{"key":"k","path":"{n:02}"}}"#));
            items.collect::<Vec<_>>().join(",")
        };
        let annotation = |n: usize| {
            let item = r#"{"path":"a/b","fieldRef":{"fieldPath":"metadata.annotations['note']"}}"#;
            vec![item; n].join(",")
        };
        let text = |volume: &str, room: &Room| {
            let mut pod = pod(&format!(
                r#"{{"volumes":[{{"name":"v",{volume}}}],"containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]}}"#
            ));
            let note = BTreeMap::from([("note".to_owned(), "n".repeat(1 << 18))]);
            pod.metadata.annotations = Some(note);
            let plan = plan::plans(&pod).next().expect("a volume").expect("a plan");
            let plan::Source::Files(files) = &plan.source else {
                panic!("not files")
            };
            let addresses = Addresses {
                pod_ips: &[],
                host_ips: &[],
            };
            let payload = payload(&pod, files, &input, addresses, NodeAllocatable::default(), room);
            payload.map(|payload| payload.len()).map_err(|error| error.to_string())
        };
        let map = |n| format!(r#""configMap":{{"name":"cm","items":[{}]}}"#, items(n));
        let full = |path: &str| {
            let why = "files of the pod's volumes exceed maximum size of 64MB together";
            Err(format!("file {path:?}: {why}"))
        };
        assert_eq!(text(&map(63), &Room::of_pod()), Ok(63));
        assert_eq!(text(&map(64), &Room::of_pod()), full("63"));
        let downward = |n| format!(r#""downwardAPI":{{"items":[{}]}}"#, annotation(n));
        assert_eq!(text(&downward(256), &Room::of_pod()), full("a/b"), "written over");
        let sources = vec![r#"{"configMap":{"name":"cm"}}"#; 64].join(",");
        let projected = format!(r#""projected":{{"sources":[{sources}]}}"#);
        assert_eq!(text(&projected, &Room::of_pod()), full("k"));
        let room = Room::of_pod();
        assert_eq!(text(&map(40), &room), Ok(40));
        assert_eq!(text(&map(40), &room), full("23"), "volumes of a pod share it");
    }
}
