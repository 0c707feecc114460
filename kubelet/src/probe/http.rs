//! The HTTP probe: one GET on a connection of its own (kubelet contract §4.4). Lifecycle hooks ask the same way.

use super::check::{CheckError, Report, dial_error};
use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPHeader;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The most that is read of an answer, bytes.
const BODY_BYTES_MAX: usize = 10 * 1024;
const REDIRECTS_MAX: usize = 10;
/// The statuses that send somebody elsewhere.
const FOLLOWED: [u16; 5] = [301, 302, 303, 307, 308];
/// How probes introduce themselves.
pub(super) const AGENT: &str = "kube-probe/1.36";
/// What a plaintext answer to a TLS greeting is called, in the words users know.
const PLAINTEXT: &str = "http: server gave HTTP response to HTTPS client";

/// What to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) https: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The `User-Agent` unless a header says otherwise.
    pub(crate) agent: &'static str,
}

impl Question {
    pub(crate) fn new(https: bool, host: &str, port: u16, path: &str, headers: Option<&Vec<HTTPHeader>>) -> Self {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        let headers = headers
            .into_iter()
            .flatten()
            .map(|h| (h.name.clone(), h.value.clone()))
            .collect();
        Self {
            https,
            host: host.to_owned(),
            port,
            path,
            headers,
            agent: AGENT,
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, String> {
        let mut builder = Request::builder().method(Method::GET).uri(&self.path);
        let headers = builder.headers_mut().ok_or("malformed path")?;
        headers.insert(USER_AGENT, HeaderValue::from_static(self.agent));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let authority = HeaderValue::from_str(&self.authority()).map_err(|error| error.to_string())?;
        headers.insert(HOST, authority);
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|error| error.to_string())?;
            if value.is_empty() && (name == ACCEPT || name == USER_AGENT) {
                headers.remove(&name);
                continue;
            }
            let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
            if name == HOST || name == USER_AGENT || name == ACCEPT {
                headers.insert(name, value);
            } else {
                headers.append(name, value);
            }
        }
        builder.body(Empty::new()).map_err(|error| error.to_string())
    }

    /// Where a redirect leads: on the same host a new question, elsewhere nothing.
    pub(crate) fn redirected(&self, location: &str) -> Option<Self> {
        if !location.contains("://") && !location.starts_with("//") {
            let path = self.relative(location);
            return Some(Self { path, ..self.clone() });
        }
        let scheme = match (location.starts_with("//"), self.https) {
            (true, true) => "https:",
            (true, false) => "http:",
            (false, _) => "",
        };
        let uri: Uri = format!("{scheme}{location}").parse().ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let host = uri.host()?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        (host == self.host).then(|| Self {
            https,
            host: host.to_owned(),
            port,
            path,
            // A name of one's own is given to whom the first question went, and along relative ways.
            headers: self.without_host(),
            agent: self.agent,
        })
    }

    fn without_host(&self) -> Vec<(String, String)> {
        let others = self
            .headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        others.cloned().collect()
    }

    /// The path a relative redirect means.
    fn relative(&self, location: &str) -> String {
        let location = location.split('#').next().unwrap_or_default();
        let own = self.path.split('?').next().unwrap_or_default();
        match location.chars().next() {
            None => self.path.clone(),
            Some('/') => location.to_owned(),
            Some('?') => format!("{own}{location}"),
            Some(_) => {
                let directory = own.rsplit_once('/').map_or("", |(directory, _)| directory);
                format!("{directory}/{location}")
            }
        }
    }
}

/// Asks, and follows redirects on the same host. `Err` is a probe that cannot be carried out.
pub(super) async fn ask(question: Question) -> Result<Report, CheckError> {
    let mut question = question;
    for _ in 0..=REDIRECTS_MAX {
        let url = question.url();
        let answer = match once(&question).await {
            Ok(answer) => answer,
            Err(Trouble::Broken(text)) => return Err(CheckError::Question(text)),
            Err(trouble) => return Ok(Report::failed(format!("Get \"{url}\": {trouble}"))),
        };
        // What has no place to go on to, or one elsewhere, is an answer, though not one that should be.
        let next = answer.location.filter(|_| FOLLOWED.contains(&answer.status.as_u16()));
        match next.and_then(|location| question.redirected(&location)) {
            Some(next) => question = next,
            None if answer.status.is_redirection() => {
                let text = format!("Probe terminated redirects, Response body: {}", answer.body);
                return Ok(Report::warned(text));
            }
            None => return Ok(judge(answer.status)),
        }
    }
    let url = question.url();
    Ok(Report::failed(format!(
        "Get \"{url}\": stopped after {REDIRECTS_MAX} redirects"
    )))
}

fn judge(status: StatusCode) -> Report {
    if (200..400).contains(&status.as_u16()) {
        Report::passed()
    } else {
        Report::failed(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
    }
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) location: Option<String>,
    body: String,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The question itself is wrong.
    #[error("{0}")]
    Broken(String),
    /// There was no answer.
    #[error("{0}")]
    Failed(String),
    /// The other side does not speak TLS.
    #[error("{PLAINTEXT}")]
    Plaintext,
}

