//! Random objects that have the shape a schema gives them. Pure.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::resource::Kind;
use crate::schema::{Field, ListType, Merge, Schema, Shape, TypeId, normalize};

/// Words that mean something to some strategy, and some that mean nothing.
const WORDS: &[&str] = &[
    "",
    "a",
    "A b",
    "web",
    "Always",
    "Never",
    "None",
    "ClusterIP",
    "ExternalName",
    "NodePort",
    "RollingUpdate",
    "Recreate",
    "10.0.0.1",
    "10.1.0.0/16",
    "25%",
    "100%",
    "metadata.name",
    "kubernetes",
    "In",
    "Exists",
    "Pod",
    "v1",
    "TCP",
    "*/5 * * * *",
    "nginx:latest",
    "Indexed",
    "Localhost",
    "../x",
    "/x",
];

struct Maker<'s> {
    schema: &'s Schema,
    rng: StdRng,
}

impl Maker<'_> {
    fn object(&mut self, id: TypeId, depth: usize) -> Value {
        let mut map = Map::new();
        for field in &self.schema.get(id).fields {
            let wanted = if depth < 4 { 0.45 } else { 0.15 };
            if depth < 12 && self.rng.random_bool(wanted) {
                map.insert(field.name.to_string(), self.value(&field.shape, depth));
            }
        }
        Value::Object(map)
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.rng.random_range(0..WORDS.len())]
    }

    fn value(&mut self, shape: &Shape, depth: usize) -> Value {
        let number = [-1, 0, 1, 80, 443, 30_000, 70_000][self.rng.random_range(0..7)];
        match shape {
            Shape::String => json!(self.word()),
            Shape::Bytes => json!("aGVsbG8="),
            Shape::Time => json!("2026-01-02T03:04:05Z"),
            Shape::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
            Shape::Quantity => json!(["0", "1", "100m", "1Gi", "-1", "3u"][self.rng.random_range(0..6)]),
            Shape::IntOrString if self.rng.random_bool(0.5) => json!(self.word()),
            Shape::IntOrString | Shape::Int32 | Shape::Int64 => json!(number),
            Shape::Number => json!(0.5),
            Shape::Boolean => json!(self.rng.random_bool(0.5)),
            Shape::Any => json!({"free": [self.word()]}),
            Shape::Object(id) => self.object(*id, depth + 1),
            Shape::List(items) => {
                let length = self.rng.random_range(0..3);
                (0..length).map(|_| self.value(items, depth + 1)).collect()
            }
            Shape::Map(values) => {
                let length = self.rng.random_range(0..3);
                let pairs = (0..length).map(|_| (self.word().to_owned(), self.value(values, depth + 1)));
                Value::Object(pairs.collect())
            }
        }
    }
}

/// An object of the kind, in normal form; lists may have what no server keeps, such as two members of one key.
pub(crate) fn make(kind: &Kind, seed: u64) -> Value {
    let (schema, id) = kind.schema();
    let id = id.expect("every kind has a type");
    let mut maker = Maker {
        schema,
        rng: StdRng::seed_from_u64(seed),
    };
    let mut object = maker.object(id, 0);
    object["apiVersion"] = json!(&*kind.api_version);
    object["kind"] = json!(&*kind.kind);
    normalize(kind, &mut object).expect("made to fit");
    object
}

/// As [`make`], with a name, and of lists' members each can be told from the others by every key there is.
pub(super) fn distinct(kind: &Kind, seed: u64) -> Value {
    let mut object = make(kind, seed);
    let (schema, id) = kind.schema();
    let shape = Shape::Object(id.expect("a type"));
    tell_apart(schema, &shape, None, &mut object);
    object["metadata"]["name"] = json!("n");
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    normalize(kind, &mut object).expect("made to fit");
    object
}

/// The names of a list's members, of all who ask; none for a list that is one value, or of scalars.
fn keys(merge: &Merge) -> Vec<&str> {
    let own = merge.list_map_keys.iter().map(String::as_str);
    let of_patches = [merge.patch_merge_key.as_str()];
    let mut all: Vec<&str> = own.chain(of_patches).filter(|key| !key.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn tell_apart(schema: &Schema, shape: &Shape, merge: Option<&Merge>, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), Value::Object(map)) => {
            for (name, value) in map.iter_mut() {
                if let Some(field) = schema.get(*id).field(name) {
                    tell_apart(schema, &field.shape, field.merge.as_deref(), value);
                }
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            map.values_mut()
                .for_each(|value| tell_apart(schema, values, None, value));
        }
        (Shape::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| tell_apart(schema, items, None, item));
            let Some(merge) = merge.filter(|merge| merge.patch_merge || merge.list_type.is_some()) else {
                return;
            };
            for (nth, item) in list.iter_mut().enumerate() {
                for key in keys(merge) {
                    let shape = match &**items {
                        Shape::Object(id) => schema.get(*id).field(key).map(|field: &Field| &field.shape),
                        _ => None,
                    };
                    item[key] = match shape {
                        Some(Shape::Int32 | Shape::Int64 | Shape::IntOrString) => json!(nth + 1),
                        Some(Shape::Boolean) => json!(nth == 0),
                        _ => json!(format!("k{nth}")),
                    };
                }
            }
            let mut seen: Vec<Value> = Vec::new();
            list.retain(|item| match seen.contains(item) {
                true => false,
                false => {
                    seen.push(item.clone());
                    true
                }
            });
        }
        _ => {}
    }
}

