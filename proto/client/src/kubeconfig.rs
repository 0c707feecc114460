//! Kubeconfig files: text in, kube's own type out, with its paths relative to the file made absolute.
//!
//! YAML becomes a tree first, as upstream's does: a number without quotes is no name and no token (kube would take it for
//! one). It is also a fifth of a megabyte less than reading each of kube's types from YAML itself. Never decides which
//! context counts, opens nothing a kubeconfig names.

use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use serde::de::Error as _;
use serde_json::Value;
use std::io;
use std::path::{MAIN_SEPARATOR, Path};

/// Reads a file. Of several documents the first that says something counts, as everywhere among kubeconfigs; an empty file is
/// an empty kubeconfig.
///
/// # Errors
/// The file cannot be read, is no text, no YAML or no kubeconfig, or its documents are of different kinds.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = std::fs::read(path).and_then(text);
    let text = text.map_err(|source| KubeconfigError::ReadConfig(source, path.to_owned()))?;
    let documents = serde_saphyr::from_multiple(&text).map_err(unreadable)?;
    let mut merged = Kubeconfig::default();
    for document in documents {
        let mut document = of_tree(given(document))?;
        if let Some(directory) = path.parent() {
            make_absolute(&mut document, directory);
        }
        merged = merged.merge(document)?;
    }
    Ok(merged)
}

/// The tree without the settings of clusters, users and contexts that are empty texts: those say nothing (client-go's rule). A
/// context always names a cluster.
fn given(mut tree: Value) -> Value {
    for (list, entry) in [("clusters", "cluster"), ("users", "user"), ("contexts", "context")] {
        let named = tree.get_mut(list).and_then(Value::as_array_mut);
        let entries = named.into_iter().flatten().filter_map(|named| named.get_mut(entry));
        for settings in entries.filter_map(Value::as_object_mut) {
            settings.retain(|name, value| name == "cluster" || value.as_str() != Some(""));
        }
    }
    tree
}

fn of_tree(tree: Value) -> Result<Kubeconfig, KubeconfigError> {
    serde_json::from_value(tree).map_err(|error| unreadable(serde_saphyr::Error::custom(error)))
}

fn unreadable(error: serde_saphyr::Error) -> KubeconfigError {
    KubeconfigError::Parse(Box::new(error))
}

/// YAML's encodings, told apart by the mark before the text.
fn text(bytes: Vec<u8>) -> io::Result<String> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let (units, odd) = rest.as_chunks();
        let units: Vec<u16> = units.iter().copied().map(unit).collect();
        String::from_utf16(&units).ok().filter(|_| odd.is_empty())
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "neither UTF-8 nor UTF-16"))
}

/// Files of a kubeconfig are found from where it stands, and so is a program that is named by a path (client-go's rule).
fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) {
    let clusters = kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut());
    let users = kubeconfig
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut());
    let authorities = clusters.filter_map(|cluster| cluster.certificate_authority.as_mut());
    for file in authorities.chain(users.flat_map(files_of)) {
        // An absolute path stays what it is.
        if let Some(joined) = directory.join(&*file).to_str() {
            *file = joined.to_owned();
        }
    }
}

fn files_of(user: &mut AuthInfo) -> impl Iterator<Item = &mut String> {
    let program = user.exec.as_mut().and_then(|exec| exec.command.as_mut());
    let program = program.filter(|command| command.contains(MAIN_SEPARATOR));
    let files = [&mut user.client_certificate, &mut user.client_key, &mut user.token_file];
    files.into_iter().flatten().chain(program)
}

#[cfg(test)]
mod tests;
