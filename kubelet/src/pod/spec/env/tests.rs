use super::super::testing::{context, pod};
use super::*;
use crate::volume::EnvFileValues;
use std::sync::Arc;

fn objects() -> ResolvedObjects {
    let map = serde_json::json!({"metadata":{"name":"cm"},"data":{"k":"v","bad key":"x"}});
    let secret = serde_json::json!({"metadata":{"name":"s"},"data":{"p":"c2VjcmV0"}});
    let service = |namespace: &str, name: &str| {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "web-http", "port": 80}, {"port": 53, "protocol": "UDP"}]}
        }))
        .expect("service")
    };
    ResolvedObjects {
        config_maps: BTreeMap::from([("cm".into(), Arc::new(serde_json::from_value(map).expect("map")))]),
        secrets: BTreeMap::from([("s".into(), Arc::new(serde_json::from_value(secret).expect("secret")))]),
        services: vec![
            Arc::new(service("default", "kubernetes")),
            Arc::new(service("shop", "my-db")),
            Arc::new(service("other", "hidden")),
        ],
        files: BTreeMap::from([(
            ("v".into(), "d/env".into()),
            EnvFileValues {
                values: [("GREETING", Some("hello")), ("EMPTY", Some("")), ("LONG", None)]
                    .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
                    .into(),
                broken: None,
            },
        )]),
    }
}

