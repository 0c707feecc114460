//! Schedules of CronJobs: five fields of cron or an `@` word, as upstream's library (robfig/cron) reads them. Pure.
//!
//! Owns the language, its error texts and which moment comes next. Knows nothing of Jobs. Source: control-plane contract §12.
//!
//! A schedule fires at every moment whose local time fits the fields: a local time that a clock change skips never comes, one
//! that it repeats comes twice.

use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan};

mod duration;
mod field;
pub mod zone;

use field::{DAYS, Field, HOURS, MINUTES, MONTHS, WEEKDAYS};

/// Schedules that fit no day in this many years never fire.
const YEARS: i16 = 5;
/// Bytes of a schedule's text; upstream knows no bound, and no meaningful schedule comes near.
const TEXT_MAX: usize = 16 * 1024;

/// When something is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At moments whose local time fits.
    Fields(Fields),
    /// So long after the moment before, from wherever one counts.
    Every(SignedDuration),
}

/// Five fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if text.len() > TEXT_MAX {
            return Err(format!("must be no more than {TEXT_MAX} bytes"));
        }
        if text.starts_with('@') {
            return word(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (count, all) = (fields.len(), fields.join(" "));
            return Err(format!("expected exactly 5 fields, found {count}: [{all}]"));
        };
        Ok(Self::Fields(Fields {
            minutes: Field::parse(minutes, &MINUTES)?,
            hours: Field::parse(hours, &HOURS)?,
            days: Field::parse(days, &DAYS)?,
            months: Field::parse(months, &MONTHS)?,
            weekdays: Field::parse(weekdays, &WEEKDAYS)?,
        }))
    }

    /// The first moment after `after`, on a whole second; `None` if there is none within five years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_nanosecond().div_euclid(1_000_000_000).try_into().ok()?).ok()?;
        match self {
            Self::Every(pause) => whole.checked_add(*pause).ok(),
            Self::Fields(fields) => fields.next(whole.checked_add(SignedDuration::from_secs(1)).ok()?, zone),
        }
    }
}

/// A schedule that is one word.
fn word(text: &str) -> Result<Schedule, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(length) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let length =
                duration::parse(length).map_err(|problem| format!("failed to parse duration {text}: {problem}"))?;
            let whole = SignedDuration::from_secs(length.as_secs().max(1));
            return Ok(Schedule::Every(whole));
        }
    };
    Schedule::parse(fields)
}

impl Fields {
    /// Both days must fit if either is a star; otherwise one of them is enough.
    fn fits(&self, date: Date) -> bool {
        let number = |n: i8| u8::try_from(n).unwrap_or_default();
        let day = self.days.has(number(date.day()));
        let weekday = self.weekdays.has(number(date.weekday().to_sunday_zero_offset()));
        if self.days.is_star() || self.weekdays.is_star() {
            day && weekday
        } else {
            day || weekday
        }
    }

    /// The first moment at or after `from` that fits.
    fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut date = zone.to_datetime(from).date();
        let last = date.year().saturating_add(YEARS);
        while date.year() <= last {
            if !self.months.has(u8::try_from(date.month()).unwrap_or_default()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
                continue;
            }
            if self.fits(date)
                && let Some(found) = self.within(date, from, zone)
            {
                return Some(found);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first moment of a day, at or after `from`, whose hour and minute fit.
    fn within(&self, date: Date, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let offset = |date: Date| zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).offset();
        // What comes earlier on the clock comes earlier, unless the clock is changed on that day.
        let is_even = date.tomorrow().is_ok_and(|next| offset(date) == offset(next));
        let mut first: Option<Timestamp> = None;
        for hour in (0..24).filter(|hour| self.hours.has(*hour)) {
            for minute in (0..60).filter(|minute| self.minutes.has(*minute)) {
                let clock = date.at(hour.cast_signed(), minute.cast_signed(), 0, 0);
                let moments = zone.to_ambiguous_timestamp(clock);
                let sides = match moments.offset() {
                    k8s_openapi::jiff::tz::AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                    k8s_openapi::jiff::tz::AmbiguousOffset::Gap { .. } => [None, None],
                    k8s_openapi::jiff::tz::AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
                };
                let found = sides.into_iter().flatten().filter_map(|o| o.to_timestamp(clock).ok());
                let found = found.filter(|moment| *moment >= from).min();
                first = [first, found].into_iter().flatten().min();
                if is_even && first.is_some() {
                    return first;
                }
            }
        }
        first
    }
}

#[cfg(test)]
mod tests;
