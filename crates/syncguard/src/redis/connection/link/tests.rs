use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use tokio::time::sleep;

/// A server that answers attempts as told, each after 10 ms.
#[derive(Default)]
struct Server {
    refuses: Mutex<Option<ErrorKind>>,
    attempts: AtomicUsize,
    made: AtomicUsize,
}

#[derive(Default)]
struct Wire(AtomicBool, AtomicBool);

#[async_trait]
impl Dial for Arc<Server> {
    type Connection = Wire;

    async fn dial(&self) -> Result<Wire, Error> {
        sleep(Duration::from_millis(10)).await;
        self.attempts.fetch_add(1, SeqCst);
        match *self.refuses.lock().unwrap() {
            Some(kind) => Err(Error::new(kind, "refused")),
            None => Ok(Wire::default()),
        }
    }

    fn made(&self) {
        self.made.fetch_add(1, SeqCst);
    }
}

impl Connection for Wire {
    fn is_open(&self) -> bool {
        !self.0.load(SeqCst)
    }

    fn lost(&self) {
        self.1.store(true, SeqCst);
    }

    fn close(&self) {
        self.0.store(true, SeqCst);
    }
}

const PATIENCE: Duration = Duration::from_secs(1);

fn link() -> (Arc<Server>, Link<Arc<Server>>) {
    let server = Arc::new(Server::default());
    (Arc::clone(&server), Link::new(server, PATIENCE))
}

fn refuse(server: &Server, kind: Option<ErrorKind>) {
    *server.refuses.lock().unwrap() = kind;
}

