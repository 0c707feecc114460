//! Configurations as users write them, sound and not.

use super::*;

const SOUND: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com", "registry.io:5000/team"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get-credentials]
  env: [{name: AWS_PROFILE, value: p}]
  tokenAttributes:
    serviceAccountTokenAudience: me
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/Role]
    optionalServiceAccountAnnotationKeys: [other]
"#;

fn written(change: impl FnOnce(&mut Value)) -> Result<Vec<WrittenProvider>, String> {
    let mut tree: Value = serde_saphyr::from_str(SOUND).expect("YAML");
    change(&mut tree);
    decode(&tree.to_string())
}

fn mistakes(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let written = written(change).expect("it decodes");
    validate(written, true).expect_err("it cannot be")
}

#[test]
fn a_sound_configuration_is_read() {
    let providers = validate(decode(SOUND).expect("it decodes"), true).expect("sound");
    let ecr = &providers[0];
    assert_eq!((ecr.name.as_str(), ecr.cache.as_secs()), ("ecr", 12 * 3600));
    assert_eq!(ecr.args, ["get-credentials"]);
    assert_eq!(ecr.env, [("AWS_PROFILE".to_owned(), "p".to_owned())]);
    assert!(ecr.images[0].fits("1.dkr.ecr.eu.amazonaws.com/a"));
    let token = ecr.token.as_ref().expect("a token");
    assert!(token.for_one_token && token.required && token.audience == "me");
    assert_eq!((token.required_keys.len(), token.optional_keys.len()), (1, 1));
}

#[test]
fn values_that_cannot_be_are_told_in_upstreams_words() {
    const PLUGIN: &str = "/providers/0";
    let cases: &[(&str, Value, &str)] = &[
        (
            "name",
            "a/b".into(),
            "providers.name: Invalid value: \"a/b\": provider name cannot contain '/'",
        ),
        (
            "name",
            "a b".into(),
            "providers.name: Invalid value: \"a b\": provider name cannot contain spaces",
        ),
        (
            "name",
            "..".into(),
            "providers.name: Invalid value: \"..\": provider name cannot be '..'",
        ),
        (
            "name",
            ".".into(),
            "providers.name: Invalid value: \".\": provider name cannot be '.'",
        ),
        ("name", "".into(), "providers.name: Required value"),
        (
            "matchImages",
            serde_json::json!([]),
            "providers.matchImages: Required value: at least 1 item in matchImages is required",
        ),
        (
            "matchImages",
            serde_json::json!(["%invalid%"]),
            r#"providers.matchImages: Invalid value: "%invalid%": match image is invalid: parse "https://%invalid%": invalid URL escape "%in""#,
        ),
        (
            "defaultCacheDuration",
            Value::Null,
            "providers.defaultCacheDuration: Required value",
        ),
        (
            "defaultCacheDuration",
            "-1m0s".into(),
            "providers.defaultCacheDuration: Invalid value: -1m0s: must be greater than or equal to 0",
        ),
        (
            "defaultCacheDuration",
            "soon".into(),
            "providers.defaultCacheDuration: Invalid value: \"soon\": invalid duration \"soon\"",
        ),
        (
            "env",
            serde_json::json!([{"name": "a=b"}]),
            "providers.env.name: Invalid value: \"a=b\": is no variable of an environment",
        ),
    ];
    for (field, value, expected) in cases {
        let found = mistakes(|tree| tree.pointer_mut(PLUGIN).expect("a plugin")[*field] = value.clone());
        assert_eq!(found, [*expected]);
    }
    let version = mistakes(|tree| tree["providers"][0]["apiVersion"] = "v9".into());
    assert_eq!(
        version[0],
        "providers.apiVersion: Unsupported value: \"v9\": supported values: \"credentialprovider.kubelet.k8s.io/v1\", \
         \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\""
    );
    let none = mistakes(|tree| tree["providers"] = serde_json::json!([]));
    assert_eq!(
        none,
        ["providers: Required value: at least 1 item in plugins is required"]
    );
}

