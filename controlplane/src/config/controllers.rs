//! The flags of the controllers (control-plane contract §12). Pure.

use super::Reader;
use crate::controller::Options;
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
    pub(super) fn controllers(&mut self) -> ControllersConfig {
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
            },
        }
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
        ];
        assert_eq!(mistakes, expected);
    }
}
