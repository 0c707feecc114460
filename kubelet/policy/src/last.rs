//! What a node knew last, on disk: whether the cluster had policies, and this node's ranges. A node that starts while the API
//! server is away goes by it.
//!
//! Which policies there were is not kept: the pods they select have other addresses after a boot, and others' may have ended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use netlink::cidr::Cidr;

/// More than it ever is, in bytes.
const MOST_BYTES: u64 = 4096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The ranges of this node's pods.
    pub ranges: Vec<Cidr>,
    /// Whether the cluster had any policy.
    pub has_policies: bool,
}

impl Last {
    /// Reads it; nothing where it is not known, or cannot be read.
    pub fn read(path: &Path) -> Option<Self> {
        if fs::metadata(path).ok()?.len() > MOST_BYTES {
            return None;
        }
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // A text that was cut off has no last line.
        let mut lines = text.strip_suffix("end\n")?.lines();
        let has_policies = match lines.next()? {
            "policies" => true,
            "no policies" => false,
            _ => return None,
        };
        let ranges: Result<_, _> = lines.map(Cidr::parse).collect();
        Some(Self {
            ranges: ranges.ok()?,
            has_policies,
        })
    }

    fn text(&self) -> String {
        let first = if self.has_policies { "policies" } else { "no policies" };
        let ranges: String = self.ranges.iter().map(|range| format!("{range}\n")).collect();
        format!("{first}\n{ranges}end\n")
    }

    /// Writes it in place of what is there, whole or not at all. When this returns, a machine that stops finds it.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        // The new name is on disk with its directory.
        path.parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let last = |has_policies| Last {
            ranges: ["10.1.0.0/24", "fd00::/64"]
                .map(|text| Cidr::parse(text).unwrap())
                .to_vec(),
            has_policies,
        };
        for last in [last(true), last(false)] {
            let text = last.text();
            assert_eq!(Last::parse(&text), Some(last));
            for length in 0..text.len() {
                assert_eq!(Last::parse(&text[..length]), None, "{length}");
            }
        }
        for text in [
            "end\n",
            "some\nend\n",
            "policies\n10.1.0.0/33\nend\n",
            "policies\n10.1.0.0\nend\n",
        ] {
            assert_eq!(Last::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_next_start_finds_it() {
        let directory = std::env::temp_dir().join(format!("policy-last-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("network-policies");
        assert_eq!(Last::read(&path), None);
        for has_policies in [true, false] {
            let ranges = Vec::new();
            let last = Last { ranges, has_policies };
            last.write(&path).unwrap();
            assert_eq!(Last::read(&path), Some(last));
        }
        fs::write(&path, "x".repeat(5000)).unwrap();
        assert_eq!(Last::read(&path), None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
