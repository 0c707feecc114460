use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use proptest::prelude::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn text_selectors_match() {
    let web = labels(&[("app", "web"), ("tier", "5")]);
    let table = [
        ("", true),
        ("app", true),
        ("!app", false),
        ("! app", false),
        ("!db", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app!=web", false),
        ("db!=web", true),
        ("app in (web,db)", true),
        ("app in ( db )", false),
        ("app notin (web)", false),
        ("db notin (web)", true),
        ("app in (,web)", true),
        ("tier>4", true),
        ("tier<5", false),
        ("app>4", false),
        ("missing>4", false),
        ("app=web,tier", true),
        ("app=web,!tier", false),
        ("app=", false),
        ("example.com/x=", false),
    ];
    for (text, want) in table {
        assert_eq!(Selector::parse(text).unwrap().matches(&web), want, "{text}");
    }
}

#[test]
fn text_selectors_refused() {
    let table = [
        ("app in", "found '' expected: '('"),
        ("app in ()x", "found 'x', expected: ',' or 'end of string'"),
        ("app,,db", "found ',', expected: identifier after ','"),
        ("app,", "found '', expected: identifier after ','"),
        ("=web", "found '=', expected: !, identifier, or 'end of string'"),
        ("app web", "found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        ("app=web tier", "found 'tier', expected: ',' or 'end of string'"),
    ];
    for (text, want) in table {
        assert_eq!(Selector::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    for text in ["-a", "a/b/c", "app=-x", "tier>x", "a in (_)"] {
        let error = Selector::parse(text).unwrap_err();
        assert!(matches!(error, SelectorError::Requirement(_)), "{text}: {error}");
    }
}

#[test]
fn api_selectors() {
    let expression = |operator: &str, values: &[&str]| LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "app".into(),
            operator: operator.into(),
            values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
        }]),
    };
    let web = labels(&[("app", "web")]);
    assert!(Selector::from_api(&LabelSelector::default()).unwrap().matches(&web));
    assert!(!Selector::from_optional(None).unwrap().matches(&web));
    assert!(Selector::from_api(&expression("In", &["web"])).unwrap().matches(&web));
    assert!(Selector::from_api(&expression("Exists", &[])).unwrap().matches(&web));
    assert!(Selector::from_api(&expression("In", &[])).is_err());
    assert!(Selector::from_api(&expression("Exists", &["x"])).is_err());
    let error = Selector::from_api(&expression("Gt", &["1"])).unwrap_err();
    assert_eq!(error.to_string(), "\"Gt\" is not a valid label selector operator");
}

#[test]
fn field_selectors() {
    let parsed = FieldSelector::parse("spec.nodeName=n1,status.phase!=Failed,metadata.name==a\\,b").unwrap();
    assert_eq!(parsed.required("spec.nodeName"), Some("n1"));
    assert_eq!(parsed.required("metadata.name"), Some("a,b"));
    assert_eq!(parsed.required("status.phase"), None);
    let value = |phase: &'static str| {
        move |field: &str| match field {
            "spec.nodeName" => "n1",
            "metadata.name" => "a,b",
            _ => phase,
        }
    };
    assert!(parsed.matches(value("Running")));
    assert!(!parsed.matches(value("Failed")));
    assert!(FieldSelector::parse("spec.nodeName").is_err());
    assert!(FieldSelector::parse("").unwrap().requirements.is_empty());
}

proptest! {
    #[test]
    fn display_then_parse_is_the_same_selector(
        key in "[a-z]{1,5}",
        values in prop::collection::btree_set("[a-z0-9]{1,4}", 1..4),
        number in 0i64..100,
        which in 0..6,
    ) {
        let (operator, values) = match which {
            0 => (Operator::In, values),
            1 => (Operator::NotIn, values),
            2 => (Operator::Exists, BTreeSet::new()),
            3 => (Operator::DoesNotExist, BTreeSet::new()),
            4 => (Operator::GreaterThan, BTreeSet::from([number.to_string()])),
            _ => (Operator::LessThan, BTreeSet::from([number.to_string()])),
        };
        let one = Selector { requirements: vec![Requirement::new(&key, operator, values).unwrap()], nothing: false };
        prop_assert_eq!(Selector::parse(&one.to_string()).unwrap(), one);
    }

    #[test]
    fn no_text_panics(text in ".{0,40}") {
        let _ = Selector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
