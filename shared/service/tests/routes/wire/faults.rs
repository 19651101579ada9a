//! What goes wrong inside the service, and how it ends.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use vault_service::model::device::DeviceStatus;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use super::{PATIENCE, Reply, Served, assert_problem, bytes_of, read_all, served};
use crate::support::{World, key, world};

/// A database that behaves badly.
pub(super) enum Odd {
    NeverAnswers,
    Panics,
    /// Says that a reading has begun, and waits until it may go on. Writes go through at once.
    Waits(Arc<Notify>, Arc<Notify>),
}

#[async_trait]
impl Hook for Odd {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        match (self, call) {
            (Self::NeverAnswers, _) => std::future::pending().await,
            (Self::Panics, _) => panic!("the adapter has a bug, and knows the password hunter2"),
            (Self::Waits(begun, go_on), Call::GetMany(_)) => {
                begun.notify_one();
                go_on.notified().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A service whose database behaves like that.
pub(super) async fn served_by(mut world: World, odd: Odd) -> Served {
    world.app.ports.records = Hooked::new(&world.memory, Arc::new(odd));
    served(world).await
}

/// A request that makes the service panic gets 500 with a request id and nothing else. The server
/// goes on answering others.
#[tokio::test]
async fn a_panic_is_500() {
    let served = served_by(world(), Odd::Panics).await;
    let reply = served.ask(&key(1), "GET", "/v/acme/catalog.json").await;
    assert_problem(&reply, "500 internal", "panic");
    assert!(!reply.body.contains("hunter2"));
    assert_eq!(
        served.send("GET", "/v/", &[], "").await.short(),
        "401 signature_required"
    );
}

/// A server that is told to stop accepts no new connection, finishes the answers it has begun, and
/// then ends.
#[tokio::test]
async fn a_graceful_stop() {
    let world = world();
    world.acme().await;
    world.device("acme", 1, DeviceStatus::Active).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let odd = Odd::Waits(begun.clone(), go_on.clone());
    let served = served_by(world, odd).await;
    let mut idle = served.connect().await;
    let mut asking = served.connect().await;
    let headers = served.signature(&key(1), "GET", "/v/acme/catalog.json", 0);
    let request = String::from_utf8(bytes_of("GET", "/v/acme/catalog.json", &headers, ""))
        .unwrap()
        .replace("Connection: close\r\n", "");
    asking.write_all(request.as_bytes()).await.unwrap();
    begun.notified().await;

    served.stop.send(()).unwrap();
    assert_eq!(
        read_all(&mut idle).await,
        b"",
        "an idle connection is closed"
    );
    let refused = TcpStream::connect(served.address).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
    assert!(
        !served.running.is_finished(),
        "the server ended before its last answer"
    );
    go_on.notify_one();
    let answer = Reply::parse(&read_all(&mut asking).await).unwrap();
    assert_eq!(
        (answer.status, answer.body.as_bytes()),
        (200, &crate::support::vector("catalog-42.json")[..])
    );
    timeout(PATIENCE, served.running)
        .await
        .expect("the server ends")
        .unwrap();
}

/// A server that is told to stop waits at most ten seconds for the answers it has begun.
#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let (begun, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let odd = Odd::Waits(begun.clone(), never);
    let served = served_by(world(), odd).await;
    let mut stream = served.connect().await;
    let headers = served.signature(&key(1), "GET", "/v/acme/catalog.json", 0);
    stream
        .write_all(&bytes_of("GET", "/v/acme/catalog.json", &headers, ""))
        .await
        .unwrap();
    begun.notified().await;
    served.stop.send(()).unwrap();
    timeout(PATIENCE, served.running)
        .await
        .expect("the server ends")
        .unwrap();
}
