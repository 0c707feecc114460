//! Plugins that a test plays, asked for pods of an API server in memory.

use super::testing::{Asked, V1, login, played, provider};
use super::*;
use crate::kubelet::testing::Api;
use crate::metrics::Metrics;
use client::TokioClock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

struct Bench {
    providers: Providers,
    asked: Asked,
    api: Api,
    metrics: Metrics,
}

impl Bench {
    fn asked(&self) -> Vec<Value> {
        lock(&self.asked).clone()
    }

    async fn passwords(&self, image: &str, pod: &Pod) -> Vec<String> {
        let logins = self.providers.logins(image, pod).await;
        logins.into_iter().map(|login| login.auth.password).collect()
    }
}

fn bench(plugins: &dyn Fn(&Asked) -> Vec<(Provider, Run)>) -> Bench {
    let asked = Asked::default();
    let api = Api::new();
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
    let objects = Arc::new(Objects::new(api.client(), clock.clone(), 1));
    let metrics = Metrics::new("node-a");
    let setup = Setup::scripted(plugins(&asked));
    Bench {
        providers: Providers::new(&setup, objects, clock, &metrics.providers),
        asked,
        api,
        metrics,
    }
}

fn pod(name: &str, account: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            service_account_name: Some(account.into()).filter(|name: &String| !name.is_empty()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_for_what_it_is_good_for_until_it_expires() {
    for (scope, other_image, other_registry) in [("Image", 2, 3), ("Registry", 1, 2), ("Global", 1, 1)] {
        let bench = bench(&|asked| vec![(provider("p", None), played(asked, move |_| login(scope, "*.r.io", "1")))]);
        let pod = pod("a", "");
        assert_eq!(bench.passwords("a.r.io/app:1", &pod).await, ["1"]);
        assert_eq!(
            bench.asked()[0],
            json!({"kind": "CredentialProviderRequest", "apiVersion": V1, "image": "a.r.io/app"})
        );
        assert_eq!(bench.passwords("a.r.io/app:2", &pod).await, ["1"]);
        assert_eq!(bench.asked().len(), 1, "{scope}: another tag");
        bench.passwords("a.r.io/other", &pod).await;
        assert_eq!(bench.asked().len(), other_image, "{scope}: another image");
        bench.passwords("b.r.io/app", &pod).await;
        assert_eq!(bench.asked().len(), other_registry, "{scope}: another registry");
        tokio::time::advance(Duration::from_secs(90)).await;
        bench.passwords("a.r.io/app", &pod).await;
        assert_eq!(bench.asked().len(), other_registry + 1, "{scope}: after a minute");
        assert!(bench.passwords("quay.io/app", &pod).await.is_empty());
        assert_eq!(bench.asked().len(), other_registry + 1, "it does not know that one");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_says_so_is_not_kept_or_kept_for_centuries() {
    for (cache, later) in [("0s", 2), ("-1h", 2), ("2000000h", 1)] {
        let bench = bench(&|asked| {
            let answer = move |_: &Value| {
                let mut answer = login("Global", "r.io", "1");
                answer["cacheDuration"] = cache.into();
                answer
            };
            vec![(provider("p", None), played(asked, answer))]
        });
        assert_eq!(bench.passwords("r.io/a", &pod("a", "")).await, ["1"]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(bench.passwords("r.io/a", &pod("a", "")).await, ["1"]);
        assert_eq!(bench.asked().len(), later, "{cache}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_many_ask_at_once_is_asked_once() {
    let bench = bench(&|asked| vec![(provider("p", None), played(asked, |_| login("Image", "r.io", "1")))]);
    let pod = pod("a", "");
    let all = futures::future::join_all((0..50).map(|_| bench.passwords("r.io/a", &pod))).await;
    assert!(all.iter().all(|passwords| passwords == &["1"]), "{all:?}");
    assert_eq!(bench.asked().len(), 1);
    let begun = tokio::time::Instant::now();
    let images: Vec<String> = (0..64).map(|number| format!("r.io/{number}")).collect();
    futures::future::join_all(images.iter().map(|image| bench.passwords(image, &pod))).await;
    assert_eq!(begun.elapsed().as_secs(), 4, "sixteen at a time");
    assert!(lock(&bench.providers.plugins[0].under_way).is_empty());
    // Who asked first may have gone before the answer came.
    let first = tokio::time::timeout(Duration::from_millis(500), bench.passwords("r.io/new", &pod)).await;
    assert!(first.is_err());
    assert_eq!(bench.passwords("r.io/new", &pod).await, ["1"]);
    assert_eq!(bench.asked().len(), 1 + 64 + 1);
    let first = tokio::time::timeout(Duration::from_millis(500), bench.passwords("r.io/later", &pod)).await;
    assert!(first.is_err());
    tokio::time::advance(Duration::from_secs(2)).await;
    while !lock(&bench.providers.plugins[0].under_way).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.passwords("r.io/later", &pod).await, ["1"]);
    assert_eq!(
        bench.asked().len(),
        1 + 64 + 2,
        "an answer is kept though nobody waited"
    );
}

#[tokio::test(start_paused = true)]
async fn the_most_specific_login_is_tried_first_whichever_plugin_gave_it() {
    let bench = bench(&|asked| {
        let wide = |_: &Value| {
            json!({"cacheKeyType": "Image", "auth": {
                "r.io": {"username": "u", "password": "wide"},
                "other.io": {"username": "u", "password": "of another registry"},
            }})
        };
        vec![
            (provider("wide", None), played(asked, wide)),
            (
                provider("narrow", None),
                played(asked, |_| login("Image", "https://r.io/v2/team", "narrow")),
            ),
            (provider("broken", None), played(asked, |_| Value::Null)),
        ]
    });
    assert_eq!(
        bench.passwords("r.io/team/app", &pod("a", "")).await,
        ["narrow", "wide"]
    );
    assert_eq!(bench.passwords("r.io/other", &pod("a", "")).await, ["wide"]);
    let text = bench.metrics.text(&Default::default());
    for line in [
        "kubelet_credential_provider_plugin_errors_total{plugin_name=\"broken\"} 2",
        "kubelet_credential_provider_plugin_errors_total{plugin_name=\"wide\"} 0",
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"narrow\"} 2",
        "kubelet_credential_provider_config_info{hash=\"sha256:test\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

fn attributes(cache: &str, required: bool) -> Value {
    let keys = if required { json!(["role"]) } else { json!([]) };
    json!({"serviceAccountTokenAudience": "aud", "cacheType": cache, "requireServiceAccount": required,
        "requiredServiceAccountAnnotationKeys": keys, "optionalServiceAccountAnnotationKeys": ["hint"]})
}

fn with_tokens(cache: &'static str, required: bool, echo: bool) -> Bench {
    let bench = bench(&|asked| {
        let answer = move |request: &Value| {
            let token = request["serviceAccountToken"].as_str().unwrap_or("none");
            login("Global", "r.io", if echo { token } else { "1" })
        };
        vec![(provider("p", Some(attributes(cache, required))), played(asked, answer))]
    });
    bench
        .api
        .add_service_account("sa", &[("role", "r"), ("hint", "h"), ("private", "p")]);
    bench.api.add_service_account("plain", &[]);
    bench
}

#[tokio::test(start_paused = true)]
async fn a_plugin_gets_the_service_accounts_token_and_the_annotations_it_asks_for() {
    let bench = with_tokens("ServiceAccount", true, false);
    let logins = bench.providers.logins("r.io/a", &pod("a", "sa")).await;
    let origin = Origin::ServiceAccount {
        uid: "uid-sa".into(),
        namespace: "ns".into(),
        name: "sa".into(),
    };
    assert_eq!(logins[0].origin, origin);
    let asked = bench.asked();
    assert_eq!(asked[0]["serviceAccountAnnotations"], json!({"role": "r", "hint": "h"}));
    let token = asked[0]["serviceAccountToken"].as_str().expect("a token");
    assert_eq!(token, "token of ns/sa (uid-sa) for aud bound to a (uid-a)");
    bench.passwords("r.io/a", &pod("b", "sa")).await;
    assert_eq!(bench.asked().len(), 1, "the answer belongs to the account");
    assert!(bench.passwords("r.io/a", &pod("c", "plain")).await.is_empty());
    assert!(bench.passwords("r.io/a", &pod("d", "")).await.is_empty());
    assert!(bench.passwords("r.io/a", &pod("e", "absent")).await.is_empty());
    assert_eq!(
        bench.asked().len(),
        1,
        "without the annotation, or an account, it is not asked"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_one_token_is_no_other_pods() {
    let bench = with_tokens("Token", false, true);
    assert_eq!(bench.passwords("r.io/a", &pod("a", "plain")).await.len(), 1);
    assert_eq!(bench.passwords("r.io/a", &pod("a", "plain")).await.len(), 1);
    assert_eq!(bench.asked().len(), 1);
    assert!(bench.passwords("r.io/a", &pod("b", "plain")).await[0].ends_with("bound to b (uid-b)"));
    assert_eq!(bench.asked().len(), 2);
    let without = bench.providers.logins("r.io/a", &pod("c", "")).await;
    assert_eq!(
        (without[0].auth.password.as_str(), &without[0].origin),
        ("none", &Origin::Node)
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_that_comes_back_as_the_password_is_refused_where_it_would_be_kept_too_long() {
    let bench = with_tokens("ServiceAccount", false, true);
    assert!(bench.passwords("r.io/a", &pod("a", "sa")).await.is_empty());
}

#[test]
fn what_cannot_be_run_is_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temp dir");
    let (file, binaries) = (dir.path().join("config.yaml"), dir.path().join("bin"));
    let told = || {
        Setup::read(&file, &binaries, true)
            .map(|setup| format!("{setup:?}"))
            .map_err(|error| error.to_string())
    };
    let shown = |path: &Path| path.display().to_string();
    assert_eq!(
        told(),
        Err(format!("plugin binary directory {} did not exist", shown(&binaries)))
    );
    std::fs::create_dir(&binaries).expect("made");
    let config = json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [
        {"name": "p", "matchImages": ["r.io"], "defaultCacheDuration": "0s", "apiVersion": V1}]});
    std::fs::write(&file, config.to_string()).expect("written");
    let plugin = binaries.join("p");
    assert_eq!(
        told(),
        Err(format!("plugin binary executable {} did not exist", shown(&plugin)))
    );
    std::fs::write(&plugin, "").expect("written");
    std::fs::set_permissions(&plugin, PermissionsExt::from_mode(0o644)).expect("set");
    let denied = format!(
        "error inspecting binary executable {}: permission denied",
        shown(&plugin)
    );
    assert_eq!(told(), Err(denied));
    std::fs::set_permissions(&plugin, PermissionsExt::from_mode(0o755)).expect("set");
    assert_eq!(told(), Ok("[\"p\"]".to_owned()));
    std::fs::write(&file, config.to_string().replace("\"p\"", "\"../bin/p\"")).expect("written");
    assert!(
        told()
            .expect_err("refused")
            .contains("provider name cannot contain '/'")
    );
}

#[test]
fn a_runtime_that_ends_holds_nobody() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bench = {
        let _entered = runtime.enter();
        bench(&|asked| vec![(provider("p", None), played(asked, |_| login("Image", "r.io", "1")))])
    };
    let handle = runtime.handle().clone();
    drop(runtime);
    let _entered = handle.enter();
    let pod = pod("a", "");
    let asked = bench.passwords("r.io/a", &pod).now_or_never();
    assert_eq!(asked, Some(vec![]));
}

#[test]
fn complaints_are_told_without_what_is_secret() {
    let token = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln".to_owned();
    let secrets = [token.clone(), "1".to_owned(), "password of a registry".to_owned()];
    let trace =
        format!("exit status 1: + request={{\"t\":\"{token}\"}}\n+ echo {token}\x1b[0m 1 password of a registry");
    assert_eq!(
        tellable(&trace, &secrets),
        "exit status 1: + request={\"t\":\"...\"} + echo ... [0m 1 ..."
    );
    assert_eq!(
        tellable(&format!("x {}", &token[..20]), &secrets),
        "x ...",
        "it was cut"
    );
}
