//! How much memory the API server has for its objects, beside how large they are where they are stored.

use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;

use crate::api::{Load, NAMESPACE, WORKERS};
use crate::idle;

const MB: f64 = 1024.0 * 1024.0;

/// Prints what its anonymous memory is now, of which `empty_kb` it had before there were any objects, and what that is of the objects'
/// values and keys.
///
/// # Errors
/// If one of the objects is not there.
pub(crate) async fn measure(load: &Load, empty_kb: u64) -> anyhow::Result<()> {
    // Before they are asked for: that leaves something behind, too.
    let [_, anonymous] = idle::memory(&load.groups[0])?;
    let sizes = stream::iter(0..load.objects).map(|number| size(load, number));
    let sizes = sizes.buffer_unordered(WORKERS);
    let bytes = sizes
        .try_fold(0, |sum, size| std::future::ready(Ok(sum + size)))
        .await?;
    let (stored, empty) = (bytes as f64 / MB, empty_kb as f64 / 1024.0);
    println!(
        "{:<28} {stored:>9.1} MB of values and keys; {:.1} MB anonymous for them, {:.2} of that ({anonymous:.1} in all, {:.2})",
        format!("{} objects", load.objects),
        anonymous - empty,
        (anonymous - empty) / stored,
        anonymous / stored,
    );
    Ok(())
}

/// What an object takes where it is stored: its key and its value.
async fn size(load: &Load, number: usize) -> anyhow::Result<usize> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/m{number}");
    let told = load.client.request_text(Request::get(path).body(Vec::new())?).await?;
    let value = stored(&told).with_context(|| format!("{told} has no resourceVersion"))?;
    Ok(value + format!("/registry/configmaps/{NAMESPACE}/m{number}").len())
}

/// The bytes of a stored value: all that is told of the object but its resourceVersion.
fn stored(told: &str) -> Option<usize> {
    let (before, rest) = told.split_once(r#""resourceVersion":""#)?;
    let (_, rest) = rest.split_once("\",")?;
    Some(before.len() + rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_all_but_the_revision() {
        let value = r#"{"kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;
        let told = value.replace(r#"{"name""#, r#"{"resourceVersion":"123","name""#);
        assert_eq!(stored(&told), Some(value.len()));
        assert_eq!(stored(value), None);
    }
}
