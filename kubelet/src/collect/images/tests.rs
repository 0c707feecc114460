use super::*;
use proptest::prelude::*;

fn at(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(1_000 + seconds)
}

fn image(id: &str) -> ImageInfo {
    ImageInfo {
        id: format!("sha256:{id}"),
        repo_tags: vec![format!("docker.io/library/{id}:latest")],
        repo_digests: vec![format!("docker.io/library/{id}@sha256:{id}{id}")],
        size: 100,
        ..ImageInfo::default()
    }
}

fn used(names: &[&str]) -> Used {
    Used(names.iter().map(|name| (*name).to_owned()).collect())
}

fn rules(youngest: i64) -> Rules {
    Rules {
        youngest: SignedDuration::from_secs(youngest),
        ..Rules::default()
    }
}

#[test]
fn the_file_system_is_judged_as_upstream_does() {
    let rules = Rules::default();
    for (capacity, available, expected) in [
        (1_000, 1_000, None),
        (1_000, 160, None),
        // Upstream rounds the free share down.
        (1_000, 159, Some((85, 200, 41))),
        (1_000, 150, Some((85, 200, 50))),
        (1_000, 0, Some((100, 200, 200))),
        (1_000, 5_000, None),
        (1_000, -7, Some((100, 200, 200))),
        (i64::MAX, 0, Some((100, i64::MAX / 5, i64::MAX / 5))),
    ] {
        let found = need(Space { capacity, available }, &rules).expect("a size");
        let found = found.map(|need| (need.percent, need.available, need.bytes));
        assert_eq!(found, expected, "{available} of {capacity}");
    }
    for capacity in [0, -1] {
        let nothing = Space { capacity, available: 1 };
        assert_eq!(need(nothing, &rules), Err("invalid capacity 0 on image filesystem"));
    }
}

#[test]
fn the_least_lately_used_goes_first_then_the_first_found() {
    let (mut history, rules) = (History::default(), rules(0));
    let first = [image("old"), image("web"), image("db")];
    history.note(&first, &used(&["sha256:web"]), at(0));
    // By tag, and by digest.
    history.note(&first, &used(&["docker.io/library/db:latest"]), at(300));
    let all = [image("db"), image("new"), image("web"), image("old"), image("newer")];
    history.note(&all[..4], &used(&[]), at(600));
    history.note(&all, &used(&["docker.io/library/newer@sha256:newernewer"]), at(900));
    let choice = choose(&all, &history, &used(&[]), &used(&[]), &rules, at(1_200));
    assert_eq!(
        choice.images,
        ["sha256:old", "sha256:new", "sha256:web", "sha256:db", "sha256:newer"]
    );
    // What went and came back begins anew.
    history.note(&all[1..], &used(&[]), at(1_200));
    history.note(&all, &used(&[]), at(1_500));
    let choice = choose(&all, &history, &used(&[]), &used(&[]), &rules, at(1_500));
    assert_eq!(choice.images[..3], ["sha256:old", "sha256:new", "sha256:db"]);
}

#[test]
fn used_pinned_and_young_images_stay_and_are_told() {
    let mut history = History::default();
    let pinned = ImageInfo {
        pinned: true,
        ..image("pause")
    };
    let mut all = vec![pinned, image("sandbox"), image("a"), image("b"), image("c")];
    history.note(&all, &Used::default(), at(0));
    all.push(image("young"));
    history.note(&all, &Used::default(), at(100));
    let (busy, kept) = (
        used(&["sha256:a", "docker.io/library/b:latest"]),
        used(&["docker.io/library/sandbox:latest"]),
    );
    let choice = choose(&all, &history, &busy, &kept, &rules(120), at(200));
    assert_eq!(choice.images, ["sha256:c"]);
    let stay = Stay {
        used: 2,
        pinned: 2,
        young: 1,
    };
    assert_eq!(choice.stay, stay);
    let choice = choose(&all, &history, &busy, &kept, &rules(120), at(220));
    assert_eq!(choice.images, ["sha256:c", "sha256:young"]);
    let told = shortage(88, 28_347_000_000, 385_820_817, &stay, 1);
    assert_eq!(
        told,
        "Insufficient free disk space on the node's image filesystem (88% of 26.4 GiB used). Failed to free sufficient space by \
         deleting unused images (freed 385820817 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, \
         or other data. Images that stay: 2 in use, 2 pinned, 1 younger than imageMinimumGCAge, 1 that could not be removed."
    );
    assert_eq!(size(1023), "1023 B");
    assert_eq!(size(1 << 20), "1.0 MiB");
}

