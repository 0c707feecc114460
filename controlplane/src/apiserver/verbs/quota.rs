//! Where the verbs charge quotas: after admission has agreed, before the store is asked ([`crate::apiserver::quota`]).

use super::{Answer, Call, Operation, object, store_failed};
use crate::apiserver::quota::{Charge, Counting, Entry};
use crate::apiserver::status::ApiError;
use crate::store::StoreError;
use serde_json::Value;

/// Why something is not written.
pub(super) struct Unwritten {
    pub(super) error: ApiError,
    /// Whether it may be stored all the same.
    pub(super) is_uncertain: bool,
}

impl Unwritten {
    /// The store failed, or refused it.
    pub(super) fn by_store(error: &StoreError) -> Self {
        Self {
            is_uncertain: !matches!(
                error,
                StoreError::Conflict { .. }
                    | StoreError::Full { .. }
                    | StoreError::Unavailable(_)
                    | StoreError::Refused(_)
                    | StoreError::ReadOnly(_)
            ),
            error: store_failed(error),
        }
    }
}

/// It was refused before the store was asked.
impl From<ApiError> for Unwritten {
    fn from(error: ApiError) -> Self {
        Self {
            error,
            is_uncertain: false,
        }
    }
}

impl From<Unwritten> for ApiError {
    fn from(unwritten: Unwritten) -> Self {
        unwritten.error
    }
}

impl Call<'_> {
    /// Waits until the quotas that the write falls under have been counted once; before any lock is taken.
    pub(super) async fn quotas_known(&self, operation: Operation, dry_run: bool) {
        if self.server.gate().enforces_quota() {
            let attributes = self.attributes(operation, "", dry_run);
            self.server.charges().known(&attributes, self.served).await;
        }
    }

    /// Waits until nobody counts in the namespace, if the write may be charged; before the lock of all Services is taken.
    pub(super) async fn enter(&self, operation: Operation, dry_run: bool) -> Option<Entry> {
        if !self.server.gate().enforces_quota() {
            return None;
        }
        let attributes = self.attributes(operation, "", dry_run);
        self.server.charges().enter(&attributes).await
    }

    /// Charges what the write adds; kept until it is stored or refused. `entry` is what the write has entered already.
    ///
    /// # Errors
    /// 403 where a quota refuses.
    pub(super) async fn charge(
        &self,
        operation: Operation,
        dry_run: bool,
        entry: Option<&Entry>,
        (new, old): (&Value, Option<&Value>),
    ) -> Result<Option<Charge>, ApiError> {
        let entry = match entry {
            Some(entry) => Some(entry.clone()),
            None => self.enter(operation, dry_run).await,
        };
        let Some(entry) = entry else {
            return Ok(None);
        };
        let attributes = self.attributes(operation, object::name(new), dry_run);
        let (server, served) = (self.server, self.served);
        let charges = server.charges();
        charges.charge(server, served, &attributes, entry, (new, old)).await
    }

    /// Takes the charge of a write back that was refused for certain.
    pub(super) async fn give_back(&self, charge: Option<Charge>) {
        if let Some(charge) = charge {
            charge.give_back(self.server, self.served).await;
        }
    }

    /// Takes the charge back of what is not written, unless it may be stored all the same: that is counted anew.
    pub(super) async fn unwritten(&self, charge: Option<Charge>, why: Unwritten) -> ApiError {
        self.give_back(charge.filter(|_| !why.is_uncertain)).await;
        why.error
    }

    /// Whether the request writes what a quota says is used.
    pub(super) fn writes_count(&self) -> bool {
        let of_quotas = &*self.kind.plural == "resourcequotas" && self.kind.group.is_empty();
        of_quotas && self.info.subresource == "status" && self.server.gate().enforces_quota()
    }

    /// Taken by who writes a quota's status: see [`Counting`].
    pub(super) async fn counting(&self) -> Option<Counting> {
        match self.writes_count() {
            true => Some(self.server.charges().count(self.namespace).await),
            false => None,
        }
    }

    /// Sees to it that a quota's new status does not say less than what is stored.
    ///
    /// # Errors
    /// If the store cannot tell what there is.
    pub(super) async fn never_less(&self, quota: &mut Value, old: &Value) -> Result<(), ApiError> {
        let charges = self.server.charges();
        let raised = charges
            .never_less(self.served, self.namespace, (quota, old), self.server.now())
            .await;
        raised.map_err(|error| store_failed(&error))
    }

    /// Waits until readers see what was answered, if admission reads it for every write of the namespace: whoever has the answer
    /// is obeyed, and nothing is charged to the status before.
    pub(super) async fn noticed(&self, _counting: Option<Counting>, answer: Answer) -> Result<Answer, ApiError> {
        let is_read = matches!(&*self.kind.plural, "resourcequotas" | "limitranges") && self.kind.group.is_empty();
        match is_read {
            true => self.seen(answer).await,
            false => Ok(answer),
        }
    }
}
