use super::*;
use crate::model::account::{AccountId, Email};

const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const BASE: &str = "https://vault.example";

fn client() -> Client {
    Client {
        id: "cli_00000000000000000000000000".parse().unwrap(),
        name: Some("An app".into()),
        redirect_uris: ["https://app.example/cb", "http://127.0.0.1/"]
            .map(|uri| RedirectUri::parse(uri).unwrap())
            .to_vec(),
        scopes: Scopes::ALL,
        created_at: Timestamp::from_unix(0),
        document: None,
        unused_of: None,
    }
}

fn read(query: &str) -> Result<AuthorizeRequest, RejectedRequest> {
    AuthorizeRequest::from_form(&Form::parse(query), client(), BASE, BASE)
}

fn good() -> String {
    format!(
        "response_type=code&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&state=s%26t&code_challenge={CHALLENGE}&code_challenge_method=S256"
    )
}

#[test]
fn requirement_17_without_client_or_redirect_there_is_no_way_back() {
    for query in [
        "",
        "client_id=",
        "client_id=x",
        "client_id=https%3A%2F%2Fa.example",
        "client_id=http%3A%2F%2Fa.example%2Fc",
    ] {
        assert_eq!(
            client_name(&Form::parse(query)),
            Err(UnredirectableError::Client),
            "{query}"
        );
    }
    let twice = "client_id=cli_00000000000000000000000000&client_id=cli_00000000000000000000000000";
    assert_eq!(
        client_name(&Form::parse(twice)),
        Err(UnredirectableError::Client)
    );
    for uri in [
        "",
        "redirect_uri=",
        "redirect_uri=https%3A%2F%2Fapp.example%2F",
        "redirect_uri=javascript:x",
        "redirect_uri=https%3A%2F%2Fapp.example%2Fcb&redirect_uri=https%3A%2F%2Fapp.example%2Fcb",
    ] {
        let query = format!(
            "response_type=code&state=s&code_challenge={CHALLENGE}&code_challenge_method=S256&{uri}"
        );
        assert_eq!(
            read(&query).unwrap_err(),
            RejectedRequest::Page(UnredirectableError::Redirect),
            "{uri}"
        );
    }
}

#[test]
fn requirements_16_19_20_29_other_errors_go_back_with_state_and_issuer() {
    let good = good();
    for (query, error, says) in [
        (
            good.replace("response_type=code&", ""),
            "invalid_request",
            "response_type",
        ),
        (
            good.replace("response_type=code", "response_type=token"),
            "unsupported_response_type",
            "code",
        ),
        (
            good.replace("code_challenge=", "x="),
            "invalid_request",
            "code_challenge",
        ),
        (
            good.replace("&code_challenge_method=S256", ""),
            "invalid_request",
            "S256",
        ),
        (good.replace("=S256", "=plain"), "invalid_request", "S256"),
        (good.replace(CHALLENGE, "short"), "invalid_request", "43"),
        (
            format!("{good}&scope=read&scope=write"),
            "invalid_request",
            "scope",
        ),
        (
            format!("{good}&x=1&x=2"),
            "invalid_request",
            "more than once",
        ),
        (format!("{good}&nonce=%FF"), "invalid_request", "nonce"),
        (
            format!("{good}&response_mode=fragment"),
            "invalid_request",
            "response_mode",
        ),
        (
            format!("{good}&resource=https%3A%2F%2Fother.example%2Fmcp"),
            "invalid_target",
            "resource",
        ),
    ] {
        let Err(RejectedRequest::Redirect(location)) = read(&query) else {
            panic!("{query}")
        };
        let (address, answer) = location.split_once('?').unwrap();
        let answer = Form::parse(answer);
        assert_eq!(address, "https://app.example/cb");
        assert_eq!(answer.value("error"), Some(error), "{query}");
        assert!(
            answer.value("error_description").unwrap().contains(says),
            "{location}"
        );
        assert_eq!(answer.value("state"), Some("s&t"));
        assert_eq!(answer.value("iss"), Some(BASE));
        assert_eq!(answer.value("code"), None);
    }
}

