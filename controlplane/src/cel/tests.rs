use super::*;
use proptest::prelude::*;
use serde_json::json;

fn decl() -> Arc<Decl> {
    let made = |kind, max| {
        Arc::new(Decl {
            kind,
            max,
            min_bytes: 2,
            nullable: false,
        })
    };
    let item = made(DeclKind::IntOrString, 10);
    let list = made(DeclKind::List(Arc::clone(&item), Listed::Atomic), 5);
    let fields = [
        ("a", made(DeclKind::Int, 0)),
        ("b", made(DeclKind::Text, 10)),
        ("l", list),
    ];
    let fields = fields
        .into_iter()
        .map(|(name, decl)| (Box::from(name), (Box::from(name), decl)));
    made(DeclKind::Object(fields.collect()), 0)
}

fn most_cost(text: &str) -> u64 {
    compile(text, &decl(), false, Gives::Bool).unwrap().most_cost
}

#[test]
fn estimates_are_upstreams() {
    for (text, cost) in [
        ("true", 0),
        ("self.a == 1", 2),
        ("self.a == 1 && self.a == 2", 4),
        ("has(self.a)", 1),
        ("self.b.startsWith('abc')", 3),
        ("self.b == 'abc'", 3),
        ("self.b.size() > 2", 4),
        ("self.l.all(x, true)", 2 + 5 * 3 + 1),
        ("[1, 2].size() == 2", 12),
        ("self.b.matches('abcd')", 2 + 2),
    ] {
        assert_eq!(most_cost(text), cost, "{text}");
    }
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("self.a".to_owned()),
        Just("self.b".to_owned()),
        Just("self.l".to_owned()),
        Just("1".to_owned()),
        Just("'x'".to_owned()),
        Just("[1, 2]".to_owned()),
        Just("{'k': 1}".to_owned()),
        Just("null".to_owned()),
        Just("optional.of(1)".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), "==|!=|<|>=|\\+|-|\\*|/|%|&&|\\|\\||in", inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (
                inner.clone(),
                "size|all|exists|map|filter|contains|sum|sort|trim|split|format|orValue|isSorted",
                inner.clone()
            )
                .prop_map(|(a, name, b)| format!("{a}.{name}({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.all(x, x == {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a})[{b}]")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("(dyn({a}) == {b} ? {c} : {c})")),
        ]
    })
}

proptest! {
    /// Whatever is written and judged, nothing panics and all of it ends.
    #[test]
    fn nothing_that_is_written_ends_anything(text in expression(), a in any::<i64>(), b in ".{0,5}") {
        let object = json!({"a": a, "b": b, "l": [1, "x", null, a]});
        let decl = decl();
        if let Ok(program) = compile(&format!("dyn({text}) == 1"), &decl, false, Gives::Bool) {
            let judged = Judged { new: &object, old: Some(&object), decl: &decl };
            let (_, cost) = program.evaluate(judged, &mut 1_000_000);
            prop_assert!(cost <= CALL_LIMIT + 1_000_000);
        }
    }

    #[test]
    fn no_text_panics_the_reader(text in "[a-z0-9'\"\\\\.()\\[\\]{}?:,+*/%<>=!&|` \nrbuéx-]{0,40}") {
        let _ = compile(&text, &decl(), true, Gives::Bool);
    }
}
