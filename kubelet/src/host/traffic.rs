//! What network interfaces have carried, from `/proc/.../net/dev`.

use super::machine::Roots;
use std::fs;

/// Interfaces that say nothing of whom they belong to, by the beginning of their names.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];
/// How many of a network's interfaces are told of: who may make some may make any number.
const INTERFACES_MAX: usize = 100;

/// One interface's numbers since it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// What was received.
    pub received: Carried,
    /// What was sent.
    pub sent: Carried,
}

/// One direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Failures.
    pub errors: u64,
    /// Packets that were thrown away.
    pub dropped: u64,
}

/// The interfaces of our own network.
pub fn read(roots: &Roots) -> Vec<Traffic> {
    parse(&fs::read_to_string(roots.proc.join("net/dev")).unwrap_or_default())
}

/// Two lines of heading, then `name: 8 columns of reception, 8 of transmission`.
pub(crate) fn parse(text: &str) -> Vec<Traffic> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let name = name.trim();
        if IGNORED.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let mut columns = [None; 12];
        for (column, number) in columns.iter_mut().zip(numbers.split_ascii_whitespace()) {
            *column = number.parse().ok();
        }
        let carried = |from: usize| match columns[from..] {
            [Some(bytes), Some(packets), Some(errors), Some(dropped), ..] => Some(Carried {
                bytes,
                packets,
                errors,
                dropped,
            }),
            _ => None,
        };
        Some(Traffic {
            name: name.to_owned(),
            received: carried(0)?,
            sent: carried(8)?,
        })
    };
    text.lines().filter_map(interface).take(INTERFACES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_and_those_of_others_left_out() {
        let text = "Inter-|   Receive                    |  Transmit\n\
                    \x20face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                    \x20   lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n\
                    \x20 eth0:    2000      20    3    1    0     0          0         0     4000      40    5    2    0     0       0          0\n\
                    vethab:       1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0\n";
        let eth0 = Traffic {
            name: "eth0".into(),
            received: Carried {
                bytes: 2000,
                packets: 20,
                errors: 3,
                dropped: 1,
            },
            sent: Carried {
                bytes: 4000,
                packets: 40,
                errors: 5,
                dropped: 2,
            },
        };
        assert_eq!(parse(text), [eth0]);
        assert_eq!(parse("nonsense"), []);
        assert_eq!(parse("eth0: 1 2 3 4 5 6 7 8 9\n"), [], "half a line");
        let many: String = (0..1000)
            .map(|n| format!("x{n}: 1 2 3 4 5 6 7 8 9 10 11 12\n"))
            .collect();
        assert_eq!(parse(&many).len(), INTERFACES_MAX);
    }
}
