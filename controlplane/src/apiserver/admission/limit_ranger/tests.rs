use super::*;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use crate::resource::Registry;
use serde_json::json;

fn with<T>(plural: &str, part: &str, operation: Operation, run: impl FnOnce(&Attributes<'_>) -> T) -> T {
    let user = User::named("alice", &[]);
    let info = RequestInfo {
        resource: plural.to_owned(),
        subresource: part.to_owned(),
        ..RequestInfo::default()
    };
    run(&Attributes {
        user: &user,
        info: &info,
        kind: Registry::built_in().by_resource("", "v1", plural).unwrap(),
        operation,
        namespace: "ns",
        name: "x",
        dry_run: false,
    })
}

fn range(limits: Value) -> Vec<Arc<Value>> {
    vec![Arc::new(json!({"metadata": {"name": "r"}, "spec": {"limits": limits}}))]
}

fn pod(requests: Value, limits: Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": {"containers": [
        {"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
}

fn told(plural: &str, object: &Value, limits: Value) -> String {
    let refused = with(plural, "", Operation::Create, |attributes| {
        check(attributes, object, &range(limits))
    });
    let text = refused.err().map(|error| error.message).unwrap_or_default();
    text.split_once("is forbidden: ")
        .map(|(_, why)| why.to_owned())
        .unwrap_or(text)
}

#[test]
fn what_a_container_asks_for_is_bounded() {
    let cpu = |key: &str, amount: &str| json!([{"type": "Container", key: {"cpu": amount}}]);
    for (requests, limits, bound, wanted) in [
        (
            json!({}),
            json!({}),
            cpu("min", "100m"),
            "minimum cpu usage per Container is 100m.  No request is specified",
        ),
        (
            json!({"cpu": "50m"}),
            json!({}),
            cpu("min", "100m"),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            json!({"cpu": "200m"}),
            json!({"cpu": "50m"}),
            cpu("min", "100m"),
            "minimum cpu usage per Container is 100m, but limit is 50m",
        ),
        (json!({"cpu": "100m"}), json!({}), cpu("min", "100m"), ""),
        (
            json!({"cpu": "1"}),
            json!({}),
            cpu("max", "1"),
            "maximum cpu usage per Container is 1.  No limit is specified",
        ),
        (
            json!({}),
            json!({"cpu": "2"}),
            cpu("max", "1"),
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            json!({"cpu": "2"}),
            json!({"cpu": "1"}),
            cpu("max", "1"),
            "maximum cpu usage per Container is 1, but request is 2",
        ),
        (json!({}), json!({"cpu": "1"}), cpu("max", "1"), ""),
        (
            json!({"cpu": "0"}),
            json!({"cpu": "1"}),
            cpu("maxLimitRequestRatio", "2"),
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            json!({"cpu": "1"}),
            json!({}),
            cpu("maxLimitRequestRatio", "2"),
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            json!({"cpu": "1"}),
            json!({"cpu": "2500m"}),
            cpu("maxLimitRequestRatio", "2"),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        (
            json!({"cpu": "1"}),
            json!({"cpu": "2"}),
            cpu("maxLimitRequestRatio", "2"),
            "",
        ),
        (
            json!({}),
            json!({"cpu": "2", "memory": "2Gi"}),
            json!([{"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}}]),
            "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]",
        ),
    ] {
        assert_eq!(told("pods", &pod(requests, limits), bound), wanted);
    }
}

#[test]
fn init_containers_are_bounded_and_added_up_as_they_run() {
    let mut both = pod(json!({"cpu": "1"}), json!({"cpu": "1"}));
    let more = json!({"requests": {"cpu": "3"}, "limits": {"cpu": "3"}});
    both["spec"]["initContainers"] = json!([{"name": "i", "resources": more}]);
    let each = json!([{"type": "Container", "max": {"cpu": "2"}}]);
    assert_eq!(
        told("pods", &both, each),
        "maximum cpu usage per Container is 2, but limit is 3"
    );
    let all = |cpu: &str| json!([{"type": "Pod", "max": {"cpu": cpu}}]);
    assert_eq!(told("pods", &both, all("3")), "");
    both["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    assert_eq!(
        told("pods", &both, all("3")),
        "maximum cpu usage per Pod is 3, but limit is 4"
    );
    both["spec"]["resources"] = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}});
    assert_eq!(
        told("pods", &both, all("3")),
        "",
        "the pod itself says what it asks for"
    );
}

#[test]
fn claims_are_bounded_by_what_they_request() {
    let claim =
        |storage: &str| json!({"metadata": {"name": "x"}, "spec": {"resources": {"requests": {"storage": storage}}}});
    let bounds = json!([{"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "4Gi"}}]);
    let of = |claim: &Value| told("persistentvolumeclaims", claim, bounds.clone());
    assert_eq!(of(&claim("3Gi")), "");
    assert_eq!(
        of(&claim("1Gi")),
        "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"
    );
    assert_eq!(
        of(&claim("5Gi")),
        "maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"
    );
    let pod = pod(json!({}), json!({}));
    assert_eq!(told("pods", &pod, bounds.clone()), "");
}

#[test]
fn what_is_left_open_is_filled_in_and_told() {
    let defaults = json!([{"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"},
        "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}]);
    let mut pod = pod(json!({"cpu": "200m"}), json!({}));
    pod["spec"]["initContainers"] = json!([{"name": "i", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}]);
    with("pods", "", Operation::Create, |attributes| {
        fill(attributes, &mut pod, &range(defaults.clone()))
    });
    let container = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(
        *container,
        json!({"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}})
    );
    assert_eq!(
        pod["metadata"]["annotations"][ANNOTATION],
        "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c; \
         cpu, memory request for init container i"
    );
    let before = pod.clone();
    with("pods", "", Operation::Create, |attributes| {
        fill(attributes, &mut pod, &range(defaults))
    });
    assert_eq!(pod, before, "there is nothing left to fill in");
}

#[test]
fn only_what_can_change_resources_is_asked() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let staying = json!({"metadata": {}});
    for (plural, part, operation, old, wanted) in [
        ("pods", "", Operation::Create, None, true),
        ("pods", "", Operation::Update, Some(&staying), false),
        ("pods", "resize", Operation::Update, Some(&staying), true),
        ("pods", "resize", Operation::Update, Some(&gone), false),
        ("pods", "status", Operation::Update, Some(&staying), false),
        ("persistentvolumeclaims", "", Operation::Create, None, true),
        ("persistentvolumeclaims", "", Operation::Update, Some(&staying), true),
        ("persistentvolumeclaims", "", Operation::Delete, None, false),
        ("services", "", Operation::Create, None, false),
    ] {
        let asked = with(plural, part, operation, |attributes| applies(attributes, old));
        assert_eq!(asked, wanted, "{plural}/{part} {operation:?}");
    }
}
