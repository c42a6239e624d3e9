use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::text::error::ErrorKind;
use crate::waiting::wakeups::{Wakeups, Watch};

/// A server that does as it is told.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    opened: Vec<Instant>,
    /// What the next attempts to connect fail with, the last first.
    refusals: Vec<ErrorKind>,
    is_silent: bool,
    names: BTreeSet<String>,
    connection: Option<UnboundedSender<Result<StoreMessage, Error>>>,
}

struct Connection {
    server: Server,
    heard: UnboundedReceiver<Result<StoreMessage, Error>>,
}

impl Server {
    fn wakeups(&self) -> Wakeups {
        Wakeups::new(self.clone())
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.0.lock().unwrap())
    }

    fn say(&self, heard: Result<StoreMessage, Error>) {
        self.with(|state| {
            let connection = state.connection.as_ref().unwrap();
            // A client that is gone hears nothing.
            let _ = connection.send(heard);
        });
    }

    fn names(&self) -> Vec<String> {
        self.with(|state| state.names.iter().cloned().collect())
    }

    fn opened(&self) -> usize {
        self.with(|state| state.opened.len())
    }
}

#[async_trait]
impl Listen for Server {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let (sender, heard) = unbounded_channel();
        self.with(|state| {
            state.opened.push(Instant::now());
            match state.refusals.pop() {
                Some(kind) => Err(Error::new(kind, "refused")),
                None => {
                    state.names.clear();
                    state.connection = Some(sender);
                    Ok(())
                }
            }
        })?;
        Ok(Box::new(Connection {
            server: self.clone(),
            heard,
        }))
    }
}

