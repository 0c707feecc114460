use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_800_000_000;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, last])
}

fn service(name: &str, addresses: &[IpAddr], ports: &[u16]) -> Arc<Held> {
    Arc::new(Held {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        addresses: addresses.iter().copied().collect(),
        ports: ports.iter().copied().collect(),
    })
}

fn address(last: u8, parent: &str, age: i64) -> Address {
    let mut object = address_object(ip(last), "n", parent);
    let created = Timestamp::from_second(NOW - age).unwrap();
    object["metadata"]["creationTimestamp"] = json!(created.to_string());
    Address::read(&object, u64::from(last)).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn look(services: &[Arc<Held>], addresses: &[Address]) -> Plan {
    let addresses: Vec<Arc<Address>> = addresses.iter().cloned().map(Arc::new).collect();
    plan(services, &addresses, &["10.96.0.0/24".parse().unwrap()], now())
}

fn told(plan: &Plan) -> Vec<(&'static str, &str)> {
    plan.events
        .iter()
        .map(|event| (event.reason, event.regarding.name.as_deref().unwrap_or_default()))
        .collect()
}

/// What is the matter, what there is, what is done and told.
type Row = (
    &'static str,
    Vec<Arc<Held>>,
    Vec<Address>,
    Vec<Action>,
    Vec<(&'static str, &'static str)>,
);

#[test]
fn each_fault_has_its_event_and_its_repair() {
    let foreign = |last: u8| Address {
        parent: None,
        ..address(last, "a", 100)
    };
    let unmanaged = Address {
        is_managed: false,
        ..address(1, "gone", 100)
    };
    let a = || vec![service("a", &[ip(1)], &[])];
    let note = || Action::Note(ip(1), "n".to_owned(), "a".to_owned());
    let renote = || Action::Renote(ip(1), 1, "n".to_owned(), "a".to_owned());
    let table: Vec<Row> = vec![
        ("right", a(), vec![address(1, "a", 0)], vec![], vec![]),
        (
            "missing",
            a(),
            vec![],
            vec![note()],
            vec![("ClusterIPNotAllocated", "a")],
        ),
        (
            "of one who is gone",
            a(),
            vec![address(1, "gone", 0)],
            vec![renote()],
            vec![("ClusterIPNotAllocated", "a")],
        ),
        (
            "of no Service",
            a(),
            vec![foreign(1)],
            vec![renote()],
            vec![("ClusterIPNotAllocated", "a")],
        ),
        (
            "without its label",
            a(),
            vec![Address {
                is_labelled: false,
                ..address(1, "a", 0)
            }],
            vec![renote()],
            vec![],
        ),
        (
            "out of range",
            vec![service("a", &[IpAddr::from([10, 97, 0, 1])], &[])],
            vec![],
            vec![],
            vec![("ClusterIPOutOfRange", "a")],
        ),
        (
            "given twice",
            vec![service("a", &[ip(1)], &[30_001]), service("b", &[ip(1)], &[30_001])],
            vec![address(1, "a", 0)],
            vec![],
            vec![("ClusterIPAlreadyAllocated", "b"), ("PortAlreadyAllocated", "b")],
        ),
        (
            "given twice, not noted",
            vec![service("a", &[ip(1)], &[]), service("b", &[ip(1)], &[])],
            vec![],
            vec![note()],
            vec![("ClusterIPNotAllocated", "a"), ("ClusterIPAlreadyAllocated", "b")],
        ),
        (
            "leaked",
            vec![],
            vec![address(1, "gone", 61)],
            vec![Action::Remove(ip(1), 1)],
            vec![("IPAddressNotAllocated", "10.96.0.1")],
        ),
        (
            "no longer held",
            vec![service("a", &[], &[])],
            vec![address(1, "a", 0)],
            vec![Action::Remove(ip(1), 1)],
            vec![("IPAddressWrongReference", "10.96.0.1")],
        ),
        ("somebody else's", vec![], vec![unmanaged], vec![], vec![]),
    ];
    for (what, services, addresses, actions, events) in table {
        let plan = look(&services, &addresses);
        assert_eq!(plan.actions, actions, "{what}");
        assert_eq!(told(&plan), events, "{what}");
        assert_eq!(plan.again_at, None, "{what}");
    }
}

#[test]
fn a_new_address_waits_for_its_service() {
    let plan = look(&[], &[address(1, "coming", 20), address(2, "coming", 50)]);
    assert_eq!((plan.actions, plan.events), (vec![], vec![]));
    assert_eq!(plan.again_at, Timestamp::from_second(NOW + 10).ok());
}

proptest! {
    /// Whatever there is, what a look asks for leaves nothing to ask for, and each address of a Service has its IPAddress.
    #[test]
    fn a_repair_converges(
        held in proptest::collection::vec(proptest::collection::btree_set(1u8..12, 0..3), 0..6),
        notes in proptest::collection::btree_map(1u8..12, (0usize..8, any::<bool>(), any::<bool>(), 0i64..120), 0..12),
    ) {
        let names = ["a", "b", "c", "d", "e", "f", "gone", "lost"];
        let services: Vec<Arc<Held>> = held
            .iter()
            .zip(names)
            .map(|(ips, name)| service(name, &ips.iter().map(|last| ip(*last)).collect::<Vec<_>>(), &[]))
            .collect();
        let mut there: BTreeMap<IpAddr, Address> = notes
            .iter()
            .map(|(last, (parent, managed, labelled, age))| {
                let made = Address { is_managed: *managed, is_labelled: *labelled, ..address(*last, names[*parent], *age) };
                (ip(*last), made)
            })
            .collect();
        let first = look(&services, &there.values().cloned().collect::<Vec<_>>());
        for action in first.actions {
            match action {
                Action::Note(ip, _, name) => {
                    let made = Address { ip, ..address(1, &name, 0) };
                    prop_assert!(there.insert(ip, made).is_none());
                }
                Action::Renote(ip, revision, _, name) => {
                    prop_assert_eq!(there.get(&ip).map(|address| address.revision), Some(revision));
                    there.insert(ip, Address { ip, ..address(1, &name, 0) });
                }
                Action::Remove(ip, revision) => {
                    prop_assert_eq!(there.remove(&ip).map(|address| address.revision), Some(revision));
                }
            }
        }
        let second = look(&services, &there.values().cloned().collect::<Vec<_>>());
        prop_assert_eq!(second.actions, vec![]);
        for service in &services {
            for ip in &service.addresses {
                prop_assert!(there.get(ip).is_some_and(|address| address.is_managed && address.parent.is_some()));
            }
        }
    }
}
