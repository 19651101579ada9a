//! A proxy on loopback between a command and a server, which strikes at a chosen request.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// When to strike, counted over the requests that came so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// Before the n-th request reaches the server.
    Before(usize),
    /// When the server has begun to answer the n-th request, of which the client sees nothing.
    Answered(usize),
}

/// What is done then, once; the connection is cut afterwards.
type Strike = Box<dyn FnMut() + Send>;

struct Plan {
    when: Option<When>,
    strike: Strike,
}

/// A running proxy; ends with the process.
#[derive(Clone)]
pub struct Proxy {
    plan: Arc<Mutex<Plan>>,
    requests: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Listens on `listener` and forwards to `port` of loopback. Requests are counted by their
    /// heads: a client of ours never sends one before the answer to the last on the same
    /// connection.
    pub fn start(listener: TcpListener, port: u16) -> Self {
        let proxy = Self {
            plan: Arc::new(Mutex::new(Plan {
                when: None,
                strike: Box::new(|| {}),
            })),
            requests: Arc::default(),
            heads: Arc::default(),
        };
        let serving = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || {
                    // A connection that breaks is what this is about.
                    let _ = serving.carry(client, port);
                });
            }
        });
        proxy
    }

    /// Counts from 0 again and strikes as told.
    pub fn arm(&self, when: Option<When>, strike: impl FnMut() + Send + 'static) {
        let mut plan = self.plan.lock().unwrap();
        self.requests.store(0, Ordering::SeqCst);
        self.heads.lock().unwrap().clear();
        plan.when = when;
        plan.strike = Box::new(strike);
    }

    /// The first lines of the requests since the proxy was armed, in the order in which they came.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// True when it struck.
    fn reach(&self, moment: When) -> bool {
        let mut plan = self.plan.lock().unwrap();
        if plan.when != Some(moment) {
            return false;
        }
        plan.when = None;
        (plan.strike)();
        true
    }

    fn carry(&self, mut client: TcpStream, port: u16) -> std::io::Result<()> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        let current = Arc::new(AtomicUsize::new(0));
        let back = {
            let (proxy, current) = (self.clone(), Arc::clone(&current));
            let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    let number = current.load(Ordering::SeqCst);
                    if proxy.reach(When::Answered(number))
                        || to.write_all(&buffer[..length]).is_err()
                    {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            })
        };
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let bytes = &buffer[..length];
            if let Some(head) = first_line(bytes) {
                let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
                self.heads.lock().unwrap().push(head);
                current.store(number, Ordering::SeqCst);
                if self.reach(When::Before(number)) {
                    break;
                }
            }
            if server.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
        let _ = back.join();
        Ok(())
    }
}

/// The request line, where the bytes begin with one.
fn first_line(bytes: &[u8]) -> Option<String> {
    let methods = ["GET ", "PUT ", "POST ", "DELETE "];
    if !methods
        .iter()
        .any(|method| bytes.starts_with(method.as_bytes()))
    {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    line.ends_with(" HTTP/1.1").then_some(line)
}
