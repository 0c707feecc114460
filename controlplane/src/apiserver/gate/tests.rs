//! A gate says what it changes, the gate beneath it the rest, and nothing is open by omission.

use super::*;
use crate::apiserver::{Parts, body};
use crate::store::memory::Memory;
use client::SystemClock;

/// Says nothing.
struct Silent;

impl Gate for Silent {}

/// Says who asks, and leaves the rest out.
struct OnlyIdentity;

#[async_trait]
impl Gate for OnlyIdentity {
    async fn authenticate(
        &self,
        _: &http::request::Parts,
        _: Option<&[CertificateDer<'static>]>,
        _: &Reader,
    ) -> Result<User, ApiError> {
        Ok(User::named("u", &["system:masters"]))
    }
}

/// [`Open`] through one more gate.
struct Through;

impl Gate for Through {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }
}

async fn statuses(gate: impl Gate) -> Vec<u16> {
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(SystemClock),
        seed: 1,
        gate: Arc::new(gate),
    };
    let server = ApiServer::new(parts).await.unwrap();
    let maps = "/api/v1/namespaces/a/configmaps";
    let map = r#"{"metadata":{"name":"m"}}"#;
    let mut statuses = Vec::new();
    for (method, path, content) in [
        ("POST", maps, map),
        ("GET", maps, ""),
        ("GET", "/api", ""),
        ("GET", "/livez", ""),
        ("DELETE", &format!("{maps}/m"), ""),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(body::full(content.to_owned())).unwrap();
        statuses.push(server.handle(None, request).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn what_no_gate_says_is_refused() {
    assert_eq!(statuses(Silent).await, [500; 5]);
    assert_eq!(statuses(OnlyIdentity).await, [500; 5], "authorization is not left open");
}

#[tokio::test]
async fn what_a_gate_leaves_out_the_one_beneath_it_says() {
    assert_eq!(statuses(Through).await, statuses(Open).await);
    assert_eq!(statuses(Open).await, [201, 200, 200, 404, 200]);
}
