//! The paths of a document: one operation per verb a kind or subresource has. Pure.

use serde_json::{Map, Value, json};

use super::components::{DELETE_OPTIONS, PATCH, STATUS, gvk, reference};
use crate::resource::{Kind, Registry, Subresource};

/// Media types of replies.
const REPLIES: &[&str] = &["application/json", "application/yaml"];
/// Media types of patches this server takes.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// As [`PATCHES`], of one kind: custom resources have no strategic merge.
fn patches(kind: &Kind) -> &'static [&'static str] {
    match kind.structural {
        None => PATCHES,
        Some(_) => &PATCHES[..2],
    }
}

/// Adds every path of a kind.
pub(super) fn add(paths: &mut Map<String, Value>, kind: &Kind, registry: &Registry) {
    let base = base(kind);
    let names = Names::new(kind);
    let scoped = if kind.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{base}/{}", kind.plural)
    };
    insert(paths, &scoped, kind.namespaced, false, collection(kind, &names));
    if kind.namespaced && kind.has_verb("list") {
        let list = operation(kind, &names, "list", "ForAllNamespaces");
        insert(
            paths,
            &format!("{base}/{}", kind.plural),
            false,
            false,
            vec![("get", list)],
        );
    }
    let item = format!("{scoped}/{{name}}");
    insert(paths, &item, kind.namespaced, true, item_operations(kind, &names));
    for sub in &kind.subresources {
        let operations = sub_operations((kind, sub), &names, registry);
        insert(
            paths,
            &format!("{item}/{}", sub.name),
            kind.namespaced,
            true,
            operations,
        );
    }
}

fn base(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}

/// Names that recur in a kind's operations.
struct Names {
    tag: String,
    /// Such as `AppsV1`.
    prefix: String,
    /// `Namespaced` or nothing, then the kind.
    subject: String,
    definition: String,
}

