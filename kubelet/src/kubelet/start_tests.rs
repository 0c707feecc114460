//! What a kubelet tells of its own start.

use super::testing::Bench;

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_told_before_the_end() {
    let bench = Bench::new();
    // Where its pods are to be there is a file.
    let root = bench.manifests().with_file_name("kubelet");
    std::fs::create_dir_all(&root).expect("made");
    std::fs::write(root.join("pods"), "").expect("written");
    let kubelet = bench.start();
    let told = |bench: &Bench| {
        let events = bench.api.events();
        events.iter().any(|(reason, message)| {
            reason == "KubeletSetupFailed" && message.starts_with("set up the kubelet's directories: ")
        })
    };
    bench.until("told", told).await;
    drop(kubelet);
}

#[tokio::test(start_paused = true)]
async fn memory_that_may_be_swapped_is_told() {
    for old in [false, true] {
        let bench = Bench::new();
        if old {
            bench.mounter.forget_noswap();
        }
        let kubelet = bench.start();
        bench
            .until("started", |bench| {
                bench.api.events().iter().any(|(reason, _)| reason == "Starting")
            })
            .await;
        let told = |bench: &Bench| {
            let mut events = bench.api.events().into_iter();
            events.any(|(reason, _)| reason == "PossibleMemoryBackedVolumesOnDisk")
        };
        match old {
            true => bench.until("told", told).await,
            false => assert!(!told(&bench)),
        }
        assert!(bench.mounter.table().is_empty(), "what was tried is gone");
        kubelet.kill().await;
    }
}
