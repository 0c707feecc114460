//! The flags of the controllers (control-plane contract §12). Pure.

use super::Reader;
use super::cidr::Cidrs;
use crate::controller::Options;
use crate::controller::node_ipam::BlockSizes;
use crate::controller::node_lifecycle::Rates;
use crate::controller::selection::{self, Selection};

/// Which controllers run, and how fast some of them are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllersConfig {
    /// The controllers that run.
    pub selection: Selection,
    /// How fast silent nodes lose their pods.
    pub rates: Rates,
    /// Bounds of some of them.
    pub options: Options,
}

impl Reader<'_> {
    /// `pods` are the ranges of `--cluster-cidr`.
    pub(super) fn controllers(&mut self, pods: &Cidrs) -> ControllersConfig {
        let default = Rates::default();
        let (normal, secondary) = (default.nodes_per_second, default.secondary_nodes_per_second);
        let zone = "unhealthy-zone-threshold";
        ControllersConfig {
            selection: self.selection(),
            rates: Rates {
                nodes_per_second: self.number("node-eviction-rate", normal, f64::MAX),
                secondary_nodes_per_second: self.number("secondary-node-eviction-rate", secondary, f64::MAX),
                unhealthy_zone: self.number(zone, default.unhealthy_zone, 1.0),
                large_cluster_nodes: self.parse("large-cluster-size-threshold", default.large_cluster_nodes),
            },
            options: Options {
                node_ports: self.parse("service-node-port-range", Options::default().node_ports),
                mirrored_addresses: self.mirrored(),
                node_blocks: self.node_blocks(pods),
                terminated_pods: self.terminated(),
            },
        }
    }

    /// As upstream's: what is not more than 0 is no bound.
    fn terminated(&mut self) -> usize {
        let default = i32::try_from(Options::default().terminated_pods).unwrap_or(i32::MAX);
        usize::try_from(self.parse("terminated-pod-gc-threshold", default)).unwrap_or(0)
    }

    fn mirrored(&mut self) -> usize {
        let (flag, default) = (
            "mirroring-max-endpoints-per-subset",
            Options::default().mirrored_addresses,
        );
        let number = self.parse(flag, default);
        if (1..=default).contains(&number) {
            return number;
        }
        self.wrong(flag, &number.to_string(), format!("must be between 1 and {default}"));
        default
    }

    /// Upstream's rules: one flag for a cluster of one family, two for one of both.
    fn node_blocks(&mut self, pods: &Cidrs) -> BlockSizes {
        let (one, default) = ("node-cidr-mask-size", BlockSizes::default());
        let each = ["node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6"];
        // As upstream's: 0 is not given.
        let given = |read: &mut Self, flag| read.parse::<u32>(flag, 0);
        let (mut size, sizes) = (given(self, one), each.map(|flag| given(self, flag)));
        let has = |v4: bool| pods.iter().any(|range| range.is_ipv4() == v4);
        if size != 0 && has(true) && has(false) {
            self.wrong(one, &size.to_string(), "not allowed with dual-stack clusters");
            // Told once: what it would be for each family is of no interest.
            size = 0;
        } else if size != 0 && sizes != [0, 0] {
            let why = format!("not allowed together with --{} and --{}", each[0], each[1]);
            self.wrong(one, &size.to_string(), why);
        }
        let mut found = [default.v4, default.v6];
        for (i, v4) in [true, false].into_iter().enumerate() {
            let (flag, number) = if sizes[i] == 0 {
                (one, size)
            } else {
                (each[i], sizes[i])
            };
            let Some(range) = pods.iter().find(|range| range.is_ipv4() == v4) else {
                if sizes[i] != 0 {
                    self.wrong(flag, &number.to_string(), "--cluster-cidr has no range of this family");
                }
                continue;
            };
            let most = if v4 { 32 } else { 128 };
            let least = u32::from(range.prefix()).max(1);
            if number != 0 && !(least..=most).contains(&number) {
                let why = format!("must be between {least} (--cluster-cidr's own) and {most}");
                self.wrong(flag, &number.to_string(), why);
            } else if number != 0 {
                found[i] = number;
            }
        }
        let [v4, v6] = found;
        BlockSizes { v4, v6 }
    }

    fn selection(&mut self) -> Selection {
        let flag = "controllers";
        let words = self.list(flag);
        let words = words.unwrap_or_else(|| selection::DEFAULT.split(',').map(str::to_owned).collect());
        Selection::parse(&words).unwrap_or_else(|mistakes| {
            let told = mistakes.iter().map(|why| format!("--{flag}: {why}"));
            self.mistakes.extend(told);
            Selection::default()
        })
    }

    fn number(&mut self, flag: &str, default: f64, most: f64) -> f64 {
        let number = self.parse(flag, default);
        if (0.0..=most).contains(&number) {
            return number;
        }
        let limit = if most == 1.0 {
            "must be between 0 and 1"
        } else {
            "must be 0 or more"
        };
        self.wrong(flag, &number.to_string(), limit);
        default
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, flags};
    use super::*;

    fn resolve(words: &[&str]) -> Result<ControllersConfig, Vec<String>> {
        let flags = flags::parse(words.iter().map(|word| (*word).to_owned()));
        Config::resolve(&flags).map(|config| config.controllers)
    }

    #[test]
    fn flags_are_upstreams() {
        assert_eq!(resolve(&[]), Ok(ControllersConfig::default()));
        let words = [
            "--controllers=*,-namespace",
            "--controllers=bootstrapsigner,tokencleaner,service",
            "--node-eviction-rate=1.5",
            "--secondary-node-eviction-rate=0",
            "--unhealthy-zone-threshold=1",
            "--large-cluster-size-threshold=7",
            "--mirroring-max-endpoints-per-subset=10",
            "--service-node-port-range=8000+9",
            "--terminated-pod-gc-threshold=9",
        ];
        let read = resolve(&words).unwrap();
        assert_eq!(read.selection.off().collect::<Vec<_>>(), ["namespace-controller"]);
        let rates = Rates {
            nodes_per_second: 1.5,
            secondary_nodes_per_second: 0.0,
            unhealthy_zone: 1.0,
            large_cluster_nodes: 7,
        };
        assert_eq!(read.rates, rates);
        assert_eq!(
            (read.options.mirrored_addresses, read.options.node_ports.to_string()),
            (10, "8000-8009".to_owned())
        );
        assert_eq!(read.options.terminated_pods, 9);
        for unbounded in ["0", "-1"] {
            let read = resolve(&[&format!("--terminated-pod-gc-threshold={unbounded}")]);
            assert_eq!(read.unwrap().options.terminated_pods, 0, "{unbounded}");
        }
    }

    #[test]
    fn blocks_of_nodes_are_of_the_size_of_their_family() {
        let dual = "--cluster-cidr=fd00::/48,10.244.0.0/16";
        let [v4, v6, one] = ["-ipv4", "-ipv6", ""].map(|family| format!("--node-cidr-mask-size{family}="));
        let sizes = |words: &[&str]| {
            let read = resolve(words).map(|read| read.options.node_blocks);
            read.map(|BlockSizes { v4, v6 }| (v4, v6))
        };
        assert_eq!(sizes(&[dual]), Ok((24, 64)));
        assert_eq!(sizes(&[dual, &format!("{v4}26"), &format!("{v6}80")]), Ok((26, 80)));
        assert_eq!(sizes(&[&format!("{one}25")]), Ok((25, 64)));
        assert_eq!(sizes(&[&format!("{v4}25"), &format!("{one}0")]), Ok((25, 64)));
        assert_eq!(sizes(&["--cluster-cidr=fd00::/48", &format!("{one}56")]), Ok((24, 56)));
        for (words, part) in [
            (
                [dual, &format!("{one}24")],
                "flag: not allowed with dual-stack clusters",
            ),
            ([&format!("{one}24"), &format!("{v4}24")], "-ipv4 and --node"),
            ([dual, &format!("{v6}47")], "-ipv6\" flag: must be between 48"),
            ([dual, &format!("{v4}33")], "(--cluster-cidr's own) and 32"),
            (["--v=2", &format!("{v6}64")], "no range of this family"),
            (["--v=2", &format!("{v4}x")], "invalid digit"),
        ] {
            let mistakes = sizes(&words).unwrap_err();
            assert!(
                mistakes.len() == 1 && mistakes[0].contains(part),
                "{words:?}: {mistakes:?}"
            );
        }
    }

    #[test]
    fn every_mistake_names_its_flag() {
        let words = [
            "--controllers=*,nope",
            "--node-eviction-rate=-1",
            "--secondary-node-eviction-rate=NaN",
            "--unhealthy-zone-threshold=1.1",
            "--large-cluster-size-threshold=many",
            "--mirroring-max-endpoints-per-subset=1001",
            "--service-node-port-range=9-8",
            "--terminated-pod-gc-threshold=1.5",
        ];
        let mistakes = resolve(&words).unwrap_err();
        let expected = [
            "--controllers: \"nope\" is not in the list of known controllers",
            "invalid argument \"-1\" for \"--node-eviction-rate\" flag: must be 0 or more",
            "invalid argument \"NaN\" for \"--secondary-node-eviction-rate\" flag: must be 0 or more",
            "invalid argument \"1.1\" for \"--unhealthy-zone-threshold\" flag: must be between 0 and 1",
            "invalid argument \"many\" for \"--large-cluster-size-threshold\" flag: invalid digit found in string",
            "invalid argument \"9-8\" for \"--service-node-port-range\" flag: end port cannot be less than start port: 9-8",
            "invalid argument \"1001\" for \"--mirroring-max-endpoints-per-subset\" flag: must be between 1 and 1000",
            "invalid argument \"1.5\" for \"--terminated-pod-gc-threshold\" flag: invalid digit found in string",
        ];
        assert_eq!(mistakes, expected);
    }
}
