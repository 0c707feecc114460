//! What the machine did with a block device since it was started (`/proc/diskstats`). Pure.

/// One line of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskIo {
    /// Reads and writes that were merged with their neighbours.
    pub merged: (u64, u64),
    /// Sectors of 512 bytes that were read and written.
    pub sectors: (u64, u64),
    /// How long reads and writes took together, milliseconds.
    pub took_ms: (u64, u64),
    /// Those under way.
    pub now: u64,
    /// How long there was any under way, milliseconds.
    pub busy_ms: u64,
    /// The same, times how many there were, milliseconds.
    pub weighted_ms: u64,
}

/// The device of that file, `/dev/sda`, if the machine tells of it.
pub(super) fn of_device(text: &str, device: &str) -> Option<DiskIo> {
    let name = device.strip_prefix("/dev/")?;
    text.lines().find_map(|line| {
        // Major, minor, name; the kernel has a slash in the name as it is here.
        let mut words = line.split_whitespace().skip(2);
        (words.next()? == name).then_some(())?;
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // Newer kernels have more of them behind.
        let &[
            _,
            read_merged,
            read_sectors,
            read_ms,
            _,
            write_merged,
            write_sectors,
            write_ms,
            now,
            busy_ms,
            weighted_ms,
            ..,
        ] = &numbers[..]
        else {
            return None;
        };
        Some(DiskIo {
            merged: (read_merged, write_merged),
            sectors: (read_sectors, write_sectors),
            took_ms: (read_ms, write_ms),
            now,
            busy_ms,
            weighted_ms,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_name() {
        let text = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n   8       1 sda1 10 20 30 40 50 60 70 80 90 100 110\n\
                    104 0 cciss/c0d0 1 1 1 1 1 1 1 1 1 1 7\n 7 0 loop0 1 2 3\n";
        let part = DiskIo {
            merged: (20, 60),
            sectors: (30, 70),
            took_ms: (40, 80),
            now: 90,
            busy_ms: 100,
            weighted_ms: 110,
        };
        assert_eq!(of_device(text, "/dev/sda1"), Some(part));
        assert_eq!(of_device(text, "/dev/sda").map(|io| io.weighted_ms), Some(11));
        assert_eq!(of_device(text, "/dev/cciss/c0d0").map(|io| io.weighted_ms), Some(7));
        for none in ["/dev/loop0", "/dev/sdb", "/dev/", "", "sda"] {
            assert_eq!(of_device(text, none), None, "{none}");
        }
    }
}
