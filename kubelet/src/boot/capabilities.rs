//! Which capabilities this process holds, and what will not work without those it lacks (capabilities(7)).
//!
//! Says so once, at start, and never ends it: inside a container a kubelet may well do without some.

use caps::{CapSet, Capability, CapsHashSet};

/// What fails without each capability the kubelet uses.
const NEEDS: &[(Capability, &str)] = &[
    (
        Capability::CAP_SYS_ADMIN,
        "volumes in memory, secrets, tokens and subPath cannot be mounted",
    ),
    (
        Capability::CAP_NET_ADMIN,
        "what ended pods leave of their network is not collected",
    ),
    (
        Capability::CAP_CHOWN,
        "fsGroup and the owners of token files cannot be set",
    ),
    (
        Capability::CAP_FOWNER,
        "modes and times of files that containers own cannot be set",
    ),
    (
        Capability::CAP_DAC_OVERRIDE,
        "volumes that containers wrote as other users cannot be removed",
    ),
    (
        Capability::CAP_SYS_RESOURCE,
        "maxOpenFiles cannot be raised, oomScoreAdj cannot be lowered",
    ),
    (
        Capability::CAP_SYS_PTRACE,
        "the network use of pods of other users cannot be read",
    ),
];

/// One line on what will not work with these capabilities; none if everything will.
fn lacking(held: &CapsHashSet) -> Option<String> {
    let missing = NEEDS.iter().filter(|(capability, _)| !held.contains(capability));
    let named: Vec<String> = missing
        .map(|(capability, consequence)| format!("{capability}: {consequence}"))
        .collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// Tells what will not work.
pub(super) fn tell() {
    match caps::read(None, CapSet::Effective) {
        Ok(held) => {
            if let Some(lacking) = lacking(&held) {
                tracing::warn!(lacking, "this process lacks capabilities");
            }
        }
        Err(error) => tracing::warn!(%error, "own capabilities not read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_fails() {
        let all: CapsHashSet = NEEDS.iter().map(|(capability, _)| *capability).collect();
        assert_eq!(lacking(&all), None);
        let mut some = all.clone();
        some.remove(&Capability::CAP_CHOWN);
        assert_eq!(
            lacking(&some).as_deref(),
            Some("CAP_CHOWN: fsGroup and the owners of token files cannot be set")
        );
        let none = lacking(&CapsHashSet::new()).expect("a line");
        assert!(
            NEEDS
                .iter()
                .all(|(capability, _)| none.contains(&capability.to_string()))
        );
        assert_eq!(none.matches("; ").count(), NEEDS.len() - 1);
        assert!(!none.contains('\n'));
    }
}
