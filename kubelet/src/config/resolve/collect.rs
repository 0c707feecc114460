//! How much stays of logs, dead containers and unused images.

use super::{Reader, duration};
use crate::collect::{containers, images};
use crate::config::{Flags, KubeletConfiguration};
use crate::container_log;
use jiff::SignedDuration;
use proto::api::quantity::Quantity;
use std::time::Duration;

const LOG_SIZE: &str = "containerLogMaxSize";
const LOG_INTERVAL: &str = "containerLogMonitorInterval";
const LOG_INTERVAL_MIN: Duration = Duration::from_secs(3);

fn written_text(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

/// `containerLog*`. A negative size means that logs are not rotated, as upstream's.
pub(super) fn logs(reader: &mut Reader, written: &KubeletConfiguration) -> container_log::Rules {
    let default = container_log::Rules::default();
    let size_max = match written_text(written.container_log_max_size.as_ref()).map(|text| (text, Quantity::parse(text)))
    {
        None => default.size_max,
        Some((_, Ok(size))) => u64::try_from(size.value()).ok(),
        Some((text, Err(_))) => {
            reader.wrong(LOG_SIZE, format!("{text:?} is not a quantity"));
            None
        }
    };
    let most = i64::from(i32::MAX);
    let files = reader.range("containerLogMaxFiles", written.container_log_max_files, 5, 2, most);
    let workers = reader.range("containerLogMaxWorkers", written.container_log_max_workers, 1, 1, most);
    let interval = written_text(written.container_log_monitor_interval.as_ref());
    let interval = reader.time(LOG_INTERVAL, interval, default.interval);
    if interval < LOG_INTERVAL_MIN {
        reader.wrong(LOG_INTERVAL, "must be either zero or at least 3s");
    }
    container_log::Rules {
        size_max,
        files_max: usize::try_from(files).unwrap_or(default.files_max),
        workers: usize::try_from(workers).unwrap_or(default.workers),
        interval,
    }
}

/// `--maximum-dead-containers*` and `--minimum-container-ttl-duration`; a negative number is no limit.
pub(super) fn containers(reader: &mut Reader, flags: &Flags) -> containers::Limits {
    const AGE: &str = "minimum-container-ttl-duration";
    let default = containers::Limits::default();
    let number = |name| flags.int(name).map(|number| usize::try_from(number).ok());
    let youngest = match flags.text(AGE).filter(|text| !text.is_empty()).map(duration::parse) {
        None => default.youngest,
        Some(Ok(age)) => signed(age),
        Some(Err(why)) => {
            reader.wrong("--minimum-container-ttl-duration", why);
            default.youngest
        }
    };
    containers::Limits {
        per_container: number("maximum-dead-containers-per-container").unwrap_or(default.per_container),
        total: number("maximum-dead-containers").unwrap_or(default.total),
        youngest,
    }
}

/// `imageGC*ThresholdPercent`, `imageMinimumGCAge`, `imageMaximumGCAge`.
pub(super) fn images(reader: &mut Reader, written: &KubeletConfiguration) -> images::Rules {
    const LOW: &str = "imageGCLowThresholdPercent";
    const HIGH: &str = "imageGCHighThresholdPercent";
    let high_percent = reader.range(HIGH, written.image_gc_high_threshold_percent, 85, 0, 100);
    let low_percent = reader.range(LOW, written.image_gc_low_threshold_percent, 80, 0, 100);
    if low_percent >= high_percent {
        reader.wrong(LOW, "must be less than imageGCHighThresholdPercent");
    }
    let youngest = written_text(written.image_minimum_gc_age.as_ref());
    let youngest = reader.time("imageMinimumGCAge", youngest, Duration::from_secs(120));
    let oldest = written_text(written.image_maximum_gc_age.as_ref());
    let oldest = reader.time("imageMaximumGCAge", oldest, Duration::ZERO);
    if !oldest.is_zero() && oldest <= youngest {
        reader.wrong("imageMaximumGCAge", "must be greater than imageMinimumGCAge");
    }
    images::Rules {
        high_percent,
        low_percent,
        youngest: signed(youngest),
        oldest: (!oldest.is_zero()).then(|| signed(oldest)),
    }
}
