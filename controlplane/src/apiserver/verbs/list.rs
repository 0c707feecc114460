//! GET of a collection: which revision to read, which page, which objects (control-plane contract §2.6).

use super::filter::Filter;
use super::token::Token;
use super::{Answer, Call, parse_revision, store_failed, too_large};
use crate::apiserver::reply::{Page, STORED_BYTES};
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;
use crate::store::Revision;
use crate::store::window::{RevisionError, Snapshot, Stored};
use imbl::OrdMap;
use std::ops::Bound;
use std::sync::Arc;

/// The texts of upstream's 410 replies.
const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
     list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
     Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted \
     between the time the first chunk was returned and now may show up in the list.";

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ApiError> {
    page(call).await.map(Answer::List)
}

/// The page of the collection that the request's options choose.
pub(super) async fn page(call: &Call<'_>) -> Result<Page, ApiError> {
    let filter = Filter::parse(&call.kind, call.info)?;
    let options = Options::read(call)?;
    let (snapshot, start) = options.snapshot(call).await?;
    call.refuse_misfits()?;
    let prefix = call.collection();
    let limit = match options.read_any_cached() {
        true => None,
        false => options.limit,
    };
    let is_closed = !call.kind.namespaced || !call.namespace.is_empty();
    if let (Some(name), true, None) = (filter.single_name(), is_closed, &start) {
        return Ok(single(&snapshot, &format!("{prefix}{name}"), &filter));
    }
    Ok(walk(&snapshot, &prefix, start.as_deref(), limit, &filter).await)
}

impl Call<'_> {
    /// The key prefix of the collection asked for.
    pub(super) fn collection(&self) -> String {
        match self.namespace {
            "" => self.prefix.clone(),
            namespace => format!("{}{namespace}/", self.prefix),
        }
    }
}