async fn refusal(link: &Link<Arc<Server>>) -> (ErrorKind, Duration) {
    let start = Instant::now();
    let error = link.get().await.err().unwrap();
    assert!(!error.is_outcome_unknown());
    (error.kind(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn all_callers_share_one_attempt_and_one_connection() {
    let (server, link) = link();
    assert_eq!(server.attempts.load(SeqCst), 0, "not before it is needed");
    let (a, b) = tokio::join!(link.get(), link.get());
    let (a, c) = (a.unwrap(), link.get().await.unwrap());
    assert!(Arc::ptr_eq(&a, &b.unwrap()) && Arc::ptr_eq(&a, &c));
    assert_eq!(server.attempts.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_end_the_attempt() {
    let (server, link) = link();
    let hasty = tokio::time::timeout(Duration::from_millis(1), link.get()).await;
    assert!(hasty.is_err());
    link.get().await.unwrap();
    assert_eq!(server.attempts.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_is_made_again() {
    let (server, link) = link();
    let first = link.get().await.unwrap();
    first.close();
    let second = link.get().await.unwrap();
    assert_eq!(server.made.load(SeqCst), 2, "somebody hears of it");
    assert!(first.1.load(SeqCst) && !second.1.load(SeqCst));
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &link.current().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_waited_for_with_patience_and_ever_longer_pauses() {
    let (server, link) = link();
    refuse(&server, Some(ErrorKind::ServiceUnavailable));
    let (kind, waited) = refusal(&link).await;
    assert_eq!(kind, ErrorKind::ServiceUnavailable);
    assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
    let attempts = server.attempts.load(SeqCst);
    assert!((3..12).contains(&attempts), "{attempts}");
    // Nobody waits: no more than the attempt under way.
    sleep(Duration::from_secs(60)).await;
    assert!(server.attempts.load(SeqCst) <= attempts + 1);

    refuse(&server, None);
    let start = Instant::now();
    link.get().await.unwrap();
    assert!(start.elapsed() < LONGEST_WAIT * 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_lasts_is_told_at_once_and_its_end_is_noticed() {
    let (server, link) = link();
    refuse(&server, Some(ErrorKind::ServiceUnavailable));
    assert!(link.trouble().is_none());
    refusal(&link).await;
    assert_eq!(link.trouble().unwrap().message(), "refused");
    let mut waits = Duration::ZERO;
    for _ in 0..20 {
        let (kind, waited) = refusal(&link).await;
        assert_eq!(kind, ErrorKind::ServiceUnavailable);
        waits = waits.max(waited);
        sleep(Duration::from_millis(100)).await;
    }
    // An attempt that is under way may be waited for.
    assert!(waits < Duration::from_millis(50), "{waits:?}");
    refuse(&server, None);
    sleep(LONGEST_WAIT).await;
    link.get().await.unwrap();
    assert!(link.trouble().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_interruption_is_not_noticed() {
    let (server, link) = link();
    refuse(&server, Some(ErrorKind::ServiceUnavailable));
    let (connection, ()) = tokio::join!(link.get(), async {
        sleep(Duration::from_millis(300)).await;
        refuse(&server, None);
    });
    connection.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_fails_at_once_and_is_not_hammered() {
    let (server, link) = link();
    refuse(&server, Some(ErrorKind::AuthFailed));
    for _ in 0..100 {
        let (kind, waited) = refusal(&link).await;
        assert_eq!(kind, ErrorKind::AuthFailed);
        assert!(waited < Duration::from_millis(20), "{waited:?}");
    }
    assert!(server.attempts.load(SeqCst) < 5);
    refuse(&server, None);
    sleep(LONGEST_WAIT).await;
    link.get().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_later_gets_no_old_refusal() {
    let (server, link) = link();
    refuse(&server, Some(ErrorKind::ServiceUnavailable));
    for _ in 0..8 {
        // The pauses between attempts are long by now.
        refusal(&link).await;
    }
    sleep(FRESH).await;
    let start = Instant::now();
    refuse(&server, None);
    link.get().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(20),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn the_pause_before_another_connection_grows_only_when_connecting_fails() {
    let (server, link) = link();
    for _ in 0..20 {
        let start = Instant::now();
        link.get().await.unwrap().close();
        assert!(
            start.elapsed() < Duration::from_millis(60),
            "{:?}",
            start.elapsed()
        );
    }
    assert_eq!(server.attempts.load(SeqCst), 20);
    // Nor is it left out.
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        link.get().await.unwrap().close();
    }
    let attempts = server.attempts.load(SeqCst);
    assert!(attempts < 600, "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn after_closing_nothing_is_made_and_what_was_made_is_closed() {
    let (server, link) = link();
    let connection = link.get().await.unwrap();
    link.close();
    assert!(!connection.is_open());
    assert_eq!(refusal(&link).await.0, ErrorKind::Aborted);

    let (_, link) = self::link();
    let hasty = tokio::time::timeout(Duration::from_millis(1), link.get()).await;
    assert!(hasty.is_err());
    link.close();
    sleep(PATIENCE).await;
    assert_eq!(refusal(&link).await.0, ErrorKind::Aborted);
    assert_eq!(server.attempts.load(SeqCst), 1);
}

#[test]
fn the_end_of_a_runtime_is_survived() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (_, link) = link();
    runtime().block_on(async {
        let hasty = tokio::time::timeout(Duration::from_millis(1), link.get()).await;
        assert!(hasty.is_err());
    });
    runtime()
        .block_on(async { link.get().await.map(drop) })
        .unwrap();
}

/// A connection that tells whoever called on it of its end, and that caller calls again.
struct Calling(
    Arc<AtomicBool>,
    Arc<OnceLock<Link<Callers>>>,
    mpsc::Sender<bool>,
);

struct Callers(
    Arc<AtomicBool>,
    Arc<OnceLock<Link<Callers>>>,
    mpsc::Sender<bool>,
);

#[async_trait]
impl Dial for Callers {
    type Connection = Calling;

    async fn dial(&self) -> Result<Calling, Error> {
        Ok(Calling(
            Arc::clone(&self.0),
            Arc::clone(&self.1),
            self.2.clone(),
        ))
    }
}

impl Connection for Calling {
    fn is_open(&self) -> bool {
        !self.0.load(SeqCst)
    }

    fn close(&self) {}
}

impl Drop for Calling {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.2.send(self.1.get().unwrap().current().is_some());
    }
}

#[test]
fn who_hears_of_the_end_of_a_connection_may_call_again() {
    let (sender, heard) = mpsc::channel();
    // In a thread of its own: a deadlock would end no test.
    thread::spawn(move || {
        let (is_retired, link) = (Arc::<AtomicBool>::default(), Arc::<OnceLock<_>>::default());
        let callers = Callers(Arc::clone(&is_retired), Arc::clone(&link), sender);
        let link = link.get_or_init(|| Link::new(callers, PATIENCE));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            drop(link.get().await.unwrap());
            is_retired.store(true, SeqCst);
            let _ = link.ask(Instant::now(), 1);
        });
    });
    let answer = heard.recv_timeout(Duration::from_secs(10));
    assert!(!answer.expect("it waits for itself"), "none is there yet");
}

/// A server that is not what it should be: connections to it say why they are of no use.
struct Replica(Error);

#[async_trait]
impl Dial for Replica {
    type Connection = Self;

    async fn dial(&self) -> Result<Self, Error> {
        Ok(Self(self.0.clone()))
    }
}

impl Connection for Replica {
    fn is_open(&self) -> bool {
        false
    }

    fn reason(&self) -> Option<&Error> {
        Some(&self.0)
    }

    fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_that_ends_connections_is_the_trouble() {
    for (kind, words) in [
        (ErrorKind::ServiceUnavailable, "it is a replica"),
        // What will not pass by itself is told by the next attempt, if it is still so.
        (ErrorKind::AuthFailed, "the connection to redis was closed"),
    ] {
        let said = Error::new(kind, "it is a replica").with_unknown_outcome();
        let link = Link::new(Replica(said), PATIENCE);
        link.get().await.unwrap();
        let _waits = link.ask(Instant::now() + PATIENCE, 1);
        let trouble = link.trouble().unwrap();
        assert_eq!(trouble.kind(), ErrorKind::ServiceUnavailable);
        assert_eq!(trouble.message(), words);
        assert!(!trouble.is_outcome_unknown(), "nothing is sent now");
    }
}
