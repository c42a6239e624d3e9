//! Servers that are not any more what they were when the stream was opened, and sockets that take no more.

use super::stage::{Stage, is_not_sent, outcome, turns};
use super::*;

#[tokio::test(start_paused = true)]
async fn nothing_new_goes_to_a_server_that_has_become_another() {
    for reply in ["-READONLY You can't write.\r\n", "-NOAUTH Who are you?\r\n"] {
        let mut stage = Stage::new(4096);
        let (first, second) = (stage.call(), stage.call());
        assert_eq!(stage.arrived(), 2);
        stage.reply(reply).await;
        assert!(outcome(first).await.is_err());
        assert!(!stage.pipeline.is_open());
        assert!(is_not_sent(stage.call()).await);
        assert_eq!(stage.arrived(), 0);
        // What it was asked before is still answered.
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(second).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_us_any_more_is_sent_nothing() {
    let mut stage = Stage::new(4096);
    tokio::time::sleep(last_heard::LONG * 2).await;
    let call = stage.call();
    stage.reply("-NOAUTH Authentication required.\r\n").await;
    assert!(is_not_sent(call).await);
    turns().await;
    assert_eq!(stage.words(), PING);
    // A user without the right to PING may still call.
    let mut stage = Stage::new(4096);
    tokio::time::sleep(last_heard::LONG * 2).await;
    let call = stage.call();
    turns().await;
    assert_eq!(stage.arrived(), 0);
    stage.reply("-NOPERM no permissions\r\n").await;
    turns().await;
    assert_eq!(stage.arrived(), 1);
    stage.reply(":1\r\n").await;
    outcome(call).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_does_not_go_to_a_server_that_has_become_another() {
    for reply in ["-READONLY You can't write.\r\n", "-NOAUTH Who are you?\r\n"] {
        let mut stage = Stage::new(64 * 1024);
        turns().await;
        let ([first, others @ ..], kept) = (stage.a_few_calls(), [(); 3].map(|()| stage.call()));
        assert_eq!(stage.arrived(), FEW);
        // It is read before the reader has written what was kept.
        stage.reply(reply).await;
        stage.pipeline.look();
        assert!(outcome(first).await.is_err());
        for call in kept {
            assert!(is_not_sent(call).await);
        }
        turns().await;
        assert_eq!(stage.words(), "");
        for call in others {
            stage.reply(":1\r\n").await;
            assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
        }
        assert!(!stage.pipeline.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_socket_is_given_no_more_of_what_a_server_that_has_become_another_is_not_to_get() {
    const CALLS: usize = 3 * PORTION;
    let mut stage = Stage::new(64);
    // The socket takes a part of the first.
    let [first, others @ ..] = [(); CALLS].map(|()| stage.call());
    stage.reply("-READONLY You can't write.\r\n").await;
    assert!(outcome(first).await.is_err());
    for call in others {
        assert!(is_not_sent(call).await);
    }
    // What has begun comes to its end.
    let mut words = String::new();
    for _ in 0..CALLS {
        words += &stage.words();
        turns().await;
    }
    assert_eq!(words.matches("EVALSHA").count(), 1);
    assert!(words.ends_with("\r\n"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_sign_of_life_does_not_go_to_a_server_that_has_become_another() {
    let mut stage = Stage::new(64 * 1024);
    let first = stage.call();
    assert_eq!(stage.arrived(), 1);
    tokio::time::sleep(last_heard::LONG * 2).await;
    let held = [stage.call(), stage.call()];
    assert_eq!(stage.words(), PING);
    stage.reply("-READONLY You can't write.\r\n").await;
    assert!(outcome(first).await.is_err());
    for call in held {
        assert!(is_not_sent(call).await);
    }
    stage.reply("+PONG\r\n").await;
    turns().await;
    assert_eq!(stage.words(), "");
}

#[tokio::test(start_paused = true)]
async fn a_sign_of_life_that_a_full_socket_does_not_take_is_asked_for_later() {
    let mut stage = Stage::new(64);
    let first = stage.call();
    tokio::time::sleep(last_heard::LONG * 2).await;
    let calls = [stage.call(), stage.call()];
    let mut words = String::new();
    for _ in 0..PORTION {
        words += &stage.words();
        turns().await;
    }
    assert!(words.ends_with(PING), "{words}");
    assert_eq!(words.matches("EVALSHA").count(), 1);
    stage.reply(":1\r\n+PONG\r\n").await;
    assert_eq!(outcome(first).await.unwrap(), ReleaseOutcome::Released);
    for _ in 0..PORTION {
        words += &stage.words();
        turns().await;
    }
    assert_eq!(words.matches(ID).count(), 2 * 3);
    for call in calls {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_full_socket_was_not_given_was_not_sent() {
    let mut stage = Stage::new(64);
    let [first, others @ ..] = [(); FEW].map(|()| stage.call());
    turns().await;
    stage.hang_up();
    assert!(outcome(first).await.unwrap_err().is_outcome_unknown());
    for call in others {
        assert!(is_not_sent(call).await);
    }
}
