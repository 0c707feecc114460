use super::*;
use crate::testing::Cluster;

/// Beyond it something hangs.
const LONG: Duration = Duration::from_secs(120);

fn told(cluster_id: u64, revision: i64) -> ResponseHeader {
    ResponseHeader {
        cluster_id,
        revision,
        ..ResponseHeader::default()
    }
}

/// It waits for a member that is away. What others are told meanwhile counts for it, too: it is asked later.
#[tokio::test]
async fn who_waits_for_a_member_is_answered_nothing_older_than_what_was_told_meanwhile() {
    let mut cluster = Cluster::start(1);
    let mut options = cluster.options();
    options.deadlines.request = LONG;
    let rpc = Arc::new(Rpc::new(&options).unwrap());
    rpc.first_answer(LONG).await.unwrap();
    let answer = rpc.range(revision_request()).await.unwrap();
    let cluster_id = answer.header.unwrap().cluster_id;
    cluster.kill(0);
    let waiting = tokio::spawn({
        let rpc = Arc::clone(&rpc);
        async move { rpc.revision().await }
    });
    let rests = async {
        while rpc.health.choose(Instant::now()).1 <= Instant::now() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, rests).await.expect("it is asked in vain");
    rpc.answered(Some(&told(cluster_id, 1000)), 0).unwrap();
    cluster.revive(0);
    let answered = tokio::time::timeout(LONG, waiting).await.expect("an answer").unwrap();
    assert!(
        matches!(&answered, Err(StoreError::Unusable(why)) if why.contains("after it had told of 1000")),
        "{answered:?}"
    );
}

/// An answer waits until its member is compared; whoever is compared then is not who has given it.
#[tokio::test]
async fn an_answer_whose_connection_is_gone_before_its_member_is_compared_is_not_taken() {
    let cluster = Cluster::start(3);
    let rpc = Arc::new(Rpc::new(&cluster.options()).unwrap());
    rpc.first_answer(LONG).await.unwrap();
    let is_new = |member: usize| {
        let connections = &rpc.members[member].connections;
        connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    };
    for (is_lost, is_taken) in [(false, true), (true, false)] {
        is_new(0);
        let comparing = rpc.comparing.lock().await;
        let trusting = {
            let rpc = Arc::clone(&rpc);
            tokio::spawn(async move { rpc.trust(0).await })
        };
        // It waits for its turn then: there is one thread.
        tokio::task::yield_now().await;
        if is_lost {
            is_new(0);
        }
        drop(comparing);
        let trusted = tokio::time::timeout(LONG, trusting).await.expect("a verdict").unwrap();
        assert_eq!(trusted.is_ok(), is_taken, "{trusted:?}");
    }
}

/// Its revision says nothing against a member whose data come to something else; that of one in its place is another's.
#[tokio::test]
async fn who_is_out_for_its_data_is_not_taken_back_for_its_revision() {
    let cluster = Cluster::start(3);
    let rpc = Arc::new(Rpc::new(&cluster.options()).unwrap());
    rpc.first_answer(LONG).await.unwrap();
    rpc.compare_hashes(At::Start).await.unwrap();
    let state = rpc.say(vec![0]).await;
    let number = state[0].expect("it answers").member;
    let is_out_after_looks = async |differs: u64, expected: bool| {
        rpc.members[0]
            .looked
            .differs
            .store(differs, std::sync::atomic::Ordering::SeqCst);
        rpc.health.leave_out(0, true);
        let looking = async {
            // Not every look finds all settled.
            loop {
                let is_looked_at = rpc.look().await.is_ok();
                if rpc.health.is_out(0) == expected && is_looked_at {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, looking).await.expect("it is as expected");
    };
    is_out_after_looks(0, false).await;
    is_out_after_looks(number, true).await;
    is_out_after_looks(number + 1, false).await;
    // Nor is it out for longer than its data are other.
    is_out_after_looks(number, true).await;
    rpc.compare_hashes(At::Work).await.unwrap();
    assert!(!rpc.health.is_out(0));
}
