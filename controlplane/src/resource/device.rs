//! Devices: what there are of them, their classes, and claims on them. Pure.
//!
//! Owns the limits of their lists, which are small ones: a claim is judged by the scheduler against every slice. Expressions
//! are only asked to be there, and for their length: what they say is not read here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::check::{driver_name, duplicate, invalid, itself, required, supported, too_long, too_many, unique};
use super::field::{at, default_text, flag, immutable, int, list, list_mut, text};
use super::metadata::{validate_annotations, validate_labels};
use super::name::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use super::{PrepareContext, Strategy, clear_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The DeviceClass kind's strategy.
pub(super) struct DeviceClass;

/// The ResourceClaim kind's strategy.
pub(super) struct Claim;

/// The ResourceClaimTemplate kind's strategy.
pub(super) struct ClaimTemplate;

/// Requests, constraints, configurations, selectors and results: so many of each.
const ITEMS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const TOLERATIONS_MAX: usize = 16;
const CONSUMERS_MAX: usize = 256;
const EXPRESSION_BYTES: usize = 10 << 10;
const PARAMETER_BYTES: usize = 10 << 10;
const POOL_BYTES: usize = 253;
const IDENTIFIER_BYTES: usize = 32;
const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

impl Strategy for DeviceClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        check_selectors(&mut errors, list(spec, &["selectors"]), "spec.selectors");
        let configs = list(spec, &["config"]);
        for (i, config) in configs.iter().enumerate() {
            check_opaque(&mut errors, config, &format!("spec.config[{i}]"));
        }
        too_many(&mut errors, "spec.config", configs.len(), ITEMS_MAX);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for Claim {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        default_requests(object, &["spec", "devices", "requests"]);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        check_claim(&mut errors, at(object, &["spec"]), "spec");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if !subresource.is_empty() {
            return check_status(new, old);
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec"]);
        errors
    }
}

impl Strategy for ClaimTemplate {
    fn default(&self, object: &mut Value) {
        default_requests(object, &["spec", "spec", "devices", "requests"]);
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        clear_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let meta = at(object, &["spec", "metadata"]);
        validate_annotations(at(meta, &["annotations"]), "spec.metadata.annotations", &mut errors);
        validate_labels(at(meta, &["labels"]), "spec.metadata.labels", &mut errors);
        check_claim(&mut errors, at(object, &["spec", "spec"]), "spec.spec");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec"]);
        errors
    }
}

fn default_requests(object: &mut Value, path: &[&str]) {
    for request in list_mut(object, path).into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly") {
            default_request(exactly);
        }
        for alternative in list_mut(request, &["firstAvailable"]).into_iter().flatten() {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    default_text(request, "allocationMode", "ExactCount");
    if text(request, &["allocationMode"]) == "ExactCount" && int(request, &["count"]).unwrap_or(0) == 0 {
        super::field::set(request, &["count"], 1);
    }
}

/// The requests of a claim by name, each with its alternatives.
type Requests<'v> = BTreeMap<&'v str, BTreeSet<&'v str>>;

fn requests_of(spec: &Value) -> Requests<'_> {
    fn name(item: &Value) -> &str {
        text(item, &["name"])
    }
    let requests = list(spec, &["devices", "requests"]).iter();
    requests
        .map(|request| {
            let alternatives = list(request, &["firstAvailable"]).iter();
            (name(request), alternatives.map(name).collect())
        })
        .collect()
}

fn check_claim(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let devices = at(spec, &["devices"]);
    let known = requests_of(spec);
    let (requests, base) = (list(devices, &["requests"]), format!("{path}.devices.requests"));
    for (i, request) in requests.iter().enumerate() {
        check_request(errors, request, &format!("{base}[{i}]"));
    }
    too_many(errors, &base, requests.len(), ITEMS_MAX);
    unique(errors, requests, &base, ".name", |request| text(request, &["name"]));
    let (constraints, base) = (list(devices, &["constraints"]), format!("{path}.devices.constraints"));
    for (i, constraint) in constraints.iter().enumerate() {
        let path = format!("{base}[{i}]");
        check_references(
            errors,
            list(constraint, &["requests"]),
            &known,
            &format!("{path}.requests"),
        );
        let attribute = |key: &str| at(constraint, &[key]).as_str();
        if let Some(name) = attribute("matchAttribute") {
            check_full_name(errors, name, &format!("{path}.matchAttribute"));
        } else if let Some(name) = attribute("distinctAttribute") {
            check_full_name(errors, name, &format!("{path}.distinctAttribute"));
        } else {
            let why =
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            errors.push(FieldError::required(path, why));
        }
    }
    too_many(errors, &base, constraints.len(), ITEMS_MAX);
    let (configs, base) = (list(devices, &["config"]), format!("{path}.devices.config"));
    for (i, config) in configs.iter().enumerate() {
        let path = format!("{base}[{i}]");
        check_references(errors, list(config, &["requests"]), &known, &format!("{path}.requests"));
        check_opaque(errors, config, &path);
    }
    too_many(errors, &base, configs.len(), ITEMS_MAX);
}

