//! Compares metrics pages of a kubelet, kept in files, with upstream's list:
//!
//!     cargo run -p tests --bin compare-metrics -- [--busy] [--contract FILE] /metrics=FILE /metrics/probes=FILE ...
//!
//! With a kubelet contract it tells, too, which names of its section 13 the list lacks. Ends with 1 if something differs.

use std::process::ExitCode;
use tests::exposition::{compare, contract, expected, uncovered};

const LIST: &str = include_str!("../metrics.tsv");

fn main() -> ExitCode {
    let list = expected(LIST);
    let mut arguments = std::env::args().skip(1);
    let (mut busy, mut wrong) = (false, 0);
    while let Some(argument) = arguments.next() {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let text = match argument.split_once('=') {
            Some((_, path)) => read(path),
            None if argument == "--contract" => read(&arguments.next().unwrap_or_default()),
            None if argument == "--busy" => {
                busy = true;
                continue;
            }
            None => Err(format!("{argument}: neither an option nor PAGE=FILE")),
        };
        let text = match text {
            Ok(text) => text,
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::FAILURE;
            }
        };
        match argument.split_once('=') {
            Some((page, _)) => {
                let report = compare(&list, page, &text, busy);
                wrong += report.findings.len();
                print!("{page}: {report}");
            }
            None => {
                let lacking = uncovered(&contract(&text), &list);
                wrong += lacking.len();
                for name in lacking {
                    println!("WRONG {name}: in the contract, and not in the list");
                }
            }
        }
    }
    match wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
