//! Real members: a few rounds of the campaign, TLS, users with rights of their own, and members of other data. Each runs in namespaces that end with it.

mod differing;
mod tls;

use crate::campaign::{self, Fault};
use crate::isolation;
use crate::members::Members;

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

#[test]
fn leaders_are_cut_off_and_members_replaced_and_every_history_has_an_order() {
    if !isolation::is_inside("tests::leaders_are_cut_off_and_members_replaced_and_every_history_has_an_order") {
        return;
    }
    block_on(async {
        let mut members = Members::start(None).unwrap();
        campaign::ready(&members).await.unwrap();
        let faults = [
            Fault::LeaderWithoutPeers,
            Fault::MajorityCut,
            Fault::LeaderKilled,
            Fault::MemberReplaced,
            Fault::Compacted,
            Fault::FollowerSlow,
            Fault::Restored,
            Fault::ClientsLossy,
            Fault::PeersLossy,
            Fault::RestoredAlone,
        ];
        for (seed, fault) in (0..).zip(faults) {
            let report = campaign::round(&mut members, seed, fault).await.unwrap();
            println!("{fault:?}: {report}");
            assert!(report.wrong.is_empty(), "{fault:?}: {:#?}", report.wrong);
        }
    });
}
