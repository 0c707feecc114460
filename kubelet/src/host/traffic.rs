//! What network interfaces have carried, from `/proc/.../net/dev`.

use super::machine::Roots;
use std::fs;

/// Interfaces that say nothing of whom they belong to, by the beginning of their names.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// One interface's numbers since it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Receptions that failed.
    pub rx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Transmissions that failed.
    pub tx_errors: u64,
}

/// The interfaces of the network a process is in, or of our own; none if it is gone.
pub fn read(roots: &Roots, process: Option<u32>) -> Vec<Traffic> {
    let file = match process {
        Some(process) => format!("{process}/net/dev"),
        None => "net/dev".to_owned(),
    };
    parse(&fs::read_to_string(roots.proc.join(file)).unwrap_or_default())
}

/// Two lines of heading, then `name: 8 columns of reception, 8 of transmission`.
fn parse(text: &str) -> Vec<Traffic> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let name = name.trim();
        let columns: Vec<u64> = numbers
            .split_whitespace()
            .map_while(|number| number.parse().ok())
            .collect();
        let ignored = IGNORED.iter().any(|prefix| name.starts_with(prefix));
        (!ignored && columns.len() >= 11).then(|| Traffic {
            name: name.to_owned(),
            rx_bytes: columns[0],
            rx_errors: columns[2],
            tx_bytes: columns[8],
            tx_errors: columns[10],
        })
    };
    text.lines().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_and_those_of_others_left_out() {
        let text = "Inter-|   Receive                    |  Transmit\n\
                    \x20face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                    \x20   lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n\
                    \x20 eth0:    2000      20    3    0    0     0          0         0     4000      40    5    0    0     0       0          0\n\
                    vethab:       1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0\n";
        let eth0 = Traffic {
            name: "eth0".into(),
            rx_bytes: 2000,
            rx_errors: 3,
            tx_bytes: 4000,
            tx_errors: 5,
        };
        assert_eq!(parse(text), [eth0]);
        assert_eq!(parse("nonsense"), []);
    }
}
