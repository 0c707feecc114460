//! The parts alone, over TLS on loopback, as upstream's two users with upstream's roles: everything they ask for is granted.

use super::super::Daemon;
use super::*;
use crate::apiserver::service;
use crate::apiserver::user::User;
use crate::config::flags;
use crate::pki::{kubeconfig, tls};
use crate::store::Store;
use crate::store::memory::Memory;
use client::{Clock, SystemClock};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// How long anything may take; nothing here waits for it.
const DEADLINE: Duration = Duration::from_secs(120);

struct World {
    dir: tempfile::TempDir,
    daemon: Daemon,
    port: u16,
    root: kube::Client,
    shutdown: CancellationToken,
    _tls: watch::Sender<Arc<rustls::ServerConfig>>,
}

fn host() -> Host {
    Host {
        clock: Arc::new(SystemClock),
        seed: 7,
        hostname: "host".to_owned(),
        address: "127.0.0.1".parse().unwrap(),
        proc: "/proc".into(),
    }
}

fn config(words: &[String]) -> Config {
    Config::resolve(&flags::parse(words.iter().cloned())).unwrap()
}

impl World {
    /// An API server without scheduler and controllers, on a port of its own.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let policy = dir.path().join("policy.yaml");
        let everything = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
        std::fs::write(&policy, everything).unwrap();
        let words = [
            format!("--data-dir={}", dir.path().display()),
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", dir.path().join("audit").display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--components=apiserver".to_owned(),
        ];
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let daemon = Daemon::embed(&config(&words), host(), store).await.unwrap();
        let pki = dir.path().join("pki");
        let cert = pki.join("apiserver.crt");
        let identity = pki::read_identity(&cert, &pki.join("apiserver.key")).unwrap();
        let (sender, tls) = watch::channel(Arc::new(tls::server_config(&identity, &cert).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        tokio::spawn(service::serve(listener, tls, daemon.server().clone(), shutdown.clone()));
        Self {
            root: daemon.server().client_as(User::named("root", &["system:masters"])),
            dir,
            daemon,
            port,
            shutdown,
            _tls: sender,
        }
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        let authority = Authority::load(&self.dir.path().join("pki")).unwrap();
        let server = format!("https://127.0.0.1:{}", self.port);
        let text = kubeconfig::issue(&authority, user, &[], &server, SystemClock.now()).unwrap();
        let path = self.dir.path().join(user.replace(':', "-"));
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn part(&self, component: &str, user: &str, more: &[String]) -> Alone {
        let kubeconfig = self.kubeconfig(user);
        let mut words = vec![
            format!("--components={component}"),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--secure-port=0".to_owned(),
        ];
        words.extend_from_slice(more);
        let config = config(&words);
        let alone = config.alone.as_ref().unwrap();
        Alone::start(&config, alone, host()).await.unwrap()
    }

    async fn call(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind);
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.root.request(request.body(body).unwrap()).await
    }

    async fn create(&self, path: &str, body: Value) {
        let made = self.call("POST", path, "application/json", &body).await;
        made.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    async fn get(&self, path: &str) -> Option<Value> {
        self.call("GET", path, "application/json", &Value::Null).await.ok()
    }

    /// Waits until `holds` of what is at the path; `Null` when nothing is.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let now = self.get(path).await.unwrap_or_default();
            if holds(&now) {
                return;
            }
            assert!(Instant::now() < deadline, "{path}: {now:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A node that is ready, as its kubelet would say.
    async fn ready_node(&self) {
        self.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
        let now = SystemClock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let size = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready",
            "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
        let patched = self
            .call(
                "PATCH",
                "/api/v1/nodes/n1/status",
                "application/merge-patch+json",
                &status,
            )
            .await;
        patched.unwrap();
    }

    /// Requests that were refused for want of rights or of an identity, by the audit log. That something cannot be made in a
    /// namespace that is going away is told by the same code, and is no matter of rights.
    fn forbidden(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("audit")).unwrap();
        let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for user in [
            "system:kube-scheduler",
            "system:kube-controller-manager",
            "system:serviceaccount:kube-system:job-controller",
        ] {
            assert!(
                events.iter().any(|event| event["user"]["username"] == user),
                "{user} asked for nothing"
            );
        }
        let refused = events.iter().filter(|event| {
            event["annotations"]["authorization.k8s.io/decision"] == "forbid" || event["responseStatus"]["code"] == 401
        });
        let told = |event: &Value| {
            format!(
                "{} {} {}",
                event["user"]["username"], event["verb"], event["requestURI"]
            )
        };
        refused.map(told).collect()
    }
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "nginx",
        "resources": {"requests": {"cpu": "10m"}}}]}})
}