#[async_trait]
impl Listener for Connection {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            self.server.with(|state| match is_wanted {
                true => state.names.insert(name.to_string()),
                false => state.names.remove(&**name),
            });
            if *is_wanted && !self.server.with(|state| state.is_silent) {
                self.server
                    .say(Ok(StoreMessage::Listening(name.to_string())));
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        if !self.server.with(|state| state.is_silent) {
            self.server.say(Ok(StoreMessage::Alive));
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        let lost = || Error::new(ErrorKind::ServiceUnavailable, "lost");
        self.heard.recv().await.ok_or_else(lost)?
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.with(|state| {
            state.names.clear();
            state.connection = None;
        });
    }
}

async fn is_freed(watch: &Watch) -> bool {
    timeout(Duration::from_millis(1), watch.freed())
        .await
        .is_ok()
}

async fn listening(watch: &Watch) {
    timeout(Duration::from_secs(1000), watch.freed())
        .await
        .unwrap();
    assert!(watch.is_listening());
}

#[tokio::test(start_paused = true)]
async fn what_is_freed_wakes_once_and_nobody_else() {
    let server = Server::default();
    let wakeups = server.wakeups();
    let (a, also_a, b) = (wakeups.watch("a"), wakeups.watch("a"), wakeups.watch("b"));
    assert_eq!(server.opened(), 0);
    for watch in [&a, &also_a, &b] {
        // To begin to listen counts: what came before was not heard.
        listening(watch).await;
        assert!(!is_freed(watch).await);
    }
    server.say(Ok(StoreMessage::Freed("a".to_owned())));
    server.say(Ok(StoreMessage::Freed("a".to_owned())));
    server.say(Ok(StoreMessage::Freed("unknown".to_owned())));
    assert!(is_freed(&a).await && is_freed(&also_a).await);
    assert!(!is_freed(&a).await && !is_freed(&b).await);
    assert_eq!(
        (server.opened(), server.names()),
        (1, vec!["a".to_owned(), "b".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_given_up_with_their_last_watch_and_the_connection_a_while_later() {
    let server = Server::default();
    let wakeups = server.wakeups();
    let (first, second) = (wakeups.watch("a"), wakeups.watch("a"));
    listening(&first).await;
    drop(first);
    yield_now().await;
    assert_eq!(server.names(), ["a"]);
    drop(second);
    sleep(Duration::from_millis(1)).await;
    assert!(server.names().is_empty());
    sleep(IDLE / 2).await;
    // Whoever comes in time uses the same connection.
    let third = wakeups.watch("b");
    listening(&third).await;
    drop(third);
    assert!(server.with(|state| state.connection.is_some()));
    sleep(IDLE * 2).await;
    assert!(server.with(|state| state.connection.is_none()));
    let fourth = wakeups.watch("c");
    listening(&fourth).await;
    assert_eq!(server.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_and_counts_as_a_hint() {
    let server = Server::default();
    let wakeups = server.wakeups();
    let watch = wakeups.watch("a");
    listening(&watch).await;
    server.with(|state| {
        state.refusals = vec![ErrorKind::ServiceUnavailable; 3];
    });
    server.say(Err(Error::new(ErrorKind::ServiceUnavailable, "lost")));
    sleep(Duration::from_millis(10)).await;
    assert!(!watch.is_listening());
    listening(&watch).await;
    let opened = server.with(|state| state.opened.clone());
    let pauses: Vec<_> = opened.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses.len(), 4);
    for (pause, longest_ms) in pauses.iter().zip([100, 200, 400, 800]) {
        let longest = Duration::from_millis(longest_ms + 10);
        assert!(
            (longest / 2 - Duration::from_millis(10)..=longest).contains(pause),
            "{pauses:?}"
        );
    }
}

/// How many connections are opened within a minute, where each ends as soon as it tells of the lock `first`.
async fn opened_in_a_minute(first: Option<&str>) -> usize {
    let server = Server::default();
    server.with(|state| state.is_silent = true);
    let wakeups = server.wakeups();
    let watch = wakeups.watch("a");
    let waiter = tokio::spawn(async move {
        loop {
            watch.freed().await;
        }
    });
    let minute = Instant::now() + Duration::from_secs(60);
    while Instant::now() < minute {
        if server.with(|state| state.connection.is_some()) {
            if let Some(name) = first {
                server.say(Ok(StoreMessage::Listening(name.to_owned())));
            }
            server.say(Err(Error::new(ErrorKind::ServiceUnavailable, "ended")));
        }
        sleep(Duration::from_millis(5)).await;
    }
    waiter.abort();
    server.opened()
}

#[tokio::test(start_paused = true)]
async fn connections_that_end_at_once_are_opened_less_and_less_often() {
    for first in [None, Some("a")] {
        // At first after 0.1 s, in the end after 2.5 s to 5 s.
        let opened = opened_in_a_minute(first).await;
        assert!((12..32).contains(&opened), "{opened}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_lasts_is_asked_about_seldom() {
    let server = Server::default();
    server.with(|state| state.refusals = vec![ErrorKind::AuthFailed; 2]);
    let wakeups = server.wakeups();
    let watch = wakeups.watch("a");
    let start = Instant::now();
    listening(&watch).await;
    assert!(start.elapsed() >= REFUSED_PAUSE);
    assert_eq!(server.opened(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_replaced() {
    let server = Server::default();
    let wakeups = server.wakeups();
    let watch = wakeups.watch("a");
    listening(&watch).await;
    // A server that answers keeps its connection.
    sleep(SILENCE * 5).await;
    assert_eq!(server.opened(), 1);
    server.with(|state| state.is_silent = true);
    // However much this side asks for.
    for _ in 0..10 {
        sleep((SILENCE + ANSWER) / 10).await;
        drop(wakeups.watch("b"));
    }
    sleep(FIRST_PAUSE * 2).await;
    assert!(server.opened() > 1);
    assert!(!watch.is_listening());
    server.with(|state| state.is_silent = false);
    listening(&watch).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_backend_ends_it() {
    let server = Server::default();
    let wakeups = server.wakeups();
    let watch = wakeups.watch("a");
    listening(&watch).await;
    drop(wakeups);
    sleep(Duration::from_millis(1)).await;
    assert!(server.with(|state| state.connection.is_none()));
    // Whoever waits tries for the last time, and learns that the backend is closed.
    assert!(!watch.is_listening() && is_freed(&watch).await);
    assert!(!is_freed(&watch).await);
    assert_eq!(server.opened(), 1);
}

/// A runtime that ends drops what is spawned on it at once, also by a task that it cannot drop yet because it is running.
#[test]
fn whoever_waits_does_not_keep_its_runtime_from_ending() {
    struct TellsWhenDropped(mpsc::Sender<()>);
    impl Drop for TellsWhenDropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let soon = Duration::from_secs(60);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (running, is_running) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let (dropped, is_dropped) = mpsc::channel();
    let waiter = TellsWhenDropped(dropped);
    runtime.spawn(async move {
        let wakeups = Server::default().wakeups();
        let watch = wakeups.watch("a");
        running.send(()).unwrap();
        may_go_on.recv_timeout(soon).unwrap();
        watch.freed().await;
        drop(waiter);
    });
    is_running.recv_timeout(soon).unwrap();
    let (ending, is_ending) = mpsc::channel();
    let idle = TellsWhenDropped(ending);
    runtime.spawn(async move {
        std::future::pending::<()>().await;
        drop(idle);
    });
    runtime.shutdown_background();
    is_ending.recv_timeout(soon).unwrap();
    go_on.send(()).unwrap();
    is_dropped
        .recv_timeout(soon)
        .expect("it goes on for ever, and so does its runtime");
}
