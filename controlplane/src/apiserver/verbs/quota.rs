//! Where the verbs charge quotas: after admission has agreed, before the store is asked ([`crate::apiserver::quota`]).

use super::{Answer, Call, Operation, object, store_failed};
use crate::apiserver::quota::{Charge, Counting};
use crate::apiserver::status::ApiError;
use serde_json::Value;

impl Call<'_> {
    /// Waits until the quotas that the write falls under have been counted once; before any lock is taken.
    pub(super) async fn quotas_known(&self, operation: Operation, dry_run: bool) {
        if self.server.gate().enforces_quota() {
            let attributes = self.attributes(operation, "", dry_run);
            self.server.charges().known(&attributes, self.served).await;
        }
    }

    /// Charges what the write adds; kept until it is stored or refused.
    ///
    /// # Errors
    /// 403 where a quota refuses.
    pub(super) async fn charge(
        &self,
        operation: Operation,
        dry_run: bool,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Charge>, ApiError> {
        if !self.server.gate().enforces_quota() {
            return Ok(None);
        }
        let attributes = self.attributes(operation, object::name(new), dry_run);
        let (server, served) = (self.server, self.served);
        server.charges().charge(server, served, &attributes, new, old).await
    }

    /// Takes a charge back after an error, if that says for certain that nothing was stored.
    pub(super) async fn give_back(&self, charge: Option<Charge>, error: &ApiError) {
        if let Some(charge) = charge.filter(|_| matches!(error.code, 404 | 409 | 413)) {
            charge.give_back(self.server, self.served).await;
        }
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
    pub(super) async fn never_less(&self, quota: &mut Value) -> Result<(), ApiError> {
        let charges = self.server.charges();
        let raised = charges
            .never_less(self.served, self.namespace, quota, self.server.now())
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
