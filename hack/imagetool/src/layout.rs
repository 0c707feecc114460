//! An OCI image layout on disk: content-addressed blobs and an index of named manifests.
//!
//! Owns the layout's files. `index.json` is replaced whole, by rename, after every blob it names is there. Images are
//! for the machine's own architecture; layers are not compressed, since they never cross a network.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_spec::OciSpecError;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, Digest, ImageConfigurationBuilder, ImageIndex, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, PlatformBuilder, RootFsBuilder, SCHEMA_VERSION,
};
use sha2::{Digest as _, Sha256};

use crate::layer::{self, LayerError};

/// containerd's import takes an image's full name from this annotation.
pub(crate) const NAME_ANNOTATION: &str = "io.containerd.image.name";
/// The image specification's own annotation for a tag.
const TAG_ANNOTATION: &str = "org.opencontainers.image.ref.name";

/// One image to be made.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Full names, registry and tag included.
    pub(crate) names: Vec<String>,
    /// One directory per layer, lowest first.
    pub(crate) layers: Vec<PathBuf>,
    /// The entrypoint's words.
    pub(crate) entrypoint: Vec<String>,
    /// The default arguments' words.
    pub(crate) cmd: Vec<String>,
    /// `KEY=VALUE`.
    pub(crate) env: Vec<String>,
    /// `80/tcp`.
    pub(crate) ports: Vec<String>,
    /// User and group the process runs as.
    pub(crate) user: Option<String>,
    /// The signal that asks the process to end.
    pub(crate) stop_signal: Option<String>,
}

/// What went wrong in which part of the layout.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    /// A name without registry, repository or tag.
    #[error("image name {0:?}: want registry/repository:tag")]
    Name(String),
    /// A layer could not be made.
    #[error("making a layer of {}", path.display())]
    Layer {
        /// The layer's directory.
        path: PathBuf,
        /// The cause.
        source: LayerError,
    },
    /// A file of the layout could not be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A document of the layout could not be built or parsed.
    #[error("{document}")]
    Document {
        /// Which document.
        document: &'static str,
        /// The cause.
        source: OciSpecError,
    },
}

impl LayoutError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    fn document(document: &'static str) -> impl FnOnce(OciSpecError) -> Self {
        move |source| Self::Document { document, source }
    }
}

/// Splits a full name into registry, repository and tag.
///
/// # Errors
/// [`LayoutError::Name`] if one of the three is missing.
pub(crate) fn split_name(name: &str) -> Result<(&str, &str, &str), LayoutError> {
    let parts = name.split_once('/').and_then(|(registry, rest)| {
        rest.rsplit_once(':')
            .map(|(repository, tag)| (registry, repository, tag))
    });
    match parts {
        Some((registry, repository, tag))
            if registry.contains('.') && !repository.is_empty() && !tag.is_empty() && !tag.contains('/') =>
        {
            Ok((registry, repository, tag))
        }
        _ => Err(LayoutError::Name(name.to_owned())),
    }
}

/// Reads a layout's index.
///
/// # Errors
/// [`LayoutError`] if it is absent or not an index.
pub(crate) fn read_index(layout: &Path) -> Result<ImageIndex, LayoutError> {
    ImageIndex::from_file(layout.join("index.json")).map_err(LayoutError::document("index.json"))
}

/// The file of a blob.
pub(crate) fn blob_path(layout: &Path, digest: &Digest) -> PathBuf {
    layout
        .join("blobs")
        .join(digest.algorithm().as_ref())
        .join(digest.digest())
}

/// Adds one image to the layout at `layout`, making the layout on first use, and returns its manifest's digest. An
/// image that had one of the names loses that name.
///
/// # Errors
/// [`LayoutError`]; the index is then as it was.
pub(crate) fn add(layout: &Path, image: &Image) -> Result<Digest, LayoutError> {
    for name in &image.names {
        split_name(name)?;
    }
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(LayoutError::file(&blobs))?;
    let layers = image
        .layers
        .iter()
        .map(|directory| write_layer(layout, directory))
        .collect::<Result<Vec<_>, _>>()?;
    let config = write_blob(layout, MediaType::ImageConfig, &configuration(image, &layers)?)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(layers)
        .build()
        .and_then(|manifest| manifest.to_string())
        .map_err(LayoutError::document("image manifest"))?;
    let manifest = write_blob(layout, MediaType::ImageManifest, &manifest)?;
    let digest = manifest.digest().clone();
    write_index(layout, &image.names, manifest)?;
    Ok(digest)
}

