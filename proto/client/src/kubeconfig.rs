//! Kubeconfig files. Read by way of a tree: a reader of YAML for each of their types would be a quarter of a megabyte in a program.
//!
//! Owns what a file says, with its paths made absolute. Uses none of it.

use kube::config::{Kubeconfig, KubeconfigError};
use serde::de::Error as _;
use serde_json::Value;
use std::io;
use std::path::Path;

/// Reads a file; of several documents in it the first that says something holds. Paths inside it are relative to the file.
///
/// # Errors
/// It cannot be read, or is no kubeconfig. A name that looks like a number has to be quoted, as for upstream.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let bytes = std::fs::read(path).and_then(text);
    let text = bytes.map_err(|source| KubeconfigError::ReadConfig(source, path.to_owned()))?;
    let wrong = |error| KubeconfigError::Parse(Box::new(error));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(wrong)?;
    let mut whole = Kubeconfig::default();
    for document in documents {
        let read = serde_json::from_value(document);
        let mut document: Kubeconfig = read.map_err(|error| wrong(serde_saphyr::Error::custom(error)))?;
        if let Some(directory) = path.parent() {
            make_absolute(&mut document, directory);
        }
        whole = whole.merge(document)?;
    }
    Ok(whole)
}

/// The text of a file, in whichever of Unicode's forms its mark says.
fn text(bytes: Vec<u8>) -> io::Result<String> {
    let wide = |bytes: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|pair| read(*pair)).collect();
        String::from_utf16(&units).ok()
    };
    let text = match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no text in Unicode"))
}

fn make_absolute(config: &mut Kubeconfig, directory: &Path) {
    let absolute = |file: &mut Option<String>| {
        if let Some(path) = file
            && Path::new(path.as_str()).is_relative()
            && let Some(joined) = directory.join(&*path).to_str()
        {
            *path = joined.to_owned();
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in config
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
    {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        // A bare name is looked for in PATH.
        if let Some(exec) = &mut user.exec
            && exec.command.as_ref().is_some_and(|command| command.contains('/'))
        {
            absolute(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kube itself makes of a file.
    fn compare(text: &[u8]) {
        let dir = std::env::temp_dir().join(format!("skiff-kubeconfig-{}-{:p}", std::process::id(), text));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        let told = |read: Result<Kubeconfig, KubeconfigError>| {
            let read = read.map_err(|error| error.to_string());
            read.map(|read| serde_json::to_value(read).unwrap())
        };
        let (ours, theirs) = (told(read(&path)), told(Kubeconfig::read_from(&path)));
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(ours.is_ok(), "{ours:?}");
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_file_says_what_it_says_to_kube() {
        let full = "apiVersion: v1\nkind: Config\ncurrent-context: c\npreferences: {}\n\
            contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n\
            clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.pem, tls-server-name: x}}]\n\
            users:\n- name: u\n  user:\n    client-certificate: pki/cert.pem\n    client-key: /key.pem\n    tokenFile: ../token\n    \
            exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [a, \"1\"], env: [{name: E, value: v}]}\n\
            - {name: v, user: {token: t, exec: {command: login}}}\n- {name: w, user: {username: a, password: b}}\n";
        let wide: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain(full.encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        let marked: Vec<u8> = [0xEF, 0xBB, 0xBF].into_iter().chain(full.bytes()).collect();
        let two = format!("{full}---\napiVersion: v1\nkind: Config\nusers: [{{name: x, user: {{token: y}}}}]\n");
        for text in [
            full.as_bytes(),
            &wide,
            &marked,
            two.as_bytes(),
            b"",
            b"{\"kind\": \"Config\"}",
        ] {
            compare(text);
        }
    }

    #[test]
    fn what_is_no_kubeconfig_is_told() {
        for (text, why) in [
            ("{", "parse"),
            ("users: 7\n", "parse"),
            ("users: [{name: u, user: {token: [1]}}]\n", "parse"),
        ] {
            let path = std::env::temp_dir().join(format!("skiff-kubeconfig-{}-{:p}", std::process::id(), text));
            std::fs::write(&path, text).unwrap();
            let error = read(&path).err().unwrap().to_string();
            std::fs::remove_file(&path).unwrap();
            assert!(error.contains(why), "{error}");
        }
    }
}
