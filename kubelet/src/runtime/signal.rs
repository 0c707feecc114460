//! Stop signals by the API's names and by CRI's, which have no signs in them. Pure.

use proto::cri;

/// CRI's signal of that name; the runtime's own choice for none and for a name that is none.
pub fn to_cri(name: Option<&str>) -> cri::Signal {
    let name = name.unwrap_or_default().replace('+', "PLUS").replace('-', "MINUS");
    cri::Signal::from_str_name(&name).unwrap_or(cri::Signal::RuntimeDefault)
}

/// The API's name of a signal; nothing for the runtime's own choice.
pub fn of_cri(signal: i32) -> Option<String> {
    let signal = cri::Signal::try_from(signal).ok();
    let signal = signal.filter(|signal| *signal != cri::Signal::RuntimeDefault)?;
    Some(signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_api_is_a_signal_of_cri_and_back() {
        for name in proto::api::signal::LINUX {
            let signal = to_cri(Some(name));
            assert_eq!(of_cri(signal as i32).as_deref(), Some(name));
        }
        for name in [None, Some(""), Some("SIGNOTHING"), Some("RUNTIME_DEFAULT")] {
            assert_eq!(of_cri(to_cri(name) as i32), None, "{name:?}");
        }
        assert_eq!(of_cri(99), None);
    }
}