fn selected(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

/// One object for each of many controllers.
async fn workloads(world: &World) {
    let apps = "/apis/apps/v1/namespaces/default";
    let meta = |name: &str| json!({"name": name});
    let deployment = json!({"metadata": meta("web"), "spec": {"replicas": 3, "selector": selected("web"), "template": template("web")}});
    world.create(&format!("{apps}/deployments"), deployment).await;
    let set = json!({"metadata": meta("db"), "spec": {"replicas": 1, "serviceName": "db", "selector": selected("db"), "template": template("db")}});
    world.create(&format!("{apps}/statefulsets"), set).await;
    let daemons =
        json!({"metadata": meta("agent"), "spec": {"selector": selected("agent"), "template": template("agent")}});
    world.create(&format!("{apps}/daemonsets"), daemons).await;
    let controller = json!({"metadata": meta("old"), "spec": {"replicas": 1, "selector": {"app": "old"}, "template": template("old")}});
    world
        .create("/api/v1/namespaces/default/replicationcontrollers", controller)
        .await;
    let mut job = template("job");
    job["spec"]["restartPolicy"] = json!("Never");
    let batch = "/apis/batch/v1/namespaces/default";
    world
        .create(
            &format!("{batch}/jobs"),
            json!({"metadata": meta("job"), "spec": {"template": job}}),
        )
        .await;
    let cron = json!({"metadata": meta("cron"), "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}});
    world.create(&format!("{batch}/cronjobs"), cron).await;
    let service = json!({"metadata": meta("web"), "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let budget = json!({"metadata": meta("web"), "spec": {"minAvailable": 1, "selector": selected("web")}});
    world
        .create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        .await;
    let scaler = json!({"metadata": meta("web"), "spec": {"minReplicas": 3, "maxReplicas": 3, "scaleTargetRef":
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    world
        .create(
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            scaler,
        )
        .await;
    let quota = json!({"metadata": meta("all"), "spec": {"hard": {"pods": "100"}}});
    world.create("/api/v1/namespaces/default/resourcequotas", quota).await;
}

/// What tells that they were worked on.
async fn worked_on(world: &World) {
    let bound = |count: usize| {
        move |list: &Value| {
            let pods = list["items"].as_array().into_iter().flatten();
            pods.filter(|pod| pod["spec"]["nodeName"] == "n1").count() == count
        }
    };
    for (app, count) in [("web", 3), ("db", 1), ("agent", 1), ("old", 1), ("job", 1)] {
        let pods = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
        let pods = match app {
            "job" => "/api/v1/namespaces/default/pods?labelSelector=job-name%3Djob".to_owned(),
            _ => pods,
        };
        world.until(&pods, bound(count)).await;
    }
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb";
    world
        .until(slices, |list| {
            list["items"].as_array().is_some_and(|all| !all.is_empty())
        })
        .await;
    let budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
    world
        .until(budget, |budget| budget["status"]["expectedPods"] == 3)
        .await;
    let scaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web";
    world
        .until(scaler, |scaler| scaler["status"]["conditions"].is_array())
        .await;
    let quota = "/api/v1/namespaces/default/resourcequotas/all";
    world
        .until(quota, |quota| quota["status"]["used"]["pods"].is_string())
        .await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    world.until(account, |account| account.is_object()).await;
    let ca = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    world
        .until(ca, |map| {
            let pem = map["data"]["ca.crt"].as_str();
            pem.is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----"))
        })
        .await;
    world
        .until("/api/v1/nodes/n1", |node| node["spec"]["podCIDR"].is_string())
        .await;
}

/// A certificate is approved and signed, a namespace emptied, and dependents go with their owner.
async fn signed_and_collected(world: &World) {
    use base64::Engine;
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, name) in [
        (rcgen::DnType::OrganizationName, "system:nodes"),
        (rcgen::DnType::CommonName, "system:node:n1"),
    ] {
        params.distinguished_name.push(kind, name);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let csr = json!({"metadata": {"name": "csr"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"], "request": base64::engine::general_purpose::STANDARD.encode(pem)}});
    let csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let node = world
        .daemon
        .server()
        .client_as(User::named("system:node:n1", &["system:nodes"]));
    let request = http::Request::post(csrs).header("content-type", "application/json");
    let request = request.body(csr.to_string().into_bytes()).unwrap();
    node.request::<Value>(request).await.unwrap();
    world
        .until(&format!("{csrs}/csr"), |csr| csr["status"]["certificate"].is_string())
        .await;

    world
        .create("/api/v1/namespaces", json!({"metadata": {"name": "brief"}}))
        .await;
    let map = "/api/v1/namespaces/brief/configmaps";
    world.create(map, json!({"metadata": {"name": "m"}})).await;
    let gone = |value: &Value| value.is_null();
    let delete = |path: &'static str| async move {
        let options = json!({"propagationPolicy": "Background"});
        world.call("DELETE", path, "application/json", &options).await.unwrap();
    };
    delete("/api/v1/namespaces/brief").await;
    world.until("/api/v1/namespaces/brief", gone).await;
    delete("/apis/apps/v1/namespaces/default/deployments/web").await;
    let web = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb";
    world
        .until(web, |list| {
            let mut pods = list["items"].as_array().into_iter().flatten();
            pods.all(|pod| pod["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
}

/// A Secret for a token gets one that the API server takes.
async fn tokens_are_filled(world: &World) {
    let secrets: Api<Secret> = Api::namespaced(world.root.clone(), "default");
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let path = "/api/v1/namespaces/default/secrets/token";
    world.until(path, |secret| secret["data"]["token"].is_string()).await;
    let secret = secrets.get("token").await.unwrap();
    let token = String::from_utf8(secret.data.unwrap().remove("token").unwrap().0).unwrap();
    let review = json!({"metadata": {}, "spec": {"token": token}});
    let reviews: Api<TokenReview> = Api::all(world.root.clone());
    let review: TokenReview = serde_json::from_value(review).unwrap();
    let status = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(status.authenticated, Some(true), "{status:?}");
    assert_eq!(
        status.user.unwrap().username.as_deref(),
        Some("system:serviceaccount:default:default")
    );
}

async fn holder(world: &World, lease: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(world.root.clone(), "kube-system");
    let spec = leases.get(lease).await.unwrap().spec.unwrap();
    spec.holder_identity.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduler_and_controllers_work_as_upstreams_users_and_nothing_is_refused_them() {
    let world = World::start().await;
    let pki = world.dir.path().join("pki");
    let more = [
        "--use-service-account-credentials".to_owned(),
        format!("--cluster-signing-cert-file={}", pki.join("ca.crt").display()),
        format!("--cluster-signing-key-file={}", pki.join("ca.key").display()),
        format!("--service-account-private-key-file={}", pki.join("sa.key").display()),
    ];
    let scheduler = world.part("scheduler", "system:kube-scheduler", &[]).await;
    let controllers = world.part("controllers", "system:kube-controller-manager", &more).await;
    // A pod needs its namespace's account.
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    world.until(account, Value::is_object).await;
    world.ready_node().await;
    workloads(&world).await;
    worked_on(&world).await;
    signed_and_collected(&world).await;
    tokens_are_filled(&world).await;
    for lease in [SCHEDULER, CONTROLLERS] {
        assert!(holder(&world, lease).await.starts_with("host_"));
    }
    scheduler.stop().await;
    controllers.stop().await;
    for lease in [SCHEDULER, CONTROLLERS] {
        assert_eq!(holder(&world, lease).await, "", "{lease} is released");
    }
    assert_eq!(world.forbidden(), Vec::<String>::new());
    world.shutdown.cancel();
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_refused_token_is_asked_for_anew() {
    // The accounts' own view of an API server: every token it gives is good once.
    let (given, used) = (
        Arc::new(std::sync::Mutex::new(0u32)),
        Arc::new(std::sync::Mutex::new(Vec::<String>::new())),
    );
    let (giving, using) = (given.clone(), used.clone());
    let answer = |code: u16, body: Value| {
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, kube::Error>(http::Response::builder().status(code).body(body).unwrap())
    };
    let master = tower::service_fn(move |request: http::Request<Body>| {
        let (is_token, is_get) = (request.uri().path().ends_with("/token"), request.method() == "GET");
        let giving = giving.clone();
        async move {
            if is_token {
                let mut given = giving.lock().unwrap();
                *given += 1;
                return answer(201, json!({"status": {"token": format!("t{given}")}}));
            }
            match is_get {
                true => answer(
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                    "message": "", "metadata": {}}),
                ),
                false => answer(201, json!({})),
            }
        }
    });
    let nobody = tower::service_fn(move |request: http::Request<Body>| {
        let header = request.headers()[http::header::AUTHORIZATION]
            .to_str()
            .unwrap()
            .to_owned();
        let mut used = using.lock().unwrap();
        let code = if used.contains(&header) { 401 } else { 200 };
        used.push(header);
        async move { answer(code, json!({})) }
    });
    let accounts = Accounts::new(
        kube::Client::new(master, "default"),
        kube::Client::new(nobody, "default"),
    );
    let client = accounts.client("job-controller");
    let ask = async || {
        let request = http::Request::get("/x").body(Body::empty()).unwrap();
        client.send(request).await.unwrap().status().as_u16()
    };
    let codes = [ask().await, ask().await, ask().await];
    assert_eq!(codes, [200, 401, 200]);
    assert_eq!(*used.lock().unwrap(), ["Bearer t1", "Bearer t1", "Bearer t2"]);
}
