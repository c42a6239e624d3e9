//! A process that others let have a lock lets them have it, too.

use super::*;

/// Takes the lock of a scene, and has it for so long. Gives when it asked last, from the scene's start on.
async fn holds(t: &Scene, time: Duration) -> Duration {
    let (guard, _) = t.wait(patient()).await.unwrap();
    let asked = *t.store.asked.lock().unwrap().last().unwrap() - t.start;
    sleep(time).await;
    assert!(guard.unwrap().release().await.unwrap());
    asked
}

#[tokio::test(start_paused = true)]
async fn whoever_got_the_lock_from_others_lets_them_before_it_takes_it_again() {
    let t = Scene::free_after(S(1));
    holds(&t, S(2)).await;
    let released = t.start.elapsed();
    assert!(holds(&t, Duration::ZERO).await > released);
    // Nobody else has taken it.
    let released = t.start.elapsed();
    assert_eq!(holds(&t, Duration::ZERO).await, released);
}

#[tokio::test(start_paused = true)]
async fn where_others_have_not_had_the_lock_nobody_pauses() {
    let t = Scene::free_after(S(0));
    holds(&t, S(2)).await;
    let released = t.start.elapsed();
    assert_eq!(holds(&t, Duration::ZERO).await, released);
}
