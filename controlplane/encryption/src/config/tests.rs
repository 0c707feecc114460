use super::*;

fn file(entries: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{entries}")
}

/// One entry with this provider, in YAML's flow form.
fn with(provider: &str) -> String {
    file(&format!("- {{resources: [secrets], providers: [{provider}]}}"))
}

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn mistake(text: &str) -> String {
    parse(text).err().unwrap_or_default()
}

#[test]
fn a_configuration_is_read_in_order() {
    let entries = parse(&file(&format!(
        "- resources: [secrets, configmaps, pandas.awesome.bears.example]\n  providers:\n  - aesgcm:\n      keys:\n      \
         - {{name: key1, secret: {KEY}}}\n      - {{name: key2, secret: AAECAwQFBgcICQoLDA0ODw==}}\n  - identity: {{}}\n\
         - resources: ['*.']\n  providers:\n  - kms: {{apiVersion: v2, name: plugin, endpoint: 'unix:///run/kms.sock', timeout: 1m500ms}}\n\
         - resources: ['*.*']\n  providers:\n  - secretbox:\n      keys: [{{name: a, secret: {KEY}}}]\n"
    )))
    .map_err(|why| panic!("{why}"))
    .unwrap();
    let names = |entry: &Entry| entry.resources.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        names(&entries[0]),
        ["secrets", "configmaps", "pandas.awesome.bears.example"]
    );
    assert_eq!(entries[0].resources[2].group, "awesome.bears.example");
    assert_eq!(
        (names(&entries[1]), names(&entries[2])),
        (vec!["*.".to_owned()], vec!["*.*".to_owned()])
    );
    let ProviderConfig::Keys(Algorithm::AesGcm, keys) = &entries[0].providers[0] else {
        panic!("aesgcm is the first")
    };
    assert_eq!(
        (&*keys[1].name, keys[1].secret.len(), keys[0].secret[31]),
        ("key2", 16, 31)
    );
    assert!(matches!(entries[0].providers[1], ProviderConfig::Identity));
    let ProviderConfig::Kms(plugin) = &entries[1].providers[0] else {
        panic!("kms")
    };
    assert_eq!(
        (plugin.timeout, plugin.socket.to_str()),
        (Duration::from_millis(60_500), Some("/run/kms.sock"))
    );
}

#[test]
fn mistakes_name_their_field() {
    for (text, part) in [
        (String::new(), "the file is empty"),
        (
            "kind: Pod\napiVersion: v1".to_owned(),
            "no kind \"Pod\" is registered for version \"v1\"",
        ),
        (
            file("  []"),
            "resources: Required value: at least one resources is required",
        ),
        (
            file("- {resources: [], providers: [{identity: {}}]}"),
            "resources[0].resources: Required value: at least one resources[0].resources is required",
        ),
        (
            file("- {resources: [secrets]}"),
            "resources[0].providers: Required value",
        ),
        (with("{}"), "does not contain any of the expected providers"),
        (
            with("{identity: {}, aesgcm: {}}"),
            "more than one provider specified in a single element",
        ),
        (with("{rot13: {}}"), "rot13"),
        (
            with("{aesgcm: {}}"),
            "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required",
        ),
        (
            with(&format!("{{secretbox: {{keys: [{{secret: {KEY}}}]}}}}")),
            "resources[0].providers[0].secretbox.keys[0].name: Required value: name is a mandatory field for a key",
        ),
        (
            with("{aescbc: {keys: [{name: a}]}}"),
            "resources[0].providers[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            with("{aescbc: {keys: [{name: a, secret: '%'}]}}"),
            "aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            with("{aesgcm: {keys: [{name: a, secret: AAEC}]}}"),
            "\"REDACTED\": secret is not of the expected length, got 3, expected one of [16 24 32]",
        ),
        (
            with("{secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODw==}]}}"),
            "got 16, expected one of [32]",
        ),
    ] {
        assert!(mistake(&text).contains(part), "{text}\n{}", mistake(&text));
    }
    assert!(
        !mistake(&with("{aesgcm: {keys: [{name: a, secret: c2VjcmV0}]}}")).contains("c2VjcmV0"),
        "never shown"
    );
}

#[test]
fn plugins_are_checked() {
    let all = mistake(&file(
        "- {resources: [secrets], providers: [{kms: {name: 'a:b', endpoint: 'tcp://x', timeout: 0s, apiVersion: v2, cachesize: 3}}]}\n\
         - {resources: [pods], providers: [{kms: {name: 'a:b', endpoint: 'unix://x', timeout: later, apiVersion: v3}}]}\n\
         - {resources: [nodes], providers: [{kms: {endpoint: ''}}]}",
    ));
    for part in [
        "resources[0].providers[0].kms.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'",
        "resources[0].providers[0].kms.timeout: Invalid value: \"0s\": timeout should be a positive value",
        "unsupported scheme \"tcp\" for KMS provider, only unix is supported",
        "resources[0].providers[0].kms.cachesize: Invalid value: \"3\": cachesize is not supported in v2",
        "resources[1].providers[0].kms.name: Invalid value: \"a:b\": duplicate KMS provider name a:b, names must be unique",
        "resources[1].providers[0].kms.timeout: Invalid value: \"later\"",
        "resources[1].providers[0].kms.endpoint: Invalid value: \"unix://x\": must be of the form unix:///path",
        "only v1 and v2 are supported",
        "resources[2].providers[0].kms.name: Required value: name is a mandatory field for a provider",
        "resources[2].providers[0].kms.endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms",
        "resources[2].providers[0].kms.apiVersion: Invalid value: \"v1\": KMSv1 is deprecated",
    ] {
        assert!(all.contains(part), "{part} is missing in {all}");
    }
}

#[test]
fn names_of_resources_are_checked() {
    for (names, part) in [
        (
            "Secrets",
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters",
        ),
        ("'*'", "use '*.' to encrypt all the resources"),
        ("serviceipallocations", "do not have REST API/s"),
        ("events.events.k8s.io", "Use 'events' instead"),
        ("ingresses.extensions", "'extensions' group has been removed"),
        ("'secrets.*'", "across groups is not supported"),
        (
            "secrets, secrets",
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource",
        ),
        ("secrets, '*.'", "using overlapping resources"),
        ("deployments.apps, '*.*'", "using overlapping resources"),
        ("deployments.apps, '*.'", ""),
    ] {
        let found = mistake(&file(&format!(
            "- {{resources: [{names}], providers: [{{identity: {{}}}}]}}"
        )));
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{names}: {found}"
        );
    }
    let entry = |name| format!("- {{resources: [{name}], providers: [{{identity: {{}}}}]}}\n");
    for (first, then, part) in [
        (
            "'*.'",
            "secrets",
            "resource \"secrets\" is masked by earlier rule \"*.\"",
        ),
        (
            "'*.*'",
            "'*.apps'",
            "resource \"*.apps\" is masked by earlier rule \"*.*\"",
        ),
        ("secrets", "'*.'", ""),
        ("'*.apps'", "'*.*'", ""),
        ("secrets", "secrets", ""),
    ] {
        let found = mistake(&file(&(entry(first) + &entry(then))));
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{first} {then}: {found}"
        );
    }
}