/// The object in two parts, of which no field is in both but what says which object, and which member of a list, it is. Where a
/// field goes depends on its path and `seed` alone, so that parts of smaller objects are smaller parts.
pub(super) fn split(kind: &Kind, object: &Value, seed: u64, parts: Parts) -> [Value; 2] {
    let (schema, id) = kind.schema();
    let splitter = Splitter { schema, seed, parts };
    let shape = Shape::Object(id.expect("a type"));
    let mut parts = splitter
        .split(&shape, None, object, "")
        .map(|part| part.unwrap_or_else(|| json!({})));
    for part in &mut parts {
        for name in ["apiVersion", "kind"] {
            part[name] = object[name].clone();
        }
        part["metadata"]["name"] = object["metadata"]["name"].clone();
        if let Some(namespace) = object["metadata"].get("namespace") {
            part["metadata"]["namespace"] = namespace.clone();
        }
    }
    parts
}

/// Which lists have members of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    /// Those of server-side apply.
    Owned,
    /// Those that strategic merge patch merges.
    Merged,
}

struct Splitter<'s> {
    schema: &'s Schema,
    seed: u64,
    parts: Parts,
}

impl Splitter<'_> {
    /// A number below `bound`, by the path.
    fn draw(&self, path: &str, bound: u32) -> usize {
        let text = format!("{}{path}", self.seed);
        (crc32fast::hash(text.as_bytes()) % bound) as usize
    }

    fn whole(&self, value: &Value, path: &str) -> [Option<Value>; 2] {
        let mut parts = [None, None];
        parts[self.draw(path, 2)] = Some(value.clone());
        parts
    }

    fn split(&self, shape: &Shape, merge: Option<&Merge>, value: &Value, path: &str) -> [Option<Value>; 2] {
        let is_one = |id: Option<TypeId>| {
            merge.is_some_and(|merge| merge.atomic_map || merge.patch_replace || merge.retain_keys)
                || id.is_some_and(|id| self.schema.get(id).atomic)
        };
        match (shape, value) {
            (_, value) if super::is_empty(value) => self.whole(value, path),
            (Shape::Object(id), Value::Object(map)) if !is_one(Some(*id)) => self.members(map, path, |name| {
                let field = self.schema.get(*id).field(name);
                field.map_or((&Shape::Any, None), |field| (&field.shape, field.merge.as_deref()))
            }),
            (Shape::Map(values), Value::Object(map)) if !is_one(None) => self.members(map, path, |_| (values, None)),
            (Shape::Any, Value::Object(map)) => self.members(map, path, |_| (&Shape::Any, None)),
            (Shape::List(items), Value::Array(list)) => {
                let merge = merge.filter(|merge| match self.parts {
                    Parts::Owned => matches!(merge.list_type, Some(ListType::Map | ListType::Set)),
                    Parts::Merged => merge.patch_merge,
                });
                merge.map_or_else(
                    || self.whole(value, path),
                    |merge| self.list(list, items, &keys(merge), path),
                )
            }
            _ => self.whole(value, path),
        }
    }

    fn members<'t>(
        &self,
        map: &Map<String, Value>,
        path: &str,
        typed: impl Fn(&str) -> (&'t Shape, Option<&'t Merge>),
    ) -> [Option<Value>; 2] {
        let mut parts = [Map::new(), Map::new()];
        for (name, value) in map {
            let (shape, merge) = typed(name);
            let found = self.split(shape, merge, value, &format!("{path}/{name}"));
            for (part, value) in parts.iter_mut().zip(found) {
                part.extend(value.map(|value| (name.clone(), value)));
            }
        }
        parts.map(|part| (!part.is_empty()).then_some(Value::Object(part)))
    }

    /// Members of objects go to one part, or to both with the fields they are known by.
    fn list(&self, list: &[Value], items: &Shape, keys: &[&str], path: &str) -> [Option<Value>; 2] {
        let mut parts = [Vec::new(), Vec::new()];
        for item in list {
            let known_by: Map<String, Value> = keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())))
                .collect();
            let path = match keys.is_empty() {
                true => format!("{path}/{item}"),
                false => format!("{path}/{}", json!(known_by)),
            };
            let which = self.draw(&path, 3);
            if which < 2 || keys.is_empty() {
                parts[which % 2].push(item.clone());
                continue;
            }
            for (part, found) in parts.iter_mut().zip(self.split(items, None, item, &path)) {
                if let Some(mut found) = found {
                    found
                        .as_object_mut()
                        .expect("objects have keys")
                        .extend(known_by.clone());
                    part.push(found);
                }
            }
        }
        parts.map(|part| (!part.is_empty()).then_some(Value::Array(part)))
    }
}
