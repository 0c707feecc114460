use super::*;

/// Written by upstream's kubelets of 1.18, 1.20 and later.
const EMPTY: &str = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}"#;
const NO_NODE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}"#;
const NUMA: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app","ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRpYWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}"#;

#[test]
fn what_upstream_wrote_is_read() {
    for (text, entries) in [(EMPTY, 0), (NO_NODE, 1), (NUMA, 1)] {
        let state = read(text.as_bytes()).expect(text);
        assert_eq!(state.pods().iter().count(), entries);
        assert!(state.knows("nvidia.com/gpu"));
        assert_eq!(
            state.capacity().capacity["nvidia.com/gpu"],
            0,
            "its plugin is not there yet"
        );
    }
    let state = read(NUMA.as_bytes()).expect("reads");
    let (pod, container, resource, given) = state.pods().iter().next().expect("an entry");
    assert_eq!(
        (pod, container, resource),
        ("9a15d2b5-c152-46b9-96e0-d57032629e1f", "app", "nvidia.com/gpu")
    );
    assert_eq!(given.by_node.keys().copied().collect::<Vec<_>>(), [1]);
    let answer = ContainerAllocateResponse::decode(given.answer.as_deref().expect("an answer")).expect("decodes");
    assert_eq!(answer.devices.len(), 6);
    assert_eq!(answer.devices[4].host_path, "/dev/nvidia1");
}

#[test]
fn what_is_written_is_upstreams_and_reads_back() {
    let state = read(NO_NODE.as_bytes()).expect("reads");
    let text = String::from_utf8(write(&state)).expect("text");
    // The plugin is not there again, so there are no devices.
    let head = NO_NODE.split(r#""RegisteredDevices""#).next().expect("a head");
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains(r#""RegisteredDevices":{"nvidia.com/gpu":[]}"#), "{text}");
    assert_eq!(read(text.as_bytes()).expect("reads").pods(), state.pods());
    let none = String::from_utf8(write(&State::default())).expect("text");
    assert!(
        none.starts_with(r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":"#),
        "{none}"
    );
}

#[test]
fn what_no_plugin_can_have_is_not_taken_from_the_node() {
    let mut file: File = serde_json::from_str(EMPTY).expect("a file");
    let names = ["cpu", "memory", "kubernetes.io/x", "requests.example.com/x"];
    let registered = file.data.registered.get_or_insert_default();
    registered.extend(names.map(|name| (name.to_owned(), None)));
    file.checksum = file.data.sum();
    let state = read(&serde_json::to_vec(&file).expect("text")).expect("reads");
    let told: Vec<String> = state.capacity().capacity.into_keys().collect();
    assert_eq!(told, ["nvidia.com/gpu"]);
}

#[test]
fn a_damaged_file_is_told() {
    for (text, why) in [
        (NO_NODE.replace("tegra", "other"), "checkpoint is corrupted"),
        (NO_NODE.replace("3660592824", "1"), "checkpoint is corrupted"),
        (NO_NODE[..100].to_owned(), "EOF while parsing"),
        (String::new(), "EOF while parsing"),
    ] {
        let error = read(text.as_bytes()).expect_err(&text).to_string();
        assert!(error.starts_with(why), "{error}");
    }
}

#[test]
fn what_is_only_reserved_is_not_written() {
    let mut pods = ByPod::default();
    let given = Given {
        by_node: [(0, vec!["a".to_owned()])].into(),
        answer: None,
    };
    pods.insert("u", "c", "example.com/x", given);
    let state = State::restored(["example.com/x".to_owned()], pods);
    let back = read(&write(&state)).expect("reads");
    assert_eq!(back.pods().iter().count(), 0);
}
