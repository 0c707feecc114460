use super::*;
use crate::pod::spec::testing::pod;

const SPEC: &str = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m","memory":"1Gi"}}},{"name":"d"}],
    "initContainers":[{"name":"i","resources":{"limits":{"cpu":"1"}}}]}"#;

#[test]
fn what_was_given_takes_the_place_of_what_is_wanted() {
    let given = PodResources::of(&pod(SPEC));
    let wanted = Arc::new(pod(&SPEC.replace("100m", "200m")));
    assert!(!given.agrees(&wanted));
    let runs = given.applied_to(&wanted);
    assert!(given.agrees(&runs));
    assert_eq!(PodResources::of(&runs), given);
    let same = Arc::new(pod(&SPEC.replace("100m", "0.1")));
    assert!(Arc::ptr_eq(&same, &given.applied_to(&same)), "as much in other words");
}

#[test]
fn a_pod_has_resources_of_its_own() {
    let with = |cpu: &str| {
        pod(&format!(
            r#"{{"resources":{{"requests":{{"cpu":"{cpu}"}}}},"containers":[{{"name":"c"}}]}}"#
        ))
    };
    let given = PodResources::of(&with("1"));
    assert!(given.agrees(&with("1")));
    assert!(!given.agrees(&with("2")));
    assert!(given.agrees(&given.applied_to(&Arc::new(with("2")))));
}

#[test]
fn containers_that_came_later_keep_their_own() {
    let mut given = PodResources::of(&pod(SPEC));
    given.containers.retain(|name| name != "c");
    assert!(given.agrees(&pod(SPEC)));
}
