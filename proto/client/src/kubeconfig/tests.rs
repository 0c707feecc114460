use super::*;
use std::path::PathBuf;

/// A directory of one test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("skiff-kubeconfig-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn read(&self, bytes: impl AsRef<[u8]>) -> Result<Kubeconfig, KubeconfigError> {
        let path = self.0.join("config");
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    /// What kube itself makes of the file last written.
    fn by_kube(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.0.join("config")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tree(kubeconfig: &Kubeconfig) -> Value {
    serde_json::to_value(kubeconfig).unwrap()
}

const WHOLE: &str = r#"
apiVersion: v1
kind: Config
current-context: c
preferences: {colors: yes}
clusters:
- name: k
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority: pki/ca.crt
    tls-server-name: kubernetes
    insecure-skip-tls-verify: false
    extensions: [{name: e, extension: {any: [1, 2.5, null]}}]
- {name: other, cluster: {server: "https://other", certificate-authority: /etc/ca.crt, certificate-authority-data: Cg==}}
- {name: alone}
contexts:
- {name: c, context: {cluster: k, user: u, namespace: "5"}}
users:
- name: u
  user: {client-certificate: own.crt, client-key: ../own.key, tokenFile: token, as: someone, as-groups: [a, b]}
- name: program
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [-x], env: [{name: A, value: "1"}], interactiveMode: Never}
- {name: found, user: {exec: {command: login}}}
- {name: legacy, user: {auth-provider: {name: oidc, config: {id-token: abc}}, token: abcdef.0123456789abcdef, password: "12"}}
unknown: {kept: true}
"#;

#[test]
fn says_what_kube_says() {
    let scratch = Scratch::new("whole");
    let documents = "---\n---\ncurrent-context: first\nusers:\n- {name: u, user: {token: kept}}\n---\n";
    let texts = [
        WHOLE.to_owned(),
        String::new(),
        format!("{documents}{WHOLE}"),
        "users: null\ncontexts:\n".to_owned(),
    ];
    for text in texts {
        let read = scratch.read(&text).unwrap();
        assert_eq!(tree(&read), tree(&scratch.by_kube()), "{text}");
    }
}

#[test]
fn files_are_found_from_where_the_kubeconfig_stands() {
    let scratch = Scratch::new("files");
    let tree = tree(&scratch.read(WHOLE).unwrap());
    let inside = |name: &str| scratch.0.join(name).to_str().unwrap().to_owned();
    let table = [
        ("/clusters/0/cluster/certificate-authority", inside("pki/ca.crt")),
        ("/clusters/1/cluster/certificate-authority", "/etc/ca.crt".to_owned()),
        ("/users/0/user/client-certificate", inside("own.crt")),
        ("/users/0/user/client-key", inside("../own.key")),
        ("/users/0/user/tokenFile", inside("token")),
        ("/users/1/user/exec/command", inside("bin/login")),
        ("/users/2/user/exec/command", "login".to_owned()),
    ];
    for (place, path) in table {
        assert_eq!(tree.pointer(place), Some(&Value::from(path)), "{place}");
    }
}

#[test]
fn empty_texts_say_nothing() {
    let scratch = Scratch::new("empty");
    let text = r#"
clusters: [{name: k, cluster: {server: "https://k", certificate-authority: "", certificate-authority-data: "", proxy-url: "", tls-server-name: ""}}]
contexts: [{name: c, context: {cluster: "", user: "", namespace: ""}}]
users: [{name: u, user: {client-certificate: "", client-certificate-data: "", client-key: "", client-key-data: "", tokenFile: "", token: "", as: ""}}]
"#;
    let tree = tree(&scratch.read(text).unwrap());
    let table = [
        ("/clusters/0/cluster", serde_json::json!({"server": "https://k"})),
        ("/contexts/0/context", serde_json::json!({"cluster": "", "user": null})),
        ("/users/0/user", serde_json::json!({})),
    ];
    for (place, settings) in table {
        assert_eq!(tree.pointer(place), Some(&settings), "{place}");
    }
}

#[test]
fn what_is_no_kubeconfig_is_refused() {
    let scratch = Scratch::new("refused");
    let table = [
        ("{", "parse kubeconfig YAML"),
        ("[]", "parse kubeconfig YAML"),
        ("users: [{name: 5}]", "invalid type: integer `5`, expected a string"),
        ("users: [{name: u, user: {token: 123456.1234}}]", "expected a string"),
        ("kind: Config\n---\nkind: Pod\n", "mismatching kind"),
    ];
    for (text, why) in table {
        let error = scratch.read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let missing = read(&scratch.0.join("missing")).unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
}

#[test]
fn every_encoding_of_yaml_is_read() {
    let scratch = Scratch::new("encodings");
    let content = "current-context: grün\n";
    let wide = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
        [mark, &content.encode_utf16().flat_map(bytes).collect::<Vec<_>>()].concat()
    };
    let little = wide(&[0xff, 0xfe], u16::to_le_bytes);
    let files = [
        content.as_bytes().to_vec(),
        ["\u{feff}", content].concat().into_bytes(),
        wide(&[0xfe, 0xff], u16::to_be_bytes),
        little.clone(),
    ];
    for file in files {
        let read = scratch.read(&file).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("grün"), "{file:?}");
    }
    for broken in [&little[..little.len() - 1], b"current-context: \xff"] {
        let error = scratch.read(broken).unwrap_err().to_string();
        assert!(error.contains("neither UTF-8 nor UTF-16"), "{error}");
    }
}
