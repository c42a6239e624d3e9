//! Until when a lock is held, and locks that are to end later than their release.

use super::*;

impl Scene {
    /// Until when its holder may think that it is held, in milliseconds since the start.
    fn held_until(&self) -> u128 {
        let until = self.listener.until.lock().unwrap().unwrap();
        (until - self.start).as_millis()
    }

    /// Releases a lock that is to be held until so many milliseconds after the start.
    async fn release_at(&self, lock_id: &LockId, until_ms: u64) -> Result<ReleaseOutcome, Error> {
        let release = Operation::Release([lock_id.clone()].into());
        let call = CallOptions {
            lasts: Some(ttl(60_000)),
            hold_until: Some(self.start + ms(until_ms)),
            ..CallOptions::default()
        };
        operation::run(&self.backend, release, call, pending()).await
    }

    /// When extensions were asked for, and for how long, in milliseconds since the start.
    fn extensions(&self) -> Vec<(u128, i64)> {
        let extends = self.store.extends.lock().unwrap();
        let since = |at: &Instant| (*at - self.start).as_millis();
        extends
            .iter()
            .map(|(at, ttl)| (since(at), ttl.as_millis()))
            .collect()
    }

    fn releases(&self) -> usize {
        self.store.releases.load(SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn its_holder_knows_at_any_time_until_when_it_is_held() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    assert_eq!(t.held_until(), 3000);
    *t.store.delay.lock().unwrap() = ms(100);
    sleep(ms(1050)).await;
    // A heartbeat is on its way: its answer may come a little later than the end.
    assert_eq!(t.held_until(), 3500);
    sleep(ms(100)).await;
    assert_eq!(t.held_until(), 4000);
    // What makes it shorter counts from the moment at which it is sent.
    t.store.answers(Answer::Never);
    let extension = Extension::new([lock_id].into(), ttl(500));
    let backend = Arc::clone(&t.backend);
    let extend = Operation::Extend(extension);
    let extending = tokio::spawn(async move {
        operation::run::<ExtendOutcome>(&backend, extend, CallOptions::DEFAULT, pending()).await
    });
    sleep(ms(1)).await;
    assert!(t.held_until() <= 1151 + 500 + 500, "{}", t.held_until());
    extending.abort();
    let (_, at) = t.lost().await;
    assert!(at >= t.held_until(), "{at}");
}

#[tokio::test(start_paused = true)]
async fn what_lets_it_end_later_waits_for_the_heartbeat_under_way() {
    let t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    *t.store.delay.lock().unwrap() = ms(300);
    sleep(ms(1100)).await;
    let released = t.release_at(&lock_id, 2000).await;
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    assert_eq!(t.extensions(), [(1000, 3000), (1300, 700)]);
    assert_eq!(t.releases(), 0);
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_lets_it_end_later_is_repeated_as_a_release_is() {
    let t = scene();
    let lock_id = t.acquire(30_000, AutoExtend::default()).await;
    t.store.answers(Answer::Fails);
    let releasing = t.release_at(&lock_id, 20_000);
    let recovering = async {
        sleep(ms(300)).await;
        t.store.answers(Answer::Extended);
    };
    let (released, ()) = tokio::join!(releasing, recovering);
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    let &(at, left) = t.extensions().last().unwrap();
    assert!(at >= 300 && left as u128 + at == 20_000, "{at} {left}");
    assert_eq!(t.releases(), 0);
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_lets_it_end_later_goes_on_in_the_background_and_is_a_release_in_the_end() {
    let t = scene();
    let lock_id = t.acquire(60_000, AutoExtend::default()).await;
    t.store.answers(Answer::Fails);
    let error = t.release_at(&lock_id, 20_000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    sleep(ms(30_000)).await;
    assert_eq!(t.releases(), 1);
    assert!(t.extensions().iter().all(|(at, _)| *at < 20_000));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_when_it_is_to_end_later_is_not_taken_for_released() {
    let t = scene();
    let lock_id = t.acquire(30_000, AutoExtend::default()).await;
    t.store.answers(Answer::Never);
    let releasing = t.release_at(&lock_id, 20_000);
    let answering = async {
        sleep(ms(100)).await;
        t.store.answers(Answer::Absent);
    };
    let (released, ()) = tokio::join!(releasing, answering);
    // The first try may have been carried out, but that did not take the lock away.
    match released {
        Ok(outcome) => assert_eq!(outcome, ReleaseOutcome::Absent(Absence::NotFound)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NetworkTimeout),
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_early_lets_its_lock_end_then() {
    let t = scene();
    let options = crate::holding::lock::LockOptions {
        ttl: ttl(3000),
        auto_extend: Some(AutoExtend::default()),
        min_hold: ms(2000),
        ..crate::holding::lock::LockOptions::default()
    };
    let key = Key::new("key").unwrap();
    let guard = crate::holding::lock::lock(&t.backend, &key, &options)
        .await
        .unwrap();
    *t.store.delay.lock().unwrap() = ms(100);
    sleep(ms(1050)).await;
    drop(guard);
    sleep(ms(500)).await;
    // The heartbeat under way, and what makes the lock end.
    assert_eq!(t.extensions(), [(1000, 3000), (1100, 900)]);
    t.assert_quiet().await;
    assert_eq!(t.releases(), 0);
}
