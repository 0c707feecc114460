//! What is told of the cluster, brought into the [`World`]; and what is to be told of policies. It may take long where there
//! are many pods and selectors, so it is done off the tasks that must not wait. Pure, but for where it runs.

use client::Key;
use client::informer::Change as News;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::facts::{Facts, PodId};
use crate::settings::Notice;
use crate::spec::{Flaw, Policy, SCTP};
use crate::world::World;

/// Works on the world where that holds up nobody: what is asked about a pod is bounded for the whole node, and still a lot. If this
/// is cancelled the world is lost.
pub(crate) async fn aside<T: Send + 'static>(
    world: &mut World,
    work: impl FnOnce(&mut World) -> T + Send + 'static,
) -> T {
    let mut taken = std::mem::take(world);
    let decided = client::blocking::spawn(move || {
        let result = work(&mut taken);
        (taken, result)
    });
    match decided.await {
        Ok((kept, result)) => {
            *world = kept;
            result
        }
        Err(error) => match error.try_into_panic() {
            // A mistake ends the task as it would if it had been made on it.
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and the task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Takes policies; returns what of them cannot be enforced.
pub(crate) fn take_policies(world: &mut World, news: Vec<News<NetworkPolicy>>, follows_sctp: bool) -> Vec<Notice> {
    let mut flaws = Vec::new();
    for news in news {
        let policy = news.new.as_deref().map(|object| {
            let policy = Policy::read(object);
            let unfollowed = (!follows_sctp && policy.names_protocol(SCTP)).then(|| Flaw {
                field: "spec".to_owned(),
                text: "this node's kernel does not follow SCTP connections; rules for SCTP ports let nothing through"
                    .to_owned(),
            });
            let all = policy.flaws.iter().chain(&unfollowed);
            flaws.extend(all.map(|flaw| flawed(&news.key, object, flaw)));
            policy
        });
        world.set_policy(news.key, policy);
    }
    flaws
}

/// What is told of a policy that cannot be enforced as it is written.
pub(crate) fn flawed(key: &Key, object: &NetworkPolicy, flaw: &Flaw) -> Notice {
    Notice::Flawed {
        policy: key.clone(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        text: flaw.to_string(),
    }
}

/// Takes pods as the API server has them; `node` is this one.
pub(crate) fn take_pods(world: &mut World, news: &[News<Pod>], node: &str) {
    for news in news {
        let id_of = |pod: Option<&Pod>| pod.map(PodId::of);
        let (old, new) = (id_of(news.old.as_deref()), id_of(news.new.as_deref()));
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            world.set_pod(old, None);
        }
        if let (Some(id), Some(pod)) = (new, &news.new) {
            world.set_pod(id, Some(Facts::of(pod, node)));
        }
    }
}

/// Takes namespaces.
pub(crate) fn take_namespaces(world: &mut World, news: Vec<News<Namespace>>) {
    for news in news {
        let labels = news.new.map(|new| new.metadata.labels.clone().unwrap_or_default());
        world.set_namespace(&news.key.name, labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_decided_on_another_thread_and_kept() {
        let object = NetworkPolicy::default();
        let mut world = World::new();
        let thread = aside(&mut world, move |world| {
            world.set_policy(Key::new("d", "p"), Some(Policy::read(&object)));
            std::thread::current().id()
        });
        assert_ne!(thread.await, std::thread::current().id());
        assert!(world.has_policies());
    }
}
