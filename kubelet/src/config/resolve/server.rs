//! The servers, and who may ask them what.

use super::{Reader, given, tls};
use crate::config::{AuthorizationMode, Handlers, KubeletConfiguration, ServerConfig};
use std::time::Duration;

/// Open to everyone, as upstream's is without a configuration file.
const READ_ONLY_PORT: u16 = 10255;

fn authorization(reader: &mut Reader, written: &KubeletConfiguration, from_file: bool) -> AuthorizationMode {
    let webhook = &written.authorization.webhook;
    let allowed = reader.time(
        "authorization.webhook.cacheAuthorizedTTL",
        webhook.cache_authorized_ttl.as_deref(),
        Duration::from_secs(300),
    );
    let denied = reader.time(
        "authorization.webhook.cacheUnauthorizedTTL",
        webhook.cache_unauthorized_ttl.as_deref(),
        Duration::from_secs(30),
    );
    let default = if from_file { "Webhook" } else { "AlwaysAllow" };
    match written
        .authorization
        .mode
        .as_deref()
        .filter(|m| !m.is_empty())
        .unwrap_or(default)
    {
        "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
        "Webhook" => AuthorizationMode::Webhook { allowed, denied },
        other => {
            reader.wrong(
                "authorization.mode",
                format!("{other:?} is not one of AlwaysAllow, Webhook"),
            );
            AuthorizationMode::Webhook { allowed, denied }
        }
    }
}

pub(super) fn server(reader: &mut Reader, written: &KubeletConfiguration, from_file: bool) -> ServerConfig {
    let authentication = &written.authentication;
    let webhook_ttl = reader.time(
        "authentication.webhook.cacheTTL",
        authentication.webhook.cache_ttl.as_deref(),
        Duration::from_secs(120),
    );
    let tls_files = match (
        given(written.tls_cert_file.as_ref()),
        given(written.tls_private_key_file.as_ref()),
    ) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            reader.wrong("tlsCertFile", "must be given together with tlsPrivateKeyFile");
            None
        }
    };
    let healthz_port = reader.port("healthzPort", written.healthz_port, 10248, 0);
    let healthz_address = reader.address(
        "healthzBindAddress",
        written.healthz_bind_address.as_deref(),
        "127.0.0.1",
    );
    let read_only_default = if from_file { 0 } else { READ_ONLY_PORT };
    let read_only_port = reader.port("readOnlyPort", written.read_only_port, read_only_default, 0);
    ServerConfig {
        read_only_port: (read_only_port != 0).then_some(read_only_port),
        enabled: written.enable_server.unwrap_or(true),
        address: reader.address("address", written.address.as_deref(), "0.0.0.0"),
        port: reader.port("port", written.port, 10250, 1),
        healthz: (healthz_port != 0).then_some((healthz_address, healthz_port)),
        tls_files,
        tls: tls::tls(reader, written),
        handlers: Handlers {
            debugging: written.enable_debugging_handlers.unwrap_or(true),
            profiling: written.enable_profiling_handler.unwrap_or(true),
            flags: written.enable_debug_flags_handler.unwrap_or(true),
            system_log: written.enable_system_log_handler.unwrap_or(true),
            system_log_query: log_query(reader, written),
            log_streams: written.log_streams,
        },
        tls_bootstrap: written.server_tls_bootstrap.unwrap_or(false),
        client_ca: given(authentication.x509.client_ca_file.as_ref()),
        anonymous: authentication.anonymous.enabled.unwrap_or(!from_file),
        token_webhook: authentication
            .webhook
            .enabled
            .unwrap_or(from_file)
            .then_some(webhook_ttl),
        authorization: authorization(reader, written, from_file),
        stream_idle: reader.time(
            "streamingConnectionIdleTimeout",
            written.streaming_connection_idle_timeout.as_deref(),
            Duration::from_secs(4 * 3600),
        ),
    }
}

/// Services can be asked for only where files can.
fn log_query(reader: &mut Reader, written: &KubeletConfiguration) -> bool {
    let asked = written.enable_system_log_query.unwrap_or(false);
    if asked && written.enable_system_log_handler == Some(false) {
        reader.wrong("enableSystemLogQuery", "enableSystemLogHandler is required for it");
    }
    asked
}
