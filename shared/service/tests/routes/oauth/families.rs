//! Codes, tokens and their families under every order of events: the decisions themselves, over
//! memory, one store call at a time.
//!
//! An actor is a future that stops at each call of the store; a schedule says whose call is next.
//! So an interleaving is a list of numbers, and all of them can be tried.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use proptest::prelude::*;
use vault_service::model::account::{Account, AccountId, Epochs};
use vault_service::model::client::{Client, ClientId, Connection, client_key, connection_key};
use vault_service::model::grant::Grant;
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::model::pkce::Challenge;
use vault_service::model::redirect::RedirectUri;
use vault_service::model::token::{
    AuthorizationCode, CODE_SECONDS, Family, Reach, Secret, SecretKind, code_key,
};
use vault_service::model::user::{NamespaceRef, Role, Scopes, User};
use vault_service::oauth::revoke::{self, RevocationCaller};
use vault_service::oauth::token::{self, TokenError, TokenRequest, TokenTerms};
use vault_service::web::form::Form;
use vault_service::{App, Ports};
use vault_store::StoreError;
use vault_store::clock::Clock as _;
use vault_store::records::{Document, Records as _, When, Write};
use vault_testing::TestClock;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common::{CALLBACK, VERIFIER, commit, encoded, is_good, put};
use crate::support::{World, world};

const BASE: &str = "https://vault.example";

/// Lets somebody else go first at each reading by keys and each commit.
struct Step;