impl Names {
    fn new(kind: &Kind) -> Self {
        let group = if kind.group.is_empty() {
            "core"
        } else {
            kind.group.split('.').next().unwrap_or(&kind.group)
        };
        let scope = if kind.namespaced { "Namespaced" } else { "" };
        Self {
            tag: format!("{group}_{}", kind.version),
            prefix: format!("{}{}", capitalized(group), capitalized(&kind.version)),
            subject: format!("{scope}{}", kind.kind),
            definition: kind.definition.to_string(),
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

type Operations = Vec<(&'static str, Value)>;

fn insert(paths: &mut Map<String, Value>, path: &str, namespaced: bool, named: bool, operations: Operations) {
    if operations.is_empty() {
        return;
    }
    let mut item: Map<String, Value> = operations
        .into_iter()
        .map(|(method, operation)| (method.to_owned(), operation))
        .collect();
    let mut parameters = Vec::new();
    if named {
        parameters.push(in_path("name", "name of the object"));
    }
    if namespaced {
        parameters.push(in_path(
            "namespace",
            "object name and auth scope, such as for teams and projects",
        ));
    }
    parameters.push(query("pretty", "string"));
    item.insert("parameters".to_owned(), Value::Array(parameters));
    paths.insert(path.to_owned(), Value::Object(item));
}

fn in_path(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description,
        "schema": {"type": "string", "uniqueItems": true}})
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

fn parameters(action: &str) -> Vec<Value> {
    let names: &[&[(&str, &str)]] = match action {
        "list" => &[LIST],
        "post" | "put" => &[WRITE],
        "patch" => &[WRITE, &[("force", "boolean")]],
        "delete" => &[DELETE],
        "deletecollection" => &[LIST, DELETE],
        _ => &[],
    };
    let mut all: Vec<Value> = names
        .iter()
        .flat_map(|names| names.iter())
        .map(|(name, kind)| query(name, kind))
        .collect();
    all.dedup();
    all
}

/// Verb in the operation's id, by action.
fn word(action: &str) -> &str {
    match action {
        "post" => "create",
        "get" => "read",
        "put" => "replace",
        "deletecollection" => "delete",
        other => other,
    }
}

fn collection(kind: &Kind, names: &Names) -> Operations {
    let mut all = Vec::new();
    for (verb, method, action) in [
        ("list", "get", "list"),
        ("create", "post", "post"),
        ("deletecollection", "delete", "deletecollection"),
    ] {
        if kind.has_verb(verb) {
            all.push((method, operation(kind, names, action, "")));
        }
    }
    all
}

fn item_operations(kind: &Kind, names: &Names) -> Operations {
    let mut all = Vec::new();
    for (verb, method, action) in [
        ("get", "get", "get"),
        ("update", "put", "put"),
        ("patch", "patch", "patch"),
        ("delete", "delete", "delete"),
    ] {
        if kind.has_verb(verb) {
            all.push((method, operation(kind, names, action, "")));
        }
    }
    all
}

fn operation(kind: &Kind, names: &Names, action: &str, suffix: &str) -> Value {
    let (reply, text) = match action {
        "list" => (format!("{}List", names.definition), "list or watch objects of kind"),
        "deletecollection" => (STATUS.to_owned(), "delete collection of"),
        "delete" if !kind.returns_object_on_delete => (STATUS.to_owned(), "delete a"),
        "delete" => (names.definition.clone(), "delete a"),
        "post" => (names.definition.clone(), "create a"),
        "get" => (names.definition.clone(), "read the specified"),
        "put" => (names.definition.clone(), "replace the specified"),
        _ => (names.definition.clone(), "partially update the specified"),
    };
    let subject = if suffix.is_empty() {
        names.subject.clone()
    } else {
        format!("{}{suffix}", kind.kind)
    };
    let collection = if action == "deletecollection" { "Collection" } else { "" };
    let body = match action {
        "post" | "put" => Some(body(&["*/*"], &names.definition)),
        "patch" => Some(body(patches(kind), PATCH)),
        "delete" | "deletecollection" => Some(body(&["*/*"], DELETE_OPTIONS)),
        _ => None,
    };
    build(Parts {
        names,
        id: format!("{}{}{collection}{subject}", word(action), names.prefix),
        description: format!("{text} {}", kind.kind),
        action,
        gvk: gvk(&kind.group, &kind.version, &kind.kind),
        body,
        reply: Some(&reply),
    })
}

fn body(types: &[&str], definition: &str) -> Value {
    let content: Map<String, Value> = types
        .iter()
        .map(|media| ((*media).to_owned(), json!({"schema": reference(definition)})))
        .collect();
    json!({"required": definition != DELETE_OPTIONS, "content": content})
}

struct Parts<'a> {
    names: &'a Names,
    id: String,
    description: String,
    action: &'a str,
    gvk: Value,
    body: Option<Value>,
    /// Definition of the reply; plain text where `None`.
    reply: Option<&'a str>,
}

fn build(parts: Parts<'_>) -> Value {
    let content = |definition: &str| {
        let types: Map<String, Value> = REPLIES
            .iter()
            .map(|media| ((*media).to_owned(), json!({"schema": reference(definition)})))
            .collect();
        Value::Object(types)
    };
    let reply = match parts.reply {
        Some(definition) => content(definition),
        None => json!({"*/*": {"schema": {"type": "string"}}}),
    };
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    let codes: &[(&str, &str)] = match parts.action {
        "post" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        "put" | "patch" => &[("200", "OK"), ("201", "Created")],
        "delete" => &[("200", "OK"), ("202", "Accepted")],
        _ => &[("200", "OK")],
    };
    for (code, text) in codes {
        responses[*code] = json!({"description": text, "content": reply});
    }
    let mut operation = json!({
        "tags": [parts.names.tag],
        "description": parts.description,
        "operationId": parts.id,
        "responses": responses,
        "x-kubernetes-action": parts.action,
        "x-kubernetes-group-version-kind": parts.gvk,
    });
    let parameters = parameters(parts.action);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = parts.body {
        operation["requestBody"] = body;
    }
    operation
}

fn sub_operations((kind, sub): (&Kind, &Subresource), names: &Names, registry: &Registry) -> Operations {
    let body_type = registry.body(&sub.group, &sub.version, &sub.kind);
    let definition = body_type.map(|body| body.definition);
    // Streams and proxies have options in the query instead of a body.
    let is_connect = definition.is_none();
    let mut all = Vec::new();
    for verb in sub.verbs {
        let (method, action) = match *verb {
            "create" => ("post", "post"),
            "update" => ("put", "put"),
            "patch" => ("patch", "patch"),
            "delete" => ("delete", "delete"),
            _ => ("get", "get"),
        };
        let id = format!(
            "{}{}{}{}",
            if is_connect { "connect" } else { word(action) },
            names.prefix,
            if is_connect { capitalized(method) } else { String::new() },
            names.subject
        );
        let body = match (&definition, action) {
            (Some(definition), "post" | "put") => Some(body(&["*/*"], definition)),
            (Some(_), "patch") => Some(body(patches(kind), PATCH)),
            _ => None,
        };
        let is_text = is_connect || sub.name == "log";
        let operation = build(Parts {
            names,
            id: format!("{id}{}", capitalized(sub.name)),
            description: format!("{} {} of the specified {}", word(action), sub.name, kind.kind),
            action: if is_connect { "connect" } else { action },
            gvk: gvk(&sub.group, &sub.version, &sub.kind),
            body,
            reply: definition.as_deref().filter(|_| !is_text),
        });
        all.push((method, operation));
    }
    all
}