fn check_request(errors: &mut FieldErrors, request: &Value, path: &str) {
    let name = text(request, &["name"]);
    invalid(errors, &format!("{path}.name"), name, dns1123_label(name));
    let (alternatives, exactly) = (list(request, &["firstAvailable"]), at(request, &["exactly"]));
    match (alternatives.is_empty(), exactly.is_null()) {
        (true, true) => errors.push(FieldError::required(
            path,
            "exactly one of `exactly` or `firstAvailable` is required",
        )),
        (false, false) => errors.push(FieldError::invalid(
            path,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        )),
        (true, false) => check_wish(errors, exactly, &format!("{path}.exactly")),
        (false, true) => {
            let base = format!("{path}.firstAvailable");
            for (i, alternative) in alternatives.iter().enumerate() {
                let path = format!("{base}[{i}]");
                let name = text(alternative, &["name"]);
                invalid(errors, &format!("{path}.name"), name, dns1123_label(name));
                check_wish(errors, alternative, &path);
            }
            too_many(errors, &base, alternatives.len(), ALTERNATIVES_MAX);
            unique(errors, alternatives, &base, ".name", |item| text(item, &["name"]));
        }
    }
}

/// What a request, or an alternative of one, asks for.
fn check_wish(errors: &mut FieldErrors, wish: &Value, path: &str) {
    let class = text(wish, &["deviceClassName"]);
    required(errors, &format!("{path}.deviceClassName"), class, dns1123_subdomain);
    check_selectors(errors, list(wish, &["selectors"]), &format!("{path}.selectors"));
    let (mode, count) = (text(wish, &["allocationMode"]), int(wish, &["count"]).unwrap_or(0));
    let field = format!("{path}.count");
    match mode {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(field, count, why));
        }
        "ExactCount" if count <= 0 => errors.push(FieldError::invalid(field, count, "must be greater than zero")),
        mode => supported(errors, &format!("{path}.allocationMode"), mode, &["All", "ExactCount"]),
    }
    let (tolerations, base) = (list(wish, &["tolerations"]), format!("{path}.tolerations"));
    too_many(errors, &base, tolerations.len(), TOLERATIONS_MAX);
    for (i, toleration) in tolerations.iter().enumerate() {
        check_toleration(errors, toleration, &format!("{base}[{i}]"));
    }
}

fn check_toleration(errors: &mut FieldErrors, toleration: &Value, path: &str) {
    let value = |key: &str| text(toleration, &[key]);
    if !value("key").is_empty() {
        invalid(
            errors,
            &format!("{path}.key"),
            value("key"),
            qualified_name(value("key")),
        );
    }
    let field = format!("{path}.value");
    match value("operator") {
        "Exists" if !value("value").is_empty() => {
            let why = "must be empty for operator `Exists`";
            errors.push(FieldError::invalid(field, value("value"), why));
        }
        "Equal" => invalid(errors, &field, value("value"), label_value(value("value"))),
        "" => errors.push(FieldError::required(format!("{path}.operator"), "")),
        operator => supported(errors, &format!("{path}.operator"), operator, &["Equal", "Exists"]),
    }
    if !value("effect").is_empty() {
        check_effect(errors, value("effect"), path);
    }
}

/// What is wrong with the effect of a taint or toleration at `path`.
pub(super) fn check_effect(errors: &mut FieldErrors, effect: &str, path: &str) {
    let effects = &["NoExecute", "NoSchedule", "None"];
    supported(errors, &format!("{path}.effect"), effect, effects);
}

