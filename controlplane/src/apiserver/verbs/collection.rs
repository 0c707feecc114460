//! DELETE of a collection: every object that the selectors choose (control-plane contract §2.4).

use super::delete::{self, Options};
use super::filter::Filter;
use super::{Answer, Call, list, store_failed};
use crate::apiserver::reply::Page;
use crate::apiserver::status::ApiError;
use crate::store::window::Stored;
use std::sync::Arc;

pub(super) async fn delete(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let options = Options::read(call, body).await?;
    let filter = Filter::parse(call.kind, call.info)?;
    let snapshot = call.window.latest().await.map_err(|error| store_failed(&error))?;
    let collection = call.collection();
    let chosen: Vec<Arc<Stored>> = list::range(&snapshot.objects, &collection, None)
        .filter(|stored| filter.matches(stored))
        .map(Arc::clone)
        .collect();
    for stored in &chosen {
        let name = super::object::name(&stored.tree()).to_owned();
        match delete::remove(call, &name, &options).await {
            Ok(_) => {}
            // Someone else was faster; what was asked for has come about.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer::List(Page {
        items: chosen,
        revision: snapshot.revision,
        next: None,
        remaining: None,
    }))
}
