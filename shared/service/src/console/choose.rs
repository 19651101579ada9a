//! `/console`: a signed-in person chooses a vault.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::guard::Visitor;
use super::outcome::Notice;
use super::page::{Shell, show as show_page};
use crate::accounts::invitations;
use crate::accounts::memberships::members;
use crate::accounts::session::redirect;
use crate::web::browser::CONSOLE_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::layout::role;

/// A vault on the page.
struct Choice {
    slug: String,
    href: String,
    /// Role of the person there.
    role: &'static str,
}

#[derive(Template)]
#[template(path = "console/choose.html")]
struct ChoosePage {
    shell: Shell,
    choices: Vec<Choice>,
    /// Number of invitations that wait for an answer.
    invitations: usize,
}

/// Shows the person's vaults. Leads straight to the only one, unless an invitation waits or the
/// page has a notice to show.
pub(super) async fn show(visitor: Visitor, query: Form) -> Result<Response, ErrorPage> {
    let (app, account) = (&visitor.app, &visitor.signed_in.account);
    let prefix = app.config.public_url.prefix();
    let members = members(app, account, None).await?.into_iter();
    let choices: Vec<_> = members
        .map(|member| {
            let slug = member.user.namespace.slug.to_string();
            Choice {
                href: format!("{prefix}{CONSOLE_PATH}/{slug}"),
                role: role(member.user.role),
                slug,
            }
        })
        .collect();
    let invitations = invitations::waiting(app, account, None).await?.len();
    let notice = Notice::of(&query);
    // A redirect would lose the notice, for example that the other vault was deleted.
    if let ([only], 0, None) = (&*choices, invitations, notice) {
        return Ok(redirect(StatusCode::SEE_OTHER, &only.href));
    }
    let page = ChoosePage {
        shell: Shell {
            notice,
            ..Shell::around(&visitor, CONSOLE_PATH)
        },
        choices,
        invitations,
    };
    Ok(show_page(&page))
}