fn check_selectors(errors: &mut FieldErrors, selectors: &[Value], path: &str) {
    for (i, selector) in selectors.iter().enumerate() {
        let base = format!("{path}[{i}].cel");
        let cel = at(selector, &["cel"]);
        let field = format!("{base}.expression");
        if cel.is_null() {
            errors.push(FieldError::required(base, ""));
        } else if text(cel, &["expression"]).is_empty() {
            errors.push(FieldError::required(field, ""));
        } else {
            too_long(errors, &field, text(cel, &["expression"]).len(), EXPRESSION_BYTES);
        }
    }
    too_many(errors, path, selectors.len(), ITEMS_MAX);
}

/// What is wrong with the names of requests that something else of the claim is about.
fn check_references(errors: &mut FieldErrors, names: &[Value], known: &Requests<'_>, path: &str) {
    for (i, name) in names.iter().map(itself).enumerate() {
        check_reference(errors, name, known, &format!("{path}[{i}]"));
    }
    too_many(errors, path, names.len(), ITEMS_MAX);
    unique(errors, names, path, "", itself);
}

fn check_reference(errors: &mut FieldErrors, name: &str, known: &Requests<'_>, path: &str) {
    let parts: Vec<&str> = name.splitn(3, '/').collect();
    let is_known = match parts.as_slice() {
        [request] => known.contains_key(request),
        [request, alternative] => known.get(request).is_some_and(|all| all.contains(alternative)),
        _ => {
            errors.push(FieldError::invalid(path, name, NO_REQUEST));
            return;
        }
    };
    for part in parts {
        invalid(errors, path, part, dns1123_label(part));
    }
    if !is_known {
        errors.push(FieldError::invalid(path, name, NO_REQUEST));
    }
}

fn check_opaque(errors: &mut FieldErrors, config: &Value, path: &str) {
    let opaque = at(config, &["opaque"]);
    let base = format!("{path}.opaque");
    if opaque.is_null() {
        errors.push(FieldError::required(base, ""));
        return;
    }
    driver_name(errors, &format!("{base}.driver"), text(opaque, &["driver"]));
    let (parameters, field) = (at(opaque, &["parameters"]), format!("{base}.parameters"));
    if parameters.is_null() {
        errors.push(FieldError::required(field, ""));
    } else if !too_long(errors, &field, parameters.to_string().len(), PARAMETER_BYTES) && !parameters.is_object() {
        let why = "parameters must be a valid JSON object";
        errors.push(FieldError::invalid(field, "<value omitted>", why));
    }
}

/// The name of a pool: subdomains with slashes between them.
pub(super) fn check_pool(errors: &mut FieldErrors, pool: &str, path: &str) {
    if pool.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    too_long(errors, path, pool.len(), POOL_BYTES);
    for part in pool.split('/') {
        invalid(errors, path, part, dns1123_subdomain(part));
    }
}

/// The name of an attribute or a capacity: an identifier, perhaps a domain and a slash before it.
pub(super) fn check_name(errors: &mut FieldErrors, name: &str, path: &str) {
    let mut missing = |why: &str| errors.push(FieldError::required(path, why));
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [""] => missing("name required"),
        [id] => check_identifier(errors, id, path),
        [domain, id] => {
            if domain.is_empty() {
                missing("the domain must not be empty");
            } else {
                driver_name(errors, path, domain);
            }
            if id.is_empty() {
                errors.push(FieldError::required(path, "the name must not be empty"));
            } else {
                check_identifier(errors, id, path);
            }
        }
        _ => {}
    }
}

fn check_full_name(errors: &mut FieldErrors, name: &str, path: &str) {
    check_name(errors, name, path);
    if !name.is_empty() && !name.contains('/') {
        errors.push(FieldError::invalid(path, name, "must include a domain"));
    }
}

fn check_identifier(errors: &mut FieldErrors, id: &str, path: &str) {
    use crate::resource::field_error::FieldErrorKind;
    too_long(errors, path, id.len(), IDENTIFIER_BYTES);
    let starts = id.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic());
    if !starts || !id.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                   characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
                   '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(FieldError::new(path, FieldErrorKind::TypeInvalid, Value::from(id), why));
    }
}

