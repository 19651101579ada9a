//! `/console`: the page on which a signed-in person chooses a vault.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::guard::SignedInVisitor;
use super::outcome::Notice;
use super::page::{PageLayout, show_page};
use crate::accounts::invitations;
use crate::accounts::memberships::load_members;
use crate::accounts::session::redirect_to;
use crate::model::user::role_with_article;
use crate::web::browser::CONSOLE_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;

struct VaultChoice {
    slug: String,
    href: String,
    /// Role of the person in the vault, with its article.
    role: &'static str,
}

#[derive(Template)]
#[template(path = "console/choose.html")]
struct ChoosePage {
    shell: PageLayout,
    choices: Vec<VaultChoice>,
    invitations: usize,
}

/// Shows the person's vaults. Redirects to the only one, unless an invitation waits or the page has
/// a notice to show.
pub(super) async fn show_choice(
    visitor: SignedInVisitor,
    query: Form,
) -> Result<Response, ErrorPage> {
    let (app, account) = (&visitor.app, &visitor.signed_in.account);
    let prefix = app.config.public_url.prefix();
    let members = load_members(app, account, None).await?.into_iter();
    let choices: Vec<_> = members
        .map(|member| {
            let slug = member.user.namespace.slug.to_string();
            VaultChoice {
                href: format!("{prefix}{CONSOLE_PATH}/{slug}"),
                role: role_with_article(member.user.role),
                slug,
            }
        })
        .collect();
    let invitations = invitations::load_invitations(app, account, None)
        .await?
        .len();
    let notice = Notice::of(&query);
    // A redirect would lose the notice, for example that the other vault was deleted.
    if let ([only], 0, None) = (&*choices, invitations, notice) {
        return Ok(redirect_to(StatusCode::SEE_OTHER, &only.href));
    }
    let page = ChoosePage {
        shell: PageLayout {
            notice,
            ..PageLayout::without_vault(&visitor, CONSOLE_PATH)
        },
        choices,
        invitations,
    };
    Ok(show_page(&page))
}
