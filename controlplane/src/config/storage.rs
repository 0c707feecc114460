//! Where objects are kept: `--store` and the flags about etcd.

use super::Reader;
use super::components::duration;
use etcd::{Deadlines, Options, TlsFiles};
use std::time::Duration;

/// Upstream's default of `--etcd-compaction-interval`.
const COMPACTION: Duration = Duration::from_secs(300);

/// Which store keeps the objects (`--store`, `--etcd-servers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// On disk under the data directory.
    Disk,
    /// In memory: everything is lost at exit. For tests.
    Memory,
    /// On an etcd cluster.
    Etcd(Options),
}

/// Flags that say nothing without `--etcd-servers`.
const OF_ETCD: [&str; 5] = [
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "etcd-prefix",
    "etcd-compaction-interval",
];

impl Reader<'_> {
    pub(super) fn store(&mut self) -> StoreKind {
        let servers = self.list("etcd-servers");
        let kind = self.flags.last("store");
        match (kind, servers) {
            (None | Some("etcd"), Some(servers)) => return self.etcd(servers),
            (Some("etcd"), None) => self.mistakes.push("--store=etcd needs --etcd-servers".to_owned()),
            (Some(other), Some(_)) => self
                .mistakes
                .push(format!("--store={other} and --etcd-servers exclude one another")),
            (_, None) => {}
        }
        for flag in OF_ETCD {
            if self.flags.last(flag).is_some() {
                self.mistakes.push(format!("--{flag} needs --etcd-servers"));
            }
        }
        match kind {
            Some("memory") => return StoreKind::Memory,
            None | Some("disk" | "etcd") => {}
            Some(other) => self.wrong("store", other, "must be disk, memory or etcd"),
        }
        StoreKind::Disk
    }

    fn etcd(&mut self, servers: Vec<String>) -> StoreKind {
        let tls = TlsFiles {
            ca: self.path("etcd-cafile"),
            cert: self.path("etcd-certfile"),
            key: self.path("etcd-keyfile"),
        };
        if tls.cert.is_some() != tls.key.is_some() {
            let together = "--etcd-certfile and --etcd-keyfile must be given together";
            self.mistakes.push(together.to_owned());
        }
        let options = Options {
            servers,
            tls,
            prefix: self.flags.last("etcd-prefix").unwrap_or("/registry").to_owned(),
            compaction_interval: self.compaction_interval(),
            deadlines: Deadlines::default(),
        };
        for (server, why) in options.wrong_servers() {
            self.wrong("etcd-servers", &server, why);
        }
        StoreKind::Etcd(options)
    }

    /// Upstream's: 0 leaves compaction to others.
    fn compaction_interval(&mut self) -> Option<Duration> {
        let flag = "etcd-compaction-interval";
        let Some(text) = self.flags.last(flag) else {
            return Some(COMPACTION);
        };
        match duration(text) {
            Ok(Duration::ZERO) => None,
            Ok(interval) => Some(interval),
            Err(why) => {
                self.wrong(flag, text, why);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, flags};

    fn resolve(words: &[&str]) -> Result<StoreKind, String> {
        let flags = flags::parse(words.iter().map(|word| (*word).to_owned()));
        Config::resolve(&flags)
            .map(|config| config.store)
            .map_err(|mistakes| mistakes.join("\n"))
    }

    #[test]
    fn servers_choose_etcd() {
        assert_eq!(resolve(&[]), Ok(StoreKind::Disk));
        assert_eq!(resolve(&["--store=memory"]), Ok(StoreKind::Memory));
        let Ok(StoreKind::Etcd(options)) = resolve(&["--etcd-servers=http://10.0.0.1:2379,http://10.0.0.2:2379"])
        else {
            panic!("servers are of etcd");
        };
        assert_eq!(options.servers, ["http://10.0.0.1:2379", "http://10.0.0.2:2379"]);
        assert_eq!(
            (&*options.prefix, options.compaction_interval),
            ("/registry", Some(COMPACTION))
        );
        let Ok(StoreKind::Etcd(options)) = resolve(&[
            "--store=etcd",
            "--etcd-servers=https://etcd:2379",
            "--etcd-cafile=ca",
            "--etcd-prefix=/other",
            "--etcd-compaction-interval=0",
        ]) else {
            panic!("etcd by name");
        };
        assert_eq!((&*options.prefix, options.compaction_interval), ("/other", None));
    }

    #[test]
    fn what_makes_no_sense_is_told_by_flag() {
        for (words, part) in [
            (&["--store=etcd"][..], "--store=etcd needs --etcd-servers"),
            (&["--store=disk", "--etcd-servers=http://a:1"], "exclude one another"),
            (&["--etcd-prefix=/a"], "--etcd-prefix needs --etcd-servers"),
            (
                &["--etcd-servers=http://a"],
                "\"http://a\" for \"--etcd-servers\" flag: it names no port",
            ),
            (&["--etcd-servers="], "names no server"),
            (
                &["--etcd-servers=http://a:1", "--etcd-certfile=c"],
                "must be given together",
            ),
            (
                &["--etcd-servers=http://a:1", "--etcd-compaction-interval=x"],
                "etcd-compaction-interval",
            ),
            (&["--store=nowhere"], "must be disk, memory or etcd"),
        ] {
            let mistakes = resolve(words).unwrap_err();
            assert!(mistakes.contains(part), "{words:?}: {mistakes}");
        }
    }
}
