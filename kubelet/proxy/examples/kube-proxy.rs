//! The program by itself; what ships calls it from the kubelet's binary when that is named `kube-proxy`.

use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    proxy::program::main(std::env::args().skip(1), |logging| {
        let most = match logging.verbosity.unwrap_or(2) {
            ..1 => LevelFilter::WARN,
            1..3 => LevelFilter::INFO,
            3..6 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(std::io::stderr)
            .init();
    })
}