#[test]
fn requirement_21_state_is_capped_and_scopes_are_those_asked_for_and_registered() {
    let long = format!(
        "{}&state={}",
        good().replace("state=s%26t&", ""),
        "s".repeat(MAX_STATE_BYTES + 1)
    );
    let Err(RejectedRequest::Redirect(location)) = read(&long) else {
        panic!()
    };
    assert!(
        location.contains("error=invalid_request") && !location.contains("state="),
        "{location}"
    );
    let write = Scopes::parse_known("write");
    let mcp = "&resource=https%3A%2F%2Fvault.example%2Fmcp";
    for (registered, asked, scopes) in [
        (Scopes::ALL, "", Some(Scopes::ALL)),
        (Scopes::READ, "", Some(Scopes::READ)),
        (Scopes::ALL, mcp, Some(Scopes::READ)),
        (write, mcp, None),
        (Scopes::ALL, "&scope=read", Some(Scopes::READ)),
        (Scopes::ALL, "&scope=write+read", Some(Scopes::ALL)),
        (Scopes::READ, "&scope=write+read", Some(Scopes::READ)),
        (Scopes::READ, "&scope=write", None),
        (
            Scopes::ALL,
            "&scope=openid+read+offline_access",
            Some(Scopes::READ),
        ),
        (Scopes::ALL, "&scope=openid", None),
        (Scopes::ALL, "&scope=admin", None),
        // These clients and resources exclude operator rights, and the request asks for nothing
        // else.
        (Scopes::READ, "&scope=operator", None),
        (
            Scopes::ALL,
            "&scope=operator&resource=https%3A%2F%2Fvault.example%2Fmcp",
            None,
        ),
        (Scopes::ALL, "&scope=operator", Some(Scopes::NONE)),
        (Scopes::ALL, "&scope=operator+read", Some(Scopes::READ)),
        (
            Scopes::ALL,
            "&scope=openid&resource=https%3A%2F%2Fvault.example%2Fmcp",
            None,
        ),
    ] {
        let registered = Client {
            scopes: registered,
            ..client()
        };
        let query = Form::parse(&format!("{}{asked}", good()));
        match (
            AuthorizeRequest::from_form(&query, registered, BASE, BASE),
            scopes,
        ) {
            (Ok(request), Some(scopes)) => assert_eq!(request.scopes, scopes, "{asked}"),
            (Err(RejectedRequest::Redirect(location)), None) => {
                assert!(location.contains("error=invalid_scope"), "{location}");
            }
            (found, _) => panic!("{asked}: {found:?}"),
        }
    }
}

#[test]
fn who_does_not_operate_the_service_is_not_given_more_than_was_asked_for() {
    let now = Timestamp::from_unix(0);
    let email: Email = "ada@example.org".parse().unwrap();
    let mut account = Account::new(AccountId::of_earlier_version(&email), email, now);
    for (operates, asked, wanted) in [
        (false, "operator", None),
        (false, "read+operator", Some((false, Scopes::READ))),
        (true, "operator", Some((true, Scopes::NONE))),
        (true, "read+operator", Some((true, Scopes::READ))),
    ] {
        account.operator = operates;
        let request = read(&format!("{}&scope={asked}", good())).unwrap();
        match (request.for_account(&account), wanted) {
            (Ok(request), Some(wanted)) => {
                assert_eq!((request.operator, request.scopes), wanted, "{asked}");
            }
            (Err(location), None) => {
                assert!(location.contains("error=invalid_scope"), "{location}");
            }
            (found, _) => panic!("{asked}: {found:?}"),
        }
    }
}

#[test]
fn a_prompt_is_honoured_or_refused() {
    for (prompt, wanted) in [
        ("", Ok(false)),
        ("consent", Ok(false)),
        ("login", Ok(true)),
        ("select_account", Ok(true)),
        ("consent+login", Ok(true)),
        ("none", Err("interaction_required")),
        ("none+consent", Err("invalid_request")),
        ("create", Err("invalid_request")),
        ("consent+LOGIN", Err("invalid_request")),
    ] {
        let found = read(&format!("{}&prompt={prompt}", good()));
        match (found, wanted) {
            (Ok(request), Ok(wanted)) => {
                assert_eq!(request.sign_in.credentials, wanted, "{prompt}");
            }
            (Err(RejectedRequest::Redirect(location)), Err(wanted)) => {
                assert!(location.contains(&format!("error={wanted}&")), "{location}");
            }
            (found, _) => panic!("{prompt}: {found:?}"),
        }
    }
}

#[test]
fn a_registered_redirect_that_would_answer_in_our_name_is_none() {
    for (parameter, good) in [
        ("code", false),
        ("state", false),
        ("iss", false),
        ("error", false),
        ("c%6Fde", false),
        ("kind", true),
    ] {
        let uri = format!("https://app.example/cb?{parameter}=x");
        let client = Client {
            redirect_uris: vec![RedirectUri::parse(&uri).unwrap()],
            ..client()
        };
        let asked = with_query("", &[("redirect_uri", &uri)])[1..].to_owned();
        let query = self::good().replace("redirect_uri=https%3A%2F%2Fapp.example%2Fcb", &asked);
        let read = AuthorizeRequest::from_form(&Form::parse(&query), client, BASE, BASE);
        match read {
            Ok(_) => assert!(good, "{uri}"),
            Err(refused) => assert_eq!(
                (refused, good),
                (RejectedRequest::Page(UnredirectableError::Redirect), false),
                "{uri}"
            ),
        }
    }
}

#[test]
fn requirement_20_the_audience_defaults_to_the_service() {
    assert_eq!(read(&good()).unwrap().resource, "https://vault.example");
    let base = format!("{}&resource=HTTPS%3A%2F%2FVAULT.example%2F", good());
    assert_eq!(read(&base).unwrap().resource, "https://vault.example");
}

#[test]
fn requirement_18_the_answer_goes_to_the_port_that_was_asked() {
    let query = good().replace(
        "https%3A%2F%2Fapp.example%2Fcb",
        "http%3A%2F%2F127.0.0.1%3A51234%2F",
    );
    assert_eq!(
        read(&query)
            .unwrap()
            .back
            .error_address("access_denied", "no"),
        "http://127.0.0.1:51234/?error=access_denied&error_description=no&state=s%26t&iss=https%3A%2F%2Fvault.example"
    );
}
