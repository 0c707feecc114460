use super::*;
use crate::pod_object;
use client::SystemClock;
use nix::sys::stat::Mode;
use std::fs;

const LONG: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    dir: tempfile::TempDir,
    pods: watch::Receiver<Delivered>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Bench {
    /// A source that reads the directory, or that file in it.
    fn start(dir: tempfile::TempDir, file: Option<&str>, every: Duration) -> Self {
        let path = file.map_or_else(|| dir.path().to_owned(), |file| dir.path().join(file));
        let source = FileSource::new(path, every, "n".into(), Arc::new(SystemClock));
        let (sender, pods) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(source.run(sender, stop.clone()));
        Self { dir, pods, stop, task }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(name), bytes).expect("write");
    }

    /// Waits until exactly these pods are delivered, as `name:image`.
    async fn until(&mut self, expected: &[&str]) {
        let shown = |pods: &Delivered| {
            let pods = pods.as_ref()?;
            let text = |pod: &Arc<Pod>| {
                format!(
                    "{}:{}",
                    pod_object::name(pod),
                    pod_object::regulars(pod)[0].image.as_deref().unwrap_or("")
                )
            };
            Some(pods.iter().map(text).collect::<Vec<_>>())
        };
        let holds = |pods: &Delivered| shown(pods).is_some_and(|shown| shown == expected);
        let waited = tokio::time::timeout(PATIENCE, self.pods.wait_for(holds)).await.is_ok();
        assert!(waited, "never {expected:?}, but {:?}", shown(&self.pods.borrow()));
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("ends");
    }
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
    )
}

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().expect("temp dir")
}

#[tokio::test]
async fn changes_are_noticed_without_waiting_for_the_list() {
    let mut bench = Bench::start(empty(), None, LONG);
    bench.until(&[]).await;
    bench.write("b.yaml", manifest("b", "i1"));
    bench.until(&["b-n:i1"]).await;
    bench.write(".hidden", manifest("hidden", "i"));
    bench.write("a.json.anything", manifest("a", "i1"));
    bench.until(&["a-n:i1", "b-n:i1"]).await;
    bench.write("b.yaml", manifest("b", "i2"));
    bench.until(&["a-n:i1", "b-n:i2"]).await;
    fs::rename(bench.dir.path().join("a.json.anything"), bench.dir.path().join(".a")).expect("rename");
    bench.until(&["b-n:i2"]).await;
    fs::remove_file(bench.dir.path().join("b.yaml")).expect("remove");
    bench.until(&[]).await;
    bench.end().await;
}

#[tokio::test]
async fn what_is_no_manifest_harms_no_other() {
    let dir = empty();
    nix::unistd::mkfifo(&dir.path().join("fifo"), Mode::S_IRWXU).expect("a FIFO");
    fs::create_dir(dir.path().join("directory")).expect("a directory");
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("device")).expect("a link");
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).expect("a link");
    let mut bench = Bench::start(dir, None, LONG);
    let mut large = manifest("large", "i").into_bytes();
    large.resize(11 << 20, b'#');
    bench.write("large", large);
    bench.write("half", "apiVersion: v1\nkind: Pod\nmetadata: {na");
    bench.write("binary", [0, 159, 146, 150]);
    bench.write("bom", format!("\u{feff}{}", manifest("bom", "i")));
    bench.write("last", manifest("last", "i"));
    bench.until(&["bom-n:i", "last-n:i"]).await;
    bench.end().await;
}

#[tokio::test]
async fn a_broken_edit_keeps_the_pod_until_it_is_right_or_gone() {
    let mut bench = Bench::start(empty(), None, LONG);
    bench.write("a", manifest("a", "i1"));
    bench.until(&["a-n:i1"]).await;
    bench.write("a", "apiVersion: v1\nkind: P");
    bench.write("b", manifest("b", "i1"));
    bench.until(&["a-n:i1", "b-n:i1"]).await;
    bench.write("a", manifest("a", "i2"));
    bench.until(&["a-n:i2", "b-n:i1"]).await;
    bench.write("a", "");
    fs::remove_file(bench.dir.path().join("a")).expect("remove");
    bench.until(&["b-n:i1"]).await;
    bench.end().await;
}

#[tokio::test]
async fn another_layout_of_a_pod_is_no_change() {
    let mut bench = Bench::start(empty(), None, LONG);
    bench.write("a", manifest("a", "i"));
    bench.until(&["a-n:i"]).await;
    let before = bench.pods.borrow().clone().expect("delivered");
    bench.write("a", format!("# the same\n{}", manifest("a", "i")));
    bench.write("b", manifest("b", "i"));
    bench.until(&["a-n:i", "b-n:i"]).await;
    let after = bench.pods.borrow().clone().expect("delivered");
    assert!(Arc::ptr_eq(&before[0], &after[0]));
    bench.end().await;
}

#[tokio::test]
async fn a_directory_that_comes_late_is_noticed() {
    let mut bench = Bench::start(empty(), Some("manifests"), LONG);
    bench.until(&[]).await;
    fs::create_dir(bench.dir.path().join("manifests")).expect("a directory");
    bench.write("manifests/a", manifest("a", "i1"));
    bench.until(&["a-n:i1"]).await;
    bench.write("manifests/a", manifest("a", "i2"));
    bench.until(&["a-n:i2"]).await;
    bench.end().await;
}

#[tokio::test]
async fn one_file_that_comes_and_goes() {
    let mut bench = Bench::start(empty(), Some("pod.yaml"), LONG);
    bench.until(&[]).await;
    bench.write("other.yaml", manifest("other", "i"));
    bench.write("pod.yaml", manifest("a", "i"));
    bench.until(&["a-n:i"]).await;
    fs::remove_file(bench.dir.path().join("pod.yaml")).expect("remove");
    bench.until(&[]).await;
    bench.end().await;
}

#[tokio::test]
async fn a_file_that_is_put_back_gives_its_pod_anew_and_an_edited_one_does_not() {
    let mut bench = Bench::start(empty(), None, LONG);
    let named = |image: &str| manifest("a", image).replace("{name: a}", "{name: a, uid: fixed}");
    bench.write("a", named("i1"));
    bench.until(&["a-n:i1"]).await;
    let seen = |bench: &Bench| {
        let delivered = bench.pods.borrow().clone().expect("delivered");
        pod_object::seen(&delivered[0]).map(str::to_owned)
    };
    let first = seen(&bench);
    bench.write("a", named("i2"));
    bench.until(&["a-n:i2"]).await;
    assert_eq!(seen(&bench), first, "the same pod with another image");
    fs::remove_file(bench.dir.path().join("a")).expect("remove");
    bench.write("a", named("i2"));
    let anew = |pods: &Delivered| {
        let pods = pods.iter().flatten().next();
        pods.is_some_and(|pod| pod_object::seen(pod) != first.as_deref())
    };
    let waited = tokio::time::timeout(PATIENCE, bench.pods.wait_for(anew)).await.is_ok();
    assert!(waited, "seen once more");
    bench.end().await;
}
