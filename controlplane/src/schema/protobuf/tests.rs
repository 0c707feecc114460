//! Messages written by hand, and bytes that are none.

use super::field_table::{Form, json_names, messages};
use super::special::go_duration;
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn put(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn bytes(number: usize, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, number << 3 | 2);
    put(&mut out, content.len());
    out.extend_from_slice(content);
    out
}

fn int(number: usize, value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, number << 3);
    put(&mut out, value);
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
}

#[test]
fn a_config_map_and_a_secret() {
    let entry = [bytes(1, b"key"), bytes(2, b"value")].concat();
    let metadata = [bytes(1, b"c"), bytes(3, b"ns"), bytes(8, &[])].concat();
    let raw = [bytes(1, &metadata), bytes(2, &entry)].concat();
    assert_eq!(
        read(&envelope("v1", "ConfigMap", &raw)).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}, "data": {"key": "value"}})
    );
    let secret = read(&envelope("v1", "Secret", &bytes(2, &entry))).unwrap();
    assert_eq!(secret["data"]["key"], "dmFsdWU=");
}

#[test]
fn inlined_members_special_forms_and_zeros() {
    // Probe{handler{tcpSocket{port "web"}}, initialDelaySeconds 0}; resources limits cpu.
    let port = [int(1, 1), bytes(3, b"web")].concat();
    let handler = bytes(3, &bytes(1, &port));
    let probe = [bytes(1, &handler), int(2, 0)].concat();
    let limits = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
    let container = [
        bytes(1, b"c"),
        bytes(8, &bytes(1, &limits)),
        bytes(10, &probe),
        int(16, 0),
    ]
    .concat();
    let empty_dir = bytes(2, &bytes(2, &[]));
    let volume = [bytes(1, b"v"), empty_dir].concat();
    let spec = [bytes(1, &volume), bytes(2, &container), int(4, 0), int(11, 0)].concat();
    let pod = read(&envelope("v1", "Pod", &bytes(2, &spec))).unwrap();
    assert_eq!(
        pod["spec"],
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0, "containers": [{"name": "c",
            "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"tcpSocket": {"port": "web"}}}]})
    );
}

#[test]
fn reviews_leases_and_options() {
    let extra = [bytes(1, b"k"), bytes(2, &bytes(1, b"v"))].concat();
    let review = bytes(2, &bytes(5, &extra));
    let review = read(&envelope("authorization.k8s.io/v1", "SubjectAccessReview", &review)).unwrap();
    assert_eq!(review["spec"]["extra"]["k"], json!(["v"]));
    let renewed = [int(1, 5), int(2, 9)].concat();
    let lease = read(&envelope(
        "coordination.k8s.io/v1",
        "Lease",
        &bytes(2, &bytes(4, &renewed)),
    ))
    .unwrap();
    assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:05.000000Z");
    let options = read(&envelope("apps/v1", "DeleteOptions", &int(1, 0))).unwrap();
    assert_eq!(
        options,
        json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    );
}

#[test]
fn durations_read_as_go_prints_them() {
    for (nanos, text) in [
        (0, "0s"),
        (90_000_000_000, "1m30s"),
        (1_500_000_000, "1.5s"),
        (-3_600_000_000_000, "-1h0m0s"),
    ] {
        assert_eq!(go_duration(nanos), text);
    }
}

#[test]
fn every_type_in_the_table_is_known() {
    for (name, fields) in messages() {
        for field in fields.values() {
            if let Form::Message(inner) = field.form {
                assert!(messages().contains_key(inner), "{name}: {inner}");
            }
        }
    }
    assert!(read(b"{}").is_err());
    assert!(read(&envelope("v1", "Nothing", &[])).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&envelope("v1", "Pod", &raw));
        let _ = read(&raw);
    }
}

/// A value of a form on the wire, and how JSON shows it; of a message, one field that is no message by itself.
fn sample(field: &Field) -> (Vec<u8>, Value) {
    match field.form {
        Form::Text => (b"x".to_vec(), json!("x")),
        Form::Message(name) => {
            let mut numbers: Vec<_> = messages()[name].iter().filter(|(_, inner)| !inner.is_inlined).collect();
            numbers.sort_by_key(|(number, _)| **number);
            let simple = numbers.iter().find(|(_, inner)| matches!(inner.form, Form::Text));
            let (number, inner) = simple.or(numbers.first()).expect("a message with fields");
            let (content, shown) = match inner.form {
                Form::Message(_) => (Vec::new(), json!({})),
                _ => sample(inner),
            };
            let shown = match inner.label {
                Label::Many => json!([shown]),
                _ => shown,
            };
            (bytes(**number as usize, &content), json!({ inner.name: shown }))
        }
        _ => (Vec::new(), Value::Null),
    }
}

/// The number of a field by its name in the table of fields.
fn number_of(message: &str, name: &str) -> usize {
    let rows = include_str!("../../../data/protobuf-fields.tsv").lines();
    let rows = rows.map(|line| line.split('\t').collect::<Vec<_>>());
    let mut found = rows.filter(|row| row[0] == message && row[1] == name);
    let row = found.next().unwrap_or_else(|| panic!("{message}.{name} is no field"));
    row[2].parse().expect("a number")
}

#[test]
fn every_row_of_the_json_names_is_read_under_that_name() {
    let mut rows = 0;
    for [message, name, json_name] in json_names() {
        rows += 1;
        let number = number_of(message, name);
        if json_name.starts_with('(') {
            let read = read_message(message, &bytes(number, br#"{"a":[1]}"#), 0).unwrap();
            assert_eq!(read, json!({"a": [1]}), "{message}");
            continue;
        }
        let field = &messages()[message][&(number as u32)];
        let (raw, expected) = match (field.form, field.label) {
            (Form::Bool, _) => (int(number, 1), json!(true)),
            (_, label) => {
                let (content, shown) = sample(field);
                let shown = if label == Label::Many { json!([shown]) } else { shown };
                (bytes(number, &content), shown)
            }
        };
        let expected = match json_name {
            "-inline-" => expected,
            json_name => json!({ json_name: expected }),
        };
        assert_eq!(read_message(message, &raw, 0).unwrap(), expected, "{message}.{name}");
    }
    assert_eq!(rows, 36);
}

/// The other way round: whatever name JSON has for a field, the wire table gives, so nothing decoded is unknown to the schema.
#[test]
fn every_json_name_is_one_the_schema_knows() {
    let schema = crate::resource::Registry::built_in().types().get();
    let definition = |message: &str| format!("io.k8s.{}", message.trim_start_matches("k8s.io.").replace('_', "-"));
    let (mut unknown, mut compared) = (Vec::new(), 0);
    for (message, fields) in messages() {
        let Some(id) = schema.type_of(&definition(message)) else {
            continue;
        };
        let mut fields: Vec<&Field> = fields.values().collect();
        while let Some(field) = fields.pop() {
            match field.form {
                Form::Message(inner) if field.is_inlined => fields.extend(messages()[inner].values()),
                _ => {
                    compared += 1;
                    if schema.get(id).field(field.name).is_none() {
                        unknown.push(format!("{message}.{}", field.name));
                    }
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn unions_of_a_schema_are_the_one_member_they_have() {
    const EXTENSIONS: &str = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1";
    let schema = bytes(2, b"d");
    for (field, raw, expected) in [
        (24, bytes(1, &schema), json!({"items": {"$schema": "d"}})),
        (24, bytes(2, &schema), json!({"items": [{"$schema": "d"}]})),
        (30, int(1, 1), json!({"additionalProperties": true})),
        (
            30,
            [int(1, 1), bytes(2, &schema)].concat(),
            json!({"additionalProperties": {"$schema": "d"}}),
        ),
    ] {
        let read = read_message(&format!("{EXTENSIONS}.JSONSchemaProps"), &bytes(field, &raw), 0).unwrap();
        assert_eq!(read, expected);
    }
}

/// What upstream's kubelet sends for a pod's token: without the uid the API server refuses it.
#[test]
fn a_token_request_keeps_the_uid_of_its_pod() {
    let pod = [
        bytes(1, b"Pod"),
        bytes(2, b"v1"),
        bytes(3, b"web-1"),
        bytes(4, b"1234-5678"),
    ]
    .concat();
    let spec = [bytes(1, b"api"), int(4, 3607), bytes(3, &pod)].concat();
    let request = read(&envelope("authentication.k8s.io/v1", "TokenRequest", &bytes(2, &spec))).unwrap();
    assert_eq!(
        request["spec"],
        json!({"audiences": ["api"], "expirationSeconds": 3607, "boundObjectRef":
            {"kind": "Pod", "apiVersion": "v1", "name": "web-1", "uid": "1234-5678"}})
    );
}

/// Raw fields may hold whole objects, which may have raw fields: a few bytes a level, so a small body could go very deep.
#[test]
fn objects_inside_objects_are_read_to_a_bound() {
    let review = |inner: &[u8]| {
        let request = bytes(9, &bytes(1, inner));
        envelope("admission.k8s.io/v1", "AdmissionReview", &bytes(1, &request))
    };
    let deep = (0..2_000).fold(b"{}".to_vec(), |inner, _| review(&inner));
    let shallow = (0..10).fold(b"{}".to_vec(), |inner, _| review(&inner));
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        assert_eq!(read(&deep).unwrap_err(), "exceeded max depth");
        assert!(read(&shallow).is_ok());
    });
    thread.unwrap().join().unwrap();
}

/// Numbers drawn from a seed: which members a tree has, and what is in them.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn text(&mut self) -> String {
        let texts = ["a", "z\u{fc}rich", "-", "0", "x".repeat(200).as_str()].map(str::to_owned);
        texts[self.below(5) as usize].clone()
    }

    fn message(&mut self, name: &str, depth: usize) -> Value {
        let (_, short) = name.rsplit_once('.').unwrap_or(("", name));
        match short {
            "Time" => json!("2026-07-01T08:30:00Z"),
            "MicroTime" => {
                json!(["1969-12-31T23:59:59.250000Z", "2026-07-01T08:30:00.000001Z"][self.below(2) as usize])
            }
            "Quantity" => json!(["0", "100m", "5Gi"][self.below(3) as usize]),
            "IntOrString" => [json!(0), json!(-8080), json!("25%"), json!("")][self.below(4) as usize].clone(),
            "FieldsV1" | "RawExtension" => json!({"f:a": {".": {}}, "n": [null, 1.5, "\u{e9}"]}),
            "JSON" => [json!(null), json!({"a": [1]}), json!("text")][self.below(3) as usize].clone(),
            "Verbs" | "ExtraValue" => json!([self.text(), ""]),
            "JSONSchemaPropsOrBool" if self.below(2) == 0 => json!(self.below(2) == 0),
            "JSONSchemaPropsOrArray" if self.below(2) == 0 => json!([self.properties(name, depth)]),
            "JSONSchemaPropsOrStringArray" if self.below(2) == 0 => json!([self.text()]),
            _ if short.starts_with("JSONSchemaPropsOr") => self.properties(name, depth),
            _ => Value::Object(self.members(name, depth)),
        }
    }

    fn properties(&mut self, name: &str, depth: usize) -> Value {
        let (package, _) = name.rsplit_once('.').unwrap();
        Value::Object(self.members(&format!("{package}.JSONSchemaProps"), depth))
    }

    fn members(&mut self, name: &str, depth: usize) -> Map<String, Value> {
        let mut members = Map::new();
        for field in messages()[name].values() {
            if let (true, Form::Message(inner)) = (field.is_inlined, field.form) {
                members.extend(self.members(inner, depth));
                continue;
            }
            if depth > 6 || self.below(3) == 0 {
                continue;
            }
            let value = match field.label {
                Label::One => self.value(field.form, depth),
                Label::Many => (0..=self.below(3)).map(|_| self.value(field.form, depth)).collect(),
                Label::Keyed => {
                    let keys = ["", "a", "kubernetes.io/b"]
                        .into_iter()
                        .take(1 + self.below(3) as usize);
                    Value::Object(
                        keys.map(|key| (key.to_owned(), self.value(field.form, depth)))
                            .collect(),
                    )
                }
            };
            if !is_absent(field, &value) {
                members.insert(field.name.to_owned(), value);
            }
        }
        members
    }

    fn value(&mut self, form: Form, depth: usize) -> Value {
        match form {
            Form::Text => [json!(""), json!(self.text())][self.below(2) as usize].clone(),
            Form::Bytes => json!(["", "AP8=", "eA=="][self.below(3) as usize]),
            Form::Bool => json!(self.below(2) == 0),
            Form::Int => [json!(0), json!(-1), json!(i64::from(i32::MAX)), json!(127)][self.below(4) as usize].clone(),
            Form::Double => json!([0.25, -1e300][self.below(2) as usize]),
            Form::Message(name) => self.message(name, depth + 1),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn what_is_written_is_read_as_the_same_tree(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        for kind in crate::resource::Registry::built_in().kinds() {
            let (version, name) = (&*kind.api_version, &*kind.kind);
            let message = message_of(version, name).unwrap();
            let mut object = draw.members(message, 0);
            object.insert("apiVersion".to_owned(), json!(version));
            object.insert("kind".to_owned(), json!(name));
            let object = Value::Object(object);
            let written = of_object(&object).unwrap();
            prop_assert!(written.len() <= GROWTH_MAX * object.to_string().len(), "{name}");
            prop_assert_eq!(read(&written).unwrap(), object);
        }
    }
}

/// Replies are written by what the tables say of kinds and their lists: all that are served have both.
#[test]
fn every_built_in_kind_and_its_list_has_a_message() {
    for kind in crate::resource::Registry::built_in().kinds() {
        let lists = (!kind.list_kind.is_empty()).then_some(&*kind.list_kind);
        for name in [&*kind.kind].into_iter().chain(lists) {
            assert!(
                Message::of(&kind.api_version, name).is_some(),
                "{} {name}",
                kind.api_version
            );
        }
    }
    for (version, kind) in [
        ("stable.example.com/v1", "CronTab"),
        ("batch.tutorial.kubebuilder.io/v1", "CronJob"),
        ("apps.example.com/v1", "Deployment"),
        ("networking.example.com/v1", "Ingress"),
        ("example.com/v1", "Condition"),
        ("networking/v1", "Ingress"),
        ("example.com/v1", "PartialObjectMetadata"),
    ] {
        assert_eq!(Message::of(version, kind), None, "{version} {kind}");
    }
    assert!(Message::of("example.com/v1", "DeleteOptions").is_some());
    assert_eq!(Message::of("meta.k8s.io/v1", "Table"), None);
}

/// Bytes as Go writes them, leaf by leaf.
#[test]
fn leaves_stand_on_the_wire_as_upstream_writes_them() {
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"creationTimestamp": "1970-01-01T00:00:05Z"},
        "spec": {"ports": [{"port": 80, "targetPort": -1}, {"port": 80, "targetPort": "w"}], "selector": {"b": "", "a": "1"}}});
    let created = [int(1, 5), int(2, 0)].concat();
    let minus_one = [vec![8, 0, 0x10], vec![0xff; 9], vec![1, 0x1a, 0]].concat();
    let named = [int(1, 1), int(2, 0), bytes(3, b"w")].concat();
    let port = |target: &[u8]| bytes(1, &[int(3, 80), bytes(4, target)].concat());
    let entry = |key: &[u8], value: &[u8]| bytes(2, &[bytes(1, key), bytes(2, value)].concat());
    let spec = [port(&minus_one), port(&named), entry(b"a", b"1"), entry(b"b", b"")].concat();
    let raw = [bytes(1, &bytes(8, &created)), bytes(2, &spec)].concat();
    let end = [bytes(3, b""), bytes(4, b"")].concat();
    let expected = [envelope("v1", "Service", &raw), end].concat();
    assert_eq!(of_object(&service).unwrap(), expected);
    let renewed = [int(1, 5), int(2, 9_000)].concat();
    let lease = json!({"spec": {"renewTime": "1970-01-01T00:00:05.000009Z"}});
    let message = Message::of("coordination.k8s.io/v1", "Lease").unwrap();
    assert_eq!(message.bytes(&lease), bytes(2, &bytes(4, &renewed)));
    let limits = json!({"spec": {"hard": {"cpu": "500m"}}, "status": {}});
    let quota = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
    let message = Message::of("v1", "ResourceQuota").unwrap();
    assert_eq!(
        message.bytes(&limits),
        [bytes(2, &bytes(1, &quota)), bytes(3, b"")].concat()
    );
    let frame = [bytes(1, b"ADDED"), bytes(2, &bytes(1, b"object"))].concat();
    let head = event_head("ADDED", 6);
    assert_eq!(
        [head.as_slice(), b"object"].concat(),
        [&(frame.len() as u32).to_be_bytes(), frame.as_slice()].concat()
    );
}

/// A field without a pointer is always on Go's wire; JSON has it only if it says something.
#[test]
fn zeros_of_fields_without_a_pointer_are_not_given() {
    let job = [int(4, 0), int(5, 0), int(9, 0)].concat();
    let job = read(&envelope("batch/v1", "Job", &bytes(3, &job))).unwrap();
    assert_eq!(
        job["status"],
        json!({"ready": 0}),
        "active and succeeded have none, ready has one"
    );
    let container = [int(4, 0), int(5, 0), bytes(8, b"")].concat();
    let status = read(&envelope("v1", "Pod", &bytes(3, &bytes(8, &container)))).unwrap();
    let expected = json!([{"ready": false, "restartCount": 0}]);
    assert_eq!(
        status["status"]["containerStatuses"], expected,
        "what JSON always has stays"
    );
}

#[test]
fn documents_of_discovery_have_the_form() {
    for kind in ["APIVersions", "APIGroupList", "APIGroup", "APIResourceList"] {
        let document = json!({"kind": kind});
        assert_eq!(
            read(&of_object(&document).unwrap()).unwrap(),
            json!({"kind": kind, "apiVersion": "v1"})
        );
    }
}
