//! What the daemon is told to do: flags with upstream's names, resolved into one checked [`Config`].
//!
//! Two steps: [`flags::parse`] reads words (what the user wrote), [`Config::resolve`] gives them meaning. Both collect
//! every mistake instead of stopping at the first. Never touches a file: paths are checked by whoever opens them.

mod admission;
mod audit;
pub mod cidr;
pub mod components;
mod controllers;
pub mod flags;
mod storage;

pub use admission::AdmissionConfig;
pub use audit::AuditConfig;
pub use cidr::{Cidr, Cidrs};
pub use components::{AloneConfig, Components, ElectionConfig};
pub use controllers::ControllersConfig;
pub use storage::StoreKind;

use flags::Flags;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Default of `--service-account-issuer`.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Default of `--data-dir`.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/skiff/controlplane";

/// Everything `controlplane` needs to run, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The parts that run in this process.
    pub components: Components,
    /// What scheduler and controllers are told where no API server runs beside them; `None` with one.
    pub alone: Option<AloneConfig>,
    /// The data directory: store, certificates, `admin.kubeconfig`.
    pub data_dir: PathBuf,
    /// The kind of store.
    pub store: StoreKind,
    /// Address to listen on.
    pub bind_address: IpAddr,
    /// Port to serve HTTPS on.
    pub secure_port: u16,
    /// Address members of the cluster reach the API server at; `None` means: find one at start.
    pub advertise_address: Option<IpAddr>,
    /// Range of Service addresses, or one of each family.
    pub service_cidr: Cidrs,
    /// Range of pod addresses, or one of each family.
    pub cluster_cidr: Cidrs,
    /// Whether the Service of the cluster's DNS is kept.
    pub cluster_dns_service: bool,
    /// Who may enter, and how they are known.
    pub identity: IdentityConfig,
    /// Which admission plugins run.
    pub admission: AdmissionConfig,
    /// Which controllers run, and how fast some of them are.
    pub controllers: ControllersConfig,
    /// File with the scheduler's configuration; `None` is upstream's defaults.
    pub scheduler_file: Option<PathBuf>,
    /// File with a policy in place of it.
    pub scheduler_policy_file: Option<PathBuf>,
    /// What is audited; `None` is nothing.
    pub audit: Option<AuditConfig>,
    /// How values are encrypted where they are stored; `None` is in clear.
    pub encryption: Option<EncryptionFile>,
    /// Whether metrics.k8s.io is served from what kubelets say. Without it the group is free for somebody else's.
    pub metrics_api: bool,
    /// Log verbosity (`-v`): 0 is upstream's quiet, 4 shows debug messages.
    pub verbosity: u8,
}

/// Where an EncryptionConfiguration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionFile {
    /// The file.
    pub path: PathBuf,
    /// Whether its changes are taken up.
    pub reloads: bool,
}

/// The part of [`Config`] about certificates, tokens and authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityConfig {
    /// Serving certificate given by the user; the daemon's own otherwise.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Additional client CA bundle (our own CA is always trusted).
    pub client_ca_file: Option<PathBuf>,
    /// CSV of static tokens.
    pub token_auth_file: Option<PathBuf>,
    /// Issuers of service account tokens: the first signs, all are accepted.
    pub issuers: Vec<String>,
    /// Audiences the API server identifies as.
    pub audiences: Vec<String>,
    /// Whether requests without a credential are `system:anonymous`; otherwise they are refused with 401.
    pub anonymous: bool,
    /// Whether kubelets are judged by the Node authorizer before RBAC.
    pub node_authorizer: bool,
    /// CA bundle kubelets' serving certificates are verified against; as upstream, `None` means no verification.
    pub kubelet_ca_file: Option<PathBuf>,
}

