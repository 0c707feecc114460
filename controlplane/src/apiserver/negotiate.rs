//! Which form a reply takes and in which form a body came, from `Accept` and `Content-Type` (control-plane contract §1). Pure.

use super::request::Query;
use super::status::ApiError;
use crate::schema::Media;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

/// How a reply is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// [`PROTOBUF`].
    Protobuf,
}

/// The media type of the protobuf form.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What a reply shows of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The objects themselves.
    Whole,
    /// A `Table` of `meta.k8s.io` in the given version.
    Table(&'static str),
    /// `PartialObjectMetadata` in the given version.
    Partial(&'static str),
    /// `PartialObjectMetadataList` in the given version.
    PartialList(&'static str),
}

/// The negotiated form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

impl Output {
    /// Plain compact JSON.
    pub(crate) const JSON: Self = Self {
        encoding: Encoding::Json,
        shape: Shape::Whole,
        pretty: false,
    };

    /// The best form that `Accept` allows of objects that have every form.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Self, ApiError> {
        Self::negotiate_of(headers, query, true)
    }

    /// The form of a Status where nothing else is known: never another shape, and JSON if need be.
    pub(crate) fn of_status(headers: &HeaderMap, query: &Query) -> Self {
        let pretty = wants_pretty(headers, query);
        let clauses = clauses(headers);
        let whole = clauses.iter().filter(|clause| clause.parameter("as").is_none());
        let encoding = whole.filter_map(Clause::encoding).next();
        Self {
            encoding: encoding.unwrap_or(Encoding::Json),
            pretty,
            ..Self::JSON
        }
    }

    /// The best form that `Accept` allows. Objects of custom resources have no protobuf form (`has_protobuf`), but their
    /// metadata has; tables are JSON or YAML.
    pub(crate) fn negotiate_of(headers: &HeaderMap, query: &Query, has_protobuf: bool) -> Result<Self, ApiError> {
        let clauses = clauses(headers);
        let pretty = wants_pretty(headers, query);
        if clauses.is_empty() {
            return Ok(Self { pretty, ..Self::JSON });
        }
        for clause in &clauses {
            let (Some(encoding), Some(shape)) = (clause.encoding(), clause.shape()) else {
                continue;
            };
            match (encoding, shape) {
                (Encoding::Protobuf, Shape::Table(_)) => continue,
                (Encoding::Protobuf, Shape::Whole) if !has_protobuf => continue,
                _ => {}
            }
            let pretty = pretty || clause.parameter("pretty") == Some("1");
            return Ok(Self {
                encoding,
                shape,
                pretty,
            });
        }
        Err(not_acceptable())
    }

    /// In which encoding `Accept` prefers aggregated discovery before any plain form, if it does.
    pub(crate) fn aggregated_discovery(headers: &HeaderMap) -> Option<Encoding> {
        for clause in clauses(headers) {
            let encoding = match clause.encoding() {
                Some(encoding @ (Encoding::Json | Encoding::Protobuf)) => encoding,
                _ => continue,
            };
            match clause.parameter("as") {
                Some("APIGroupDiscoveryList")
                    if clause.parameter("g") == Some("apidiscovery.k8s.io") && clause.parameter("v") == Some("v2") =>
                {
                    return Some(encoding);
                }
                Some(_) => {}
                None => return None,
            }
        }
        None
    }
}

/// 406, naming what is served.
pub(crate) fn not_acceptable() -> ApiError {
    ApiError::new(
        406,
        "NotAcceptable",
        format!("only the following media types are accepted: application/json, application/yaml, {PROTOBUF}"),
    )
}

struct Clause {
    media: String,
    parameters: Vec<(String, String)>,
    quality: u16,
}

impl Clause {
    fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().filter(|(own, _)| own == name);
        found.next().map(|(_, value)| value.as_str())
    }

    fn encoding(&self) -> Option<Encoding> {
        match self.media.as_str() {
            "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            PROTOBUF => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        // There is one form of streams, for watches.
        if !matches!(self.parameter("stream"), None | Some("" | "watch")) {
            return None;
        }
        let Some(target) = self.parameter("as") else {
            let names_no_kind = ["g", "v"].iter().all(|name| self.parameter(name).is_none());
            return names_no_kind.then_some(Shape::Whole);
        };
        if self.parameter("g") != Some("meta.k8s.io") {
            return None;
        }
        let version = match self.parameter("v") {
            Some("v1") => "v1",
            Some("v1beta1") => "v1beta1",
            _ => return None,
        };
        match target {
            "Table" => Some(Shape::Table(version)),
            "PartialObjectMetadata" => Some(Shape::Partial(version)),
            "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
            _ => None,
        }
    }
}

/// The media types a client accepts, the best first.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<String> {
    clauses(headers).into_iter().map(|clause| clause.media).collect()
}

fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut found: Vec<Clause> = texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(clause)
        .collect();
    // What is named goes before what is only allowed, at the same quality.
    found.sort_by_key(|clause| {
        let is_any = clause.media == "*/*";
        (std::cmp::Reverse(clause.quality), is_any, clause.media.ends_with("/*"))
    });
    found
}

fn clause(text: &str) -> Clause {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().unwrap_or("").to_ascii_lowercase();
    let mut quality = 1000;
    let mut parameters = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"');
        if key.trim() == "q" {
            // Thousandths, as the grammar has at most three digits.
            quality = value
                .parse::<f32>()
                .map_or(1000, |q| (q.clamp(0.0, 1.0) * 1000.0) as u16);
        } else {
            parameters.push((key.trim().to_ascii_lowercase(), value.to_owned()));
        }
    }
    Clause {
        media,
        parameters,
        quality,
    }
}

fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if query.get("pretty").is_some() {
        return query.flag("pretty");
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| ["curl", "Wget", "Mozilla/5.0"].iter().any(|own| agent.starts_with(own)))
}

/// The bare media type of the request body, lower-case; empty if none was named.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bare = value.unwrap_or("").split(';').next().unwrap_or("");
    bare.trim().to_ascii_lowercase()
}

/// How to read an object body.
pub(crate) fn input(headers: &HeaderMap) -> Result<Media, ApiError> {
    match content_type(headers).as_str() {
        "" | "application/json" | "*/*" => Ok(Media::Json),
        "application/yaml" => Ok(Media::Yaml),
        PROTOBUF => Ok(Media::Protobuf),
        _ => Err(unsupported_media(&["application/json", "application/yaml", PROTOBUF])),
    }
}

/// 415, naming what is accepted.
pub(crate) fn unsupported_media(accepted: &[&str]) -> ApiError {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    ApiError::new(415, "UnsupportedMediaType", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Result<Output, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        Output::negotiate(&headers, &Query::default())
    }

    #[test]
    fn accept_clauses_are_tried_in_order() {
        let json = Output::JSON;
        let yaml = Output {
            encoding: Encoding::Yaml,
            ..json
        };
        let protobuf = Output {
            encoding: Encoding::Protobuf,
            ..json
        };
        let table = |version| Output {
            shape: Shape::Table(version),
            ..json
        };
        let cases = [
            ("*/*", Some(json)),
            ("application/json", Some(json)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(protobuf)),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some(protobuf)),
            ("application/vnd.kubernetes.protobuf;q=0.9,application/json", Some(json)),
            (
                "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;v=v1;g=meta.k8s.io",
                Some(table("v1")),
            ),
            ("application/json;q=0.1, application/yaml", Some(yaml)),
            ("*/*, application/vnd.kubernetes.protobuf", Some(protobuf)),
            ("*/*, application/*;q=0.5, application/yaml", Some(yaml)),
            ("*/*, application/yaml;q=0.5", Some(json)),
            ("application/yaml;g=meta.k8s.io;v=v1, application/json", Some(json)),
            ("application/vnd.kubernetes.protobuf;stream=other, */*", Some(json)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(table("v1")),
            ),
            (
                "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
                Some(json),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Some(table("v1beta1")),
            ),
            ("text/html", None),
        ];
        for (text, expected) in cases {
            assert_eq!(accept(text).ok(), expected, "{text}");
        }
        assert_eq!(accept("text/html").unwrap_err().code, 406);
    }

    #[test]
    fn custom_resources_have_metadata_in_protobuf_alone() {
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let cases = [
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Encoding::Json, Shape::Whole)),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/yaml",
                Some((Encoding::Yaml, Shape::Whole)),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            (partial, Some((Encoding::Protobuf, Shape::Partial("v1")))),
        ];
        for (text, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, text.parse().unwrap());
            let output = Output::negotiate_of(&headers, &Query::default(), false);
            assert_eq!(
                output.ok().map(|output| (output.encoding, output.shape)),
                expected,
                "{text}"
            );
            let is_partial = text == partial;
            let status = Output::of_status(&headers, &Query::default());
            assert_eq!(status.encoding == Encoding::Json, is_partial, "{text}");
        }
    }

    #[test]
    fn aggregated_discovery_is_chosen_only_in_v2() {
        let wants = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, text.parse().unwrap());
            Output::aggregated_discovery(&headers)
        };
        let aggregated =
            |media: &str, version: &str| format!("{media};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let json = aggregated("application/json", "v2");
        let message = aggregated(PROTOBUF, "v2");
        for (accept, expected) in [
            (format!("{json},application/json"), Some(Encoding::Json)),
            (format!("{message},{json},application/json"), Some(Encoding::Protobuf)),
            (
                format!("{},application/json", aggregated("application/json", "v2beta1")),
                None,
            ),
            (format!("{PROTOBUF},{message}"), None),
            ("application/json".to_owned(), None),
        ] {
            assert_eq!(wants(&accept), expected, "{accept}");
        }
    }
}
