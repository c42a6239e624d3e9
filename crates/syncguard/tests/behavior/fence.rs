use crate::fixture::{LONG, Stage, is_the_time, tests};
use crate::support::attempts::Attempts as _;

tests![
    the_first_fence_is_the_time,
    fences_grow_with_each_release,
    fences_grow_over_expiry,
    fences_grow_over_forced_release,
    fences_grow_over_backends,
    an_extension_keeps_the_fence,
];

async fn the_first_fence_is_the_time(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire(&t.key("a"), LONG).await;
    assert_eq!(grant.fence.to_string().len(), 15);
    assert!(is_the_time(&grant), "{grant:?}");
}

async fn fences_grow_with_each_release(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = None;
    for _ in 0..5 {
        let grant = t.acquire(&key, LONG).await;
        assert!(Some(grant.fence) > last);
        last = Some(grant.fence);
        t.backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn fences_grow_over_expiry(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let expired = t.acquire_and_expire(&key).await;
    assert!(t.acquire(&key, LONG).await.fence > expired.fence);
}

async fn fences_grow_over_forced_release(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let put_out = t.acquire(&key, LONG).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    assert!(t.acquire(&key, LONG).await.fence > put_out.fence);
}

async fn fences_grow_over_backends(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = None;
    for backend in [t.fixture.backend(), t.fixture.peer(), t.fixture.backend()] {
        let guard = syncguard::lock(&backend, &key, &syncguard::LockOptions::default())
            .await
            .unwrap();
        assert!(Some(guard.fence()) > last);
        last = Some(guard.fence());
        guard.release().await.unwrap();
    }
}

async fn an_extension_keeps_the_fence(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    t.backend.extend(&grant.lock_id, LONG).await.unwrap();
    assert_eq!(t.by_key(&key).await.unwrap().fence, grant.fence);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert!(t.acquire(&key, LONG).await.fence > grant.fence);
}
