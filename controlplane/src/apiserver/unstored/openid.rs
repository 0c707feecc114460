//! The OpenID discovery document of the service account issuer (control-plane contract §6). Pure.

use serde_json::{Value, json};

/// `/.well-known/openid-configuration`.
pub(super) fn configuration(issuer: &str, url: &str) -> Value {
    json!({
        "issuer": issuer,
        "jwks_uri": format!("{url}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}