async fn step() {
    let mut first = true;
    poll_fn(|_| {
        if std::mem::replace(&mut first, false) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

#[async_trait]
impl Hook for Step {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::GetMany(_) | Call::Commit(_)) {
            step().await;
        }
        Ok(())
    }
}

/// A service with one owner, one client and its connection, put together without the walk.
struct Scene {
    app: App,
    clock: Arc<TestClock>,
    stepped: Arc<Hooked<Step>>,
    client: ClientId,
    user: User,
    home: NamespaceRef,
}

/// Runs a future that waits for nothing but memory.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

impl Scene {
    fn new() -> Self {
        let World {
            app, clock, memory, ..
        } = world();
        let at = clock.now();
        let email = "ada@example.org".parse().unwrap();
        let slug = "acme".parse().unwrap();
        let owner = "ada@example.org".to_owned();
        let home = Namespace::new(slug, Kind::Hosted, owner, &app);
        let mut writes = home.allocation_writes().unwrap();
        let home = NamespaceRef {
            slug: home.slug,
            id: home.id,
        };
        let account = Account::new(AccountId::fresh(at, &app.random), email, at);
        writes.extend(account.creation_writes().unwrap());
        let (role, scopes) = (Role::Owner, Scopes::ALL);
        let user = User::new_active(&account, home.clone(), role, scopes, &app);
        writes.extend(user.creation_writes().unwrap());
        let client = Client {
            id: ClientId::fresh(at, &app.random),
            name: None,
            redirect_uris: vec![RedirectUri::parse(CALLBACK).unwrap()],
            scopes: Scopes::ALL,
            created_at: at,
            document: None,
            unused_of: None,
        };
        let document = Document::from_value(&client).unwrap();
        writes.push(Write::put(client_key(&client.id), document, When::Absent));
        now(commit(&app, writes));
        Self {
            app,
            clock,
            stepped: Hooked::new(&memory, Arc::new(Step)),
            client: client.id,
            user,
            home,
        }
    }

    /// A code as a consent gives it.
    fn code(&self, scopes: Scopes) -> String {
        let at = self.clock.now();
        let secret = Secret::fresh(SecretKind::Code, &self.app.random);
        let code = AuthorizationCode {
            family: Family {
                grant: format!("gra_{}", &secret.hash().to_string()[..26]),
                reach: Reach::Namespace {
                    namespace: self.home.clone(),
                    user: self.user.id.clone(),
                    connection: String::new(),
                },
                client: self.client.clone(),
                account: self.user.account().unwrap(),
                epochs: Epochs::default(),
                resource: format!("{BASE}/mcp"),
                auth_time: None,
                second_factor: false,
            },
            scopes,
            redirect_uri: CALLBACK.to_owned(),
            challenge: Challenge::of_verifier(VERIFIER),
            expires_at: at.plus_seconds(CODE_SECONDS),
            used: false,
        };
        let key = code_key(&secret.hash());
        now(put(&self.app, key, &code));
        secret.text().to_owned()
    }

    fn ask(&self, fields: &[(&str, &str)]) -> TokenRequest {
        let mut all = vec![("client_id", self.client.as_str())];
        all.extend(fields);
        TokenRequest::from_form(&Form::parse(&encoded(&all))).unwrap()
    }

    fn exchange(&self, code: &str) -> TokenRequest {
        self.ask(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", VERIFIER),
        ])
    }

    fn refresh(&self, token: &str) -> TokenRequest {
        self.ask(&[("grant_type", "refresh_token"), ("refresh_token", token)])
    }

    /// The ports of the service, over the stepped store.
    fn ports(&self) -> Ports {
        Ports {
            records: self.stepped.clone(),
            ..self.app.ports.clone()
        }
    }

    /// The endpoint's loop, over the stepped store and without its waits.
    async fn tokens(&self, request: TokenRequest) -> Result<Pair, TokenError> {
        let terms = TokenTerms {
            base: BASE,
            access_seconds: 900,
        };
        let ports = self.ports();
        loop {
            let known = token::load_records(&ports, &request).await.unwrap();
            let decision = token::decide_token(&ports, &request, &known, terms, None).unwrap();
            let done = decision.writes.is_empty()
                || self
                    .stepped
                    .commit_writes(decision.writes)
                    .await
                    .unwrap()
                    .is_done();
            if done {
                return decision.answer.map(|answer| Pair {
                    access: answer.access_token,
                    refresh: answer.refresh_token.unwrap(),
                    scope: Scopes::parse_known(&answer.scope),
                });
            }
        }
    }

    async fn revoke(&self, token: &str) {
        let hash = revoke::hash_token(token).unwrap();
        let asker = RevocationCaller {
            client: Some(self.client.clone()),
            bearer: None,
        };
        let ports = self.ports();
        loop {
            let known = revoke::load_token(&ports, &hash).await.unwrap();
            let writes = revoke::decide_revocation(&ports, &hash, &known, &asker, None).unwrap();
            if writes.is_empty() || self.stepped.commit_writes(writes).await.unwrap().is_done() {
                return;
            }
        }
    }

    /// What an owner does to a client.
    async fn end_connection(&self) {
        let key = connection_key(&self.home.id, &self.client);
        loop {
            let Some(record) = self.stepped.get_one(&key).await.unwrap() else {
                return;
            };
            let mut connection: Connection = record.read().unwrap();
            connection.revoked_at = Some(self.clock.now());
            let document = Document::from_value(&connection).unwrap();
            let write = Write::put(key.clone(), document, When::At(record.revision));
            if self
                .stepped
                .commit_writes(vec![write])
                .await
                .unwrap()
                .is_done()
            {
                return;
            }
        }
    }

    fn is_good(&self, access: &str) -> bool {
        now(is_good(&self.app, access))
    }

    /// How many families live.
    fn alive(&self) -> usize {
        let partition = format!("grant/{}", self.home.id);
        let listed = now(self.app.records.list_page(&partition, "", None, 100)).unwrap();
        let grants = listed.iter().map(|record| record.read::<Grant>().unwrap());
        grants
            .filter(|grant| grant.is_alive(self.clock.now()))
            .count()
    }
}

#[derive(Clone, Debug)]
struct Pair {
    access: String,
    refresh: String,
    scope: Scopes,
}

/// What one actor came to.
type Came = Option<Result<Pair, TokenError>>;
type Actor<'s> = Pin<Box<dyn Future<Output = Came> + 's>>;

/// Lets actors go on by turns; when the schedule is at its end, each to its own.
fn play(mut actors: Vec<Actor<'_>>, schedule: impl IntoIterator<Item = usize>) -> Vec<Came> {
    let mut came: Vec<Option<Came>> = actors.iter().map(|_| None).collect();
    let mut context = Context::from_waker(Waker::noop());
    let count = actors.len();
    let mut turn = |at: usize, came: &mut Vec<Option<Came>>| {
        if came[at].is_none()
            && let Poll::Ready(done) = actors[at].as_mut().poll(&mut context)
        {
            came[at] = Some(done);
        }
    };
    for at in schedule {
        turn(at % count, &mut came);
    }
    for at in 0..count {
        while came[at].is_none() {
            turn(at, &mut came);
        }
    }
    came.into_iter().map(Option::unwrap).collect()
}

/// All orders of four calls of each of two actors: as many as each makes when nobody is in its way,
/// and one to arrive.
fn schedules() -> impl Iterator<Item = Vec<usize>> {
    (0u32..1 << 8)
        .filter(|bits| bits.count_ones() == 4)
        .map(|bits| (0..8).map(|at| (bits >> at & 1) as usize).collect())
}

