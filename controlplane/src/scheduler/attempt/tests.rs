use super::super::cycle::FitError;
use super::*;

fn candidate(node: &str) -> Preemption {
    Preemption {
        node: node.to_owned(),
        victims: Vec::new(),
        displaced: Vec::new(),
        violations: 0,
    }
}

#[test]
fn extenders_decide_who_goes_and_are_quoted_where_nobody_does() {
    let after = |left: Result<Vec<Preemption>, String>| {
        let error = FitError {
            nodes: 2,
            ..FitError::default()
        };
        let unplaced = Unplaced {
            error,
            candidates: Vec::new(),
            renounce: false,
        };
        let unplaced = with_candidates(unplaced, left);
        let nodes: Vec<String> = unplaced
            .candidates
            .iter()
            .map(|candidate| candidate.node.clone())
            .collect();
        (nodes, unplaced.error.message())
    };
    let (nodes, message) = after(Ok(vec![candidate("b"), candidate("a")]));
    assert_eq!(nodes, ["b", "a"]);
    assert!(!message.contains("preemption"), "{message}");
    let (nodes, message) = after(Ok(Vec::new()));
    assert_eq!(nodes, Vec::<String>::new());
    assert!(
        message.ends_with(" preemption: no candidate node for preemption"),
        "{message}"
    );
    let (nodes, message) = after(Err("extender x: broken".to_owned()));
    assert_eq!(nodes, Vec::<String>::new());
    assert!(message.ends_with(" preemption: extender x: broken"), "{message}");
}
