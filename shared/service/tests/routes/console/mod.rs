//! `/console`: what people of each role see and change in a browser.

mod machines;
mod rights;
mod skills;

use crate::admin::Desk;
use crate::common::{PASSWORD, Reply, Visitor};

/// Most bytes of a page.
pub const MAX_PAGE_BYTES: usize = 100 * 1024;

/// A browser in which this person is signed in, on a page of the console.
async fn at<'a>(desk: &'a Desk, email: &str, path: &str) -> (Visitor<'a>, Reply) {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(path).await;
    assert_eq!(page.page(), "200 Sign in", "{}", page.body);
    let signed_in = visitor.log_in(&page, email, PASSWORD).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
    assert_eq!(signed_in.header("location"), path);
    let page = visitor.get(path).await;
    (visitor, page)
}

/// Sends the form of a page that goes to `path`, with the token of the page and these fields.
pub async fn submit(
    visitor: &mut Visitor<'_>,
    page: &Reply,
    path: &str,
    more: &[(&str, &str)],
) -> Reply {
    let csrf = page.hidden(path, "csrf");
    let fields = [&[("csrf", csrf.as_str())], more].concat();
    visitor.post(path, &fields).await
}

/// Does the same, and opens the page that it leads to.
async fn send(visitor: &mut Visitor<'_>, page: &Reply, path: &str, more: &[(&str, &str)]) -> Reply {
    let answer = submit(visitor, page, path, more).await;
    assert_eq!(answer.status, 303, "{}", answer.body);
    visitor.get(answer.header("location")).await
}

/// The sentence about what a form has done.
fn done(page: &Reply) -> &str {
    notice(page, "<p class=\"note good\" role=\"status\">")
}

/// The sentence about why a form has done nothing.
pub fn refused(page: &Reply) -> &str {
    notice(page, "<p class=\"note stop\" role=\"alert\">")
}

fn notice<'r>(page: &'r Reply, start: &str) -> &'r str {
    let rest = page.body.split(start).nth(1);
    let rest = rest.unwrap_or_else(|| panic!("no notice: {}", page.body));
    rest.split("</p>").next().unwrap()
}
