//! Going back to the template of an earlier revision, where an annotation of the deployment asks for it.
//!
//! Source: upstream's `pkg/controller/deployment/rollback.go`: `extensions/v1beta1` had a field for it, which is this annotation since. It is
//! obeyed once and goes in every case, by the same write that brings the template back. Where the current template has no replica set yet,
//! none is made for it first, as upstream does: its revision is the one that it would be given.

use super::annotation::{self, OWN, ROLLBACK};
use super::{View, event, template};
use crate::controller::write::{self, Write};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

/// The revision that is asked for: 0 is the one before the current. What is no number asks for nothing.
fn asked(deployment: &Deployment) -> Option<i64> {
    deployment.annotations().get(ROLLBACK)?.parse().ok()
}

/// The second highest revision; 0 if there is none.
fn last(mut revisions: Vec<i64>) -> i64 {
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}

/// The write that does what the annotation asks for, with the event of what came of it; `None` where it asks for nothing.
pub fn step(view: &View<'_>) -> Option<Write> {
    let asked = asked(view.deployment)?;
    // Revisions with their replica sets; that of the current template may have none.
    let mut known: Vec<(i64, Option<&ReplicaSet>)> = Vec::new();
    known.extend(view.old.iter().map(|rs| (annotation::revision(rs), Some(&**rs))));
    known.push(match &view.new {
        Some(rs) => (annotation::revision(rs), Some(&**rs)),
        None => (annotation::next_revision(view), None),
    });
    let wanted = match asked {
        0 => last(known.iter().map(|(revision, _)| *revision).collect()),
        asked => asked,
    };
    let mut deployment = view.deployment.clone();
    deployment.annotations_mut().remove(ROLLBACK);
    let told = |kind, reason, message: String| event(view.deployment, kind, reason, message);
    let not_found = |message: &str| told("Warning", "DeploymentRollbackRevisionNotFound", message.to_owned());
    let found = known.iter().find(|(revision, _)| *revision == wanted);
    let name = view.deployment.name_any();
    let event = match found {
        _ if wanted == 0 => not_found("Unable to find last revision."),
        None => not_found("Unable to find the revision to rollback to."),
        Some((_, Some(rs))) if !template::same(rs, &view.spec.template) => {
            give_back(&mut deployment, rs);
            let message = format!("Rolled back deployment {name:?} to revision {wanted}");
            told("Normal", "DeploymentRollback", message)
        }
        Some(_) => {
            let message = format!("The rollback revision contains the same template as current deployment {name:?}");
            told("Warning", "DeploymentRollbackTemplateUnchanged", message)
        }
    };
    Some(Write::replace(write::DEPLOYMENTS, &deployment).success(event))
}

/// Gives a deployment the template of a replica set, and the annotations that it had with it: they are the replica set's still.
fn give_back(deployment: &mut Deployment, rs: &ReplicaSet) {
    let annotations = deployment.annotations_mut();
    annotations.retain(|key, _| OWN.contains(&key.as_str()));
    let earlier = rs.annotations().iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
    annotations.extend(earlier.map(|(key, value)| (key.clone(), value.clone())));
    let Some((spec, template)) = deployment
        .spec
        .as_mut()
        .zip(rs.spec.as_ref().and_then(|spec| spec.template.clone()))
    else {
        return;
    };
    spec.template = template;
    let labels = spec.template.metadata.as_mut().and_then(|meta| meta.labels.as_mut());
    if let Some(labels) = labels {
        labels.remove(template::HASH_LABEL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployment, set};
    use super::*;
    use crate::controller::write::Verb;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// What becomes of a deployment of image `c` that asks for this, beside replica sets of these images whose revisions are 1, 2, ...
    fn asked(text: &str, images: &[&str], extra: &Value) -> Option<(Value, &'static str, String)> {
        let mut change = json!({"metadata": {"resourceVersion": "7", "annotations": {ROLLBACK: text, annotation::REVISION: images.len().to_string()}}});
        json_patch::merge(&mut change, extra);
        let deployment = deployment(3, "c", change);
        let sets = images.iter().zip(0..).map(|(image, age)| {
            let mut rs = ReplicaSet::clone(&set(image, age, 3, 3, 3));
            rs.annotations_mut().insert("note".into(), (*image).into());
            Arc::new(rs)
        });
        let view = View::new(&deployment, sets.collect(), |_| false).unwrap();
        let write = super::super::plan(&view).writes.into_iter().next()?;
        let Verb::Replace(body) = write.verb else { return None };
        if body["metadata"]["annotations"].get(ROLLBACK).is_some() {
            return None;
        }
        let event = write.on_success?;
        Some((body, event.reason, event.message))
    }

    const ALL: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn the_revision_that_is_asked_for_comes_back_with_its_annotations() {
        for (text, image) in [("1", "a"), ("2", "b"), ("0", "b")] {
            let note = json!({"metadata": {"annotations": {"note": "c", "later": "x"}}});
            // Before anything else the annotations of the current replica set are mended: it has them here.
            let (body, reason, message) =
                asked(text, &ALL, &json!({"metadata": {"annotations": {"note": "c"}}})).unwrap();
            let number = if image == "a" { 1 } else { 2 };
            assert_eq!(reason, "DeploymentRollback");
            assert_eq!(message, format!("Rolled back deployment \"web\" to revision {number}"));
            let template = &body["spec"]["template"];
            assert_eq!(template["spec"]["containers"][0]["image"], image);
            assert_eq!(
                template["metadata"]["labels"],
                json!({"app": "web"}),
                "without the hash"
            );
            assert_eq!(body["metadata"]["resourceVersion"], "7");
            let kept = json!({"note": image, annotation::REVISION: "3"});
            assert_eq!(body["metadata"]["annotations"], kept);
            assert_eq!(asked(text, &ALL, &note), None, "the current replica set is told first");
        }
    }

    #[test]
    fn what_cannot_be_gone_back_to_is_told_once() {
        let same = "The rollback revision contains the same template as current deployment \"web\"";
        let none = "Unable to find the revision to rollback to.";
        let last = "Unable to find last revision.";
        let unchanged = "DeploymentRollbackTemplateUnchanged";
        let missing = "DeploymentRollbackRevisionNotFound";
        for (text, images, reason, message) in [
            ("3", &ALL[..], unchanged, same),
            ("9", &ALL[..], missing, none),
            ("-1", &ALL[..], missing, none),
            ("0", &["c"][..], missing, last),
            // The current template has no replica set yet: it would be the third.
            ("3", &ALL[..2], unchanged, same),
        ] {
            let note = json!({"metadata": {"annotations": {"note": "c"}}});
            let found = asked(text, images, &note).map(|(body, reason, message)| {
                assert_eq!(
                    body["spec"]["template"]["spec"]["containers"][0]["image"], "c",
                    "{text}"
                );
                (reason, message)
            });
            assert_eq!(found, Some((reason, message.to_owned())), "{text} of {images:?}");
        }
        let (body, ..) = asked("0", &ALL[..2], &json!({})).unwrap();
        assert_eq!(body["spec"]["template"]["spec"]["containers"][0]["image"], "b");
    }

    #[test]
    fn what_is_paused_or_asks_for_nothing_is_left_alone() {
        for text in ["", "the last", "1.5", "99999999999999999999"] {
            assert_eq!(
                asked(text, &ALL, &json!({"metadata": {"annotations": {"note": "c"}}})),
                None,
                "{text}"
            );
        }
        let paused = json!({"metadata": {"annotations": {"note": "c"}}, "spec": {"paused": true}});
        assert_eq!(asked("1", &ALL, &paused), None);
    }
}