fn pairs(came: &[Came]) -> Vec<Pair> {
    came.iter().flatten().flatten().cloned().collect()
}

#[test]
fn requirement_26_of_two_redemptions_at_most_one_succeeds_and_its_family_dies() {
    for schedule in schedules() {
        let scene = Scene::new();
        let code = scene.code(Scopes::ALL);
        let actor =
            || -> Actor<'_> { Box::pin(async { Some(scene.tokens(scene.exchange(&code)).await) }) };
        let came = play(vec![actor(), actor()], schedule.clone());
        let given = pairs(&came);
        assert_eq!(given.len(), 1, "{schedule:?}");
        assert!(
            came.contains_refusal(&TokenError::InvalidGrant),
            "{schedule:?}"
        );
        assert_eq!(scene.alive(), 0, "{schedule:?}");
        assert!(!scene.is_good(&given[0].access), "{schedule:?}");
        let later = now(scene.tokens(scene.refresh(&given[0].refresh)));
        assert_eq!(later.unwrap_err(), TokenError::InvalidGrant);
    }
}

trait ContainsRefusal {
    fn contains_refusal(&self, error: &TokenError) -> bool;
}

impl ContainsRefusal for Vec<Came> {
    fn contains_refusal(&self, error: &TokenError) -> bool {
        self.iter()
            .flatten()
            .any(|came| came.as_ref().err() == Some(error))
    }
}

#[test]
fn requirement_32_two_refreshes_at_once_leave_one_chain() {
    for schedule in schedules() {
        let scene = Scene::new();
        let first = now(scene.tokens(scene.exchange(&scene.code(Scopes::ALL)))).unwrap();
        let actor = || -> Actor<'_> {
            Box::pin(async { Some(scene.tokens(scene.refresh(&first.refresh)).await) })
        };
        let came = play(vec![actor(), actor()], schedule.clone());
        // Both come before the pair is used: the second is a lost answer asked for again.
        let given = pairs(&came);
        assert_eq!(given.len(), 2, "{schedule:?}");
        assert_eq!(scene.alive(), 1);
        let [one, other] = [given[0].clone(), given[1].clone()];
        assert_eq!((&one.access, &one.refresh), (&other.access, &other.refresh));
        assert!(scene.is_good(&one.access), "{schedule:?}");
        let next = now(scene.tokens(scene.refresh(&one.refresh))).unwrap();
        assert!(scene.is_good(&next.access));
        // The first one comes again when its successor was used: it was stolen.
        assert!(now(scene.tokens(scene.refresh(&first.refresh))).is_err());
        assert_eq!(scene.alive(), 0);
        for pair in [&first, &one, &next] {
            assert!(!scene.is_good(&pair.access), "{schedule:?}");
        }
    }
}

#[test]
fn requirement_42_no_token_survives_a_revocation_that_meets_a_refresh() {
    for schedule in schedules() {
        let scene = Scene::new();
        let first = now(scene.tokens(scene.exchange(&scene.code(Scopes::ALL)))).unwrap();
        let refresh: Actor<'_> =
            Box::pin(async { Some(scene.tokens(scene.refresh(&first.refresh)).await) });
        let revoke: Actor<'_> = Box::pin(async {
            scene.revoke(&first.refresh).await;
            None
        });
        let came = play(vec![refresh, revoke], schedule.clone());
        assert_eq!(scene.alive(), 0, "{schedule:?}");
        for pair in pairs(&came).iter().chain([&first]) {
            assert!(!scene.is_good(&pair.access), "{schedule:?}");
            assert!(now(scene.tokens(scene.refresh(&pair.refresh))).is_err());
        }
    }
}

#[test]
fn requirement_43_no_token_survives_the_end_of_its_client() {
    for (redeems, schedule) in schedules().flat_map(|s| [(true, s.clone()), (false, s)]) {
        let scene = Scene::new();
        let first = now(scene.tokens(scene.exchange(&scene.code(Scopes::ALL)))).unwrap();
        let code = scene.code(Scopes::ALL);
        let asks: Actor<'_> = Box::pin(async {
            let request = if redeems {
                scene.exchange(&code)
            } else {
                scene.refresh(&first.refresh)
            };
            Some(scene.tokens(request).await)
        });
        let ends: Actor<'_> = Box::pin(async {
            scene.end_connection().await;
            None
        });
        let came = play(vec![asks, ends], schedule.clone());
        for pair in pairs(&came).iter().chain([&first]) {
            assert!(!scene.is_good(&pair.access), "{schedule:?}");
            assert!(now(scene.tokens(scene.refresh(&pair.refresh))).is_err());
        }
    }
}

