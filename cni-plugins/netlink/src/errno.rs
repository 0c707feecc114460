//! The kernel's errors in words. Pure.

/// A kernel error in Go's wording: lower case and without the number.
#[must_use]
pub fn text(error: &std::io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return error.to_string();
    };
    let text = error.to_string();
    let text = text.trim_end_matches(&format!(" (os error {number})"));
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_errors_read_as_go_prints_them() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(text(&error), "no such file or directory");
        assert_eq!(text(&std::io::Error::from_raw_os_error(17)), "file exists");
        assert_eq!(
            text(&std::io::Error::from_raw_os_error(34)),
            "numerical result out of range"
        );
    }
}
