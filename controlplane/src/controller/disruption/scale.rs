//! Scales of owners that no informer knows, such as custom resources: asked for before a plan needs them, kept for the plan.

use super::expected::Unknown;
use crate::controller::discovery;
use http::Request;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::timeout;

/// Owners remembered; when there are more, all are asked for anew.
const REMEMBERED: usize = 1000;
/// Owners of one budget that are asked for.
const ASKED_MAX: usize = 100;
const DEADLINE: Duration = Duration::from_secs(10);

/// Longest part of a reference, in bytes.
const PART_MAX: usize = 253;

/// Looks in a row that nobody answers, for which what is known stays so: a budget that allowed what it did before and forbade it by turns
/// would be written, and woken by that, without end.
const MISSES_MAX: u8 = 3;

/// What an owner's scale says, or why there is none.
struct Known {
    said: Result<i32, String>,
    /// Looks since then that nobody answered.
    misses: u8,
}

/// What is known, by the whole reference: anybody may write another's UID into one.
#[derive(Default)]
pub struct Scales {
    known: Mutex<BTreeMap<Unknown, Known>>,
}

/// What came of a look at an owner's scale.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// So many replicas.
    Replicas(i32),
    /// The owner of that UID is gone.
    Gone,
    /// It has no scale, or none for us: why.
    Refused(String),
    /// Nobody answered, or could: why.
    Missed(String),
}

/// Whether a text may be a part of a path, and nothing but that part.
pub(in crate::controller) fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    (1..=PART_MAX).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(is_plain)
}

/// What is said of a reference that cannot be asked about: why, or `None` when there can be nothing of that name and UID.
fn refusal(owner: &Unknown) -> Option<Option<String>> {
    let shown = |text: &str| text.chars().take(PART_MAX).collect::<String>();
    let version = &owner.api_version;
    let (group, plain) = version.split_once('/').unwrap_or(("v1", version));
    if !is_segment(group) || !is_segment(plain) {
        return Some(Some(format!("unexpected GroupVersion string: {}", shown(version))));
    }
    if !is_segment(&owner.kind) {
        let kind = shown(&owner.kind);
        return Some(Some(format!("no matches for kind {kind:?} in version {version:?}")));
    }
    let is_possible = is_segment(&owner.key.name) && owner.uid.len() <= PART_MAX;
    (!is_possible).then_some(None)
}

impl Scales {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Unknown, Known>> {
        self.known.lock().expect("no holder of this lock panics")
    }

    /// The replicas of the owner, or why it has none; `None` when it is gone or was not asked for.
    pub fn get(&self, owner: &Unknown) -> Option<Result<i32, String>> {
        match refusal(owner) {
            Some(why) => why.map(Err),
            None => self.lock().get(owner).map(|known| known.said.clone()),
        }
    }

    /// Asks for the scales of these owners.
    pub async fn look_up(&self, client: &kube::Client, owners: Vec<Unknown>) {
        let owners = owners.into_iter().filter(|owner| refusal(owner).is_none());
        for owner in owners.take(ASKED_MAX) {
            let answer = ask(client, &owner).await;
            self.note(owner, answer);
        }
    }

    fn note(&self, owner: Unknown, answer: Answer) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let said = match answer {
            Answer::Replicas(replicas) => Ok(replicas),
            Answer::Refused(why) => Err(why),
            Answer::Gone => return drop(known.remove(&owner)),
            Answer::Missed(why) => {
                if let Some(known) = known.get_mut(&owner).filter(|known| known.said.is_ok())
                    && known.misses < MISSES_MAX
                {
                    known.misses += 1;
                    return;
                }
                Err(why)
            }
        };
        known.insert(owner, Known { said, misses: 0 });
    }
}

