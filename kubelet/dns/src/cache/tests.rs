use super::*;
use crate::wire::Reply;

const BOUND: Bound = Bound {
    entries: 4,
    bytes: 100_000,
};

/// An answer of one address that holds so long.
fn positive(ttl: u32) -> Arc<Reply> {
    let mut records = vec![1, b'x', 0, 0, 1, 0, 1];
    records.extend(ttl.to_be_bytes());
    records.extend([0, 4, 1, 2, 3, 4]);
    Arc::new(Reply {
        rcode: 0,
        authentic: false,
        counts: [1, 0, 0],
        records: records.into(),
    })
}

/// A denial whose SOA holds so long.
fn negative(rcode: u16, ttl: u32) -> Arc<Reply> {
    let mut records = vec![0, 0, 6, 0, 1];
    records.extend(ttl.to_be_bytes());
    records.extend([0, 22, 0, 0]);
    records.extend([0; 16]);
    records.extend(ttl.to_be_bytes());
    Arc::new(Reply {
        rcode,
        authentic: false,
        counts: [0, 1, 0],
        records: records.into(),
    })
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn answers_are_kept_as_long_as_they_hold() {
    let start = Instant::now();
    let servfail = Arc::new(Reply::failure());
    for (reply, holds, sort) in [
        (positive(60), 60, Sort::Success),
        (positive(100_000), 3600, Sort::Success),
        (negative(rcode::NX_DOMAIN, 30), 30, Sort::Denial),
        (negative(rcode::NO_ERROR, 30), 30, Sort::Denial),
        (negative(rcode::NX_DOMAIN, 100_000), 1800, Sort::Denial),
        (servfail, 1, Sort::Denial),
        (positive(0), 0, Sort::Success),
        (negative(rcode::NX_DOMAIN, 0), 0, Sort::Denial),
        (negative(rcode::REFUSED, 30), 0, Sort::Denial),
    ] {
        let mut cache = Cache::new(BOUND);
        cache.put(b"k", &reply, start);
        if holds > 0 {
            let hit = cache
                .get(b"k", start + seconds(holds) - Duration::from_millis(1))
                .unwrap();
            assert_eq!((u64::from(hit.age), hit.sort), (holds - 1, sort));
        }
        assert!(cache.get(b"k", start + seconds(holds)).is_none(), "{reply:?}");
        assert_eq!((cache.bytes(), cache.len(sort)), (0, 0));
    }
}

#[test]
fn a_newer_answer_takes_the_older_ones_place() {
    let (mut cache, start) = (Cache::new(BOUND), Instant::now());
    cache.put(b"k", &positive(60), start);
    cache.put(b"k", &negative(rcode::NX_DOMAIN, 60), start);
    assert_eq!(cache.get(b"k", start).unwrap().sort, Sort::Denial);
    assert_eq!((cache.len(Sort::Success), cache.len(Sort::Denial)), (0, 1));
    cache.put(b"k", &positive(0), start);
    assert!(
        cache.get(b"k", start).is_none(),
        "what may not be kept does not leave what was before"
    );
}

#[test]
fn who_is_asked_again_stays() {
    let (mut cache, start) = (Cache::new(BOUND), Instant::now());
    for key in [b"a", b"b", b"c", b"d"] {
        cache.put(key, &positive(60), start);
    }
    assert!(cache.get(b"a", start).is_some());
    for key in [b"e", b"f", b"g"] {
        cache.put(key, &positive(60), start);
    }
    assert!(cache.get(b"a", start).is_some());
    assert_eq!((cache.len(Sort::Success), cache.evicted()), (4, 3));
}

#[test]
fn bytes_are_bounded() {
    let bound = Bound {
        entries: 1000,
        bytes: 10_000,
    };
    let (mut cache, start) = (Cache::new(bound), Instant::now());
    let large = |bytes: usize| {
        let reply = positive(60);
        let records = [&*reply.records, &vec![0; bytes]].concat();
        Arc::new(Reply {
            records: records.into(),
            ..(*reply).clone()
        })
    };
    for number in 0..500u32 {
        cache.put(&number.to_be_bytes(), &large(number as usize % 500), start);
        assert!(cache.bytes() <= bound.bytes);
    }
    assert!(cache.len(Sort::Success) > 10);
    let before = cache.bytes();
    cache.put(b"huge", &large(9000), start);
    assert!(
        cache.get(b"huge", start).is_none(),
        "one answer does not drive all others out"
    );
    assert_eq!(cache.bytes(), before);
}
