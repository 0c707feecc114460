use super::*;
use tokio::time::Instant;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/j";
const CRONS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const CRON: &str = "/apis/batch/v1/namespaces/default/cronjobs/c";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn spec(image: &str, extra: Value) -> Value {
    let mut spec =
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}}});
    json_patch::merge(&mut spec, &extra);
    spec
}

fn job(image: &str, extra: Value) -> Value {
    json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j"}, "spec": spec(image, extra)})
}

fn has(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == condition && c["status"] == "True"))
}

fn count(list: &Value, reason: &str) -> u64 {
    let items = list["items"].as_array().into_iter().flatten();
    let told = items.filter(|event| event["reason"] == reason);
    told.map(|event| event["count"].as_u64().unwrap_or(1)).sum()
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end() {
    let world = World::start(2).await;
    world
        .create(JOBS, job("succeeds", json!({"completions": 5, "parallelism": 2})))
        .await;
    let done = world.until(JOB, |job| has(job, "Complete")).await;
    let status = &done["status"];
    assert_eq!(status["succeeded"], 5);
    assert!(status["active"].is_null() && status["failed"].is_null(), "{status}");
    assert!(
        has(&done, "SuccessCriteriaMet") && status["completionTime"].is_string() && status["startTime"].is_string()
    );
    let pods = world.items(PODS).await;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    assert!(
        pods.iter()
            .all(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j")
    );
    let told = |list: &Value| (count(list, "SuccessfulCreate"), count(list, "Completed"));
    world.until(EVENTS, |list| told(list) == (5, 1)).await;
    world
        .call("DELETE", JOB, Some(json!({"propagationPolicy": "Background"})))
        .await
        .unwrap();
    world.until(PODS, |list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_waits_longer_each_time_and_gives_up() {
    let world = World::start(1).await;
    let start = Instant::now();
    world.create(JOBS, job("fails", json!({"backoffLimit": 2}))).await;
    let done = world.until(JOB, |job| has(job, "Failed")).await;
    assert_eq!(done["status"]["failed"], 3);
    let failed = done["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Failed");
    assert_eq!(failed.unwrap()["reason"], "BackoffLimitExceeded");
    assert!(
        start.elapsed() >= Duration::from_secs(30),
        "10 s, then 20: {:?}",
        start.elapsed()
    );
    world
        .until(EVENTS, |list| count(list, "BackoffLimitExceeded") == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_suspended_resumed_and_expired() {
    let world = World::start(2).await;
    let extra = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "suspend": true, "ttlSecondsAfterFinished": 60});
    world.create(JOBS, job("succeeds", extra)).await;
    let held = world.until(JOB, |job| has(job, "Suspended")).await;
    assert!(held["status"]["startTime"].is_null());
    assert!(world.items(PODS).await.is_empty());
    world.patch(JOB, json!({"spec": {"suspend": false}})).await;
    let done = world.until(JOB, |job| has(job, "Complete")).await;
    assert_eq!(done["status"]["completedIndexes"], "0-2");
    let end = Instant::now();
    let pods = world.items(PODS).await;
    let mut names: Vec<_> = pods
        .iter()
        .map(|pod| pod["spec"]["hostname"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["j-0", "j-1", "j-2"]);
    world.until(JOB, Value::is_null).await;
    assert!(
        end.elapsed() >= Duration::from_secs(55),
        "its time had come: {:?}",
        end.elapsed()
    );
    world.until(PODS, |list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_goes_are_let_go_of() {
    let world = World::start(1).await;
    for propagation in ["Background", "Foreground", "Orphan"] {
        world
            .create(JOBS, job("nginx", json!({"parallelism": 2, "completions": 2})))
            .await;
        world.until(JOB, |job| job["status"]["ready"] == 2).await;
        world
            .call("DELETE", JOB, Some(json!({"propagationPolicy": propagation})))
            .await
            .unwrap();
        world.until(JOB, Value::is_null).await;
        if propagation == "Orphan" {
            let is_free =
                |pod: &Value| pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null();
            let is_free = |list: &Value| {
                list["items"]
                    .as_array()
                    .is_some_and(|pods| pods.len() == 2 && pods.iter().all(is_free))
            };
            world.until(PODS, is_free).await;
        } else {
            world.until(PODS, |list| list["items"] == json!([])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_time_is_over_ends_its_pods() {
    let world = World::start(1).await;
    world
        .create(JOBS, job("nginx", json!({"activeDeadlineSeconds": 20})))
        .await;
    let done = world.until(JOB, |job| has(job, "Failed")).await;
    assert_eq!(done["status"]["conditions"][0]["reason"], "DeadlineExceeded");
    assert_eq!(done["status"]["failed"], 1);
    world.until(PODS, |list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_makes_a_job_a_minute_and_keeps_the_last() {
    let world = World::start(1).await;
    let template = json!({"spec": spec("succeeds", json!({}))});
    world
        .create(
            CRONS,
            json!({"kind": "CronJob", "apiVersion": "batch/v1", "metadata": {"name": "c"},
                "spec": {"schedule": "* * * * *", "timeZone": "Europe/Berlin", "successfulJobsHistoryLimit": 2, "jobTemplate": template}}),
        )
        .await;
    world.until(EVENTS, |list| count(list, "SawCompletedJob") >= 4).await;
    world
        .until(JOBS, |list| {
            list["items"].as_array().is_some_and(|jobs| jobs.len() <= 3)
        })
        .await;
    let cron = world.until(CRON, |cron| cron["status"]["active"].is_null()).await;
    assert!(cron["status"]["lastScheduleTime"].is_string() && cron["status"]["lastSuccessfulTime"].is_string());
    let jobs = world.items(JOBS).await;
    let scheduled = &jobs[0]["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert!(scheduled.as_str().unwrap().ends_with("+01:00"), "{scheduled}");
    let told = world.get(EVENTS).await.unwrap();
    assert_eq!((count(&told, "MissingJob"), count(&told, "UnexpectedJob")), (0, 0));
    let made = count(&told, "SuccessfulCreate");
    world.patch(CRON, json!({"spec": {"suspend": true}})).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let told = world.get(EVENTS).await.unwrap();
    assert!(
        count(&told, "SuccessfulCreate") <= made + 2,
        "suspended ones make nothing"
    );
}
