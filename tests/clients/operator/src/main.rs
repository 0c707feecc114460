//! An operator as people write them with kube-rs: it applies its own definition, waits until that is established, and
//! makes a Deployment of every `Website`.
//!
//! It knows nothing of the server it runs against, and that is its purpose: `tests/clients` runs it unmodified against
//! ours. It never asks for more than kube-rs does by itself: lists, watches, server-side apply, status, finalizers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::await_condition;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Who applies: the field manager of everything the operator writes.
const MANAGER: &str = "website-operator";
/// What keeps a website until the operator has seen its end.
const FINALIZER: &str = "example.com/website";

/// What a website wants.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    shortname = "web",
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.image"}"#
)]
pub struct WebsiteSpec {
    /// The image its pods run.
    image: String,
    /// How many pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    replicas: i32,
}

fn one() -> i32 {
    1
}

/// What the operator has seen of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct WebsiteStatus {
    /// The generation that the deployment was last applied for.
    observed_generation: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("asking the API server")]
    Request(#[from] kube::Error),
    #[error("the finalizer")]
    Finalizer(#[source] Box<kube::runtime::finalizer::Error<Failed>>),
    #[error("a website without a namespace")]
    NoNamespace,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = Client::try_default().await?;
    define(&client).await?;
    println!("defined");
    let websites = Controller::new(Api::<Website>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client.clone()), watcher::Config::default())
        .shutdown_on_signal()
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(client),
        );
    websites
        .for_each(|turn| async move {
            match turn {
                Ok((website, _)) => println!("reconciled {}", website.name),
                Err(error) => println!("failed: {error}"),
            }
        })
        .await;
    Ok(())
}

/// Applies the definition and waits until its kind is served.
async fn define(client: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Website::crd();
    let name = definition.name_any();
    definitions
        .patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&definition))
        .await?;
    await_condition(definitions, &name, is_crd_established()).await?;
    Ok(())
}

/// Brings one website's deployment to what it wants; its end goes past the finalizer.
async fn reconcile(website: Arc<Website>, client: Arc<Client>) -> Result<Action, Failed> {
    let namespace = website.namespace().ok_or(Failed::NoNamespace)?;
    let websites: Api<Website> = Api::namespaced(client.as_ref().clone(), &namespace);
    finalizer(&websites, FINALIZER, website, |event| async {
        match event {
            Event::Apply(website) => apply(&client, &websites, &website, &namespace).await,
            Event::Cleanup(website) => {
                println!("cleaned {}", website.name_any());
                Ok(Action::await_change())
            }
        }
    })
    .await
    .map_err(|error| Failed::Finalizer(Box::new(error)))
}

/// Applies the deployment, which the website owns, and tells in the status which generation it is of.
async fn apply(client: &Client, websites: &Api<Website>, website: &Website, namespace: &str) -> Result<Action, Failed> {
    let name = website.name_any();
    let labels = json!({"website": name});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": [website.controller_owner_ref(&())]},
        "spec": {
            "replicas": website.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "site", "image": website.spec.image}]},
            },
        },
    });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let parameters = PatchParams::apply(MANAGER).force();
    deployments
        .patch(&name, &parameters, &Patch::Apply(&deployment))
        .await?;
    let status = json!({
        "apiVersion": Website::api_version(&()),
        "kind": Website::kind(&()),
        "status": {"observed_generation": website.meta().generation},
    });
    websites
        .patch_status(&name, &parameters, &Patch::Apply(&status))
        .await?;
    Ok(Action::requeue(Duration::from_mins(5)))
}