/// The image configuration's text.
fn configuration(image: &Image, layers: &[Descriptor]) -> Result<String, LayoutError> {
    let document = LayoutError::document("image configuration");
    let some = |words: &Vec<String>| (!words.is_empty()).then(|| words.clone());
    let build = || {
        let mut config = ConfigBuilder::default().build()?;
        config
            .set_entrypoint(some(&image.entrypoint))
            .set_cmd(some(&image.cmd))
            .set_env(some(&image.env))
            .set_exposed_ports(some(&image.ports))
            .set_user(image.user.clone())
            .set_stop_signal(image.stop_signal.clone());
        let rootfs = RootFsBuilder::default()
            .typ("layers")
            .diff_ids(
                layers
                    .iter()
                    .map(|layer| layer.digest().to_string())
                    .collect::<Vec<_>>(),
            )
            .build()?;
        ImageConfigurationBuilder::default()
            .architecture(architecture())
            .os(Os::Linux)
            .config(config)
            .rootfs(rootfs)
            .build()?
            .to_string()
    };
    build().map_err(document)
}

fn architecture() -> Arch {
    match std::env::consts::ARCH {
        "aarch64" => Arch::ARM64,
        _ => Arch::Amd64,
    }
}

/// Writes the layer of one directory and returns its descriptor: uncompressed, so digest and diff id are one.
fn write_layer(layout: &Path, directory: &Path) -> Result<Descriptor, LayoutError> {
    let temporary = layout.join("blobs/.layer");
    let file = File::create(&temporary).map_err(LayoutError::file(&temporary))?;
    let mut out = Hashed {
        inner: BufWriter::new(file),
        hash: Sha256::new(),
        bytes: 0,
    };
    layer::write(directory, &mut out).map_err(|source| LayoutError::Layer {
        path: directory.to_owned(),
        source,
    })?;
    out.flush().map_err(LayoutError::file(&temporary))?;
    let digest = sha256(out.hash);
    let path = blob_path(layout, &digest);
    fs::rename(&temporary, &path).map_err(LayoutError::file(&path))?;
    Ok(Descriptor::new(MediaType::ImageLayer, out.bytes, digest))
}

fn write_blob(layout: &Path, kind: MediaType, text: &str) -> Result<Descriptor, LayoutError> {
    let digest = sha256(Sha256::new().chain_update(text));
    let path = blob_path(layout, &digest);
    fs::write(&path, text).map_err(LayoutError::file(&path))?;
    Ok(Descriptor::new(kind, text.len() as u64, digest))
}

fn write_index(layout: &Path, names: &[String], manifest: Descriptor) -> Result<(), LayoutError> {
    let path = layout.join("index.json");
    let mut manifests = if path.exists() {
        read_index(layout)?.manifests().clone()
    } else {
        Vec::new()
    };
    manifests.retain(|known| !names_of(known).any(|name| names.iter().any(|new| new == name)));
    let platform = PlatformBuilder::default()
        .architecture(architecture())
        .os(Os::Linux)
        .build()
        .map_err(LayoutError::document("platform"))?;
    for name in names {
        let (_, _, tag) = split_name(name)?;
        let mut named = manifest.clone();
        named.set_platform(Some(platform.clone()));
        named.set_annotations(Some(HashMap::from([
            (NAME_ANNOTATION.to_owned(), name.clone()),
            (TAG_ANNOTATION.to_owned(), tag.to_owned()),
        ])));
        manifests.push(named);
    }
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .build()
        .map_err(LayoutError::document("index.json"))?;
    let temporary = layout.join(".index.json");
    index.to_file(&temporary).map_err(LayoutError::document("index.json"))?;
    OciLayoutBuilder::default()
        .image_layout_version("1.0.0")
        .build()
        .and_then(|marker| marker.to_file(layout.join("oci-layout")))
        .map_err(LayoutError::document("oci-layout"))?;
    fs::rename(&temporary, &path).map_err(LayoutError::file(&path))
}

