//! When a CronJob runs: what is wrong with its schedule and time zone. Texts are upstream's. Pure.

use serde_json::Value;

use crate::cron::{Schedule, zone};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The time zone's name: one that there is, and not the machine's.
pub(super) fn time_zone(errors: &mut FieldErrors, named: &Value) {
    let Some(name) = named.as_str() else { return };
    let why = if name.is_empty() {
        "timeZone must be nil or non-empty string".to_owned()
    } else if name.eq_ignore_ascii_case("local") {
        "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
    } else if let Err(unknown) = zone::find(name) {
        unknown
    } else {
        return;
    };
    errors.push(FieldError::invalid("spec.timeZone", name, why));
}

/// Whether a text is a schedule, and names no time zone.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.contains("TZ") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    Schedule::parse(text).map(|_| ())
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
            ("@every soon", false),
            ("@sometimes", false),
            ("* * * *", false),
            ("TZ=UTC 0 0 * * *", false),
        ] {
            assert_eq!(check(text).is_ok(), good, "{text}");
        }
    }
}
