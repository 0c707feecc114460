//! What is asked of etcd beside its keys: who leads, who is a member, users and their rights. Through etcd's own JSON gateway, which
//! needs none of our client's code.

use super::{COUNT, Members, namespace, patiently, peer_url};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::process::Command;

impl Members {
    /// Asks a member.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn ask(&self, member: usize, path: &str, body: &Value) -> anyhow::Result<Value> {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "5",
            "--data",
            &body.to_string(),
        ]);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca);
            command
                .arg("--cert")
                .arg(tls.root.cert.as_ref().context("root's certificate")?);
            command.arg("--key").arg(tls.root.key.as_ref().context("root's key")?);
        }
        let output = command
            .arg(format!("{}/v3/{path}", self.url(member)))
            .output()
            .context("curl")?;
        ensure!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(answer.get("error").is_none(), "{path}: {}", answer["error"]);
        Ok(answer)
    }

    /// The member that leads by its own word, once one does.
    ///
    /// # Errors
    /// None does for a minute.
    pub fn leader(&self) -> anyhow::Result<usize> {
        self.leader_beside(COUNT)
    }

    /// As [`Members::leader`], whatever `another` says.
    ///
    /// # Errors
    /// None does for a minute.
    pub fn leader_beside(&self, another: usize) -> anyhow::Result<usize> {
        patiently(|| {
            let leads = |member: &usize| {
                let status = self.status(*member);
                status.is_ok_and(|status| status["leader"] == status["header"]["member_id"])
            };
            (0..COUNT)
                .filter(|member| *member != another && self.children[*member].is_some())
                .find(leads)
                .context("nobody leads")
        })
    }

    fn status(&self, member: usize) -> anyhow::Result<Value> {
        self.ask(member, "maintenance/status", &json!({}))
    }

    /// Whether a member says anything to clients.
    pub fn answers(&self, member: usize) -> bool {
        self.status(member).is_ok()
    }

    /// The number a member has had since it joined.
    ///
    /// # Errors
    /// It says none for a minute.
    pub fn number(&self, member: usize) -> anyhow::Result<Value> {
        patiently(|| Ok(self.status(member)?["header"]["member_id"].take()))
    }

    /// Writes a key of nobody's on no condition: whoever applies it once more has one revision more.
    ///
    /// # Errors
    /// As [`Members::ask`].
    pub fn put_whatever_is_there(&self) -> anyhow::Result<()> {
        // In base64: `/others` and `v`.
        patiently(|| {
            let put = json!({"key": "L290aGVycw==", "value": "dg=="});
            self.ask(0, "kv/put", &put).map(drop)
        })
    }

    /// Takes a dead member out of the cluster, and a new one of the same name in.
    pub(super) fn readmit(&self, member: usize) -> anyhow::Result<()> {
        let other = (member + 1) % COUNT;
        patiently(|| {
            let all = self.ask(other, "cluster/member/list", &json!({"linearizable": true}))?;
            let all = all["members"].as_array().cloned().unwrap_or_default();
            let old = all.iter().find(|found| found["name"] == namespace(member));
            let Some(old) = old else { return Ok(()) };
            self.ask(other, "cluster/member/remove", &json!({"ID": old["ID"]}))
                .map(drop)
        })?;
        patiently(|| {
            let all = self.ask(other, "cluster/member/list", &json!({}))?;
            let urls = json!([peer_url(member)]);
            let is_there = |found: &Value| found["peerURLs"] == urls;
            if all["members"].as_array().is_some_and(|all| all.iter().any(is_there)) {
                return Ok(());
            }
            self.ask(other, "cluster/member/add", &json!({"peerURLs": urls}))
                .map(drop)
        })
    }
}
