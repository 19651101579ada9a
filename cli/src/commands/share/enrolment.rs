//! `vault devices invite`, `codes`, `end-code` and `enrolment`: enrolment codes. A machine that
//! enrols with such a code is admitted at once, without the owner's approval.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{EnrolmentCode, EnrolmentMode, EnrolmentSetting, NewEnrolmentCode};
use vault_service::error;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Column, HINT, Report, TICK, Table, clean, count, format_day, paint},
    service::{OwnerClient, confirmation::send_confirmed, connection::Connection, path_segment},
};

/// The arguments of `vault devices invite`.
#[derive(Args, Debug)]
pub struct Invite {
    /// How many machines may use the code. More than 20 need your confirmation in the browser
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,
    /// How long the code is valid, as in 30m, 24h or 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_lifetime)]
    expires: i64,
    /// Admit only machines of this name; `*` stands for any characters
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
}

/// How machines enrol.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EnrolmentModeArgument {
    /// Any machine may ask, and the owner decides
    Open,
    /// Only machines with a code
    Codes,
}

/// Parses a time such as `30m`, `24h` or `7d` into seconds.
fn parse_lifetime(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is not a time; write it like 30m, 24h or 7d");
    let unit = match text.chars().last() {
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number = text.get(..text.len() - 1).unwrap_or_default();
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let seconds = i64::from(number) * unit;
    // The service has the same bounds. Checking them here avoids a request.
    if (60..=90 * 24 * 3600).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("a code counts for one minute to 90 days".to_owned())
    }
}

fn codes_path(connection: &Connection) -> String {
    format!("/admin/vaults/{}/enrolment-codes", connection.slug)
}

/// Creates a code and shows it. The code cannot be shown again.
pub async fn create_code(
    context: &Context,
    client: &OwnerClient,
    connection: &Connection,
    asked: &Invite,
) -> Result<Report, Failure> {
    let body = NewEnrolmentCode {
        uses: Some(asked.uses),
        expires_in: Some(asked.expires),
        name: asked.name.clone(),
    };
    let (path, body) = (codes_path(connection), Some(json!(body)));
    // The service requires a confirmation in the browser for a code for many machines.
    let created_code: EnrolmentCode =
        send_confirmed(context, client, Method::POST, &path, body).await?;
    // Only this answer contains the code itself. Lists show its id.
    let code = clean(created_code.code.as_deref().unwrap_or_default(), 64);
    let machines = count(created_code.uses as usize, "machine");
    let text = format!(
        "{TICK} made a code for {machines}, until {}  {}\n\
         On the machine:\n  vault link {} --code {BOLD}{code}{BOLD:#}\n\
         Whoever has the code is admitted. It is not shown again, and ends with this sign-in at the latest.\n\
         End it with: vault devices end-code {}",
        created_code.expires_at,
        paint(HINT, clean(&created_code.id, 40)),
        connection.address(),
        clean(&created_code.id, 40),
    );
    Ok(Report::new(&created_code, text))
}

/// Lists the codes that can still be used, by the ids that `vault devices end-code` takes. The
/// codes themselves are secret.
pub async fn list_codes(
    context: &Context,
    client: &OwnerClient,
    connection: &Connection,
) -> Result<Report, Failure> {
    let active_codes: Vec<EnrolmentCode> = client.list(&codes_path(connection)).await?;
    if active_codes.is_empty() {
        return Ok(Report::new(
            json!([]),
            "There are no active enrolment codes.",
        ));
    }
    let mut table = Table::new([
        Column::new("code"),
        Column::new("used"),
        Column::new("machines").shrinks_to(10),
        Column::new("made").leaves(1),
        Column::new("ends").leaves(3),
        Column::new("app").leaves(2),
    ]);
    for code in &active_codes {
        table.push_row([
            clean(&code.id, 40),
            format!("{} of {}", code.used, code.uses),
            code.name.as_ref().map_or_else(
                || "any".to_owned(),
                |name| format!("\"{}\"", clean(name, 64)),
            ),
            format_day(&code.created_at.to_string()),
            format_day(&code.expires_at.to_string()),
            code.client_id
                .as_ref()
                .map_or_else(|| "-".to_owned(), |id| clean(id, 40)),
        ]);
    }
    Ok(Report::new(&active_codes, context.ui.format_table(&table)))
}

/// Ends a code, so that no further machine can use it. Machines that used it stay admitted.
pub async fn end_code(
    client: &OwnerClient,
    connection: &Connection,
    id: &str,
) -> Result<Report, Failure> {
    let path = format!("{}/{}", codes_path(connection), path_segment(id));
    let ended: Value = client
        .send(Method::DELETE, &path, None)
        .await
        .map_err(|failure| code_not_found(failure, id))?;
    let text = format!(
        "{TICK} ended the code {}; machines that used it stay admitted",
        clean(id, 40)
    );
    Ok(Report::new(ended, text))
}

/// Replaces the service's "not found" by a failure that names the missing code.
fn code_not_found(failure: Failure, id: &str) -> Failure {
    if failure.code != error::ErrorCode::NotFound {
        return failure;
    }
    let message = format!("no code has the id {}", clean(id, 40));
    Failure::new(failure.code, message).hint("list the codes with: vault devices codes")
}

/// Sets whether machines need a code to enrol.
pub async fn set_enrolment_mode(
    client: &OwnerClient,
    connection: &Connection,
    mode: EnrolmentModeArgument,
) -> Result<Report, Failure> {
    let (enrolment, text) = match mode {
        EnrolmentModeArgument::Open => (EnrolmentMode::Open, "any machine may ask to be admitted"),
        EnrolmentModeArgument::Codes => (
            EnrolmentMode::Codes,
            "machines need a code: vault devices invite",
        ),
    };
    let path = format!("/admin/vaults/{}/enrolment", connection.slug);
    let body = Some(json!(EnrolmentSetting { enrolment }));
    let setting: Value = client.send(Method::PUT, &path, body).await?;
    Ok(Report::new(setting, format!("{TICK} {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_bounds() {
        for (text, found) in [
            ("1m", Some(60)),
            ("24h", Some(86_400)),
            ("90d", Some(90 * 86_400)),
            ("91d", None),
            ("0m", None),
            ("24", None),
            ("h", None),
            ("-1h", None),
            ("1\u{e4}", None),
            ("", None),
        ] {
            assert_eq!(parse_lifetime(text).ok(), found, "{text}");
        }
    }
}
