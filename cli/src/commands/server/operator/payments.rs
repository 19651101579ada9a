//! `vault operator payments`: lists payments that the service could not assign properly: for
//! another plan, for no vault, or twice.

use vault_api::PaymentProblem;

use crate::{
    errors::Failure,
    output::{BOLD, HINT, Report, clean, format_day, paint},
    service::OwnerClient,
};

/// Lists the payments of the last 90 days that went wrong, newest first.
pub(super) async fn list_payments(client: &OwnerClient) -> Result<Report, Failure> {
    let problems: Vec<PaymentProblem> = client.list("/admin/operator/payments").await?;
    Ok(Report::new(&problems, describe_problems(&problems)))
}

/// Formats each payment: what went wrong, for which vault, what to do, and the ids under which the
/// payment provider knows it.
fn describe_problems(problems: &[PaymentProblem]) -> String {
    if problems.is_empty() {
        return "No payment went wrong in the last 90 days.".to_owned();
    }
    let blocks = problems.iter().map(describe_problem);
    blocks.collect::<Vec<_>>().join("\n\n")
}

fn describe_problem(problem: &PaymentProblem) -> String {
    let vault = problem.vault.as_ref();
    let about = vault.map_or_else(|| "no vault".to_owned(), |vault| format!("vault {vault}"));
    // These ids come from the payment provider's events. The service bounds their length.
    let ids = [
        ("subscription", problem.subscription.as_deref()),
        ("customer", problem.customer.as_deref()),
        ("event", Some(problem.event.as_str())),
    ];
    let ids = ids
        .iter()
        .filter_map(|(name, id)| Some(format!("{name} {}", clean((*id)?, 128))));
    format!(
        "{}  {}  {about}\n  {}\n  {}",
        format_day(&problem.at.to_string()),
        paint(BOLD, problem.problem.as_str()),
        clean(&problem.detail, 1000),
        paint(HINT, ids.collect::<Vec<_>>().join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payment_that_went_wrong_is_described_with_the_ids_of_the_provider() {
        let problems: Vec<PaymentProblem> = serde_json::from_value(json!([
            {
                "event": "evt_2", "at": "2026-11-21T02:00:10Z", "problem": "wrong_link",
                "detail": "The checkout came by another link.", "vault": "acme", "plan": "team",
                "subscription": "sub_1", "customer": "cus_1",
            },
            {
                "event": "evt_1", "at": "2026-11-20T02:00:10Z", "problem": "unknown_sign_up",
                "detail": "Refund the payment.\u{1b}[31m", "vault": null, "plan": null,
                "subscription": "sub_2", "customer": null,
            },
        ]))
        .unwrap();
        let shown = anstream::adapter::strip_str(&describe_problems(&problems)).to_string();
        assert_eq!(
            shown,
            "2026-11-21  wrong_link  vault acme\n  The checkout came by another link.\n  \
             subscription sub_1, customer cus_1, event evt_2\n\n\
             2026-11-20  unknown_sign_up  no vault\n  Refund the payment.\\u{1b}[31m\n  \
             subscription sub_2, event evt_1"
        );
        assert!(describe_problems(&[]).starts_with("No payment went wrong"));
    }
}
