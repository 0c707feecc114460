//! DELETE of a collection: every object that the selectors choose (control-plane contract §2.4).
//!
//! One deletion after the other, as upstream with its default of one worker; it is not atomic. The room of the answer, which is
//! all that was deleted, is taken before the first deletion, and its form is checked: what is not begun can be refused.

use super::delete::{self, Options};
use super::{Answer, Call, Serving, list, misfits};
use crate::apiserver::reply;
use crate::apiserver::status::ApiError;
use tokio_util::sync::CancellationToken;

/// Deletes until everything is gone that was there at the beginning, or the request is given up.
pub(super) async fn delete(
    call: &mut Call<'_>,
    serving: &Serving<'_>,
    body: &[u8],
    given_up: &CancellationToken,
) -> Result<Answer, ApiError> {
    reply::check_list_form(call.output, call.query.text("includeObject"))?;
    let options = Options::read(call, body).await?;
    if options.ignores_read_error {
        return Err(misfits::not_many());
    }
    let mut page = list::page(call).await?;
    page.room = serving.room(call.info, page.cost(call.output)).await?;
    for stored in &page.items {
        if given_up.is_cancelled() {
            // Nobody reads it.
            return Err(ApiError::new(504, "Timeout", "the request was given up"));
        }
        let name = super::object::name(&stored.tree()).to_owned();
        match delete::remove(call, &name, &options).await {
            Ok(_) => {}
            // Someone else was faster; what was asked for has come about.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer::List(page))
}
