use super::*;
use crate::answer::tests::question;

fn query(name: &str, kind: u16) -> Query {
    Query::read(&question(name, kind, None)).unwrap()
}

fn path() -> SearchPath {
    SearchPath {
        domains: [
            "shop.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "Example.org",
        ]
        .map(str::to_owned)
        .to_vec(),
        ndots: 5,
    }
}

fn tried(name: &str) -> Option<Vec<String>> {
    let walk = Walk::of(&query(name, kind::A), &path())?;
    Some(walk.map(|name| name.to_string()).collect())
}

#[test]
fn what_is_tried_for_a_name() {
    let zone = Name::parse("cluster.local").unwrap();
    for (name, expected) in [
        (
            "db.shop.svc.cluster.local",
            Some("db.svc.cluster.local. db.cluster.local. db.Example.org. db."),
        ),
        // In the case asked for, whatever the case of the domain.
        (
            "Db.X.SHOP.svc.Cluster.local",
            Some("Db.X.svc.cluster.local. Db.X.cluster.local. Db.X.Example.org. Db.X."),
        ),
        (
            "a.b.c.d.e.shop.svc.cluster.local",
            Some("a.b.c.d.e.svc.cluster.local. a.b.c.d.e.cluster.local. a.b.c.d.e.Example.org. a.b.c.d.e."),
        ),
        // With as many dots as ndots the client asks for the name itself first.
        ("a.b.c.d.e.f.shop.svc.cluster.local", None),
        ("shop.svc.cluster.local", None),
        // Another namespace's, or further on in the path.
        ("db.other.svc.cluster.local", None),
        ("db.svc.cluster.local", None),
        ("db.example.org", None),
        ("db.workshop.svc.cluster.local", None),
    ] {
        let tried = tried(name).map(|names| names.join(" "));
        assert_eq!(tried.as_deref(), expected, "{name}");
        if expected.is_some() {
            assert!(Walk::is_likely(&query(name, kind::A), &zone), "{name}");
        }
    }
    for (name, kind) in [
        ("db.svc.cluster.local", kind::A),
        ("db.example.org", kind::A),
        ("db.shop.svc.cluster.local", kind::ANY),
    ] {
        assert!(!Walk::is_likely(&query(name, kind), &zone), "{name}");
    }
}

#[test]
fn a_path_that_is_none_is_not_walked() {
    let query = query("db.shop.svc.cluster.local", kind::A);
    // (What its first name is the kubelet vouches for.)
    for domains in [&[][..], &["a..b"], &["shop.svc.cluster.local", "a..b"], &["other"]] {
        let domains = domains.iter().map(ToString::to_string).collect();
        let walk = Walk::of(&query, &SearchPath { domains, ndots: 5 });
        assert!(walk.is_none(), "{walk:?}");
    }
    // Names nobody could ask for are passed over.
    let long = format!("{0}.{0}.{0}.shop.svc.cluster.local", "a".repeat(63));
    let domains = vec!["shop.svc.cluster.local".to_owned(), "b".repeat(63)];
    let walk = Walk::of(&self::query(&long, kind::A), &SearchPath { domains, ndots: 5 }).unwrap();
    assert_eq!(walk.count(), 1);
    let many = (0..100).map(|number| format!("d{number}")).collect::<Vec<_>>();
    let domains = [vec!["shop.svc.cluster.local".to_owned()], many].concat();
    let walk = Walk::of(&query, &SearchPath { domains, ndots: 5 }).unwrap();
    assert_eq!(walk.count(), TRIED_MAX);
}