/// Asks once, on a connection of its own, following nothing.
pub(crate) async fn once(question: &Question) -> Result<Answer, Trouble> {
    let request = question.request().map_err(Trouble::Broken)?;
    let address = question.authority();
    let stream = TcpStream::connect(&address)
        .await
        .map_err(|error| Trouble::Failed(dial_error(&address, &error)))?;
    if !question.https {
        return exchange(stream, request).await;
    }
    let config = super::tls::client().map_err(|error| Trouble::Broken(error.to_string()))?;
    let name = ServerName::try_from(question.host.clone()).map_err(|error| Trouble::Broken(error.to_string()))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| tls_trouble(&error))?;
    exchange(stream, request).await
}

fn tls_trouble(error: &std::io::Error) -> Trouble {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => Trouble::Plaintext,
        _ => Trouble::Failed(error.to_string()),
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| {
        Trouble::Failed(if error.is_incomplete_message() {
            "EOF".to_owned()
        } else {
            error.to_string()
        })
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let answering = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let location = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        // Only the beginning matters; a longer or broken body changes nothing.
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body
            .map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned())
            .unwrap_or_default();
        Ok(Answer { status, location, body })
    };
    tokio::pin!(answering);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut answering => answer,
        ended = &mut connection => {
            ended.map_err(failed)?;
            answering.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::serve;
    use tokio::net::TcpListener;

    fn question(port: u16, headers: &[(&str, &str)]) -> Question {
        let header = |(name, value): &(&str, &str)| HTTPHeader {
            name: (*name).into(),
            value: (*value).into(),
        };
        let headers: Vec<HTTPHeader> = headers.iter().map(header).collect();
        Question::new(false, "127.0.0.1", port, "healthz?x=1", Some(&headers))
    }

    #[tokio::test]
    async fn statuses_are_judged_and_headers_sent() {
        let (port, asked) = serve(vec!["HTTP/1.1 204 No Content\r\n\r\n"]).await;
        let report = ask(question(port, &[("Host", "a.example"), ("X-A", "1"), ("Accept", "")]))
            .await
            .expect("asked");
        assert_eq!(report, Report::passed());
        let asked = asked.await.expect("server").remove(0).to_lowercase();
        assert!(asked.starts_with("get /healthz?x=1 http/1.1"), "{asked}");
        assert!(
            asked.contains("host: a.example\r\n") && asked.contains("x-a: 1\r\n"),
            "{asked}"
        );
        assert!(
            asked.contains("user-agent: kube-probe/1.36") && !asked.contains("accept:"),
            "{asked}"
        );

        let (port, _) = serve(vec!["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"]).await;
        let report = ask(question(port, &[])).await.expect("asked");
        assert_eq!(report, Report::failed("HTTP probe failed with statuscode: 503".into()));
    }

    #[tokio::test]
    async fn redirects_are_followed_on_the_same_host_only() {
        let (port, _) = serve(vec![
            "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        ])
        .await;
        let report = ask(question(port, &[])).await.expect("asked");
        assert_eq!(report, Report::failed("HTTP probe failed with statuscode: 500".into()));

        let (port, _) = serve(vec![
            "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 2\r\n\r\nhi",
        ])
        .await;
        let report = ask(question(port, &[])).await.expect("asked");
        assert_eq!(
            report,
            Report::warned("Probe terminated redirects, Response body: hi".into())
        );
    }

    #[tokio::test]
    async fn nobody_there_is_a_failure_with_upstreams_words() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        drop(listener);
        let report = ask(question(port, &[])).await.expect("asked");
        let text = format!(
            "Get \"http://127.0.0.1:{port}/healthz?x=1\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        );
        assert_eq!(report, Report::failed(text));
    }

    #[test]
    fn redirects_lead_where_a_browser_would_go() {
        let asked = question(80, &[("Host", "web.example"), ("X", "y")]);
        for (location, expected) in [
            ("/ready", "http://127.0.0.1:80/ready"),
            ("ready", "http://127.0.0.1:80/ready"),
            ("?y=2", "http://127.0.0.1:80/healthz?y=2"),
            ("/a#part", "http://127.0.0.1:80/a"),
            ("http://127.0.0.1:81/x", "http://127.0.0.1:81/x"),
            ("//127.0.0.1:81/x", "http://127.0.0.1:81/x"),
            ("https://127.0.0.1/x", "https://127.0.0.1:443/x"),
        ] {
            let next = asked.redirected(location).expect(location);
            assert_eq!(next.url(), expected, "{location}");
            let named = next.headers.iter().any(|(name, _)| name == "Host");
            assert_eq!(named, !location.contains("//"), "{location}");
        }
        assert_eq!(asked.redirected("http://192.0.2.1/"), None);
        assert_eq!(asked.redirected("//192.0.2.1/"), None);
    }

    #[tokio::test]
    async fn what_sends_elsewhere_without_saying_where_is_warned_about() {
        for answer in [
            "HTTP/1.1 304 Not Modified\r\n\r\n",
            "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (port, _asked) = serve(vec![answer]).await;
            let report = ask(question(port, &[])).await.expect("a report");
            assert!(report.passed && report.warning, "{answer}: {report:?}");
        }
    }
}