#[test]
fn what_nobody_used_for_long_goes_once_this_kubelet_ran_so_long() {
    let rules = Rules {
        oldest: Some(SignedDuration::from_secs(1_000)),
        ..rules(0)
    };
    let mut history = History::default();
    let mut all = vec![image("before"), image("once")];
    history.note(&all, &used(&["sha256:once"]), at(0));
    all.push(image("later"));
    history.note(&all, &Used::default(), at(500));
    let old = |now, ran, rules: &Rules| {
        let choice = choose(&all, &history, &Used::default(), &Used::default(), rules, at(now));
        outdated(&choice, &history, rules, SignedDuration::from_secs(ran), at(now))
    };
    assert!(old(900, 900, &rules).is_empty());
    assert!(old(1_000, 1_000, &rules).is_empty(), "it has to run longer than that");
    assert_eq!(old(1_001, 1_001, &rules), ["sha256:before", "sha256:once"]);
    assert!(
        old(1_501, 9, &rules).is_empty(),
        "a new kubelet knows of no use before it"
    );
    assert_eq!(
        old(1_501, 1_501, &rules),
        ["sha256:before", "sha256:later", "sha256:once"]
    );
    let off = Rules { oldest: None, ..rules };
    assert!(old(9_999, 9_999, &off).is_empty());
    assert!(!rules.are_off() && !off.are_off());
    let full = Rules {
        high_percent: 100,
        ..off
    };
    assert!(full.are_off());
}

#[test]
fn what_was_pulled_again_or_removed_between_two_looks_is_a_new_one() {
    let (mut history, rules) = (History::default(), rules(120));
    let all = [image("a"), image("b"), image("c")];
    history.note(&all, &used(&[]), at(0));
    history.pulled("sha256:a", at(500));
    history.forget("sha256:b");
    history.note(&all, &used(&[]), at(600));
    let young = |now| choose(&all, &history, &used(&[]), &used(&[]), &rules, at(now));
    let choice = young(619);
    assert_eq!((choice.images, choice.stay.young), (vec!["sha256:c".to_owned()], 2));
    assert_eq!(young(620).images, ["sha256:c", "sha256:a"]);
    // Nobody used the one that came back.
    assert_eq!(young(720).images, ["sha256:c", "sha256:b", "sha256:a"]);
    let rules = Rules {
        oldest: Some(SignedDuration::from_secs(1_000)),
        ..rules
    };
    let choice = choose(&all, &history, &used(&[]), &used(&[]), &rules, at(1_500));
    let old = outdated(&choice, &history, &rules, SignedDuration::from_secs(1_001), at(1_500));
    assert_eq!(old, ["sha256:c"]);
}

proptest! {
    /// Whatever is used, pinned or young is never chosen, everything else is, once, and the order is that of use.
    #[test]
    fn choices_are_sound(
        images in proptest::collection::vec((any::<bool>(), any::<bool>(), 0i64..4, proptest::option::of(0i64..4)), 0..20),
        youngest in 0i64..400,
    ) {
        let all: Vec<ImageInfo> = images.iter().enumerate().map(|(index, (pinned, ..))| ImageInfo {
            pinned: *pinned,
            ..image(&index.to_string())
        }).collect();
        let mut history = History::default();
        for round in 0..4 {
            let there: Vec<ImageInfo> = all.iter().zip(&images).filter(|(_, of)| of.2 <= round).map(|(image, _)| image.clone()).collect();
            let busy: BTreeSet<String> = all.iter().zip(&images).filter(|(_, of)| of.3 == Some(round)).map(|(image, _)| image.id.clone()).collect();
            history.note(&there, &Used(busy), at(round * 100));
        }
        let busy: BTreeSet<String> = all.iter().zip(&images).filter(|(_, of)| of.1).map(|(image, _)| image.id.clone()).collect();
        let choice = choose(&all, &history, &Used(busy.clone()), &Used::default(), &rules(youngest), at(400));
        let first = |of: &(bool, bool, i64, Option<i64>)| if of.2 == 0 { None } else { Some(of.2 * 100) };
        for (image, of) in all.iter().zip(&images) {
            let is_young = first(of).is_some_and(|first| 400 - first < youngest);
            let may_go = !of.0 && !of.1 && !is_young;
            prop_assert_eq!(choice.images.iter().filter(|id| **id == image.id).count(), usize::from(may_go), "{}", image.id);
        }
        prop_assert_eq!(choice.images.len() + choice.stay.used + choice.stay.pinned + choice.stay.young, all.len());
        let uses: Vec<_> = choice.images.iter().map(|id| history.images[id].used).collect();
        prop_assert!(uses.is_sorted(), "{:?}", uses);
    }
}
