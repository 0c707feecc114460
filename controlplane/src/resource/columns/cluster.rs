//! Rows of kinds that rule the cluster: RBAC bindings, leases, certificates, classes, webhooks, flow control, devices. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::core::webhooks;
use super::format::{age, count, human_duration, name, or};
use super::{AGE, Column, NAME, Printer, column, integer, wide};
use crate::resource::field::{at, entries, flag, int, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "Lease" => LEASE,
        "CertificateSigningRequest" => CSR,
        "PriorityClass" => PRIORITY_CLASS,
        "RuntimeClass" => RUNTIME_CLASS,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "FlowSchema" => FLOW_SCHEMA,
        "PriorityLevelConfiguration" => PRIORITY_LEVEL,
        "DeviceClass" | "ResourceClaimTemplate" => AGED,
        "ResourceClaim" => CLAIM,
        "ResourceSlice" => SLICE,
        "ValidatingAdmissionPolicy" => VALIDATING_POLICY,
        "MutatingAdmissionPolicy" => MUTATING_POLICY,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => POLICY_BINDING,
        _ => return None,
    })
}

const AGED: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |object, now| vec![name(object), age(object, now)],
};

const BINDING: Printer = Printer {
    columns: &[
        NAME,
        column("Role"),
        AGE,
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ],
    cells: |binding, now| {
        let subjects = |kind: &str| {
            let names: Vec<String> = list(binding, &["subjects"])
                .iter()
                .filter(|subject| text(subject, &["kind"]) == kind)
                .map(|subject| match kind {
                    "ServiceAccount" => format!("{}/{}", text(subject, &["namespace"]), text(subject, &["name"])),
                    _ => text(subject, &["name"]).to_owned(),
                })
                .collect();
            Value::from(names.join(", "))
        };
        let role = at(binding, &["roleRef"]);
        vec![
            name(binding),
            Value::from(format!("{}/{}", text(role, &["kind"]), text(role, &["name"]))),
            age(binding, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

const LEASE: Printer = Printer {
    columns: &[NAME, column("Holder"), AGE],
    cells: |lease, now| {
        vec![
            name(lease),
            Value::from(text(lease, &["spec", "holderIdentity"])),
            age(lease, now),
        ]
    },
};

const CSR: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        column("SignerName"),
        column("Requestor"),
        column("RequestedDuration"),
        column("Condition"),
    ],
    cells: |csr, now| {
        let duration = int(csr, &["spec", "expirationSeconds"]).map_or("<none>".to_owned(), human_duration);
        vec![
            name(csr),
            age(csr, now),
            or(text(csr, &["spec", "signerName"]), "<none>"),
            Value::from(text(csr, &["spec", "username"])),
            Value::from(duration),
            Value::from(csr_condition(csr)),
        ]
    },
};

fn csr_condition(csr: &Value) -> String {
    let has = |kind: &str| {
        list(csr, &["status", "conditions"])
            .iter()
            .any(|condition| text(condition, &["type"]) == kind)
    };
    let mut words = Vec::new();
    for kind in ["Approved", "Denied"] {
        if has(kind) {
            words.push(kind);
        }
    }
    if words.is_empty() {
        words.push("Pending");
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !text(csr, &["status", "certificate"]).is_empty() {
        words.push("Issued");
    }
    words.join(",")
}

const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        integer("Value"),
        Column {
            kind: "boolean",
            ..column("Global-Default")
        },
        AGE,
        column("PreemptionPolicy"),
    ],
    cells: |class, now| {
        vec![
            name(class),
            count(class, &["value"]),
            Value::from(flag(class, &["globalDefault"])),
            age(class, now),
            Value::from(text(class, &["preemptionPolicy"])),
        ]
    },
};

const RUNTIME_CLASS: Printer = Printer {
    columns: &[NAME, column("Handler"), AGE],
    cells: |class, now| vec![name(class), Value::from(text(class, &["handler"])), age(class, now)],
};

const WEBHOOKS: Printer = Printer {
    columns: &[NAME, integer("Webhooks"), AGE],
    cells: |object, now| vec![name(object), webhooks(object), age(object, now)],
};

const VALIDATING_POLICY: Printer = Printer {
    columns: &[NAME, integer("Validations"), column("ParamKind"), AGE],
    cells: |policy, now| policy_cells(policy, "validations", now),
};

const MUTATING_POLICY: Printer = Printer {
    columns: &[NAME, integer("Mutations"), column("ParamKind"), AGE],
    cells: |policy, now| policy_cells(policy, "mutations", now),
};

fn policy_cells(policy: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = at(policy, &["spec", "paramKind"]);
    let kind = match kind.is_null() {
        true => "<unset>".to_owned(),
        false => format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    };
    vec![
        name(policy),
        Value::from(list(policy, &["spec", rules]).len()),
        Value::from(kind),
        age(policy, now),
    ]
}

const POLICY_BINDING: Printer = Printer {
    columns: &[NAME, column("PolicyName"), column("ParamRef"), AGE],
    cells: |binding, now| {
        vec![
            name(binding),
            Value::from(text(binding, &["spec", "policyName"])),
            Value::from(param_ref(at(binding, &["spec", "paramRef"]))),
            age(binding, now),
        ]
    },
};

/// Which parameters a binding names; of a selector, as Go prints it.
fn param_ref(param: &Value) -> String {
    let selector = at(param, &["selector"]);
    match (text(param, &["namespace"]), text(param, &["name"])) {
        (_, "") if selector.is_null() => "<unset>".to_owned(),
        (_, "") => {
            let labels: String = entries(selector, &["matchLabels"])
                .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or("")))
                .collect();
            let terms: String = list(selector, &["matchExpressions"]).iter().map(requirement).collect();
            format!(
                "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
            )
        }
        // Nothing here says whether the parameters are of a namespace.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

fn requirement(term: &Value) -> String {
    let values: Vec<&str> = list(term, &["values"]).iter().filter_map(Value::as_str).collect();
    format!(
        "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
        text(term, &["key"]),
        text(term, &["operator"]),
        values.join(" ")
    )
}

const FLOW_SCHEMA: Printer = Printer {
    columns: &[
        NAME,
        column("PriorityLevel"),
        integer("MatchingPrecedence"),
        column("DistinguisherMethod"),
        AGE,
        column("MissingPL"),
    ],
    cells: |schema, now| {
        let dangling = list(schema, &["status", "conditions"])
            .iter()
            .find(|condition| text(condition, &["type"]) == "Dangling")
            .map_or("?", |condition| text(condition, &["status"]));
        vec![
            name(schema),
            Value::from(text(schema, &["spec", "priorityLevelConfiguration", "name"])),
            count(schema, &["spec", "matchingPrecedence"]),
            or(text(schema, &["spec", "distinguisherMethod", "type"]), "<none>"),
            age(schema, now),
            Value::from(dangling),
        ]
    },
};

const PRIORITY_LEVEL: Printer = Printer {
    columns: &[
        NAME,
        column("Type"),
        column("NominalConcurrencyShares"),
        column("Queues"),
        column("HandSize"),
        column("QueueLengthLimit"),
        AGE,
    ],
    cells: |level, now| {
        let limited = at(level, &["spec", "limited"]);
        let number = |path: &[&str]| int(limited, path).map_or("<none>".to_owned(), |number| number.to_string());
        let queuing = |key: &str| Value::from(number(&["limitResponse", "queuing", key]));
        vec![
            name(level),
            Value::from(text(level, &["spec", "type"])),
            Value::from(number(&["nominalConcurrencyShares"])),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            age(level, now),
        ]
    },
};

const CLAIM: Printer = Printer {
    columns: &[NAME, column("State"), AGE],
    cells: |claim, now| {
        let mut states = Vec::new();
        if !at(claim, &["metadata", "deletionTimestamp"]).is_null() {
            states.push("deleted");
        }
        if at(claim, &["status", "allocation"]).is_null() {
            states.push("pending");
        } else {
            states.push("allocated");
            if !list(claim, &["status", "reservedFor"]).is_empty() {
                states.push("reserved");
            }
        }
        vec![name(claim), Value::from(states.join(",")), age(claim, now)]
    },
};

const SLICE: Printer = Printer {
    columns: &[NAME, column("Node"), column("Driver"), column("Pool"), AGE],
    cells: |slice, now| {
        vec![
            name(slice),
            Value::from(text(slice, &["spec", "nodeName"])),
            Value::from(text(slice, &["spec", "driver"])),
            Value::from(text(slice, &["spec", "pool", "name"])),
            age(slice, now),
        ]
    },
};
