//! Runs the IPAM plugin a configuration names: ours in process, any other by exec (contract §1.8).

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::protocol::dispatch::Request;
use crate::protocol::error::{self, Error};
use crate::protocol::json::Fields;
use crate::protocol::result::CniResult;

/// How often an executable that is just being written is tried again, a second apart.
const MAX_BUSY_ATTEMPTS: usize = 6;

/// `ipam.type`, or empty.
pub fn kind(request: &Request) -> Result<&str, Error> {
    let invalid =
        |error: crate::protocol::json::DecodeError| Error::internal(format!("failed to load netconf: {error}"));
    request
        .fields()
        .object("ipam", "types.IPAM")
        .map_err(invalid)?
        .string("type")
        .map_err(invalid)
}

/// ADD.
pub fn add(request: &Request, kind: &str) -> Result<CniResult, Error> {
    if let Some(plugin) = crate::plugin::find_ipam(kind) {
        return (plugin.add)(request);
    }
    let output = execute(request, kind, "ADD")?;
    let value: Value = serde_json::from_slice(&output)
        .map_err(|error| Error::internal(format!("could not decode the result of plugin {kind:?}: {error}")))?;
    CniResult::parse(&value, request.version)
        .map_err(|error| Error::internal(format!("could not convert IPAM result: {error}")))
}

/// DEL.
pub fn del(request: &Request, kind: &str) -> Result<(), Error> {
    match crate::plugin::find_ipam(kind) {
        Some(plugin) => (plugin.del)(request),
        None => execute(request, kind, "DEL").map(drop),
    }
}

/// CHECK.
pub fn check(request: &Request, kind: &str) -> Result<(), Error> {
    match crate::plugin::find_ipam(kind) {
        Some(plugin) => (plugin.check)(request),
        None => execute(request, kind, "CHECK").map(drop),
    }
}

/// GC.
pub fn gc(request: &Request, kind: &str) -> Result<(), Error> {
    match crate::plugin::find_ipam(kind) {
        Some(plugin) => (plugin.gc)(request),
        None => execute(request, kind, "GC").map(drop),
    }
}

/// STATUS.
pub fn status(request: &Request, kind: &str) -> Result<(), Error> {
    match crate::plugin::find_ipam(kind) {
        Some(plugin) => (plugin.status)(request),
        None => execute(request, kind, "STATUS").map(drop),
    }
}

/// The first regular file of that name in `CNI_PATH`; a name is no path.
fn find(path: &str, name: &str) -> Result<PathBuf, Error> {
    if name.contains('/') {
        return Err(Error::internal(format!("invalid plugin name: {name}")));
    }
    let folders: Vec<&str> = path.split(':').filter(|folder| !folder.is_empty()).collect();
    let candidates = folders.iter().map(|folder| PathBuf::from(folder).join(name));
    candidates.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        Error::internal(format!(
            "failed to find plugin {name:?} in path [{}]",
            folders.join(" ")
        ))
    })
}

fn execute(request: &Request, kind: &str, verb: &str) -> Result<Vec<u8>, Error> {
    let file = find(&request.env.path, kind)?;
    let failed = |error: std::io::Error| {
        Error::internal(format!(
            "failed to run {}: {}",
            file.display(),
            netlink::errno::text(&error)
        ))
    };
    let mut attempts = 1;
    let mut child = loop {
        let mut command = Command::new(&file);
        command.env_clear().envs(&request.variables).env("CNI_COMMAND", verb);
        match command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
        {
            Ok(child) => break child,
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && attempts < MAX_BUSY_ATTEMPTS => {
                attempts += 1;
                thread::sleep(Duration::from_secs(1));
            }
            Err(error) => return Err(failed(error)),
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that fails early does not read; its own error is the one to report.
        let _ = stdin.write_all(&request.stdin);
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(read_error(&output.stdout))
}

/// The error a failed plugin printed, or one made of what it printed instead.
fn read_error(stdout: &[u8]) -> Error {
    if stdout.is_empty() {
        return Error::internal("netplugin failed with no error message");
    }
    let parsed: Option<Error> = serde_json::from_slice::<Value>(stdout).ok().and_then(|value| {
        let fields = Fields::new(value.as_object()?, "Error");
        Some(Error {
            code: u32::try_from(fields.int("code").ok()?).ok()?,
            msg: fields.string("msg").ok()?.to_owned(),
            details: fields.string("details").ok()?.to_owned(),
        })
    });
    parsed.unwrap_or_else(|| {
        Error::new(
            error::INTERNAL,
            format!("netplugin failed: {:?}", String::from_utf8_lossy(stdout)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegates_are_found_by_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("/nowhere:{}", folder.path().display());
        assert_eq!(
            find(&path, "x").unwrap_err().msg,
            format!(
                "failed to find plugin \"x\" in path [/nowhere {}]",
                folder.path().display()
            )
        );
        assert_eq!(find(&path, "../x").unwrap_err().msg, "invalid plugin name: ../x");
        std::fs::create_dir(folder.path().join("d")).unwrap();
        assert!(find(&path, "d").is_err());
        std::fs::write(folder.path().join("x"), "").unwrap();
        assert_eq!(find(&path, "x").unwrap(), folder.path().join("x"));
    }

    #[test]
    fn errors_of_delegates_pass_through() {
        let error = read_error(br#"{"code": 11, "msg": "later", "details": "d"}"#);
        assert_eq!(
            (error.code, error.msg.as_str(), error.details.as_str()),
            (11, "later", "d")
        );
        assert_eq!(read_error(b"boom").msg, "netplugin failed: \"boom\"");
    }
}
