//! The clients a table remembers, while it is replaced. Pure.

use netlink::nft::set::Timed;

use crate::rules::AFFINITY_MAX;

/// A pool and the name of an endpoint, in bytes; times, in bytes.
const WORD_BYTES: usize = 4;
const TIME_BYTES: usize = 8;

/// Clients of one family, as many as a table has room for. All bytes of all of them in one place: each by itself would take four times as
/// many.
#[derive(Debug, Default)]
pub(super) struct Clients {
    bytes: Vec<u8>,
    /// Bytes of a key.
    key: usize,
}

impl Clients {
    /// Takes a client, if it fits the table as it is made now. Somebody else's table of this name, or that of another version, may hold
    /// others, and more: the kernel would refuse the whole table with them.
    pub(super) fn take(&mut self, client: &Timed, v4: bool) {
        // A pool and the client's address; the endpoint's name.
        let key = WORD_BYTES + if v4 { 4 } else { 16 };
        self.key = key;
        let has_room = self.bytes.len() < AFFINITY_MAX as usize * self.record();
        if !has_room || client.key.len() != key || client.data.len() != WORD_BYTES {
            return;
        }
        for part in [&client.key, &client.data] {
            self.bytes.extend_from_slice(part);
        }
        for time in [client.timeout_ms, client.left_ms] {
            self.bytes.extend_from_slice(&time.to_ne_bytes());
        }
    }

    /// Every client that was taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = Timed> {
        let time = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        self.bytes.chunks_exact(self.record()).map(move |record| {
            let (key, rest) = record.split_at(self.key);
            let (data, times) = rest.split_at(WORD_BYTES);
            let (timeout, left) = times.split_at(TIME_BYTES);
            Timed {
                key: key.to_vec(),
                data: data.to_vec(),
                timeout_ms: time(timeout),
                left_ms: time(left),
            }
        })
    }

    fn record(&self) -> usize {
        self.key + WORD_BYTES + 2 * TIME_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(key: usize, data: usize) -> Timed {
        Timed {
            key: (1..).take(key).collect(),
            data: (101..).take(data).collect(),
            timeout_ms: 10_800_000,
            left_ms: 7,
        }
    }

    #[test]
    fn only_clients_that_fit_are_taken_over_as_they_were() {
        for (key, data, v4, v6) in [
            (8, 4, true, false),
            (20, 4, false, true),
            (12, 4, false, false),
            (8, 8, false, false),
            (20, 0, false, false),
        ] {
            for (is_v4, fits) in [(true, v4), (false, v6)] {
                let mut clients = Clients::default();
                clients.take(&client(key, data), is_v4);
                let expected: Vec<Timed> = fits.then(|| client(key, data)).into_iter().collect();
                assert_eq!(clients.iter().collect::<Vec<_>>(), expected, "{key} {data} {is_v4}");
            }
        }
        assert_eq!(Clients::default().iter().count(), 0);
    }

    #[test]
    fn no_more_are_taken_than_a_table_has_room_for() {
        let mut clients = Clients::default();
        for _ in 0..AFFINITY_MAX + 10 {
            clients.take(&client(20, 4), false);
        }
        assert_eq!(clients.iter().count(), AFFINITY_MAX as usize);
    }
}