fn env(container: &str, extra: &str) -> Result<BTreeMap<String, String>, SpecError> {
    let pod = pod(&format!(r#"{{"containers":[{container}]{extra}}}"#));
    let container = pod.spec.as_ref().expect("spec").containers[0].clone();
    environment(&pod, &container, &objects(), &["10.1.0.5".into()], &context())
}

#[test]
fn order_references_and_service_variables() {
    let vars = env(
        r#"{"name":"c","envFrom":[{"prefix":"P_","configMapRef":{"name":"cm"}},{"secretRef":{"name":"s"}},{"configMapRef":{"name":"none","optional":true}}],
           "env":[{"name":"A","value":"$(P_k)-$(MY_DB_SERVICE_HOST)-$(LATER)"},{"name":"LATER","value":"l"},
                  {"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},
                  {"name":"A2","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"}}},
                  {"name":"LATER","valueFrom":{"secretKeyRef":{"name":"s","key":"none","optional":true}}}]}"#,
        "",
    )
    .expect("environment");
    for (name, value) in [
        ("P_k", "v"),
        ("P_bad key", "x"),
        ("p", "secret"),
        ("A", "v-10.0.0.9-$(LATER)"),
        ("LATER", "l"),
        ("IP", "10.1.0.5"),
        ("A2", "v"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.9"),
        ("MY_DB_SERVICE_PORT", "80"),
        ("MY_DB_SERVICE_PORT_WEB_HTTP", "80"),
        ("MY_DB_PORT", "tcp://10.0.0.9:80"),
        ("MY_DB_PORT_53_UDP", "udp://10.0.0.9:53"),
        ("MY_DB_PORT_53_UDP_PROTO", "udp"),
        ("MY_DB_PORT_53_UDP_ADDR", "10.0.0.9"),
    ] {
        assert_eq!(vars.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!vars.keys().any(|k| k.starts_with("HIDDEN")));
}

#[test]
fn links_off_leaves_only_the_master_service() {
    let vars = env(r#"{"name":"c"}"#, r#","enableServiceLinks":false"#).expect("environment");
    assert!(vars.contains_key("KUBERNETES_SERVICE_HOST"));
    assert!(!vars.contains_key("MY_DB_SERVICE_HOST"));
}

#[test]
fn what_is_missing_is_named() {
    for (container, message) in [
        (
            r#"{"name":"c","envFrom":[{"configMapRef":{"name":"none"}}]}"#,
            "configmap \"none\" not found",
        ),
        (
            r#"{"name":"c","env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"none","key":"k"}}}]}"#,
            "secret \"none\" not found",
        ),
        (
            r#"{"name":"c","env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"zz"}}}]}"#,
            "couldn't find key zz in ConfigMap shop/cm",
        ),
    ] {
        assert_eq!(env(container, "").expect_err(container).to_string(), message);
    }
}

#[test]
fn references_are_listed_once() {
    let pod = pod(
        r#"{"containers":[{"name":"c","envFrom":[{"configMapRef":{"name":"cm"}}],"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"}}},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}"#,
    );
    let refs = env_references(&pod, &pod.spec.as_ref().expect("spec").containers[0]);
    assert_eq!(
        refs,
        vec![ObjectRef::config_map("shop", "cm"), ObjectRef::secret("shop", "s")]
    );
}

/// A reference to `d/env` in `v`, but for what is given.
fn reference(given: &str) -> String {
    let mut reference = serde_json::json!({"volumeName": "v", "path": "d/env"});
    let given: serde_json::Value = serde_json::from_str(&format!("{{{given}}}")).expect("JSON");
    for (key, value) in given.as_object().into_iter().flatten() {
        reference[key] = value.clone();
    }
    reference.to_string()
}

#[test]
fn variables_of_files() {
    let from = |key: &str| {
        let container = format!(
            r#"{{"name":"c","env":[{{"name":"A","value":"before"}},{{"name":"A","valueFrom":{{"fileKeyRef":{}}}}}]}}"#,
            reference(key)
        );
        let vars = env(&container, r#","volumes":[{"name":"v","emptyDir":{}}]"#);
        vars.map(|vars| vars["A"].clone()).map_err(|error| error.to_string())
    };
    let lead = "environment variable \"A\": ";
    assert_eq!(from(r#""key":"GREETING""#).as_deref(), Ok("hello"));
    assert_eq!(
        from(r#""key":"NONE","optional":true"#).as_deref(),
        Ok("before"),
        "what is left out changes nothing"
    );
    assert_eq!(
        from(r#""key":"EMPTY""#),
        Err(format!(
            "{lead}environment variable key \"EMPTY\" not found in file \"d/env\""
        ))
    );
    assert_eq!(
        from(r#""key":"LONG""#),
        Err(format!(
            "{lead}environment variable value for key \"LONG\" exceeds maximum size of 32KB"
        ))
    );
    assert_eq!(
        from(r#""key":"NONE","path":"none""#),
        Err(format!(
            "{lead}couldn't parse env file: open \"none\": no such file or directory"
        ))
    );
    assert_eq!(
        from(r#""key":"NONE","path":"none","optional":true"#).as_deref(),
        Ok("before")
    );
    assert_eq!(
        from(r#""key":"K","volumeName":"w""#),
        Err(format!("{lead}cannot find the volume \"w\" referenced by FileKeyRef"))
    );
    let long = "K".repeat(129);
    assert_eq!(
        from(&format!(r#""key":"{long}""#)),
        Err(format!(
            "{lead}environment variable key \"{long}\" exceeds maximum length of 128 characters"
        ))
    );
}

fn size_error(what: &str) -> Option<String> {
    Some(format!(
        "{what}: environment and command exceed maximum size of 2MB together"
    ))
}

#[test]
fn variables_that_double_end_at_the_first_there_is_no_room_for() {
    let mut list = vec![r#"{"name":"A0","value":"0123456789abcde"}"#.to_owned()];
    // Fifteen bytes doubled sixteen times are nearly a megabyte, and those before it together another.
    list.extend((1..40).map(|n| format!(r#"{{"name":"A{n}","value":"$(A{p})$(A{p})"}}"#, p = n - 1)));
    let of = |variables: &[String]| env(&format!(r#"{{"name":"c","env":[{}]}}"#, variables.join(",")), "");
    let last = of(&list[..17]).expect("room");
    assert_eq!(last["A16"].len(), 15 << 16);
    let refused = of(&list).expect_err("no room").to_string();
    assert_eq!(Some(refused), size_error("environment variable \"A17\""));
}

#[test]
fn what_is_taken_many_times_takes_its_room_each_time() {
    let big = serde_json::json!({"metadata":{"name":"big"},"data":{"k":"x".repeat(1 << 19)}});
    let mut objects = objects();
    let map = Arc::new(serde_json::from_value(big).expect("map"));
    objects.config_maps.insert("big".into(), map);
    let of = |container: serde_json::Value| {
        let pod = pod(&serde_json::json!({"containers": [container]}).to_string());
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        environment(&pod, container, &objects, &[], &context())
    };
    let error = |container| of(container).err().map(|error| error.to_string());
    let from = |n: usize| {
        let one = |n: usize| serde_json::json!({"prefix": format!("P{n}_"), "configMapRef": {"name": "big"}});
        serde_json::json!({"name": "c", "envFrom": (0..n).map(one).collect::<Vec<_>>()})
    };
    assert_eq!(error(from(3)), None);
    assert_eq!(error(from(4)), size_error("environment variable \"P3_k\""));
    let same = serde_json::json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "big", "key": "k"}}});
    let keys = |n: usize| serde_json::json!({"name": "c", "env": vec![same.clone(); n]});
    assert_eq!(error(keys(3)), None);
    assert_eq!(error(keys(4)), size_error("environment variable \"A\""), "written over");
    let long = "N".repeat(3 << 20);
    let cut = size_error(&format!("environment variable {:?}", &long[..256]));
    assert_eq!(
        error(serde_json::json!({"name": "c", "env": [{"name": long, "value": ""}]})),
        cut
    );
}

#[test]
fn variables_of_services_take_room_as_well() {
    let port = |n: i32| serde_json::json!({"name": format!("p{n}"), "port": n});
    let ports: Vec<_> = (1..20_000).map(port).collect();
    let service = serde_json::json!({"metadata": {"name": "many", "namespace": "shop"},
        "spec": {"clusterIP": "10.0.0.9", "ports": ports}});
    let mut objects = objects();
    objects
        .services
        .push(Arc::new(serde_json::from_value(service).expect("service")));
    let of = |spec: &str| {
        let pod = pod(spec);
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        environment(&pod, container, &objects, &[], &context())
    };
    let refused = of("{}").expect_err("no room").to_string();
    assert!(refused.starts_with("environment variable \"MANY_PORT_"), "{refused}");
    of(r#"{"enableServiceLinks":false}"#).expect("none of them");
}
