//! Layout of all console pages, and elements that several of them use.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::guard::{ConsolePage, SignedInVisitor};
use super::outcome::Notice;
use super::{Access, PAGES};
use crate::app::App;
use crate::web::browser::{CONSOLE_PATH, ReturnTo};
use crate::web::csrf::Purpose;
use crate::web::layout::{CONSOLE_STYLE, Frame, SignOut, render_console_page, role_name};

/// Maximum number of rows of a list on one page.
pub(super) const ROWS_SHOWN: usize = 50;

/// Layout around the content of a page.
pub(super) struct PageLayout {
    pub(super) frame: Frame,
    pub(super) email: String,
    /// `None` on a page that is about no vault, such as the choice of vaults.
    pub(super) vault: Option<NavVault>,
    /// Outcome of the form that was sent before; shown once.
    pub(super) notice: Option<Notice>,
    pub(super) sign_out: SignOut,
}

/// The vault that a page is about, with the links to its pages.
pub(super) struct NavVault {
    pub(super) slug: String,
    pub(super) role: &'static str,
    /// Whether the person has a role that changes the vault, but not the right to write.
    pub(super) is_read_only: bool,
    pub(super) links: Vec<NavLink>,
}

pub(super) struct NavLink {
    pub(super) title: &'static str,
    pub(super) href: String,
    /// Whether the link leads to the shown page or to one above it.
    pub(super) current: bool,
}

impl PageLayout {
    /// Creates the layout around a page of a vault.
    pub(super) fn for_page(page: &ConsolePage) -> Self {
        let home = format!("{CONSOLE_PATH}/{}", page.namespace.slug);
        let below = page.path.strip_prefix(&home).unwrap_or_default();
        let links = PAGES
            .iter()
            .filter(|(_, _, access)| page.may_open(*access))
            .map(|(title, path, _)| NavLink {
                title,
                href: page.address(path),
                // Whole path segments are compared. The path of the overview is empty, and every
                // other path begins with it.
                current: match below.strip_prefix(path) {
                    Some(rest) if !path.is_empty() => rest.is_empty() || rest.starts_with('/'),
                    _ => below.is_empty() && path.is_empty(),
                },
            });
        Self {
            vault: Some(NavVault {
                slug: page.namespace.slug.to_string(),
                role: role_name(page.user.role),
                is_read_only: page.may_open(Access::Publisher) && !page.may_write(),
                links: links.collect(),
            }),
            notice: Notice::of(&page.query),
            ..Self::without_vault(&page.visitor, &page.path)
        }
    }

    /// Creates the layout around a page that is about no vault.
    pub(super) fn without_vault(visitor: &SignedInVisitor, path: &str) -> Self {
        let SignedInVisitor {
            app,
            browser,
            signed_in,
        } = visitor;
        let return_to = console_address(app, path);
        Self {
            frame: Frame::for_service(&app.config.public_url),
            email: signed_in.account.email.to_string(),
            vault: None,
            notice: None,
            sign_out: SignOut {
                csrf: browser.form_token(app, Purpose::Logout, &return_to),
                return_to,
            },
        }
    }

    /// Returns the notice of what was done.
    pub(super) const fn done(&self) -> Option<&'static str> {
        match self.notice {
            Some(Notice::Done(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the notice of why nothing was done.
    pub(super) const fn refused(&self) -> Option<&'static str> {
        match self.notice {
            Some(Notice::Refused(text)) => Some(text),
            _ => None,
        }
    }

    #[expect(clippy::unused_self, reason = "templates call it on the shell")]
    pub(super) const fn style(&self) -> &'static str {
        CONSOLE_STYLE
    }
}

fn console_address(app: &App, path: &str) -> String {
    let page = ReturnTo::parse_console_address(path).unwrap_or(ReturnTo::Console(CONSOLE_PATH));
    page.address(app)
}

/// Renders a page with the status 200.
pub(super) fn show_page(page: &impl Template) -> Response {
    render_console_page(StatusCode::OK, page)
}

/// One page of a list, by its number from 1, with the links to its neighbours.
pub(super) struct Pager {
    /// What the rows are, in the plural: `machines`.
    pub(super) what: &'static str,
    /// Numbers of the first and the last shown row, from 1; 0 if there is none.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Number of rows on all pages.
    pub(super) total: usize,
    /// Addresses of the previous and the next page, if there is one.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Pager {
    /// Returns the page that the parameter `page` names: the last one for a number beyond it, and
    /// the first for anything but a number. `href` returns the address of a page.
    pub(super) fn from_query(
        page: &ConsolePage,
        what: &'static str,
        total: usize,
        href: impl Fn(usize) -> String,
    ) -> Self {
        let number = page.query.value("page").and_then(|text| text.parse().ok());
        Self::new(number.unwrap_or(1), what, total, href)
    }

    fn new(
        wanted: usize,
        what: &'static str,
        total: usize,
        href: impl Fn(usize) -> String,
    ) -> Self {
        // An empty list has one page, which is empty.
        let pages = total.div_ceil(ROWS_SHOWN).max(1);
        let number = wanted.clamp(1, pages);
        let start = (number - 1) * ROWS_SHOWN;
        let last = total.min(start + ROWS_SHOWN);
        Self {
            what,
            first: if total == 0 { 0 } else { start + 1 },
            last,
            total,
            before: (number > 1).then(|| href(number - 1)),
            after: (number < pages).then(|| href(number + 1)),
        }
    }

    pub(super) fn take_rows<T>(&self, rows: Vec<T>) -> Vec<T> {
        let skipped = self.first.saturating_sub(1);
        rows.into_iter().skip(skipped).take(ROWS_SHOWN).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_pages_and_each_row_stands_on_one() {
        let page = |wanted, total| {
            let pager = Pager::new(wanted, "rows", total, |number| number.to_string());
            let rows = pager.take_rows((1..=total).collect());
            let ends = (rows.first().copied(), rows.last().copied());
            (pager.first, pager.last, ends, pager.before, pager.after)
        };
        let at = |number: usize| Some(number.to_string());
        assert_eq!(page(1, 0), (0, 0, (None, None), None, None));
        assert_eq!(page(1, 50), (1, 50, (Some(1), Some(50)), None, None));
        assert_eq!(page(1, 51), (1, 50, (Some(1), Some(50)), None, at(2)));
        assert_eq!(page(2, 51), (51, 51, (Some(51), Some(51)), at(1), None));
        assert_eq!(
            page(9, 120),
            (101, 120, (Some(101), Some(120)), at(2), None)
        );
        assert_eq!(page(0, 120), (1, 50, (Some(1), Some(50)), None, at(2)));
    }
}
