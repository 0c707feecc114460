//! The tree against a directory with everything a container may have put there.

use super::*;
use std::os::unix::fs::symlink;

async fn get(directory: &Path, raw: &str, query: &str, with_queries: bool) -> (u16, String) {
    let (path, query) = (RequestPath::parse(raw), Query::parse(query));
    let answer = answer(directory, &path, raw, &query, with_queries).await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("body").to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn files_are_read_and_nothing_outside_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = dir.path().join("log");
    fs::create_dir_all(logs.join("pods/a")).expect("made");
    let write = |path: PathBuf, text: &str| fs::write(path, text).expect("written");
    write(logs.join("pods/a/0.log"), "inside\n");
    write(logs.join("k<ube>let.log"), "own\n");
    write(dir.path().join("secret"), "secret\n");
    symlink(logs.join("pods/a/0.log"), logs.join("absolute")).expect("a link");
    symlink("pods/a/0.log", logs.join("relative")).expect("a link");
    symlink("../secret", logs.join("out")).expect("a link");
    symlink(dir.path().join("secret"), logs.join("absolute-out")).expect("a link");
    symlink("..", logs.join("up")).expect("a link");
    symlink("/proc/self/environ", logs.join("environ")).expect("a link");
    nix::unistd::mkfifo(&logs.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    for (path, code, text) in [
        ("/logs/k%3Cube%3Elet.log", 200, "own\n"),
        ("/logs/pods/a/0.log", 200, "inside\n"),
        ("/logs/absolute", 200, "inside\n"),
        ("/logs/relative", 200, "inside\n"),
        ("/logs/out", 403, ""),
        ("/logs/absolute-out", 403, ""),
        ("/logs/up/secret", 403, ""),
        ("/logs/../secret", 403, ""),
        ("/logs/%2e%2e%2fsecret", 403, ""),
        ("/logs/environ", 403, ""),
        ("/logs/pipe", 403, ""),
        ("/logs/none", 404, ""),
        ("/logs/pods", 301, ""),
    ] {
        let (found, body) = get(&logs, path, "", false).await;
        assert_eq!(found, code, "{path}: {body}");
        assert!(
            !body.contains("secret") && (code != 200 || body == text),
            "{path}: {body}"
        );
    }
    let (code, page) = get(&logs, "/logs/", "", false).await;
    assert!(code == 200 && page.contains("<a href=\"pods/\">pods/</a>"), "{page}");
    assert!(
        page.contains("<a href=\"k%3Cube%3Elet.log\">k&lt;ube&gt;let.log</a>"),
        "{page}"
    );
}

#[tokio::test]
async fn services_without_a_journal_are_looked_for_in_files_and_only_where_queries_are_on() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("no-such-unit-9.log"), "of the service\n").expect("written");
    let asked = "query=no-such-unit-9";
    let answer = get(dir.path(), "/logs/", asked, true).await;
    assert_eq!(answer, (200, "of the service\n".to_owned()));
    let missing = get(dir.path(), "/logs/", "query=no-such-unit-8", true).await;
    assert_eq!(missing, (200, "\nlog not found for no-such-unit-8\n".to_owned()));
    let (code, text) = get(dir.path(), "/logs/", &format!("{asked}&tailLines=1"), true).await;
    assert!(code == 200 && text.contains("try without specifying options"), "{text}");
    assert_eq!(get(dir.path(), "/logs/x", asked, true).await.0, 406);
    assert_eq!(get(dir.path(), "/logs/", "query=a;b", true).await.0, 406);
    assert_eq!(get(dir.path(), "/logs/", "query=+", true).await.0, 400);
    let file = get(dir.path(), "/logs/", "query=/no-such-unit-9.log", true).await;
    assert_eq!(file, (200, "of the service\n".to_owned()));
    let (code, page) = get(dir.path(), "/logs/", asked, false).await;
    assert!(
        code == 200 && page.contains("no-such-unit-9.log</a>"),
        "the question is not understood: {page}"
    );
}
