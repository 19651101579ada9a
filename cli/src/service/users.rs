//! Finds users of a connected vault in the list that the service shows to its owner.

use vault_api::User;

use super::OwnerClient;
use crate::{errors::Failure, output::clean};

/// The path of the service's user list.
pub const USERS: &str = "/admin/users";

/// Finds the user with this id or e-mail address.
pub async fn find_user(client: &OwnerClient, user: &str) -> Result<User, Failure> {
    pick_user(&client.list::<User>(USERS).await?, user)
}

/// Finds the users with these ids or e-mail addresses. A user who is named twice is returned once.
pub async fn find_users(client: &OwnerClient, asked: &[String]) -> Result<Vec<User>, Failure> {
    let users = client.list::<User>(USERS).await?;
    let mut found: Vec<User> = Vec::new();
    for user in asked {
        let user = pick_user(&users, user)?;
        if found.iter().all(|other| other.id != user.id) {
            found.push(user);
        }
    }
    Ok(found)
}

fn pick_user(users: &[User], user: &str) -> Result<User, Failure> {
    // People type e-mail addresses in any case.
    let is = |found: &&User| found.id == user || found.email.as_str().eq_ignore_ascii_case(user);
    if let Some(found) = users.iter().find(is) {
        return Ok(found.clone());
    }
    // Suggest no similar address: it would belong to somebody else.
    Err(fail!(
        UserNotFound,
        "no user has the id or address `{}`",
        clean(user, 64)
    )
    .hint("vault users list shows them all"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::errors::ErrorCode;

    #[test]
    fn a_user_is_found_by_id_or_by_address() {
        let users = ["ann", "bob"].map(|name| -> User {
            let (id, email) = (format!("usr_{}", &name[..1]), format!("{name}@example.com"));
            let user = json!({ "id": id, "email": email, "role": "role:member", "scopes": [] });
            serde_json::from_value(user).unwrap()
        });
        for (asked, id) in [
            ("usr_b", "usr_b"),
            ("ann@example.com", "usr_a"),
            ("Ann@Example.com", "usr_a"),
        ] {
            assert_eq!(pick_user(&users, asked).unwrap().id, id, "{asked}");
        }
        let missed = pick_user(&users, "ann@example.org").unwrap_err();
        assert_eq!(missed.code, ErrorCode::UserNotFound);
        assert!(!missed.hint.as_ref().unwrap().contains("ann@example.com"));
    }
}
