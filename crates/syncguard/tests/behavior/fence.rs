use crate::fixture::{LONG, Stage, tests};

tests![
    the_first_fence_is_one,
    fences_grow_with_each_release,
    fences_grow_over_expiry,
    fences_grow_over_forced_release,
    fences_grow_over_backends,
    each_key_has_its_own_counter,
    an_extension_keeps_the_fence,
];

async fn the_first_fence_is_one(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire(&t.key("a"), LONG).await;
    assert_eq!(grant.fence.to_string(), "000000000000001");
}

async fn fences_grow_with_each_release(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    for expected in 1..=5 {
        let grant = t.acquire(&key, LONG).await;
        assert_eq!(grant.fence.get(), expected);
        t.backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn fences_grow_over_expiry(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let expired = t.acquire_and_expire(&key).await;
    assert_eq!(
        t.acquire(&key, LONG).await.fence.get(),
        expired.fence.get() + 1
    );
}

async fn fences_grow_over_forced_release(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let put_out = t.acquire(&key, LONG).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    assert_eq!(
        t.acquire(&key, LONG).await.fence.get(),
        put_out.fence.get() + 1
    );
}

async fn fences_grow_over_backends(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = 0;
    for backend in [t.fixture.backend(), t.fixture.peer(), t.fixture.backend()] {
        let guard = syncguard::lock(&backend, &key, &syncguard::LockOptions::default())
            .await
            .unwrap();
        assert_eq!(guard.fence().get(), last + 1);
        last = guard.fence().get();
        guard.release().await.unwrap();
    }
}

async fn each_key_has_its_own_counter(stage: Stage) {
    let t = stage.open().await;
    let busy = t.key("busy");
    for _ in 0..3 {
        let grant = t.acquire(&busy, LONG).await;
        t.backend.release(&grant.lock_id).await.unwrap();
    }
    assert_eq!(t.acquire(&t.key("quiet"), LONG).await.fence.get(), 1);
}

async fn an_extension_keeps_the_fence(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    t.backend.extend(&grant.lock_id, LONG).await.unwrap();
    assert_eq!(t.by_key(&key).await.unwrap().fence, grant.fence);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(
        t.acquire(&key, LONG).await.fence.get(),
        grant.fence.get() + 1
    );
}
