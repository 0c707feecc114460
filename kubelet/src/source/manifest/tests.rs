use super::*;
use crate::pod::testing::at;
use crate::pod_object;

const WEB: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: img}]}\n";

fn place(origin: Origin) -> Place<'static> {
    Place {
        origin,
        source: "/m/web.yaml",
        node: "Node-A",
        now: at(0),
    }
}

fn read(text: &str) -> Result<Pod, ManifestError> {
    pods(text.as_bytes(), place(Origin::File)).map(|mut pods| pods.remove(0))
}

#[test]
fn a_file_becomes_a_static_pod_of_this_node() {
    let pod = read(WEB).expect("sound");
    assert_eq!(pod_object::full_name(&pod).to_string(), "web-node-a_default");
    let uid = pod_object::uid(&pod).to_string();
    assert!(uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit()), "{uid}");
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get(annotation::HASH), Some(&uid));
    assert_eq!(annotations.get(annotation::SOURCE).map(String::as_str), Some("file"));
    assert!(annotations.contains_key(annotation::SEEN) && pod_object::is_static(&pod));
    let spec = pod_object::spec(&pod);
    assert_eq!(spec.node_name.as_deref(), Some("Node-A"));
    assert_eq!(
        (spec.restart_policy.as_deref(), spec.dns_policy.as_deref()),
        (Some("Always"), Some("ClusterFirst"))
    );
    let tolerations = spec.tolerations.clone().unwrap_or_default();
    assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(pod.status.and_then(|s| s.phase).as_deref(), Some("Pending"));
}

#[test]
fn the_uid_follows_content_place_and_node_alone() {
    let uid = |text: &str, place| pod_object::uid(&pods(text.as_bytes(), place).expect("sound")[0]);
    let base = uid(WEB, place(Origin::File));
    let json = r#"{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"image":"img","name":"c"}]},"metadata":{"name":"web"}}"#;
    for same in [
        format!("# a comment\n\n{WEB}"),
        format!("\u{feff}---\n{WEB}---\nother: document\n"),
        json.to_owned(),
    ] {
        assert_eq!(
            uid(
                &same,
                Place {
                    now: at(9),
                    ..place(Origin::File)
                }
            ),
            base,
            "{same}"
        );
    }
    assert_ne!(uid(&WEB.replace("img", "img2"), place(Origin::File)), base);
    assert_ne!(
        uid(
            WEB,
            Place {
                source: "/m/other.yaml",
                ..place(Origin::File)
            }
        ),
        base
    );
    assert_ne!(
        uid(
            WEB,
            Place {
                node: "b",
                ..place(Origin::File)
            }
        ),
        base
    );
    let given = WEB.replace("{name: web}", "{name: web, uid: \"7\"}");
    assert_eq!(uid(&given, place(Origin::File)).as_str(), "7");
}

#[test]
fn what_is_no_static_pod_is_told_why() {
    let with = |spec: &str| WEB.replace("spec: {", &format!("spec: {{{spec}, "));
    for (text, expected) in [
        (String::new(), "empty"),
        ("# only a comment\n---\n".to_owned(), "empty"),
        ("a: [".to_owned(), "couldn't parse as pod"),
        ("[]".to_owned(), "does not hold an object"),
        (WEB.replace("Pod", "Service"), "kind \"Service\" is not a v1 Pod"),
        (WEB.replace("kind: Pod", "kind: PodList"), "PodList"),
        (WEB.replace("image: img", "image: [1]"), "couldn't parse as pod"),
        (
            WEB.replace("[{name: c, image: img}]", "[]"),
            "spec.containers: Required value",
        ),
        (WEB.replace("{name: web}", "{}"), "metadata.name: Required value"),
        (
            WEB.replace("name: web", "name: W_b"),
            "metadata.name: Invalid value: \"W_b-node-a\"",
        ),
        (
            with("serviceAccountName: x"),
            "static pods may not reference serviceaccounts",
        ),
        (
            with("imagePullSecrets: [{name: x}]"),
            "static pods may not reference secrets",
        ),
        (
            with("volumes: [{name: v, configMap: {name: x}}]"),
            "static pods may not reference configmaps",
        ),
        (
            with("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]"),
            "static pods may not reference persistentvolumeclaims",
        ),
        (
            with("resourceClaims: [{name: x}]"),
            "static pods may not reference resourceclaims",
        ),
    ] {
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert_eq!(
        pods(&vec![b'a'; MANIFEST_BYTES_MAX + 1], place(Origin::File)),
        Err(ManifestError::TooLarge)
    );
    assert_eq!(pods(&[0xff, 0xfe, 0], place(Origin::File)), Err(ManifestError::NotText));
}

#[test]
fn a_url_may_give_a_list() {
    let list = r#"{"apiVersion":"v1","kind":"PodList","items":[
        {"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},
        {"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}"#;
    let listed = pods(list.as_bytes(), place(Origin::Http)).expect("sound");
    assert_eq!(listed.len(), 2);
    assert!(
        pod_object::spec(&listed[0]).tolerations.is_none(),
        "only files tolerate everything"
    );
    let empty = r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#;
    assert_eq!(pods(empty.as_bytes(), place(Origin::Http)), Ok(Vec::new()));
    assert!(pods(list.replace("\"i\"", "\"\"").as_bytes(), place(Origin::Http)).is_err());
}
