use super::*;

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from(number).into()
}

/// A responder with a queue: it spends 4 on an answer and 1 on a question it does not answer, 4,000 a millisecond.
struct Responder {
    fair: Fair,
    now: Instant,
    /// Who asked, and whether questions were dropped since the one before.
    queue: std::collections::VecDeque<(u32, bool)>,
    dropped: bool,
    answered: HashMap<u32, u32>,
}

impl Responder {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            fair: Fair::new(now),
            now,
            queue: std::collections::VecDeque::new(),
            dropped: false,
            answered: HashMap::new(),
        }
    }

    /// One millisecond in which each of these asks so often.
    fn pass(&mut self, asking: &[(u32, u32)]) {
        self.now += Duration::from_millis(1);
        // One question of each after another, as far as it asks so many.
        let most = asking.iter().map(|(_, count)| *count).max().unwrap_or(0);
        for turn in 0..most {
            for (who, _) in asking.iter().filter(|(_, count)| *count > turn) {
                match self.queue.len() < 5000 {
                    true => self.queue.push_back((*who, std::mem::take(&mut self.dropped))),
                    false => self.dropped = true,
                }
            }
        }
        let mut left = 4000_i32;
        while left > 0
            && let Some((who, dropped)) = self.queue.pop_front()
        {
            if dropped {
                self.fair.overflow();
            }
            let is_allowed = self.fair.allows(source(who), self.now);
            left -= if is_allowed { 4 } else { 1 };
            if is_allowed {
                *self.answered.entry(who).or_default() += 1;
            }
        }
    }

    /// What each got in so many milliseconds.
    fn run(&mut self, milliseconds: u32, asking: &[(u32, u32)]) -> HashMap<u32, u32> {
        self.answered.clear();
        (0..milliseconds).for_each(|_| self.pass(asking));
        self.answered.clone()
    }
}

#[test]
fn one_busy_source_gets_everything_there_is() {
    let mut responder = Responder::new();
    // Just what can be answered: 1,000,000 a second.
    assert_eq!(responder.run(1000, &[(1, 1000)])[&1], 1_000_000);
    assert_eq!(responder.run(1000, &[(1, 500), (2, 500)])[&2], 500_000);
}

#[test]
fn who_asks_little_is_answered_beside_a_flood() {
    let mut responder = Responder::new();
    let asking = [(1, 3000), (2, 10), (3, 1)];
    responder.run(1000, &asking);
    // Once the flood is known for one nobody else loses more than a hundredth.
    let answered = responder.run(5000, &asking);
    assert!(answered[&2] >= 49_500, "{answered:?}");
    assert!(answered[&3] >= 4950, "{answered:?}");
    // Nor is the flood cut to nothing: what is left when everything it asks is read is 330,000 a second.
    assert!(answered[&1] >= 750_000, "{answered:?}");
}

#[test]
fn floods_get_the_same() {
    let mut responder = Responder::new();
    let asking = [(1, 1500), (2, 1500), (3, 5)];
    responder.run(1000, &asking);
    let answered = responder.run(5000, &asking);
    let (one, other) = (answered[&1], answered[&2]);
    assert!(one.abs_diff(other) < one / 20, "{answered:?}");
    assert!(answered[&3] >= 24_750, "{answered:?}");
}

#[test]
fn what_is_over_is_forgotten() {
    let mut responder = Responder::new();
    responder.run(1000, &[(1, 3000)]);
    assert!(responder.fair.share < 20_000, "{}", responder.fair.share);
    responder.run(20_000, &[(1, 100)]);
    assert!(responder.fair.share > 1_000_000, "{}", responder.fair.share);
}

#[test]
fn everybody_always_gets_a_little() {
    let (mut fair, mut now) = (Fair::new(Instant::now()), Instant::now());
    for _ in 0..1000 {
        fair.overflow();
        now += WHILE;
        let allowed = (0..100).filter(|_| fair.allows(source(1), now)).count();
        assert!(allowed >= LEAST as usize, "{allowed}");
    }
    assert_eq!(fair.share, LEAST);
}

#[test]
fn forged_sources_take_no_memory() {
    let now = Instant::now();
    let mut fair = Fair::new(now);
    for number in 1..20_000 {
        fair.allows(source(number), now);
    }
    assert!(fair.had.len() <= SOURCES_MAX + 1, "{}", fair.had.len());
}
