//! The server, started as a program: asked over HTTP, with a busy lock, and ended while a request holds one.

use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

struct Server {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start() -> Result<Server, Error> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("locks.db");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rust-axum"))
        .env("PORT", "0")
        .env("SYNCGUARD_URL", format!("sqlite://{}", file.display()))
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| Error::other("no output"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line
        .trim()
        .strip_prefix("listening on http://")
        .ok_or_else(|| Error::other(format!("unexpected: {line}")))?
        .to_owned();
    Ok(Server {
        child,
        address,
        _folder: folder,
    })
}

/// The status line and the body of an answer.
fn withdraw(address: &str, account: &str, body: &str) -> Result<(String, String), Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(
        stream,
        "POST /accounts/{account}/withdrawals HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| Error::other(format!("no answer: {answer}")))?;
    let status = head.lines().next().unwrap_or_default().to_owned();
    Ok((status, body.to_owned()))
}

type Answer = JoinHandle<Result<(String, String), Error>>;

fn withdraw_meanwhile(address: &str, account: &'static str, body: &'static str) -> Answer {
    let address: Arc<str> = address.into();
    thread::spawn(move || withdraw(&address, account, body))
}

/// The balance and the fence of an answer.
fn parts(body: &str) -> Option<(&str, &str)> {
    body.strip_prefix(r#"{"balance":"#)
        .and_then(|rest| rest.strip_suffix(r#""}"#))
        .and_then(|rest| rest.split_once(r#","fence":""#))
}

#[test]
fn withdrawals_from_one_account_take_turns() {
    let server = start().expect("the server starts");
    let answers: Vec<Answer> = (0..5)
        .map(|_| withdraw_meanwhile(&server.address, "4711", r#"{"amount":10}"#))
        .collect();
    let mut bodies: Vec<String> = answers
        .into_iter()
        .map(|answer| answer.join().expect("no panic").expect("an answer").1)
        .collect();
    // Who came later got a larger fence and left less on the account.
    bodies.sort();
    bodies.reverse();
    let answers: Vec<(&str, &str)> = bodies
        .iter()
        .map(|body| parts(body).expect("a balance and a fence"))
        .collect();
    // Without the lock, each would have read 100.
    let balances: Vec<&str> = answers.iter().map(|(balance, _)| *balance).collect();
    assert_eq!(balances, ["90", "80", "70", "60", "50"]);
    let fences = answers.iter().map(|(_, fence)| *fence);
    let mut lengths = fences.clone().map(str::len);
    assert!(lengths.all(|length| length == 15), "{bodies:?}");
    assert!(
        fences.is_sorted_by(|before, after| before < after),
        "{bodies:?}"
    );
    let (status, _) = withdraw(&server.address, "4711", r#"{"amount":60}"#).expect("an answer");
    assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
    let (status, _) = withdraw(&server.address, "none", r#"{"amount":1}"#).expect("an answer");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
}

#[test]
fn a_busy_account_is_refused_and_sigterm_lets_holders_finish() {
    let mut server = start().expect("the server starts");
    let slow = withdraw_meanwhile(&server.address, "4711", r#"{"amount":1,"takesMs":4000}"#);
    // Until the slow one has the lock, others get it at once.
    let limit = Instant::now() + Duration::from_secs(10);
    let busy = loop {
        let (status, body) =
            withdraw(&server.address, "4711", r#"{"amount":0}"#).expect("an answer");
        if status != "HTTP/1.1 200 OK" {
            break (status, body);
        }
        assert!(Instant::now() < limit, "the account was never busy");
    };
    let unavailable = "HTTP/1.1 503 Service Unavailable".to_owned();
    let timeout = r#"{"error":"AcquisitionTimeout"}"#.to_owned();
    assert_eq!(busy, (unavailable.clone(), timeout));

    let waiting = withdraw_meanwhile(&server.address, "4711", r#"{"amount":1}"#);
    let (status, _) = withdraw(&server.address, "4712", r#"{"amount":1}"#).expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::TERM).expect("the server runs");
    let waited = waiting.join().expect("no panic").expect("an answer");
    assert_eq!(waited, (unavailable, r#"{"error":"Stopping"}"#.to_owned()));
    let (status, body) = slow.join().expect("no panic").expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(body.starts_with(r#"{"balance":99,"#), "{body}");
    assert!(server.child.wait().expect("it ends").success());
}
