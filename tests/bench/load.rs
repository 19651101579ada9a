//! A load generator that asks one question over and over: kept connections, prepared requests,
//! whole answers counted.
//!
//! It must not eat the machine that the server runs on: bodies are dropped by the system without
//! being copied, and an answer costs three system calls.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use crate::meter::{cpu_seconds, float, now};

/// What came of a round.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Answers per second of wall time.
    pub per_second: f64,
    /// CPU time of the server for one answer, in seconds.
    pub server_cpu: f64,
}

const BEGINS: &[u8; 16] = b"HTTP/1.1 200 OK\r";

/// An answer as text and body, read in full.
pub fn ask(address: SocketAddr, request: &[u8]) -> (String, Vec<u8>) {
    let mut stream = connect(address);
    stream.write_all(request).expect("a request that is sent");
    let mut held = Vec::new();
    let mut some = vec![0; 65_536];
    let (head, mut body) = loop {
        let read = stream.read(&mut some).expect("an answer");
        assert!(read > 0, "the server closed the connection");
        held.extend_from_slice(&some[..read]);
        if let Some(at) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = held.split_off(at + 4);
            break (String::from_utf8(held).expect("a head in ASCII"), body);
        }
    };
    let length = content_length(&head);
    let have = body.len();
    body.resize(length, 0);
    stream
        .read_exact(&mut body[have..])
        .expect("a whole answer");
    (head, body)
}

fn content_length(head: &str) -> usize {
    head.lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())?
        })
        .expect("a Content-Length")
}

/// Asks over `connections` at once for `length`. Every answer must be a 200 of the same length.
pub fn run(
    address: SocketAddr,
    pid: u32,
    request: &[u8],
    connections: usize,
    length: Duration,
) -> Load {
    let answer = answer_bytes(address, request);
    let cpu = cpu_seconds(pid);
    let begun = now();
    let answers = exchange_while(address, request, answer, connections, |_| {
        begun.elapsed() < length
    });
    Load {
        per_second: float(answers) / begun.elapsed().as_secs_f64(),
        server_cpu: (cpu_seconds(pid) - cpu) / float(answers),
    }
}

/// Asks `count` times over `connections` at once. Every answer must be a 200 of the same length.
pub fn times(address: SocketAddr, request: &[u8], connections: usize, count: usize) {
    let answer = answer_bytes(address, request);
    exchange_while(address, request, answer, connections, |done| {
        done < count / connections
    });
}

/// Asks once: caches are warm then, and the length of an answer is known.
fn answer_bytes(address: SocketAddr, request: &[u8]) -> usize {
    let (head, body) = ask(address, request);
    assert!(
        head.as_bytes().starts_with(BEGINS),
        "{head}{}",
        String::from_utf8_lossy(&body)
    );
    head.len() + body.len()
}

/// Asks over each connection while `go_on` says so of the answers it has had; their number in all.
fn exchange_while(
    address: SocketAddr,
    request: &[u8],
    answer: usize,
    connections: usize,
    go_on: impl Fn(usize) -> bool + Sync,
) -> usize {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = connect(address);
                    let mut room = vec![0; answer];
                    let mut answers = 0;
                    while go_on(answers) {
                        exchange(&mut stream, request, &mut room);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the load"))
            .sum()
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a server that listens");
    stream.set_nodelay(true).expect("a socket");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    stream
}

fn exchange(stream: &mut TcpStream, request: &[u8], room: &mut [u8]) {
    stream.write_all(request).expect("a request that is sent");
    let mut begins = [0; BEGINS.len()];
    stream.read_exact(&mut begins).expect("an answer");
    assert_eq!(
        &begins, BEGINS,
        "an answer that is none, or of another length"
    );
    let mut left = room.len() - begins.len();
    while left > 0 {
        let (_, dropped) = recv(
            &*stream,
            &mut room[..left],
            RecvFlags::TRUNC | RecvFlags::WAITALL,
        )
        .expect("the rest of an answer");
        assert!(dropped > 0, "the server cut an answer short");
        left -= dropped;
    }
}
