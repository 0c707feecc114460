//! Counts that may be given as a share (`IntOrString`). Pure.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a share is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the next whole number.
    Up,
    /// To the last one.
    Down,
}

/// A count, or a share of `total` as one; 0 when there is none. What is no share counts as 0: validation refuses it.
pub fn resolve(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => *count,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text
                .strip_suffix('%')
                .and_then(|p| p.parse::<i32>().ok())
                .map_or(0, i64::from);
            let product = percent * i64::from(total);
            let share = match round {
                Round::Up => (product + 99).div_euclid(100),
                Round::Down => product.div_euclid(100),
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// As many as can be asked for: sums of counts may be larger.
pub fn narrow(sum: i64) -> i32 {
    i32::try_from(sum).unwrap_or(if sum < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let text = |t: &str| Some(IntOrString::String(t.to_owned()));
        for (value, total, up, down) in [
            (None, 10, 0, 0),
            (Some(IntOrString::Int(3)), 10, 3, 3),
            (text("25%"), 10, 3, 2),
            (text("100%"), 7, 7, 7),
            (text("0%"), 7, 0, 0),
            (text("1%"), 1, 1, 0),
            (text("many"), 7, 0, 0),
            (text("99999999999999999999%"), 7, 0, 0),
            (text("2147483647%"), i32::MAX, i32::MAX, i32::MAX),
        ] {
            assert_eq!(resolve(value.as_ref(), total, Round::Up), up, "{value:?}");
            assert_eq!(resolve(value.as_ref(), total, Round::Down), down, "{value:?}");
        }
    }
}
