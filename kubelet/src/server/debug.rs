//! `/debug/pprof` and `/debug/flags/v`: what a daemon that is no Go program can say of itself, and how much it logs.

use super::answer::{self, Answer};
use crate::log::LogLevel;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;

/// The longest number of a log level, bytes.
const LEVEL_BYTES_MAX: usize = 32;

/// Answers a path below `/debug/pprof`. Nothing is accepted and ignored: a profile nobody can make is refused in words.
pub(super) fn profile(below: &[String]) -> Answer {
    match below {
        [] => answer::text(
            200,
            "/debug/pprof/\n\ncmdline: the command line of this process\n\nThis kubelet is no Go program: it has no other profiles.\n",
        ),
        [one] if one == "cmdline" => {
            let words: Vec<String> = std::env::args().collect();
            answer::text(200, &words.join("\0"))
        }
        [one] => answer::text(
            501,
            &format!("{one:.64}: a profile of Go's runtime, which this kubelet does not have\n"),
        ),
        _ => answer::not_found(),
    }
}

/// Takes the level of log lines from the body of a request.
pub(super) async fn set_level<B>(level: &LogLevel, body: B) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Ok(text) = Limited::new(body, LEVEL_BYTES_MAX).collect().await.map_err(drop) else {
        return answer::text(400, "error reading new log level\n");
    };
    let bytes = text.to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    match text.trim().parse::<i32>() {
        Ok(verbosity) if verbosity >= 0 => {
            level.set(i64::from(verbosity));
            tracing::info!(verbosity, "log level changed");
            answer::text(200, &format!("successfully set klog.logging.verbosity to {verbosity}"))
        }
        _ => answer::text(
            400,
            &format!("failed to set klog.logging.verbosity {text:?}: not a whole number from 0 on\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Logging, Verbosity};
    use bytes::Bytes;
    use http_body_util::Full;

    #[tokio::test]
    async fn a_level_is_set_by_a_number_and_by_nothing_else() {
        let level = LogLevel::new(&Logging {
            verbosity: Verbosity {
                default: 2,
                files: Vec::new(),
            },
            ..Logging::default()
        });
        let set = async |text: &str| {
            let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
            set_level(&level, body).await.status().as_u16()
        };
        assert_eq!((set("4\n").await, level.current()), (200, 4));
        for text in ["", "x", "-1", "99999999999999", &"1".repeat(100)] {
            assert_eq!((set(text).await, level.current()), (400, 4), "{text}");
        }
    }

    #[test]
    fn profiles_that_cannot_be_made_are_refused_in_words() {
        let code = |below: &[&str]| {
            let below: Vec<String> = below.iter().map(ToString::to_string).collect();
            profile(&below).status().as_u16()
        };
        assert_eq!(
            [
                code(&[]),
                code(&["cmdline"]),
                code(&["heap"]),
                code(&["profile"]),
                code(&["a", "b"])
            ],
            [200, 200, 501, 501, 404]
        );
    }
}
