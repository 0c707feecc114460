//! A read-only registry mirror over an image layout: the pull half of the OCI distribution specification.
//!
//! A runtime asks a mirror for `/v2/<repository>/...?ns=<registry>`. What the layout does not have is 404, upon which
//! the runtime goes on to the registry itself. Never writes, never reads outside the layout: a path becomes a file name
//! only through a parsed digest.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use oci_spec::image::{Digest, DigestAlgorithm, ImageIndex};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::layout::{self, LayoutError};

/// Connections served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The layout cannot be served.
    #[error("reading the image layout {}", path.display())]
    Layout {
        /// The layout's directory.
        path: PathBuf,
        /// The cause.
        source: LayoutError,
    },
    /// The address cannot be listened on.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// Serves `layout` on `address` until the process ends. The index is read anew for every request, so images added later
/// are seen.
///
/// # Errors
/// [`ServeError`] if the layout or the address cannot be used at the start.
pub(crate) async fn serve(layout: PathBuf, address: SocketAddr) -> Result<(), ServeError> {
    layout::read_index(&layout).map_err(|source| ServeError::Layout {
        path: layout.clone(),
        source,
    })?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Listen { address, source })?;
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let layout = layout.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = respond(&layout, request.method(), request.uri());
                async move { Ok::<_, Infallible>(response) }
            });
            if let Err(error) = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
            {
                eprintln!("imagetool: connection: {error}");
            }
            drop(slot);
        });
    }
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// "Is this a registry?"
    Registry,
    /// A manifest, by its full name.
    Tag(String),
    /// A manifest, by its digest.
    Manifest(Digest),
    /// A blob.
    Blob(Digest),
}

/// Understands a request's address; `None` is 404.
fn parse(uri: &Uri) -> Option<Wanted> {
    let path = uri.path().strip_prefix("/v2/")?;
    if path.is_empty() {
        return Some(Wanted::Registry);
    }
    if let Some((_, digest)) = path.rsplit_once("/blobs/") {
        return sha256_digest(digest).map(Wanted::Blob);
    }
    let (repository, reference) = path.rsplit_once("/manifests/")?;
    if reference.contains(':') {
        return sha256_digest(reference).map(Wanted::Manifest);
    }
    let registry = uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("ns="))
        .unwrap_or("docker.io");
    Some(Wanted::Tag(format!("{registry}/{repository}:{reference}")))
}

fn sha256_digest(text: &str) -> Option<Digest> {
    Digest::from_str(text)
        .ok()
        .filter(|digest| digest.algorithm() == &DigestAlgorithm::Sha256)
}

/// The digest and media type of what is wanted.
fn find(index: &ImageIndex, wanted: &Wanted) -> Option<(Digest, String)> {
    let manifest = match wanted {
        Wanted::Registry => return None,
        Wanted::Blob(digest) => return Some((digest.clone(), "application/octet-stream".to_owned())),
        Wanted::Manifest(digest) => index.manifests().iter().find(|known| known.digest() == digest),
        Wanted::Tag(wanted) => index
            .manifests()
            .iter()
            .find(|known| layout::names_of(known).any(|name| name == wanted)),
    }?;
    Some((manifest.digest().clone(), manifest.media_type().to_string()))
}

fn respond(layout: &Path, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return status(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Some(wanted) = parse(uri) else {
        return status(StatusCode::NOT_FOUND);
    };
    if wanted == Wanted::Registry {
        return status(StatusCode::OK);
    }
    let Ok(index) = layout::read_index(layout) else {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let Some((digest, kind)) = find(&index, &wanted) else {
        return status(StatusCode::NOT_FOUND);
    };
    let Ok(content) = std::fs::read(layout::blob_path(layout, &digest)) else {
        return status(StatusCode::NOT_FOUND);
    };
    let length = content.len();
    let body = if method == Method::HEAD {
        Bytes::new()
    } else {
        Bytes::from(content)
    };
    Response::builder()
        .header(CONTENT_TYPE, kind)
        .header(CONTENT_LENGTH, length)
        .header("Docker-Content-Digest", digest.to_string())
        .body(Full::new(body))
        .unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const DIGEST: &str = "sha256:6c3c624b58dbbcd3c0dd82b4c53f04194d1247c6eebdaab7c610cf7d66709b3b";

    #[test]
    fn addresses_are_understood_as_the_specification_has_them() {
        let digest = Digest::from_str(DIGEST).unwrap();
        let cases = [
            ("/v2/".to_owned(), Some(Wanted::Registry)),
            (
                "/v2/library/nginx/manifests/latest?ns=docker.io".to_owned(),
                Some(Wanted::Tag("docker.io/library/nginx:latest".to_owned())),
            ),
            (
                "/v2/pause/manifests/3.10?ns=registry.k8s.io".to_owned(),
                Some(Wanted::Tag("registry.k8s.io/pause:3.10".to_owned())),
            ),
            (
                format!("/v2/library/nginx/manifests/{DIGEST}"),
                Some(Wanted::Manifest(digest.clone())),
            ),
            (format!("/v2/a/b/blobs/{DIGEST}"), Some(Wanted::Blob(digest))),
            ("/v2/a/blobs/../../../etc/passwd".to_owned(), None),
            ("/v2/a/blobs/sha256:../../oci-layout".to_owned(), None),
            ("/v2/a/tags/list".to_owned(), None),
            ("/".to_owned(), None),
        ];
        for (address, expected) in cases {
            assert_eq!(parse(&address.parse().unwrap()), expected, "{address}");
        }
    }

    #[tokio::test]
    async fn what_the_layout_has_is_served_and_the_rest_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), "content").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let image = layout::Image {
            names: vec!["docker.io/library/a:latest".to_owned()],
            layers: vec![tree.path().to_owned()],
            ..layout::Image::default()
        };
        let digest = layout::add(directory.path(), &image).unwrap();
        let ask = |method: Method, path: &str| respond(directory.path(), &method, &path.parse().unwrap());

        let reply = ask(Method::GET, "/v2/library/a/manifests/latest?ns=docker.io");
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(reply.headers()["Docker-Content-Digest"], digest.to_string().as_str());
        assert_eq!(
            reply.headers()[CONTENT_TYPE],
            "application/vnd.oci.image.manifest.v1+json"
        );
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            body,
            std::fs::read(layout::blob_path(directory.path(), &digest)).unwrap()
        );

        let head = ask(Method::HEAD, &format!("/v2/library/a/manifests/{digest}"));
        assert_eq!(head.headers()[CONTENT_LENGTH], body.len().to_string().as_str());
        assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());

        for absent in [
            "/v2/library/a/manifests/2",
            "/v2/library/a/manifests/latest?ns=quay.io",
            &format!("/v2/a/blobs/{DIGEST}"),
        ] {
            assert_eq!(ask(Method::GET, absent).status(), StatusCode::NOT_FOUND, "{absent}");
        }
        let refused = ask(Method::PUT, "/v2/library/a/manifests/latest?ns=docker.io");
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
