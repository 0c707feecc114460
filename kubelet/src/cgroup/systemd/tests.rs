//! What systemd is told, and how its answers are taken.

use super::testing::FakeSystemd;
use super::*;
use std::io::{Read, Write};

#[test]
fn properties_by_hierarchy() {
    let values = Values {
        cpu_shares: Some(1024),
        cpu_quota: Some((50_000, 100_000)),
        memory: Some(64 << 20),
        memory_min: Some(0),
        memory_low: Some(4096),
        pids: Some(100),
        hugepages: [("2MB".to_owned(), 0)].into(),
    };
    let number = Value::Number;
    assert_eq!(
        properties(&values, true),
        [
            ("CPUWeight", number(39)),
            ("CPUQuotaPerSecUSec", number(500_000)),
            ("CPUQuotaPeriodUSec", number(100_000)),
            ("MemoryMax", number(64 << 20)),
            ("MemoryMin", number(0)),
            ("MemoryLow", number(4096)),
            ("TasksMax", number(100)),
        ]
    );
    let old: Vec<&str> = properties(&values, false).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        old,
        [
            "CPUShares",
            "CPUQuotaPerSecUSec",
            "CPUQuotaPeriodUSec",
            "MemoryLimit",
            "TasksMax"
        ]
    );
    let lifted = Values {
        memory: Some(-1),
        cpu_quota: Some((-1, 100_000)),
        ..Values::default()
    };
    assert_eq!(
        properties(&lifted, true),
        [
            ("CPUQuotaPerSecUSec", number(u64::MAX)),
            ("CPUQuotaPeriodUSec", number(100_000)),
            ("MemoryMax", number(u64::MAX)),
        ]
    );
}

#[test]
fn a_quota_is_rounded_up_to_a_percentage() {
    for (quota, period, expected) in [
        (50_000, 100_000, 500_000),
        (33_300, 100_000, 340_000),
        (1000, 100_000, 10_000),
        (1000, 1_000_000, 10_000),
        (-1, 100_000, -1),
    ] {
        assert_eq!(quota_per_second(quota, period), expected, "{quota}/{period}");
    }
}

#[test]
fn a_unit_that_is_there_is_updated_and_one_that_is_gone_is_stopped() {
    let fake = FakeSystemd::start();
    let systemd = Systemd::find(fake.socket()).expect("there");
    for _ in 0..2 {
        systemd.ensure("a.slice", &Values::default(), true).expect("ensure");
        systemd.stop("b.slice").expect("stop");
    }
    assert_eq!(
        fake.take_calls(),
        [
            "StartTransientUnit a.slice",
            "StopUnit b.slice",
            "StartTransientUnit a.slice",
            "SetUnitProperties a.slice",
            "StopUnit b.slice"
        ]
    );
}

#[test]
fn a_job_that_fails_is_an_error_with_its_result() {
    let fake = FakeSystemd::ending_jobs_as("failed");
    let systemd = Systemd::find(fake.socket()).expect("there");
    let error = systemd.ensure("a.slice", &Values::default(), true).expect_err("failed");
    assert_eq!(error.to_string(), r#"StartTransientUnit a.slice ended as "failed""#);
}

#[test]
fn who_is_not_let_in_is_told_and_a_closed_connection_is_an_error() {
    for (answer, expected) in [
        (
            &b"REJECTED EXTERNAL\r\n"[..],
            "systemd refuses authentication: \"REJECTED EXTERNAL\"",
        ),
        (&b"OK 12"[..], "authenticate with systemd"),
    ] {
        let directory = tempfile::tempdir().expect("temp dir");
        let socket = directory.path().join("private");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("listen");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            // The greeting is read first: a socket closed over unread bytes fails the client's writing instead.
            let mut greeting = [0; 256];
            assert!(stream.read(&mut greeting).expect("read") > 0);
            stream.write_all(answer).expect("write");
        });
        let systemd = Systemd::find(&socket).expect("there");
        let error = systemd
            .ensure("a.slice", &Values::default(), true)
            .expect_err("refused");
        assert_eq!(error.to_string(), expected);
        server.join().expect("server");
    }
}
