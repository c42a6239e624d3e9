//! Finds the primary by asking Sentinels, and hears from them when another server becomes it.
//!
//! During a failover, Sentinels disagree, and the former primary goes on for seconds: it takes itself for the primary, and grants
//! and extends locks of which the new one knows nothing. So the Sentinels are followed while there are connections. As soon as
//! one of them names another primary, connections to the former one end.

mod asking;
mod disputes;
mod finding;
mod following;
mod set;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use redis::{Value, cmd};
use tokio::time::{Instant, sleep_until, timeout};

use super::connect;
use super::limited::Limited;
use super::session::{Handshake, ask, late, login, name};
use super::term::{Address, Named, Term};
use super::tls::TlsContext;
use crate::network::switches::Switches;
use crate::race::Race;
use crate::redis::config::{RedisConfig, RedisSentinel};
use crate::text::error::Error;
use asking::no_primary;
use finding::PrimarySearch;
use following::{Following, follow};
pub(super) use set::Followed;
use set::SentinelSet;

/// What one of the racing questions has come to.
enum SentinelAnswer {
    /// The answer of a Sentinel.
    Named(Result<Named, Error>),
    /// A stream to the server at that address, if it is a primary.
    Primary(Address, Result<Limited, Error>),
}

/// The Sentinels of a set.
pub(super) struct Sentinels(Arc<SentinelSet>);

impl Sentinels {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig, set: &RedisSentinel, tls: Option<&TlsContext>) -> Self {
        Self(Arc::new(SentinelSet::new(config, set, tls)))
    }

    pub(super) fn switches(&self) -> &Switches {
        self.0.switches()
    }

    pub(super) fn followed(&self) -> Followed {
        self.0.followed()
    }

    /// How often another server has become the primary.
    pub(super) fn switch_count(&self) -> u64 {
        self.0.switch_count()
    }

    /// Completes when another server becomes the primary.
    pub(super) async fn moved(&self) {
        self.0.moved().await
    }

    /// Opens a stream to the primary that is ready for scripts. Asks all Sentinels at once and tries each address that they
    /// give. So a Sentinel that is silent, or that was cut off and names a former primary, does not delay the others.
    pub(super) async fn open(&self, config: &RedisConfig) -> Result<Limited, Error> {
        let before = self.0.primary.borrow().clone();
        let mut race = Race::new();
        for node in &self.0.set.nodes {
            race.start(async move {
                let answer = self.0.ask(node).await;
                if let Ok(named) = &answer {
                    self.0.note_first_answer(node, named);
                }
                SentinelAnswer::Named(answer)
            });
        }
        let mut finding = PrimarySearch::new(self.0.set.nodes.len(), before.as_ref());
        let (named, stream) = loop {
            if let Some(decided) = finding.decided() {
                break decided;
            }
            let until = finding.decides_at().filter(|at| *at > Instant::now());
            let result = tokio::select! {
                result = race.next() => result,
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => continue,
            };
            match result {
                Some(SentinelAnswer::Named(answer)) => {
                    let Some(address) = finding.said(answer) else {
                        continue;
                    };
                    race.start(async move {
                        let stream = self.try_primary(config, &address).await;
                        SentinelAnswer::Primary(address, stream)
                    });
                }
                Some(SentinelAnswer::Primary(address, stream)) => finding.tried(address, stream),
                None => match self.overruled(&mut finding) {
                    Some(decided) => break decided,
                    None => return Err(finding.error()),
                },
            }
        };
        match self.0.found(&named, before.as_ref()) {
            true => {
                self.0.tell_if_few(finding.naming(&named.address));
                Ok(self.begin(named, stream))
            }
            // A Sentinel has named another primary meanwhile. Whoever needs a stream searches again.
            false => Err(no_primary()),
        }
    }

    /// The primary that most Sentinels name, if the others have named a server for long that nobody can reach. To be asked once all
    /// Sentinels have answered or failed.
    fn overruled(&self, finding: &mut PrimarySearch<Limited>) -> Option<(Named, Limited)> {
        let dispute = finding.dispute()?;
        self.0.note_dispute(&dispute.latest);
        match self.0.is_overruled(&dispute.latest) {
            true => finding.overrule(dispute),
            false => None,
        }
    }

    /// Gives a stream its term, which ends when another server becomes the primary, and lets the Sentinels be followed.
    fn begin(&self, named: Named, stream: Limited) -> Limited {
        let term = Term::new(named.address, self.0.primary.subscribe());
        if let Some(following) = Following::of(&self.0) {
            tokio::spawn(follow(following));
        }
        stream.with_term(term)
    }

    async fn try_primary(&self, config: &RedisConfig, at: &Address) -> Result<Limited, Error> {
        let stream = open_primary(at, config, self.0.tls.as_ref());
        let stream = timeout(self.0.connect_timeout, stream).await;
        stream.unwrap_or_else(|_| Err(late()))
    }

    /// Asks all Sentinels in the background whether another server is the primary.
    pub(super) fn ask_soon(&self) {
        let has_runtime = tokio::runtime::Handle::try_current().is_ok();
        if !has_runtime || self.0.is_asked.swap(true, SeqCst) {
            return;
        }
        let asking = AskingSentinels(Arc::clone(&self.0));
        tokio::spawn(async move {
            let sentinels = &*asking.0;
            let mut race = Race::new();
            for node in &sentinels.set.nodes {
                race.start(async move { (node, sentinels.ask(node).await) });
            }
            while let Some((node, answer)) = race.next().await {
                if let Ok(named) = answer {
                    sentinels.note_answer(node, &named);
                }
            }
        });
    }
}

/// Stands for the task that asks. When it is dropped, with its runtime for example, another task may begin.
struct AskingSentinels(Arc<SentinelSet>);

impl Drop for AskingSentinels {
    fn drop(&mut self) {
        self.0.is_asked.store(false, SeqCst);
    }
}

async fn open_primary(
    (host, port): &Address,
    config: &RedisConfig,
    tls: Option<&TlsContext>,
) -> Result<Limited, Error> {
    let mut stream = connect::tcp(host, *port, tls).await?;
    let mut steps = login(config);
    // A Sentinel that was cut off may name a server that is no longer the primary.
    steps.push(Handshake::required(cmd("ROLE")));
    steps.extend(name(config));
    let answers = ask(&mut stream, &steps).await?;
    if answers.iter().any(is_primary) {
        Ok(stream)
    } else {
        Err(no_primary())
    }
}

/// Whether this is the answer of a primary to `ROLE`.
fn is_primary(role: &Value) -> bool {
    matches!(role, Value::Array(items)
        if matches!(items.first(), Some(Value::BulkString(name)) if name == b"master"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_primary_is_one() {
        let texts = |items: &[&str]| {
            let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
            Value::Array(items.iter().map(bulk).collect())
        };
        assert!(is_primary(&texts(&["master", "0"])));
        assert!(!is_primary(&texts(&["slave", "master"])));
        assert!(!is_primary(&Value::Okay));
        assert!(!is_primary(&Value::Array(vec![])));
    }
}
