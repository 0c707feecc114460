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
        let columns = columns(numbers);
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

/// The first numbers of a line; nothing in place of what is none. Read byte by byte: each pod has such lines, in each look.
fn columns(line: &str) -> [Option<u64>; 12] {
    let mut columns = [None; 12];
    let (mut at, mut inside) = (0, false);
    for byte in line.as_bytes() {
        if byte.is_ascii_whitespace() {
            at += usize::from(inside);
            inside = false;
            continue;
        }
        let Some(column) = columns.get_mut(at) else { break };
        let before = if inside { *column } else { Some(0u64) };
        inside = true;
        let digit = byte.wrapping_sub(b'0');
        let grown = before.and_then(|before| before.checked_mul(10)?.checked_add(u64::from(digit)));
        *column = grown.filter(|_| digit <= 9);
    }
    columns
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
        for broken in ["x", "7x", "x7", "-7", "18446744073709551616", "18446744073709551610000"] {
            let line = format!("eth0: 1 2 3 {broken} 5 6 7 8 9 10 11 12\n");
            assert_eq!(parse(&line), [], "{broken}");
        }
        let most = parse("eth0: 1 2 3 4 5 6 7 8 9 10 11\t18446744073709551615\n");
        assert_eq!(most[0].sent.dropped, u64::MAX);
        let many: String = (0..1000)
            .map(|n| format!("x{n}: 1 2 3 4 5 6 7 8 9 10 11 12\n"))
            .collect();
        assert_eq!(parse(&many).len(), INTERFACES_MAX);
    }
}