impl Config {
    /// Gives parsed flags their meaning; every mistake is in the error list.
    ///
    /// # Errors
    /// One text per mistake, each naming its flag.
    pub fn resolve(flags: &Flags) -> Result<Self, Vec<String>> {
        let mut mistakes = flags.mistakes.clone();
        let mut read = Reader {
            flags,
            mistakes: &mut mistakes,
        };
        let components = read.components();
        let alone = read.alone(components);
        let issuers = read.all_urls("service-account-issuer", DEFAULT_ISSUER);
        let audiences = read.list("api-audiences").unwrap_or_else(|| issuers.clone());
        let node_authorizer = read.authorization_mode();
        let cluster_cidr = read.cidrs("cluster-cidr", "10.244.0.0/16");
        let controllers = read.controllers(&cluster_cidr);
        let config = Self {
            components,
            alone,
            data_dir: PathBuf::from(flags.last("data-dir").unwrap_or(DEFAULT_DATA_DIR)),
            store: read.store(),
            bind_address: read.parse("bind-address", IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            secure_port: if components.apiserver { read.port() } else { 0 },
            advertise_address: read.advertise(),
            service_cidr: read.service_cidr(),
            cluster_cidr,
            cluster_dns_service: read.bool("cluster-dns-service", true),
            identity: IdentityConfig {
                tls_files: read.tls_files(),
                client_ca_file: read.path("client-ca-file"),
                token_auth_file: read.path("token-auth-file"),
                issuers,
                audiences,
                anonymous: read.bool("anonymous-auth", true),
                node_authorizer,
                kubelet_ca_file: read.path("kubelet-certificate-authority"),
            },
            admission: read.admission(controllers.options.node_ports),
            controllers,
            scheduler_file: read.path("config"),
            scheduler_policy_file: read.path("policy-config-file"),
            audit: read.audit(),
            encryption: read.encryption(),
            metrics_api: read.bool("metrics-api", true),
            verbosity: read.parse("v", 2),
        };
        if components.apiserver && config.service_cidr.overlaps(&config.cluster_cidr) {
            mistakes.push(format!(
                "--service-cluster-ip-range {} overlaps --cluster-cidr {}",
                config.service_cidr, config.cluster_cidr
            ));
        }
        if config.scheduler_file.is_some() && config.scheduler_policy_file.is_some() {
            mistakes
                .push("--policy-config-file: says what --config says, too; only one of them can be given".to_owned());
        }
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    /// The socket address to listen on.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.bind_address, self.secure_port)
    }
}

/// Reads one flag at a time, noting what is wrong.
struct Reader<'a> {
    flags: &'a Flags,
    mistakes: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn wrong(&mut self, flag: &str, value: &str, why: impl std::fmt::Display) {
        self.mistakes
            .push(format!("invalid argument \"{value}\" for \"--{flag}\" flag: {why}"));
    }

    fn parse<T: std::str::FromStr>(&mut self, flag: &str, default: T) -> T
    where
        T::Err: std::fmt::Display,
    {
        match self.flags.last(flag).map(|text| (text, text.parse())) {
            None => default,
            Some((_, Ok(value))) => value,
            Some((text, Err(error))) => {
                self.wrong(flag, text, error);
                default
            }
        }
    }

    fn bool(&mut self, flag: &str, default: bool) -> bool {
        match self.flags.last(flag) {
            None => default,
            Some("true" | "1" | "t" | "T" | "TRUE" | "True") => true,
            Some("false" | "0" | "f" | "F" | "FALSE" | "False") => false,
            Some(other) => {
                self.wrong(flag, other, "must be true or false");
                default
            }
        }
    }

    fn path(&mut self, flag: &str) -> Option<PathBuf> {
        let text = self.flags.last(flag)?;
        if text.is_empty() {
            self.wrong(flag, text, "must name a file");
            return None;
        }
        Some(PathBuf::from(text))
    }

