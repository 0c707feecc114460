use super::*;

fn cpus(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("a list")
}

fn given(pod: &str, containers: &[(&str, &str)]) -> BTreeMap<String, BTreeMap<String, CpuSet>> {
    let own = containers.iter().map(|(name, list)| ((*name).to_owned(), cpus(list)));
    [(pod.to_owned(), own.collect())].into()
}

/// The sums are those of upstream's own tests, and of every node there is that never chose a policy.
#[test]
fn files_are_upstreams_to_the_byte() {
    let held = Assignments {
        shared: cpus("1-3"),
        exclusive: given("pod", &[("container1", "4-6"), ("container2", "1-3")]),
    };
    let shared = Assignments {
        shared: cpus("4-6"),
        ..Assignments::default()
    };
    for (held, text) in [
        (
            Assignments::default(),
            r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#,
        ),
        (
            shared,
            r#"{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}"#,
        ),
        (
            held,
            r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#,
        ),
    ] {
        assert_eq!(String::from_utf8(write("none", &held)).expect("text"), text);
        assert_eq!(read(text.as_bytes(), "none").expect("sound"), held);
    }
}

#[test]
fn what_is_of_no_use_is_told_in_upstreams_words() {
    let v1 = r#"{"policyName":"static","defaultCPUSet":"7-9","entries":{"containerID1":"4-6","containerID2":"1-3"},"checksum":2026311253}"#;
    for (text, why) in [
        (
            r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#,
            "configured policy \"static\" differs from state checkpoint policy \"none\"",
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"0-9","checksum":1353318690}"#,
            "checkpoint is corrupted",
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"1.3"}"#,
            "could not parse default cpu set \"1.3\": strconv.Atoi: parsing \"1.3\": invalid syntax",
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"1","entries":{"pod":{"c":"asd"}}}"#,
            "could not parse cpuset \"asd\" for container \"c\" in pod \"pod\": strconv.Atoi: parsing \"asd\": invalid syntax",
        ),
        (
            v1,
            "failed to migrate checkpoint from v1 to v2: containerID 'containerID1' not found in initial containers list",
        ),
        (&v1.replace("4-6", "4-5"), "checkpoint is corrupted"),
        ("", "EOF while parsing a value at line 1 column 0"),
    ] {
        assert_eq!(
            read(text.as_bytes(), "static").expect_err(text).to_string(),
            why,
            "{text}"
        );
    }
}

#[test]
fn files_without_a_sum_and_of_the_older_form_are_read() {
    let plain = read(br#"{"policyName":"static","defaultCpuSet":"0-3"}"#, "static");
    assert_eq!(plain.expect("sound").shared, cpus("0-3"));
    let v1 = br#"{"policyName":"none","defaultCPUSet":"1-3","checksum":1694838852}"#;
    assert_eq!(read(v1, "none").expect("sound").shared, cpus("1-3"));
}
