//! When a CronJob runs: what is wrong with its schedule and time zone. Texts are upstream's. Pure.

use serde_json::Value;

use crate::resource::field_error::{FieldError, FieldErrors};

/// The form of a time zone's name; which there are is not known here.
pub(super) fn time_zone(errors: &mut FieldErrors, zone: &Value) {
    let Some(name) = zone.as_str() else { return };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let is_part = |part: &str| {
        let is_dots = part == "." || part == "..";
        !is_dots && !part.starts_with('-') && (1..=14).contains(&part.len()) && part.bytes().all(fits)
    };
    let why = if name.is_empty() {
        "timeZone must be nil or non-empty string".to_owned()
    } else if !name.split('/').all(is_part) {
        format!("unknown time zone {name}")
    } else if name.eq_ignore_ascii_case("local") {
        "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid("spec.timeZone", name, why));
}

/// Whether a text has the form of a schedule: five fields in range, or one of the `@` words.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if let Some(word) = text.strip_prefix('@') {
        let every = word.strip_prefix("every ").is_some_and(|rest| !rest.is_empty());
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
        if every || known.contains(&word) {
            return Ok(());
        }
        return Err(format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let months = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let ranges: [(u32, u32, &[&str]); 5] = [
        (0, 59, &[]),
        (0, 23, &[]),
        (1, 31, &[]),
        (1, 12, &months),
        (0, 7, &days),
    ];
    for (field, (low, high, names)) in fields.iter().zip(ranges) {
        for part in field.split(',') {
            check_part(part, low, high, names)?;
        }
    }
    Ok(())
}

fn check_part(part: &str, low: u32, high: u32, names: &[&str]) -> Result<(), String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if let Some(step) = step
        && !step.parse::<u32>().is_ok_and(|step| step > 0)
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if range == "*" || range == "?" {
        return Ok(());
    }
    let bound = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let number = match named {
            Some(i) => u32::try_from(i).ok().map(|i| i + u32::from(names.len() == 12)),
            None => text.parse().ok(),
        };
        number.ok_or_else(|| format!("failed to parse int from {text}"))
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (bound(first)?, bound(last)?),
        None => (bound(range)?, bound(range)?),
    };
    if first < low || last > high {
        return Err(format!("{part}: outside of the range ({low} to {high})"));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {part}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for (text, good) in [
            ("*/5 * * * *", true),
            ("0 9-17 * jan mon-fri", true),
            ("@daily", true),
            ("@every 1h", true),
            ("@sometimes", false),
            ("* * * *", false),
            ("60 * * * *", false),
            ("5-1 * * * *", false),
            ("*/0 * * * *", false),
            ("TZ=UTC 0 0 * * *", false),
        ] {
            assert_eq!(check(text).is_ok(), good, "{text}");
        }
    }
}
