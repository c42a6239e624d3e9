//! Finds sessions that have gone silent, as when a firewall has dropped them.
//!
//! On the client's side, a statement that waits for another's row lock looks the same as one whose session is
//! gone, and TCP takes a quarter of an hour to notice. So when a statement has had no answer for a while, the
//! backend asks the server over another connection, at most once a second. If the server is not working on the
//! statement, its session is cut off. Other sessions on which nothing has arrived since then are replaced before
//! they are used. No statement is repeated, because it may still arrive. Whoever waits for it gets an error early
//! enough for another attempt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::connect::{Connection, Connector};
use super::liveness::{Liveness, Silence, millis};
use crate::mutex::lock;

/// The longest time that a statement may go without an answer before the server is asked about it.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Asks which of these server processes are running a statement.
const WORKING: &str =
    "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1) AND state IS DISTINCT FROM 'idle'";

/// Watches all sessions of a pool.
pub(super) struct Watch {
    start: Instant,
    /// How long one operation may take.
    limit: Duration,
    sessions: Mutex<Vec<Weak<Liveness>>>,
    /// Sessions on which nothing has arrived since then may be gone.
    suspect_before: AtomicU64,
    is_running: AtomicBool,
}

/// A session whose statement has had no answer for too long.
struct Suspect {
    session: Arc<Liveness>,
    silence: Silence,
}

impl Watch {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit,
            sessions: Mutex::default(),
            suspect_before: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
        }
    }

    /// How long a session may be silent before it is suspected.
    pub(super) fn patience(&self) -> Duration {
        (self.limit / 5).min(MOST_PATIENCE)
    }

    /// Adds a session to be watched.
    pub(super) fn add(&self) -> Arc<Liveness> {
        let session = Arc::new(Liveness::new(self.start));
        let mut sessions = lock(&self.sessions);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        session
    }

    /// Whether an idle session has to be replaced, because others were found gone.
    pub(super) fn is_suspect(&self, session: &Liveness) -> bool {
        session.heard() <= self.suspect_before.load(Ordering::Relaxed)
    }

    /// For how long nothing has arrived on a session.
    pub(super) fn silence_of(&self, session: &Liveness) -> Duration {
        Duration::from_millis(self.now().saturating_sub(session.heard()))
    }

    /// Called when a session was found gone: sessions on which nothing has arrived since `before` are suspected
    /// too.
    pub(super) fn suspect(&self, before: u64) {
        self.suspect_before.fetch_max(before, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Makes sure that a task watches the current statements.
    pub(super) fn run(connector: &Arc<Connector>) {
        let running = &connector.watch().is_running;
        if running.load(Ordering::SeqCst) || running.swap(true, Ordering::SeqCst) {
            return;
        }
        let connector = Arc::downgrade(connector);
        tokio::spawn(watch(connector));
    }

    fn busy(&self) -> Vec<Suspect> {
        let sessions = lock(&self.sessions);
        let busy = sessions.iter().filter_map(|session| {
            let session = session.upgrade()?;
            let silence = session.silence()?;
            session
                .end()
                .is_none()
                .then_some(Suspect { session, silence })
        });
        busy.collect()
    }
}

/// Watches the current statements until there are none.
async fn watch(connector: Weak<Connector>) {
    let mut witness = None;
    // When the server was last asked.
    let mut asked = None::<Instant>;
    loop {
        let Some(patience) = connector.upgrade().map(|all| all.watch().patience()) else {
            return;
        };
        sleep(patience / 4).await;
        let Some(connector) = connector.upgrade() else {
            return;
        };
        let watch = connector.watch();
        let mut suspects = watch.busy();
        if suspects.is_empty() {
            watch.is_running.store(false, Ordering::SeqCst);
            // A statement that began just before that line relies on this task.
            if watch.busy().is_empty() || watch.is_running.swap(true, Ordering::SeqCst) {
                return;
            }
            continue;
        }
        let silent_since = watch.now().saturating_sub(millis(patience));
        suspects.retain(|suspect| suspect.silence.since <= silent_since);
        if suspects.is_empty() || asked.is_some_and(|asked| asked.elapsed() < patience) {
            continue;
        }
        judge(&connector, &mut witness, &suspects).await;
        asked = Some(Instant::now());
    }
}

/// Asks the server about statements that have no answer, and cuts off the sessions of those it is not running.
async fn judge(connector: &Connector, witness: &mut Option<Connection>, suspects: &[Suspect]) {
    let watch = connector.watch();
    let Some(working) = ask(connector, witness, suspects).await else {
        // The server does not answer on another connection either, so replacing the sessions would not help.
        return;
    };
    for Suspect { session, silence } in suspects {
        let is_lost = match (session.process(), &working) {
            (Some(process), Some(working)) => !working.contains(&process),
            // Behind a pooler, the server cannot tell. Give up at half of the limit, to leave the other half for
            // another attempt.
            (None, _) => silence.since + millis(watch.limit / 2) <= watch.now(),
            (Some(_), None) => false,
        };
        // Only if nothing has arrived while the server was asked.
        if is_lost && session.silence() == Some(*silence) {
            watch.suspect(silence.busy_since);
            session.cut_off();
        }
    }
}

/// The processes of `suspects` that are running a statement; `Some(None)` if the server answers and cannot tell,
/// `None` if it does not answer.
async fn ask(
    connector: &Connector,
    witness: &mut Option<Connection>,
    suspects: &[Suspect],
) -> Option<Option<Vec<i32>>> {
    let limit = connector.watch().patience() * 2;
    for _ in 0..2 {
        let is_new = witness.is_none();
        let connection = match witness.take() {
            Some(connection) => connection,
            None => timeout(limit, connector.connect()).await.ok()?.ok()?,
        };
        if !connection.may_prepare && is_new {
            return Some(None);
        }
        let processes: Vec<i32> = suspects
            .iter()
            .filter_map(|suspect| suspect.session.process())
            .collect();
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(&processes, Type::INT4_ARRAY)];
        let answer = connection.client.query_typed(WORKING, &params);
        if let Ok(answer) = timeout(limit, answer).await {
            let rows = answer.ok();
            let working =
                rows.map(|rows| rows.iter().filter_map(|row| row.try_get(0).ok()).collect());
            connection.liveness.rest();
            *witness = Some(connection);
            return Some(working);
        }
        connection.driver.abort();
    }
    None
}
