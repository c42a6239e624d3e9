//! When another server may keep the locks from now on.

use super::*;

#[tokio::test(start_paused = true)]
async fn all_are_extended_at_once_the_nearest_end_first() {
    for one_at_a_time in [true, false] {
        let t = scene();
        t.store.one_at_a_time.store(one_at_a_time, SeqCst);
        for ttl_ms in [300_000, 100_000, 200_000] {
            t.acquire(ttl_ms, AutoExtend::default()).await;
        }
        t.backend.work().asking_after_all()();
        sleep(ms(1)).await;
        let extends = t.store.extends.lock().unwrap();
        let ttls: Vec<_> = extends.iter().map(|(_, ttl)| ttl.as_millis()).collect();
        assert_eq!(ttls, [100_000, 200_000, 300_000]);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_others_asks_after_them() {
    let t = scene();
    let asked = Arc::new(AtomicUsize::new(0));
    let work = t.backend.work();
    for _ in 0..2 {
        let asked = Arc::clone(&asked);
        work.when_another_server(move || {
            asked.fetch_add(1, SeqCst);
        });
    }
    assert_eq!(asked.load(SeqCst), 0);
    work.asking_after_all()();
    assert_eq!(asked.load(SeqCst), 1);
}