/// The full names a descriptor of the index carries: one, or none in an index of another maker.
pub(crate) fn names_of(descriptor: &Descriptor) -> impl Iterator<Item = &str> {
    descriptor
        .annotations()
        .iter()
        .filter_map(|annotations| annotations.get(NAME_ANNOTATION))
        .map(String::as_str)
}

fn sha256(hash: Sha256) -> Digest {
    let text = format!("sha256:{}", hex::encode(hash.finalize()));
    Digest::from_str(&text).expect("sha256 in hexadecimal is a digest")
}

/// A writer that hashes and counts what passes through it.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::image::{ImageConfiguration, ImageManifest};

    use super::*;

    fn image(names: &[&str], content: &str) -> (tempfile::TempDir, Image) {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("file"), content).unwrap();
        let image = Image {
            names: names.iter().map(ToString::to_string).collect(),
            layers: vec![tree.path().to_owned()],
            cmd: vec!["/file".to_owned()],
            ports: vec!["80/tcp".to_owned()],
            stop_signal: Some("SIGQUIT".to_owned()),
            ..Image::default()
        };
        (tree, image)
    }

    #[test]
    fn every_blob_an_index_leads_to_is_there_with_its_size_and_digest() {
        let layout = tempfile::tempdir().unwrap();
        let (_tree, image) = image(&["docker.io/library/a:latest"], "a");
        let digest = add(layout.path(), &image).unwrap();
        let manifest = ImageManifest::from_file(blob_path(layout.path(), &digest)).unwrap();
        for descriptor in manifest.layers().iter().chain([manifest.config()]) {
            let bytes = fs::read(blob_path(layout.path(), descriptor.digest())).unwrap();
            assert_eq!(bytes.len() as u64, descriptor.size());
            assert_eq!(&sha256(Sha256::new().chain_update(&bytes)), descriptor.digest());
        }
        let config = ImageConfiguration::from_file(blob_path(layout.path(), manifest.config().digest())).unwrap();
        assert_eq!(config.rootfs().diff_ids(), &[manifest.layers()[0].digest().to_string()]);
        let process = config.config().as_ref().unwrap();
        assert_eq!(process.cmd().as_deref(), Some(["/file".to_owned()].as_slice()));
        assert_eq!(process.entrypoint(), &None);
        assert_eq!(
            process.exposed_ports().as_deref(),
            Some(["80/tcp".to_owned()].as_slice())
        );
        assert_eq!(process.stop_signal().as_deref(), Some("SIGQUIT"));
    }

    #[test]
    fn a_name_moves_to_the_newer_image_and_others_stay() {
        let layout = tempfile::tempdir().unwrap();
        let (_first, first) = image(&["docker.io/library/a:1", "docker.io/library/a:latest"], "first");
        let (_second, second) = image(&["docker.io/library/a:latest"], "second");
        let old = add(layout.path(), &first).unwrap();
        let new = add(layout.path(), &second).unwrap();
        assert_ne!(old, new);
        let index = read_index(layout.path()).unwrap();
        let named: Vec<_> = index
            .manifests()
            .iter()
            .map(|manifest| (names_of(manifest).next().unwrap(), manifest.digest()))
            .collect();
        assert_eq!(
            named,
            [("docker.io/library/a:1", &old), ("docker.io/library/a:latest", &new)]
        );
    }

    #[test]
    fn names_need_registry_repository_and_tag() {
        assert_eq!(
            split_name("docker.io/library/nginx:latest").unwrap(),
            ("docker.io", "library/nginx", "latest")
        );
        for bad in [
            "nginx",
            "nginx:latest",
            "library/nginx:latest",
            "docker.io/library/nginx",
            "docker.io/:x",
            "a.b/c:",
        ] {
            assert!(split_name(bad).is_err(), "{bad}");
        }
    }
}