fn check_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let (status, before) = (at(new, &["status"]), at(old, &["status"]));
    let (consumers, field) = (list(status, &["reservedFor"]), "status.reservedFor");
    for (i, consumer) in consumers.iter().enumerate() {
        for key in ["resource", "name", "uid"] {
            if text(consumer, &[key]).is_empty() {
                errors.push(FieldError::required(format!("{field}[{i}].{key}"), ""));
            }
        }
    }
    too_many(&mut errors, field, consumers.len(), CONSUMERS_MAX);
    unique(&mut errors, consumers, field, ".uid", |consumer| {
        text(consumer, &["uid"])
    });
    let (allocation, was) = (at(status, &["allocation"]), at(before, &["allocation"]));
    if !consumers.is_empty() && allocation.is_null() {
        errors.push(FieldError::forbidden(
            field,
            "may not be specified when `allocated` is not set",
        ));
    } else if !at(new, &["metadata", "deletionTimestamp"]).is_null() {
        let known: BTreeSet<&str> = list(before, &["reservedFor"])
            .iter()
            .map(|consumer| text(consumer, &["uid"]))
            .collect();
        if consumers
            .iter()
            .any(|consumer| !known.contains(text(consumer, &["uid"])))
        {
            errors.push(FieldError::forbidden(
                field,
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            ));
        }
    }
    if !allocation.is_null() && !was.is_null() {
        immutable(&mut errors, new, old, &["status", "allocation"]);
    } else if !allocation.is_null() {
        check_allocation(&mut errors, allocation, &requests_of(at(new, &["spec"])));
    }
    check_devices(&mut errors, status);
    errors
}

fn check_allocation(errors: &mut FieldErrors, allocation: &Value, known: &Requests<'_>) {
    let (results, field) = (
        list(allocation, &["devices", "results"]),
        "status.allocation.devices.results",
    );
    for (i, result) in results.iter().enumerate() {
        let path = format!("{field}[{i}]");
        check_reference(errors, text(result, &["request"]), known, &format!("{path}.request"));
        check_device_names(errors, result, &path);
    }
    too_many(errors, field, results.len(), ITEMS_MAX);
    let (configs, field) = (
        list(allocation, &["devices", "config"]),
        "status.allocation.devices.config",
    );
    for (i, config) in configs.iter().enumerate() {
        let path = format!("{field}[{i}]");
        let sources = &["FromClaim", "FromClass"];
        super::field::one_of(errors, &format!("{path}.source"), text(config, &["source"]), sources);
        check_references(errors, list(config, &["requests"]), known, &format!("{path}.requests"));
        check_opaque(errors, config, &path);
    }
    too_many(errors, field, configs.len(), 2 * ITEMS_MAX);
}

fn check_device_names(errors: &mut FieldErrors, device: &Value, path: &str) {
    driver_name(errors, &format!("{path}.driver"), text(device, &["driver"]));
    check_pool(errors, text(device, &["pool"]), &format!("{path}.pool"));
    let name = text(device, &["device"]);
    invalid(errors, &format!("{path}.device"), name, dns1123_label(name));
}

/// What drivers say of a claim's devices: of those that it has.
fn check_devices(errors: &mut FieldErrors, status: &Value) {
    let id = |device: &Value| ["driver", "pool", "device", "shareID"].map(|key| text(device, &[key]).to_owned());
    let allocated: BTreeSet<_> = list(status, &["allocation", "devices", "results"])
        .iter()
        .map(id)
        .collect();
    let mut seen = BTreeSet::new();
    for (i, device) in list(status, &["devices"]).iter().enumerate() {
        let path = format!("status.devices[{i}]");
        check_device_names(errors, device, &path);
        let name = id(device);
        let shown = name.join("/");
        let shown = shown.trim_end_matches('/');
        if !allocated.contains(&name) {
            let why = "must be an allocated device in the claim";
            errors.push(FieldError::invalid(path.as_str(), shown, why));
        }
        if !seen.insert(name) {
            duplicate(errors, path, shown);
        }
    }
}

/// Whether a flag that may only be set to true is; one that is set to false is told.
pub(super) fn set_flag(errors: &mut FieldErrors, object: &Value, key: &str, path: &str) -> bool {
    if at(object, &[key]) == &Value::Bool(false) {
        let why = "must be either unset or set to true";
        errors.push(FieldError::invalid(format!("{path}.{key}"), false, why));
    }
    flag(object, &[key])
}
