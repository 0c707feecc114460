use super::*;

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {"app": "p"}, "generation": 1,
            "finalizers": ["x.example/y"], "ownerReferences": [{"uid": "o", "kind": "ReplicaSet", "name": "r", "apiVersion": "apps/v1"}]},
        "spec": {"containers": [{"name": "c", "image": "nginx", "env": [{"name": "E", "value": "1"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": ["x"], "resources": {}}],
            "nodeSelector": {"a": "b"}, "dnsPolicy": "ClusterFirst", "securityContext": {}},
        "status": {"phase": "Pending"}})
}

fn write(live: Option<&Value>, new: &Value, writer: Writer<'_>) -> Value {
    let mut new = new.clone();
    let scope = scope("", "Pod", writer.subresource);
    track(typing("", "Pod"), scope, live, &mut new, &writer);
    new
}

fn created() -> Value {
    write(None, &pod(), writer("kubectl", 0))
}

fn status_writer(manager: &str, seconds: i64) -> Writer<'_> {
    Writer {
        subresource: "status",
        ..writer(manager, seconds)
    }
}

#[test]
fn who_creates_an_object_owns_what_it_set() {
    let entry = entry(&created(), "kubectl");
    let expected = json!({"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {
            "f:metadata": {
                "f:finalizers": {".": {}, "v:\"x.example/y\"": {}},
                "f:labels": {".": {}, "f:app": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"o\"}": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                    "f:env": {".": {}, "k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                        {".": {}, "f:containerPort": {}, "f:protocol": {}}}}},
                "f:dnsPolicy": {},
                "f:nodeSelector": {},
                "f:securityContext": {}}}});
    assert_eq!(entry, expected);
}

#[test]
fn what_changes_goes_to_the_writer_and_what_is_gone_to_nobody() {
    let live = created();
    let mut new = live.clone();
    new["spec"]["containers"][0]["image"] = json!("nginx:2");
    new["metadata"]["labels"] = json!({"app": "p", "tier": "web"});
    new["spec"]["containers"][0].as_object_mut().unwrap().remove("env");
    let new = write(Some(&live), &new, writer("ci", 5));
    let expected = json!({"f:metadata": {"f:labels": {"f:tier": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}});
    assert_eq!(fields(&new, "ci"), expected);
    assert_eq!(entry(&new, "ci")["time"], "2026-01-01T00:00:05Z");
    let first = fields(&new, "kubectl");
    let container = &first["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    assert!(
        container.get("f:image").is_none() && container.get("f:env").is_none(),
        "{first}"
    );
    assert!(container.get("f:name").is_some() && first["f:metadata"]["f:labels"].get("f:app").is_some());
    assert_eq!(
        entry(&new, "kubectl")["time"],
        "2026-01-01T00:00:00Z",
        "its own time stays"
    );
    let again = write(Some(&new), &new, writer("ci", 9));
    assert_eq!(again, new, "a change of nothing changes nothing");
}

#[test]
fn endpoints_have_entries_of_their_own_and_see_their_own_part() {
    let live = created();
    let mut new = live.clone();
    new["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}]});
    new["spec"]["dnsPolicy"] = json!("Default");
    new["metadata"]["managedFields"] = json!([]);
    let new = write(Some(&live), &new, status_writer("kubelet", 1));
    let expected = json!({"f:status": {"f:phase": {},
        "f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {}, "f:status": {}, "f:type": {}}},
        "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}}}});
    assert_eq!(fields(&new, "kubelet"), expected);
    assert_eq!(entry(&new, "kubelet")["subresource"], "status");
    assert_eq!(
        managers(&new),
        ["kubectl", "kubelet"],
        "a subresource takes no entries from requests"
    );
    let mut later = new.clone();
    later["status"]["conditions"][0]["status"] = json!("False");
    let later = write(Some(&new), &later, status_writer("kubelet", 2));
    assert_eq!(fields(&later, "kubelet"), expected, "only its time is new");
    assert_eq!(entry(&later, "kubelet")["time"], "2026-01-01T00:00:02Z");
    assert_eq!(entry(&later, "kubectl"), entry(&live, "kubectl"));
}

#[test]
fn entries_can_be_sent_wiped_and_not_broken() {
    let live = created();
    let send = |list: Value| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = list;
        new["metadata"]["labels"]["x"] = json!("y");
        write(Some(&live), &new, writer("ci", 3))
    };
    let own = json!({"manager": "other", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2025-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:dnsPolicy": {}}}});
    assert_eq!(managers(&send(json!([own]))), ["other", "ci"]);
    for wiped in [json!([]), json!([{}])] {
        let new = send(wiped);
        assert!(new["metadata"].get("managedFields").is_none());
        let mut next = new.clone();
        next["metadata"]["labels"]["x"] = json!("z");
        assert_eq!(
            write(Some(&new), &next, writer("ci", 4)),
            next,
            "not tracked until somebody applies"
        );
    }
    let but = |key: &str, value: Value| {
        let mut entry = own.clone();
        entry[key] = value;
        json!([entry])
    };
    for bad in [
        but("operation", json!("Delete")),
        but("apiVersion", json!("")),
        but("fieldsType", json!("FieldsV2")),
        but("fieldsV1", json!({"nonsense": {}})),
        but("fieldsV1", json!({"f:spec": 1})),
        but("fieldsV1", json!({})),
        json!({}),
        json!("x"),
        json!([1]),
        json!([{}, {}]),
        json!(null),
    ] {
        assert_eq!(managers(&send(bad.clone())), ["kubectl", "ci"], "{bad}");
    }
}

#[test]
fn floods_of_entries_are_folded_or_left() {
    let live = created();
    let flood = |count: usize| -> Value {
        let entry = |number: usize| {
            json!({"manager": format!("m{number}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2025-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {(format!("f:l{number}")): {}}}}})
        };
        (0..count).map(entry).collect()
    };
    let mut new = live.clone();
    new["metadata"]["managedFields"] = flood(1000);
    let folded = write(Some(&live), &new, writer("ci", 1));
    assert_eq!(managers(&folded).len(), 10);
    let labels = &fields(&folded, "ancient-changes")["f:metadata"]["f:labels"];
    assert_eq!(labels.as_object().map(serde_json::Map::len), Some(991));
    new["metadata"]["managedFields"] = flood(1001);
    assert_eq!(managers(&write(Some(&live), &new, writer("ci", 1))), ["kubectl"]);
}

#[test]
fn old_updates_become_one() {
    let mut live = created();
    for number in 1..=15 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{number}")] = json!("x");
        live = write(Some(&live), &new, writer(&format!("m{number:02}"), number));
    }
    let all = managers(&live);
    assert_eq!(all.len(), 10, "{all:?}");
    assert_eq!(all[0], "ancient-changes");
    let old = fields(&live, "ancient-changes");
    let labels = &old["f:metadata"]["f:labels"];
    assert!(
        labels.get("f:app").is_some() && labels.get("f:l1").is_some() && labels.get("f:l7").is_none(),
        "{old}"
    );
}

#[test]
fn members_that_cannot_be_told_apart_count_as_one() {
    let mut live = created();
    let port = json!({"containerPort": 80, "protocol": "TCP"});
    live["spec"]["containers"][0]["ports"] = json!([port, {"containerPort": 80, "protocol": "TCP", "name": "b"}]);
    let mut new = live.clone();
    new["spec"]["containers"][0]["ports"][1]["name"] = json!("c");
    let step = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
    let twice = write(Some(&live), &new, writer("ci", 1));
    assert_eq!(
        fields(&twice, "ci")["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:ports"][step],
        json!({})
    );
    new["spec"]["containers"][0]["ports"] = json!([port]);
    let once = write(Some(&live), &new, writer("ci", 1));
    let ports = fields(&once, "ci")["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:ports"][step].clone();
    assert_eq!(ports, json!({".": {}, "f:containerPort": {}, "f:protocol": {}}));
}

#[test]
fn times_alone_are_no_change() {
    let (mut object, stored) = split(&created());
    let later = stored.as_deref().map(|list| list.replace("00:00:00Z", "00:01:00Z"));
    assert_ne!(later, stored);
    let old = object.clone();
    let old = Live {
        object: &old,
        owners: stored.as_deref(),
    };
    object["metadata"]["resourceVersion"] = json!("5");
    assert_eq!(settled(&object, later.clone(), old), stored);
    let another = later.as_deref().map(|list| list.replace("f:dnsPolicy", "f:hostname"));
    assert_eq!(settled(&object, another.clone(), old), another);
    object["spec"]["dnsPolicy"] = json!("Default");
    assert_eq!(settled(&object, later.clone(), old), later);
}

#[test]
fn objects_as_deep_as_they_may_be_leave_room_for_their_owners() {
    let deep = (0..90).fold(json!("x"), |below, _| json!({"a": below}));
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"}, "data": deep});
    let write = Writer {
        api_version: "apps/v1",
        ..writer("m", 0)
    };
    track(
        typing("apps", "ControllerRevision"),
        Scope::WHOLE,
        None,
        &mut object,
        &write,
    );
    assert!(object["metadata"]["managedFields"].is_array());
    assert_eq!(crate::tree::check(&object), Ok(()));
}

#[test]
fn names_are_the_requests_or_the_programs() {
    for (said, agent, expected) in [
        ("mine", "kubectl/v1.36", "mine"),
        ("", "kubectl/v1.36.2 (linux/amd64)", "kubectl"),
        ("", "Mozilla", "Mozilla"),
        ("", "", ""),
        ("", "a\u{7}b\u{200b}c/1", "abc"),
    ] {
        assert_eq!(manager_name(said, agent), expected);
    }
    assert_eq!(manager_name("", &"ä".repeat(100)).len(), 128);
    let texts: Vec<String> = check_name(&format!("{}\n", "x".repeat(128)))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts[0], "fieldManager: Too long: may not be more than 128 bytes");
    assert!(
        texts[1].ends_with("invalid character U+000A (at position 128)"),
        "{texts:?}"
    );
    assert!(check_name("kubectl client-side äß🙂").is_empty());
    let unnamed = {
        let mut new = pod();
        track(typing("", "Pod"), Scope::WHOLE, None, &mut new, &writer("", 0));
        new
    };
    assert_eq!(managers(&unnamed), ["unknown"]);
}

#[test]
fn so_many_apply_one_object_and_no_more() {
    let list = |count: usize| {
        let entry = |i: usize| {
            json!({"manager": format!("m{i}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:shared": {}}}})
        };
        (0..count).map(entry).collect::<Value>().to_string()
    };
    assert!(problems(Some(&list(1000))).is_empty());
    let told: Vec<String> = problems(Some(&list(1001))).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["metadata.managedFields: Too many: 1001: must have at most 1000 items that apply"]
    );
}

#[test]
fn resizes_own_the_resources_of_containers_and_of_the_pod() {
    let live = created();
    let mut wanted = live.clone();
    wanted["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    wanted["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
    let through = Writer {
        subresource: "resize",
        ..writer("vpa", 1)
    };
    let resized = write(Some(&live), &wanted, through);
    assert_eq!(
        fields(&resized, "vpa"),
        json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {"f:resources": {"f:requests": {".": {}, "f:cpu": {}}}}},
            "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}}}}})
    );
}
