//! The node's lists of projects: the text of `/etc/projects` (which directory has which) and of `/etc/projid` (their names). Pure.
//!
//! What is not a volume's stays as it is, to the letter.

use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The first project a volume may have, as upstream's.
pub(super) const FIRST: u32 = 1_048_577;

/// Both texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// `ID:DIRECTORY` a line.
    pub(super) projects: String,
    /// `NAME:ID` a line; what begins with `#` is none.
    pub(super) names: String,
}

fn directory(line: &str) -> Option<(u32, &Path)> {
    let (id, path) = line.split_once(':')?;
    Some((id.parse().ok()?, Path::new(path)))
}

fn name(line: &str) -> Option<(&str, u32)> {
    let (name, id) = line.split_once(':')?;
    let id = id.parse().ok()?;
    (!name.is_empty() && !name.starts_with('#')).then_some((name, id))
}

fn name_of(id: u32) -> String {
    format!("volume{id}")
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

/// The text without the lines that go.
fn without(text: &str, goes: impl Fn(&str) -> bool) -> String {
    let stays = text
        .split_inclusive('\n')
        .filter(|line| !goes(line.trim_end_matches('\n')));
    stays.collect()
}

impl Lists {
    /// Directories with projects that may be a volume's. Of a directory that is there twice nothing is known.
    pub(super) fn directories(&self) -> BTreeMap<PathBuf, u32> {
        let mut found: BTreeMap<PathBuf, Option<u32>> = BTreeMap::new();
        for (id, path) in self.projects.lines().filter_map(directory) {
            let once = found.get(path).is_none_or(|other| *other == Some(id));
            found.insert(path.to_owned(), once.then_some(id));
        }
        let known = found.into_iter().filter_map(|(path, id)| Some((path, id?)));
        known.filter(|(_, id)| *id >= FIRST).collect_ordered()
    }

    /// Projects somebody has, or has a name for.
    pub(super) fn taken(&self) -> BTreeSet<u32> {
        let directories = self.projects.lines().filter_map(directory).map(|(id, _)| id);
        let names = self.names.lines().filter_map(name).map(|(_, id)| id);
        directories.chain(names).collect_ordered()
    }

    /// Gives a directory a project, with upstream's name for it.
    ///
    /// # Errors
    /// Its path cannot be written in a line.
    pub(super) fn add(&mut self, path: &Path, id: u32) -> io::Result<()> {
        let path = Some(path).filter(|path| path.is_absolute()).and_then(Path::to_str);
        let path = path.filter(|path| !path.contains('\n'));
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidFilename, "a path no list can have"))?;
        if !self.names.lines().filter_map(name).any(|(_, known)| known == id) {
            append(&mut self.names, &format!("{}:{id}", name_of(id)));
        }
        append(&mut self.projects, &format!("{id}:{path}"));
        Ok(())
    }

    /// Takes the volumes' directories out that go, and the names of their projects that no other has.
    pub(super) fn remove(&mut self, goes: impl Fn(&Path) -> bool) {
        let of_volume = |line: &str| {
            let (id, path) = directory(line)?;
            (id >= FIRST && goes(path)).then_some(id)
        };
        let gone: BTreeSet<u32> = self.projects.lines().filter_map(of_volume).collect_ordered();
        if gone.is_empty() {
            return;
        }
        self.projects = without(&self.projects, |line| of_volume(line).is_some());
        let left: BTreeSet<u32> = self
            .projects
            .lines()
            .filter_map(directory)
            .map(|(id, _)| id)
            .collect_ordered();
        self.names = without(&self.names, |line| {
            name(line).is_some_and(|(name, id)| gone.contains(&id) && !left.contains(&id) && name == name_of(id))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(projects: &str, names: &str) -> Lists {
        Lists {
            projects: projects.to_owned(),
            names: names.to_owned(),
        }
    }

    #[test]
    fn what_is_added_is_found_and_goes_and_nothing_else_changes() {
        let before = lists("# ours\n42:/srv\n1048577:/data", "#volume:1\nsrv:42\nodd\n:7");
        let mut changed = before.clone();
        let volume = Path::new("/k/pods/u/volumes/a:b");
        changed.add(volume, 1_048_578).expect("added");
        assert_eq!(
            changed.projects,
            "# ours\n42:/srv\n1048577:/data\n1048578:/k/pods/u/volumes/a:b\n"
        );
        assert_eq!(changed.names, "#volume:1\nsrv:42\nodd\n:7\nvolume1048578:1048578\n");
        let expected = [("/data".into(), 1_048_577), (volume.to_owned(), 1_048_578)];
        assert_eq!(changed.directories(), BTreeMap::from(expected));
        assert_eq!(changed.taken(), BTreeSet::from([42, 1_048_577, 1_048_578]));
        changed.remove(|path| path == volume);
        let ended = lists(&format!("{}\n", before.projects), &format!("{}\n", before.names));
        assert_eq!(changed, ended);
        changed.remove(|path| path == Path::new("/srv"));
        assert_eq!(changed, ended, "no volume's");
    }

    #[test]
    fn names_stay_that_others_gave_or_others_have() {
        for (projects, names, left) in [
            ("1048577:/v\n", "volume1048577:1048577\n", ""),
            ("1048577:/v\n", "data:1048577\n", "data:1048577\n"),
            (
                "1048577:/v\n1048577:/w\n",
                "volume1048577:1048577\n",
                "volume1048577:1048577\n",
            ),
        ] {
            let mut lists = lists(projects, names);
            lists.remove(|path| path == Path::new("/v"));
            assert_eq!(lists.names, left, "{projects}");
        }
    }

    #[test]
    fn of_a_directory_with_two_projects_nothing_is_known() {
        let lists = lists(
            "1048577:/v\n1048578:/v\n1048579:/w\n1048579:/w\n3:/x\nx:/y\n-1:/z\n",
            "",
        );
        assert_eq!(lists.directories(), BTreeMap::from([("/w".into(), 1_048_579)]));
    }

    #[test]
    fn a_path_that_is_no_line_is_refused() {
        for path in ["/a\n1:/b", "a"] {
            assert!(Lists::default().add(Path::new(path), 1).is_err(), "{path}");
        }
    }
}