async fn ask(client: &kube::Client, owner: &Unknown) -> Answer {
    let (resource, has_scale) = match discovery::of_kind(client, &owner.api_version, &owner.kind).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let (kind, version) = (&owner.kind, &owner.api_version);
            return Answer::Refused(format!("no matches for kind {kind:?} in version {version:?}"));
        }
        Err(error) => return Answer::Missed(error),
    };
    if !has_scale {
        let group = if resource.group.is_empty() { "" } else { "." };
        let name = format!("{}{group}{}", resource.plural, resource.group);
        return Answer::Refused(format!("{name} does not implement the scale subresource"));
    }
    let path = format!("{}/scale", resource.path(&owner.key));
    let request = match Request::get(path).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Answer::Refused(error.to_string()),
    };
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(scale)) if scale["metadata"]["uid"] == *owner.uid => {
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            Answer::Replicas(i32::try_from(replicas).unwrap_or(i32::MAX))
        }
        Ok(Ok(_)) => Answer::Gone,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Answer::Gone,
        Ok(Err(error)) => match &error {
            kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
                Answer::Refused(error.to_string())
            }
            _ => Answer::Missed(error.to_string()),
        },
        Err(_) => Answer::Missed("deadline exceeded".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Key;

    fn owner(api_version: &str, kind: &str, name: &str) -> Unknown {
        Unknown {
            uid: "u".to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            key: Key::new("default", name),
        }
    }

    #[test]
    fn what_is_no_part_of_a_path_is_not_asked_about() {
        for fine in [owner("apps/v1", "Deployment", "web"), owner("v1", "Pod", "a.b")] {
            assert_eq!(refusal(&fine), None, "{fine:?}");
        }
        for (odd, why) in [
            (
                owner("v1/../v1", "Pod", "a"),
                Some("unexpected GroupVersion string: v1/../v1"),
            ),
            (owner("", "Pod", "a"), Some("unexpected GroupVersion string: ")),
            (
                owner("../v1", "Pod", "a"),
                Some("unexpected GroupVersion string: ../v1"),
            ),
            (
                owner("v1", "P?d", "a"),
                Some("no matches for kind \"P?d\" in version \"v1\""),
            ),
            (owner("v1", "Pod", ".."), None),
            (owner("v1", "Pod", "a/../b"), None),
            (owner("v1", "Pod", "a?b"), None),
        ] {
            assert_eq!(refusal(&odd), Some(why.map(str::to_owned)), "{odd:?}");
            assert_eq!(Scales::default().get(&odd), why.map(|why| Err(why.to_owned())));
        }
    }

    #[test]
    fn what_is_known_of_one_reference_is_not_said_of_another_of_its_uid() {
        let scales = Scales::default();
        scales.note(owner("apps/v1", "Deployment", "web"), Answer::Replicas(3));
        assert_eq!(scales.get(&owner("apps/v1", "Deployment", "web")), Some(Ok(3)));
        assert_eq!(scales.get(&owner("apps/v1", "Deployment", "other")), None);
        assert_eq!(scales.get(&owner("batch/v1", "Job", "web")), None);
    }
    #[test]
    fn what_is_known_stays_so_while_now_and_then_nobody_answers() {
        let scales = Scales::default();
        let web = || owner("apps/v1", "Deployment", "web");
        let after = |answer: Answer| {
            scales.note(web(), answer);
            scales.get(&web())
        };
        let missed = || Answer::Missed("deadline exceeded".to_owned());
        let failed = Some(Err("deadline exceeded".to_owned()));
        assert_eq!(after(missed()), failed, "nothing is known yet");
        for _ in 0..5 {
            assert_eq!(after(Answer::Replicas(3)), Some(Ok(3)));
            for _ in 0..MISSES_MAX {
                assert_eq!(after(missed()), Some(Ok(3)));
            }
        }
        assert_eq!(after(missed()), failed, "nobody has for too long");
        assert_eq!(after(Answer::Replicas(4)), Some(Ok(4)));
        assert_eq!(after(Answer::Refused("no".to_owned())), Some(Err("no".to_owned())));
        assert_eq!(after(Answer::Replicas(4)), Some(Ok(4)));
        assert_eq!(after(Answer::Gone), None);
    }
}
