//! Finds sessions that have gone silent, as when a firewall has forgotten them.
//!
//! Nothing tells a statement that waits for another's row lock from one whose session is gone, and TCP
//! takes a quarter of an hour. So a statement that has no answer for a while makes the backend ask the
//! server over another connection, once a second at most. Where the server does not know of the
//! statement, the session is cut off, and all that have not been heard of since are replaced before
//! they are used. No statement is repeated: it may yet arrive. Whoever waits for it hears of the loss
//! in time for another attempt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::connect::{Connection, Connector};
use super::liveness::{Liveness, Silence, millis};

/// How long a statement may go without an answer before the server is asked about it, at most.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Which of these processes are at work, as far as it is known.
const WORKING: &str =
    "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1) AND state IS DISTINCT FROM 'idle'";

/// What is known of all sessions of a pool.
pub(super) struct Watch {
    start: Instant,
    /// How long one operation may take.
    limit: Duration,
    sessions: Mutex<Vec<Weak<Liveness>>>,
    /// Sessions that have not been heard of since then may be gone.
    suspect_before: AtomicU64,
    is_running: AtomicBool,
}

/// A statement that has had no answer for too long.
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

    /// How long a session may take to answer.
    pub(super) fn patience(&self) -> Duration {
        (self.limit / 5).min(MOST_PATIENCE)
    }

    /// A session to be watched.
    pub(super) fn add(&self) -> Arc<Liveness> {
        let session = Arc::new(Liveness::new(self.start));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        session
    }

    /// Whether a session that is not in use has to be replaced, since others were found gone.
    pub(super) fn is_suspect(&self, session: &Liveness) -> bool {
        session.heard() <= self.suspect_before.load(Ordering::Relaxed)
    }

    /// How long a session has not been heard of.
    pub(super) fn silence_of(&self, session: &Liveness) -> Duration {
        Duration::from_millis(self.now().saturating_sub(session.heard()))
    }

    /// A session was found gone: those that were last heard of before now are suspected too.
    pub(super) fn suspect(&self, before: u64) {
        self.suspect_before.fetch_max(before, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Sees to it that statements which are under way now are watched.
    pub(super) fn run(connector: &Arc<Connector>) {
        let running = &connector.watch().is_running;
        if running.load(Ordering::SeqCst) || running.swap(true, Ordering::SeqCst) {
            return;
        }
        let connector = Arc::downgrade(connector);
        tokio::spawn(watch(connector));
    }

    fn busy(&self) -> Vec<Suspect> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Looks at the statements under way, until there are none.
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
            // One that began just before that relies on this task.
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

/// Asks the server about statements that have no answer, and cuts off those that it does not know of.
async fn judge(connector: &Connector, witness: &mut Option<Connection>, suspects: &[Suspect]) {
    let watch = connector.watch();
    let Some(working) = ask(connector, witness, suspects).await else {
        // Where the server does not answer at all, no other connection would fare better.
        return;
    };
    for Suspect { session, silence } in suspects {
        let is_lost = match (session.process(), &working) {
            (Some(process), Some(working)) => !working.contains(&process),
            // Behind a pooler nobody can tell. Half of the time is left for another attempt.
            (None, _) => silence.since + millis(watch.limit / 2) <= watch.now(),
            (Some(_), None) => false,
        };
        // Unless something has come while the server was asked.
        if is_lost && session.silence() == Some(*silence) {
            watch.suspect(silence.busy_since);
            session.cut_off();
        }
    }
}

/// The processes of `suspects` that are at work, `Some(None)` if the server answers and cannot tell,
/// and `None` if it does not answer.
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
