//! Which capability was missing when the kernel refused something: a container runtime in a container often has not all of
//! them, and "operation not permitted" alone tells nobody which.

use caps::{CapSet, Capability, CapsHashSet};

use super::error::Error;

/// What the plugins need: CAP_NET_ADMIN for links, addresses, routes and rules, CAP_SYS_ADMIN to enter a network namespace,
/// CAP_NET_RAW for the programs of iptables.
const NEEDED: [Capability; 3] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_RAW,
];

/// How the kernel's refusals read (EPERM and EACCES).
const REFUSALS: [&str; 2] = ["operation not permitted", "permission denied"];

/// Adds the missing capabilities to an error that is a refusal.
pub fn explain(error: Error) -> Error {
    if !is_refusal(&error) {
        return error;
    }
    match caps::read(None, CapSet::Effective) {
        Ok(held) => with_missing(error, &held),
        Err(_) => error,
    }
}

fn is_refusal(error: &Error) -> bool {
    REFUSALS.iter().any(|text| error.msg.contains(text))
}

fn with_missing(error: Error, held: &CapsHashSet) -> Error {
    let missing = NEEDED.iter().filter(|capability| !held.contains(capability));
    let missing: Vec<String> = missing.map(Capability::to_string).collect();
    if missing.is_empty() || !error.details.is_empty() {
        return error;
    }
    error.with_details(format!("missing capabilities: {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_what_is_missing() {
        let refused = || Error::internal("failed to make veth pair: operation not permitted");
        let all = CapsHashSet::from(NEEDED);
        assert_eq!(with_missing(refused(), &all), refused());
        let some = CapsHashSet::from([Capability::CAP_NET_RAW]);
        let explained = with_missing(refused(), &some);
        assert_eq!(explained.details, "missing capabilities: CAP_NET_ADMIN, CAP_SYS_ADMIN");
        assert!(is_refusal(&refused()) && !is_refusal(&Error::internal("file exists")));
    }
}
