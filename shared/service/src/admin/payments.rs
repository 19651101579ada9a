//! `/admin/operator/payments`: payments that went wrong, for operators.

use axum::http::StatusCode;
use vault_api::PaymentProblem;

use super::call::{Answer, Items, OperatorCall, trim_page};
use crate::http::json_answer;
use crate::model::payment_problem::{PROBLEMS, StoredProblem};

/// Lists the payments that went wrong in the last 90 days, the newest first.
pub(super) async fn list_payments(call: OperatorCall) -> Answer {
    let page = call.page_params()?;
    let records = &call.app.records;
    let page_records = records
        .list_page(PROBLEMS, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let mut items = Vec::with_capacity(page_records.len());
    for record in &page_records {
        items.push(to_api_problem(record.read()?));
    }
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

fn to_api_problem(stored: StoredProblem) -> PaymentProblem {
    PaymentProblem {
        detail: stored.describe(),
        event: stored.event.as_str().to_owned(),
        at: stored.at,
        problem: stored.problem,
        vault: stored.vault,
        plan: stored.plan,
        subscription: stored.subscription.map(|id| id.as_str().to_owned()),
        customer: stored.customer,
    }
}