/// The objects under `prefix`, from `start` (relative to it) on.
pub(super) fn range<'s>(
    objects: &'s OrdMap<Arc<str>, Arc<Stored>>,
    prefix: &'s str,
    start: Option<&str>,
) -> impl Iterator<Item = &'s Arc<Stored>> {
    let from = format!("{prefix}{}", start.unwrap_or(""));
    objects
        .range::<_, str>((Bound::Included(from.as_str()), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
        .map(|(_, stored)| stored)
}

async fn walk(snapshot: &Snapshot, prefix: &str, start: Option<&str>, limit: Option<usize>, filter: &Filter) -> Page {
    let mut items: Vec<Arc<Stored>> = Vec::new();
    let mut next = None;
    let mut remaining = None;
    let mut rest = range(&snapshot.objects, prefix, start);
    let mut read = 0;
    while let Some(stored) = rest.next() {
        if !filter.is_everything() {
            // What selectors ask may have to be read of the objects first: others have their turn in between.
            read += stored.size();
            if read >= STORED_BYTES {
                tokio::task::yield_now().await;
                read = 0;
            }
        }
        if !filter.matches(stored) {
            continue;
        }
        if limit.is_some_and(|limit| items.len() == limit) {
            let last = items
                .last()
                .map_or("", |last| last.key.get(prefix.len()..).unwrap_or(""));
            let revision = i64::try_from(snapshot.revision).unwrap_or(i64::MAX);
            next = Some(Token::after(last, revision).encode());
            remaining = filter.is_everything().then(|| match start {
                // What is not in the page follows it.
                None if is_all(&snapshot.objects, prefix) => snapshot.objects.len() - items.len(),
                _ => rest.count() + 1,
            });
            break;
        }
        items.push(Arc::clone(stored));
    }
    Page {
        items,
        revision: snapshot.revision,
        next,
        remaining,
        room: None,
    }
}

/// Whether all objects are under the prefix.
fn is_all(objects: &OrdMap<Arc<str>, Arc<Stored>>, prefix: &str) -> bool {
    let ends = [objects.get_min(), objects.get_max()];
    ends.iter().flatten().all(|(key, _)| key.starts_with(prefix))
}

/// The collection narrowed to one key, without a walk.
fn single(snapshot: &Snapshot, key: &str, filter: &Filter) -> Page {
    let found = snapshot.objects.get(key).filter(|stored| filter.matches(stored));
    Page {
        items: found.map(Arc::clone).into_iter().collect(),
        revision: snapshot.revision,
        next: None,
        remaining: None,
        room: None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Unset,
    Exact,
    NotOlderThan,
}

struct Options {
    revision: Option<Revision>,
    matching: Match,
    limit: Option<usize>,
    token: Option<Token>,
}

impl Options {
    fn read(call: &Call<'_>) -> Result<Self, ApiError> {
        let query = call.query;
        let matching = match query.text("resourceVersionMatch") {
            "" => Match::Unset,
            "Exact" => Match::Exact,
            "NotOlderThan" => Match::NotOlderThan,
            other => {
                let supported = ["Exact", "NotOlderThan", ""];
                return Err(invalid(FieldError::not_supported(
                    "resourceVersionMatch",
                    other,
                    &supported,
                )));
            }
        };
        let token = query.text("continue");
        let revision_text = query.text("resourceVersion");
        if query.get("sendInitialEvents").is_some_and(|text| !text.is_empty()) {
            let text = "sendInitialEvents is forbidden for list";
            return Err(invalid(FieldError::forbidden("sendInitialEvents", text)));
        }
        if matching != Match::Unset {
            let problem = if revision_text.is_empty() {
                Some("resourceVersionMatch is forbidden unless resourceVersion is provided")
            } else if !token.is_empty() {
                Some("resourceVersionMatch is forbidden when continue is provided")
            } else if matching == Match::Exact && revision_text == "0" {
                Some("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"")
            } else {
                None
            };
            if let Some(text) = problem {
                return Err(invalid(FieldError::forbidden("resourceVersionMatch", text)));
            }
        }
        if !token.is_empty() && !matches!(revision_text, "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let limit = query.number("limit")?.unwrap_or(0);
        // Means something for watches only, but is read as a number everywhere.
        query.number("timeoutSeconds")?;
        Ok(Self {
            revision: parse_revision(revision_text)?,
            matching,
            limit: usize::try_from(limit).ok().filter(|limit| *limit > 0),
            token: match token {
                "" => None,
                text => Some(Token::decode(text)?),
            },
        })
    }

    /// Revision 0 means any cached state, and then the limit is ignored.
    fn read_any_cached(&self) -> bool {
        self.revision == Some(0) && self.token.is_none()
    }

    /// The snapshot to read, and where in it to start.
    async fn snapshot(&self, call: &Call<'_>) -> Result<(Snapshot, Option<String>), ApiError> {
        let window = &call.window;
        if let Some(token) = &self.token {
            let start = Some(token.start.clone());
            let Ok(revision) = Revision::try_from(token.revision) else {
                let latest = window.latest().await.map_err(|error| store_failed(&error))?;
                return Ok((latest, start));
            };
            return match exact(call, revision).await {
                Ok(snapshot) => Ok((snapshot, start)),
                Err(mut error) if error.code == 410 => {
                    error.message = CONTINUE_TOO_OLD.to_owned();
                    let fresh = Token {
                        revision: -1,
                        start: token.start.clone(),
                    };
                    error.continue_token = Some(fresh.encode());
                    Err(error)
                }
                Err(error) => Err(error),
            };
        }
        let snapshot = match (self.revision, self.matching) {
            (None, _) => window.latest().await.map_err(|error| store_failed(&error))?,
            (Some(0), _) => window.cached(),
            (Some(revision), Match::Exact) => exact(call, revision).await?,
            (Some(revision), Match::Unset) if self.limit.is_some() => exact(call, revision).await?,
            (Some(revision), _) => {
                call.reach(revision).await?;
                window.cached()
            }
        };
        Ok((snapshot, None))
    }
}

async fn exact(call: &Call<'_>, revision: Revision) -> Result<Snapshot, ApiError> {
    call.reach(revision).await?;
    match call.window.at(revision) {
        Ok(snapshot) => Ok(snapshot),
        Err(RevisionError::Gone { .. }) => Err(ApiError::new(410, "Expired", TOO_OLD)),
        Err(RevisionError::Future { wanted, current }) => Err(too_large(wanted, current)),
    }
}

fn invalid(error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![error])
}