    fn list(&mut self, flag: &str) -> Option<Vec<String>> {
        let values = self.flags.all(flag);
        if values.is_empty() {
            return None;
        }
        let items = values.iter().flat_map(|value| value.split(','));
        Some(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
    }

    fn all_urls(&mut self, flag: &str, default: &str) -> Vec<String> {
        let values: Vec<String> = self.flags.all(flag).iter().map(|text| (*text).to_owned()).collect();
        for value in &values {
            if value.is_empty() || (value.contains(':') && !value.contains("://")) {
                self.wrong(flag, value, "an issuer that contains a colon must be a valid URL");
            }
        }
        if values.is_empty() {
            vec![default.to_owned()]
        } else {
            values
        }
    }

    fn port(&mut self) -> u16 {
        let port = self.parse("secure-port", 6443u16);
        if port == 0 {
            self.wrong("secure-port", "0", "must be between 1 and 65535");
        }
        port
    }

    fn encryption(&mut self) -> Option<EncryptionFile> {
        let reload = "encryption-provider-config-automatic-reload";
        let reloads = self.bool(reload, false);
        let path = self.path("encryption-provider-config");
        if reloads && path.is_none() {
            self.wrong(reload, "true", "--encryption-provider-config must be set with it");
        }
        path.map(|path| EncryptionFile { path, reloads })
    }

    fn advertise(&mut self) -> Option<IpAddr> {
        self.flags.last("advertise-address")?;
        let address = self.parse("advertise-address", IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if address.is_unspecified() {
            let text = self.flags.last("advertise-address").unwrap_or_default();
            self.wrong("advertise-address", text, "must be an address others can reach");
        }
        Some(address)
    }

    fn cidrs(&mut self, flag: &str, default: &str) -> Cidrs {
        let text = self.flags.last(flag).unwrap_or(default);
        match text.parse() {
            Ok(cidrs) => cidrs,
            Err(why) => {
                self.wrong(flag, text, why);
                Cidr::V4_ANY.into()
            }
        }
    }

    fn service_cidr(&mut self) -> Cidrs {
        let cidrs = self.cidrs("service-cluster-ip-range", "10.96.0.0/16");
        cidrs.iter().for_each(|cidr| self.check_service_cidr(*cidr));
        cidrs
    }

    fn check_service_cidr(&mut self, cidr: Cidr) {
        let flag = "service-cluster-ip-range";
        let bits = cidr.host_bits();
        if bits < 3 && cidr != Cidr::V4_ANY {
            self.wrong(flag, &cidr.to_string(), "must hold at least 8 addresses");
        } else if bits > 20 && cidr != Cidr::V4_ANY {
            let (width, most) = if cidr.is_ipv4() { (32, 12) } else { (128, 108) };
            let why = format!(
                "at most {} host bits are allowed: use a prefix of /{most} or longer",
                width - most
            );
            self.wrong(flag, &cidr.to_string(), why);
        }
    }

    fn tls_files(&mut self) -> Option<(PathBuf, PathBuf)> {
        let pair = (self.path("tls-cert-file"), self.path("tls-private-key-file"));
        match pair {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                self.mistakes
                    .push("--tls-cert-file and --tls-private-key-file must be given together".to_owned());
                None
            }
        }
    }

    /// Whether the mode `Node` is on.
    fn authorization_mode(&mut self) -> bool {
        let modes = self
            .list("authorization-mode")
            .unwrap_or_else(|| vec!["Node".to_owned(), "RBAC".to_owned()]);
        for mode in &modes {
            match mode.as_str() {
                "RBAC" | "Node" => {}
                "AlwaysAllow" | "AlwaysDeny" | "ABAC" | "Webhook" => {
                    self.wrong(
                        "authorization-mode",
                        mode,
                        "this mode is not supported yet; use Node,RBAC",
                    );
                }
                other => self.wrong("authorization-mode", other, "no such authorization mode"),
            }
        }
        if !modes.iter().any(|mode| mode == "RBAC") {
            self.mistakes
                .push("--authorization-mode must contain RBAC: nothing else is there to grant rights".to_owned());
        }
        modes.iter().any(|mode| mode == "Node")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(words: &[&str]) -> Result<Config, Vec<String>> {
        Config::resolve(&flags::parse(words.iter().map(|word| (*word).to_owned())))
    }

    #[test]
    fn defaults_are_upstreams() {
        let config = resolve(&[]).unwrap();
        assert_eq!(config.listen().to_string(), "0.0.0.0:6443");
        assert_eq!(config.service_cidr.to_string(), "10.96.0.0/16");
        assert_eq!(config.identity.audiences, [DEFAULT_ISSUER]);
        assert!(config.identity.anonymous && config.identity.node_authorizer);
        assert!(
            !resolve(&["--authorization-mode=RBAC"])
                .unwrap()
                .identity
                .node_authorizer
        );
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let mistakes = resolve(&[
            "--secure-port=70000",
            "--etcd-servers=http://x",
            "--etcd-servers-overrides=/events#http://x",
            "--no-such-flag",
            "--bind-address",
            "nowhere",
            "--tls-cert-file=a",
            "--authorization-mode=AlwaysAllow",
        ])
        .unwrap_err();
        let all = mistakes.join("\n");
        for part in [
            "\"--secure-port\"",
            "--etcd-servers\"",
            "--etcd-servers-overrides",
            "unknown flag: --no-such-flag",
            "invalid argument \"nowhere\" for \"--bind-address\" flag",
            "--tls-private-key-file",
            "\"AlwaysAllow\"",
        ] {
            assert!(all.contains(part), "{part} is missing in:\n{all}");
        }
    }

    #[test]
    fn ranges_are_checked() {
        for (words, part) in [
            (&["--service-cluster-ip-range=10.96.0.0/30"][..], "at least 8"),
            (&["--service-cluster-ip-range=10.0.0.0/8"][..], "/12 or longer"),
            (&["--cluster-cidr=10.96.0.0/12"][..], "overlaps"),
            (&["--cluster-cidr=10.1.0.0/99"][..], "prefix length"),
        ] {
            let mistakes = resolve(words).unwrap_err().join("\n");
            assert!(mistakes.contains(part), "{words:?}: {mistakes}");
        }
    }

    #[test]
    fn the_first_issuer_signs_and_all_are_audiences() {
        let config = resolve(&[
            "--service-account-issuer=https://a",
            "--service-account-issuer",
            "https://b",
        ])
        .unwrap();
        assert_eq!(config.identity.issuers, ["https://a", "https://b"]);
        assert_eq!(config.identity.audiences, ["https://a", "https://b"]);
    }
}
