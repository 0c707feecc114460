//! The multicall binary: the plugin is named by `argv[0]`, or by the first argument.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let own_name = arguments
        .first()
        .map_or("", String::as_str)
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let name = match (cni_plugins::plugin::find(own_name), arguments.get(1)) {
        (Some(_), _) => own_name,
        (None, Some(named)) => named.as_str(),
        (None, None) => {
            let names: Vec<&str> = cni_plugins::plugin::names().collect();
            eprintln!(
                "usage: {own_name} PLUGIN (or call it by a plugin's name); plugins: {}",
                names.join(", ")
            );
            return ExitCode::from(2);
        }
    };
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .map(|(key, value)| (key.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let outcome = cni_plugins::run(name, &variables, &mut std::io::stdin().lock());
    let written = std::io::stdout().write_all(outcome.stdout.as_bytes());
    if !outcome.stderr.is_empty() {
        eprint!("{}", outcome.stderr);
    }
    match written {
        Ok(()) => ExitCode::from(outcome.exit_code),
        Err(_) => ExitCode::FAILURE,
    }
}