#[test]
fn tokens_have_rules_of_their_own() {
    let cases: &[(&str, Value, &str)] = &[
        (
            "serviceAccountTokenAudience",
            "".into(),
            ".serviceAccountTokenAudience: Required value",
        ),
        (
            "requireServiceAccount",
            Value::Null,
            ".requireServiceAccount: Required value",
        ),
        (
            "requireServiceAccount",
            false.into(),
            ".requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        ),
        (
            "cacheType",
            "".into(),
            ".cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token",
        ),
        (
            "cacheType",
            "Pod".into(),
            ".cacheType: Unsupported value: \"Pod\": supported values: \"ServiceAccount\", \"Token\"",
        ),
        (
            "optionalServiceAccountAnnotationKeys",
            serde_json::json!(["example.com/Role"]),
            ": Invalid value: [\"example.com/Role\"]: annotation keys cannot be both required and optional",
        ),
        (
            "optionalServiceAccountAnnotationKeys",
            serde_json::json!(["a", "a"]),
            ".optionalServiceAccountAnnotationKeys: Duplicate value: \"a\"",
        ),
    ];
    for (field, value, expected) in cases {
        let found = mistakes(|tree| tree["providers"][0]["tokenAttributes"][*field] = value.clone());
        assert_eq!(found, [format!("providers.tokenAttributes{expected}")]);
    }
    let key = mistakes(|tree| {
        tree["providers"][0]["tokenAttributes"]["optionalServiceAccountAnnotationKeys"] = serde_json::json!(["a b"]);
    });
    assert!(
        key[0].contains("name part must consist of alphanumeric characters"),
        "{key:?}"
    );
    let off = validate(decode(SOUND).expect("it decodes"), false).expect_err("the gate is off");
    assert_eq!(
        off,
        [
            "providers.tokenAttributes: Forbidden: tokenAttributes is not supported when \
          KubeletServiceAccountTokenForCredentialProviders feature gate is disabled"
        ]
    );
    let old = mistakes(|tree| {
        tree["providers"][0]["apiVersion"] = "credentialprovider.kubelet.k8s.io/v1beta1".into();
    });
    assert_eq!(
        old,
        [
            "providers.tokenAttributes: Forbidden: tokenAttributes is only supported for \
          credentialprovider.kubelet.k8s.io/v1 API version"
        ]
    );
}

#[test]
fn what_is_no_configuration_is_refused() {
    let refused = |change: &dyn Fn(&mut Value)| written(change).err().expect("refused");
    assert_eq!(refused(&|tree| tree["kind"] = Value::Null), "Object 'Kind' is missing");
    assert_eq!(
        refused(&|tree| tree["apiVersion"] = "kubelet.config.k8s.io/v2".into()),
        "no kind \"CredentialProviderConfig\" is registered for version \"kubelet.config.k8s.io/v2\""
    );
    assert!(
        refused(&|tree| tree["providers"][0]["nmae"] = "x".into())
            .starts_with("strict decoding error: unknown field `nmae`")
    );
    assert_eq!(
        refused(&|tree| tree["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into()),
        "strict decoding error: unknown field \"providers[0].tokenAttributes\""
    );
    assert!(decode("a: [").err().expect("refused").starts_with("invalid YAML"));
}

#[test]
fn a_directory_is_read_in_the_order_of_its_names() {
    let dir = tempfile::tempdir().expect("temp dir");
    let put = |file: &str, name: &str| {
        fs::write(
            dir.path().join(file),
            SOUND.replace("name: ecr", &format!("name: {name}")),
        )
        .expect("written");
    };
    let names =
        || read(dir.path(), true).map(|config| config.providers.into_iter().map(|p| p.name).collect::<Vec<_>>());
    let told = |found: Result<Vec<String>, ConfigError>| found.expect_err("refused").to_string();
    assert_eq!(
        told(names()),
        format!("no configuration files found in directory {:?}", dir.path())
    );
    put("b.yaml", "second");
    put("a.json", "first");
    put("c.conf", "unread");
    fs::create_dir(dir.path().join("d.yml")).expect("a directory");
    assert_eq!(names().expect("sound"), ["first", "second"]);
    let one = read(&dir.path().join("a.json"), true).expect("sound");
    let text = fs::read(dir.path().join("a.json")).expect("read");
    let mut bytes = (text.len() as u64).to_be_bytes().to_vec();
    bytes.extend(&text);
    assert_eq!(one.hash, format!("sha256:{}", hex::encode(Sha256::digest(&bytes))));
    put("e.yml", "first");
    assert_eq!(
        told(names()),
        "duplicate provider name \"first\" found in configuration file(s)"
    );
    fs::write(dir.path().join("e.yml"), "x".repeat(2 << 20)).expect("written");
    assert!(told(names()).ends_with("it has more than 1048576 bytes"));
    let absent = read(&dir.path().join("absent"), true).expect_err("absent").to_string();
    assert!(absent.starts_with("unable to access path"), "{absent}");
    assert_eq!(
        read(Path::new(""), true).expect_err("none").to_string(),
        "credential provider config path is empty"
    );
}