/// What may happen to one consent.
#[derive(Clone, Debug)]
enum Event {
    Redeem,
    Refresh(usize),
    RevokeRefresh(usize),
    EndConnection,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Redeem),
        6 => (0usize..8).prop_map(Event::Refresh),
        1 => (0usize..8).prop_map(Event::RevokeRefresh),
        1 => Just(Event::EndConnection),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Rounds of up to three events at once, in any order of store calls, with time between the
    /// rounds. Whatever happens, at most one family lives, a dead family has no good token and
    /// never lives again, and of a living one exactly the newest refresh token goes on.
    #[test]
    fn requirements_26_32_42_any_events_in_any_order_keep_one_living_chain_at_most(
        rounds in prop::collection::vec(
            (prop::collection::vec(event(), 1..4), prop::collection::vec(0usize..3, 0..16), 0i64..14),
            1..7,
        )
    ) {
        let scene = Scene::new();
        let code = scene.code(Scopes::ALL);
        let mut given = vec![now(scene.tokens(scene.exchange(&code))).unwrap()];
        let mut died = false;
        for (events, schedule, wait) in rounds {
            let actors = events.iter().map(|event| -> Actor<'_> {
                let (scene, given, code, event) = (&scene, given.clone(), &code, event.clone());
                let at = |n: usize| given[n % given.len()].refresh.clone();
                match event {
                    Event::Redeem => Box::pin(async move { Some(scene.tokens(scene.exchange(code)).await) }),
                    Event::Refresh(n) => {
                        let token = at(n);
                        Box::pin(async move { Some(scene.tokens(scene.refresh(&token)).await) })
                    }
                    Event::RevokeRefresh(n) => {
                        let token = at(n);
                        Box::pin(async move { scene.revoke(&token).await; None })
                    }
                    Event::EndConnection => Box::pin(async move { scene.end_connection().await; None }),
                }
            });
            let came = play(actors.collect(), schedule);
            given.extend(pairs(&came));
            prop_assert!(scene.alive() <= 1);
            let good = given.iter().filter(|pair| scene.is_good(&pair.access)).count();
            if died || scene.alive() == 0 {
                prop_assert_eq!(good, 0, "no token survives its family");
                died = true;
            }
            prop_assert!(!died || scene.alive() == 0 || good == 0, "what is dead stays dead");
            scene.clock.advance(wait);
        }
    }

    /// Consent, the user's rights and the request only ever narrow each other, along any chain of
    /// refreshes.
    #[test]
    fn requirement_33_no_chain_of_refreshes_widens_a_scope(
        consented in scopes(),
        steps in prop::collection::vec((scopes(), prop::option::of("(read|write|admin|openid)( (read|write|admin))?")), 1..10),
    ) {
        let scene = Scene::new();
        let first = now(scene.tokens(scene.exchange(&scene.code(consented)))).unwrap();
        prop_assert_eq!(first.scope, consented);
        let mut newest = first;
        for (rights, asked) in steps {
            let user = User { scopes: rights, ..scene.user.clone() };
            now(put(&scene.app, user.key(), &user));
            let scope = asked.clone().unwrap_or_default();
            let fields = [("grant_type", "refresh_token"), ("refresh_token", newest.refresh.as_str()), ("scope", scope.as_str())];
            let wanted = asked.as_deref().map_or(consented, Scopes::parse_known);
            let answer = now(scene.tokens(scene.ask(&fields)));
            match answer {
                Ok(pair) => {
                    prop_assert!(wanted.is_subset_of(consented), "{asked:?}");
                    prop_assert_eq!(pair.scope, wanted.and(rights));
                    newest = pair;
                }
                Err(error) => {
                    prop_assert_eq!(error, TokenError::InvalidScope);
                    let in_vain = !wanted.is_subset_of(consented) || wanted.is_empty() || wanted.and(rights).is_empty();
                    prop_assert!(in_vain, "{asked:?}");
                }
            }
        }
    }
}

fn scopes() -> impl Strategy<Value = Scopes> {
    prop_oneof![
        Just(Scopes::READ),
        Just(Scopes::parse_known("write")),
        Just(Scopes::ALL)
    ]
}
