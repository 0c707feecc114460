//! Keeping the content of a running pod's volumes current: each volume by itself, so that none waits for what another lacks.

use super::payload::Room;
use super::plan::{self, VolumePlan};
use super::{VolumeError, Volumes, uid_of};
use crate::objects::{Changes, ObjectRef};
use crate::wake;
use client::ordered::Arrange;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pause before content is tried again after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// How many volumes of a pod are looked after at once: an object nobody answers for holds up only its own.
const AT_ONCE: usize = 16;

impl Volumes {
    /// Keeps the content of the pod's ConfigMap, Secret, downward and projected volumes current; returns if it has none. To be
    /// polled while the pod runs and dropped when it ends. The pod is taken anew each time, so that no earlier delivery of it is
    /// held; its labels, annotations and spec stay the same.
    pub async fn keep_current(&self, pod: watch::Receiver<Arc<Pod>>) {
        let Some(mut changes) = self.changes(&pod.borrow()) else {
            return;
        };
        loop {
            let now = pod.borrow().clone();
            let wait = self.refresh(&now, &plans(&now)).await;
            drop(now);
            tokio::select! {
                biased;
                () = changes.next() => {}
                () = wake::after(wait) => {}
            }
        }
    }

    /// What changes the content of the pod's volumes, if anything does.
    fn changes(&self, pod: &Pod) -> Option<Changes> {
        let plans = plans(pod);
        let references: Vec<ObjectRef> = plans.iter().flat_map(|p| p.references(pod)).collect();
        let changes = !references.is_empty() || plans.iter().any(VolumePlan::changes_by_itself);
        changes.then(|| self.inner.objects.changes(&uid_of(pod), &references))
    }

    /// Writes what has changed of every volume; returns how long nothing has to be done.
    async fn refresh(&self, pod: &Arc<Pod>, plans: &[VolumePlan]) -> Option<Duration> {
        let room = Room::of_pod();
        let volumes = plans.iter().cloned();
        let volumes = volumes.map(|plan| self.refresh_one(pod.clone(), plan, &room));
        let mut volumes = futures::stream::iter(volumes).buffer_unordered(AT_ONCE);
        let (mut earliest, mut failed, mut first) = (None::<Timestamp>, 0, None);
        while let Some(refreshed) = volumes.next().await {
            match refreshed {
                Ok(at) => earliest = earliest.into_iter().chain(at).min(),
                Err(error) => {
                    failed += 1;
                    first.get_or_insert(error);
                }
            }
        }
        let now = self.inner.clock.now();
        let wait = earliest.map(|at| {
            let left = at.duration_since(now);
            Duration::try_from(left).unwrap_or_default().max(Duration::from_secs(1))
        });
        let Some(error) = first else { return wait };
        let meta = &pod.metadata;
        tracing::warn!(pod = ?meta.name, namespace = ?meta.namespace, %error, failed, "volume content not refreshed, retrying");
        wait.into_iter().chain([RETRY]).min()
    }

    /// Writes one volume's content if it has changed; returns when a token in it has to be renewed.
    async fn refresh_one(
        &self,
        pod: Arc<Pod>,
        plan: VolumePlan,
        room: &Room,
    ) -> Result<Option<Timestamp>, VolumeError> {
        let volume = self.fetch_one(&pod, plan, room).await?;
        let refresh_at = volume.refresh_at;
        if volume.payload.is_some() {
            let uid = uid_of(&pod);
            self.files(&uid.clone(), move |inner| {
                // Only what ensure has set up; a pod that is going away is not given new directories.
                if inner.pod_dir(&uid).join(&volume.plan.directory).is_dir() {
                    inner.write_payload(&pod, &volume)?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(refresh_at)
    }
}

/// The plans of the volumes there are: one that cannot be was never set up. Those with tokens come first.
fn plans(pod: &Pod) -> Vec<VolumePlan> {
    let mut plans: Vec<VolumePlan> = plan::plans(pod).flatten().collect();
    plans.arrange_by_key(|plan| !plan.changes_by_itself());
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;
    use crate::volume::tests::{Bench, bench_of};
    use std::fs;

    const SPEC: &str = r#"{"volumes":[{"name":"odd","gitRepo":{"repository":"x"}},
        {"name":"gone","secret":{"secretName":"s"}},
        {"name":"info","downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}}]}},
        {"name":"token","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}],
        "containers":[{"name":"c","volumeMounts":[{"name":"info","mountPath":"/i"},{"name":"token","mountPath":"/t"}]}]}"#;

    /// Volumes over an API server that issues tokens and has nothing else.
    fn bench() -> Bench {
        bench_of(|request| async move {
            let path = request.uri().path().to_owned();
            if !path.ends_with("/serviceaccounts/default/token") {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            }
            let text = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{},"spec":{"audiences":[]},
                "status":{"token":"a","expirationTimestamp":"2099-01-01T00:00:00Z"}}"#;
            Ok(http::Response::new(kube::client::Body::from(text.as_bytes().to_vec())))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_volume_lacks_does_not_stop_the_others() {
        let bench = bench();
        bench.volumes.setup().await.expect("setup");
        let mut pod = pod(SPEC);
        let set_up = bench.volumes.ensure(&pod).await.expect("ensure");
        let files = [set_up["token"].path.join("token"), set_up["info"].path.join("labels")];
        // Later an ephemeral container mounts what is not there and what cannot be.
        let late = serde_json::json!([{"name": "d", "volumeMounts": [
            {"name": "gone", "mountPath": "/g"}, {"name": "odd", "mountPath": "/o"}]}]);
        pod.spec.as_mut().expect("a spec").ephemeral_containers = serde_json::from_value(late).expect("containers");
        for file in &files {
            let dir = file.parent().expect("a directory");
            fs::remove_file(dir.join("..data")).expect("emptied");
            assert!(!file.exists());
        }
        let pod = Arc::new(pod);
        let plans = plans(&pod);
        assert_eq!(bench.volumes.refresh(&pod, &plans).await, Some(RETRY));
        for file in &files {
            assert!(file.exists(), "{}", file.display());
        }
    }
}
