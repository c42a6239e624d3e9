//! Many who wait, each for one turn.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use syncguard::{Backend, Key, LockOptions, RetryPolicy, Ttl, lock};
use tokio::time::sleep;

use crate::record::Recorder;
use crate::task::{Failed, Task};
use crate::writer::Writer;

/// How long a lock lasts whose holder was killed, without the tolerance.
pub(crate) const TTL_MS: i64 = 2_000;
/// How long a turn takes.
const TURN: Duration = Duration::from_millis(20);

/// Lets each of the task's loops have its turn. Records the errors.
pub(crate) async fn work(
    task: &Task,
    backend: &Arc<dyn Backend>,
    recorder: &Arc<Recorder>,
) -> Result<(), Failed> {
    let options = LockOptions {
        ttl: Ttl::from_millis(TTL_MS)?,
        retry: RetryPolicy {
            timeout_ms: task.run.as_secs_f64() * 1000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    let waiters = (0..task.loops).map(|number| {
        let key = format!("key:{}", number % task.keys);
        let (backend, recorder, options) =
            (Arc::clone(backend), Arc::clone(recorder), options.clone());
        let path = task.register.clone();
        tokio::spawn(async move {
            let key = Key::new(&key)?;
            match lock(&backend, &key, &options).await {
                Ok(guard) => {
                    let mut register = Writer::connect(&path).await?;
                    let name = key.as_str();
                    register.ask(&format!("enter {name}")).await?;
                    sleep(TURN).await;
                    register.ask(&format!("leave {name}")).await?;
                    if let Err(error) = guard.release().await {
                        recorder.failed(&error)?;
                    }
                }
                Err(error) => recorder.failed(&error)?,
            }
            Ok::<_, Failed>(())
        })
    });
    for ended in try_join_all(waiters).await? {
        ended?;
    }
    Ok(())
}
