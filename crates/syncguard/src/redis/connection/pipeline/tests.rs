//! On a clock that stands still unless all wait, and a stream in memory.

mod retired;
mod sockets;
mod stage;

use std::time::Duration;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt, duplex};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::redis::reply::{Reply, is_pong};
use crate::text::error::ErrorKind;
use stage::{Buffering, Stage, is_not_sent, outcome, turns};

const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const LIMIT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_millis(100);
const PING: &str = "*1\r\n$4\r\nPING\r\n";

#[tokio::test(start_paused = true)]
async fn answers_come_to_calls_in_their_order() {
    let mut stage = Stage::new(4096);
    let [first, second, third] = [(); 3].map(|()| stage.call());
    stage.reply(":1\r\n:0\r\n:-2\r\n").await;
    assert_eq!(outcome(first).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(
        outcome(second).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        outcome(third).await.unwrap(),
        ReleaseOutcome::Absent(Absence::Expired)
    );
}

#[tokio::test(start_paused = true)]
async fn a_few_calls_are_written_at_once_and_the_next_at_the_turn_of_the_reader() {
    let mut stage = Stage::new(64 * 1024);
    turns().await;
    // Nothing runs in between that could write them.
    let few: Vec<_> = (0..FEW)
        .map(|_| {
            let call = stage.call();
            assert_eq!(stage.arrived(), 1);
            call
        })
        .collect();
    // As many as are on their way, and more.
    let more = [(); FEW + 1].map(|()| stage.call());
    assert_eq!(stage.arrived(), 0);
    // Nobody need do anything for them.
    turns().await;
    assert_eq!(stage.arrived(), more.len());
    // All are on their way now.
    let last = stage.call();
    assert_eq!(stage.arrived(), 0);
    turns().await;
    assert_eq!(stage.arrived(), 1);
    for call in few.into_iter().chain(more).chain([last]) {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
    // So that it is a lone one again.
    let _lone = stage.call();
    assert_eq!(stage.arrived(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_portion_of_what_is_kept_does_not_wait_for_the_reader() {
    let mut stage = Stage::new(64 * 1024);
    let few = stage.a_few_calls();
    assert_eq!(stage.arrived(), FEW);
    let nearly = [(); PORTION - 1].map(|()| stage.call());
    assert_eq!(stage.arrived(), 0);
    let last = stage.call();
    assert_eq!(stage.arrived(), PORTION);
    // The next portion begins anew.
    let next = stage.call();
    assert_eq!(stage.arrived(), 0);
    turns().await;
    assert_eq!(stage.arrived(), 1);
    for call in few.into_iter().chain(nearly).chain([last, next]) {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_before_the_reader_starts_goes_when_it_does() {
    let mut stage = Stage::new(64 * 1024);
    let _few = stage.a_few_calls();
    assert_eq!(stage.arrived(), FEW);
    let _kept = stage.call();
    assert_eq!(stage.arrived(), 0);
    turns().await;
    assert_eq!(stage.arrived(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pair_goes_and_is_answered_in_its_order() {
    let mut stage = Stage::new(4096);
    let _before = stage.call();
    assert_eq!(stage.arrived(), 1);
    let first = PING.as_bytes();
    let write = |out: &mut Vec<u8>| out.extend(b"*1\r\n$4\r\nWAIT\r\n");
    let pair = stage.pipeline.pair(first, is_pong, write, |_| true);
    let (pong, number) = pair.unwrap();
    assert_eq!(stage.words(), format!("{PING}*1\r\n$4\r\nWAIT\r\n"));
    stage.reply(":1\r\n+PONG\r\n:7\r\n").await;
    assert!(matches!(pong.wait().await, Ok(Answer::Reply(reply)) if is_pong(&reply)));
    let number = number.wait().await;
    assert!(matches!(number, Ok(Answer::Reply(Reply::Int(7)))));
    stage.pipeline.end(&to_error(Cause::Closed, true));
    assert!(
        stage
            .pipeline
            .pair(first, is_pong, |_| (), |_| true)
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_full_socket_does_not_take_is_written_later() {
    const CALLS: usize = 100;
    let mut stage = Stage::new(64);
    let calls = [(); CALLS].map(|()| stage.call());
    let mut sent = Vec::new();
    while String::from_utf8_lossy(&sent).matches(ID).count() < 2 * CALLS {
        stage.server.read_buf(&mut sent).await.unwrap();
    }
    for call in calls {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_keeps_its_place() {
    let mut stage = Stage::new(4096);
    let start = Instant::now();
    let (mut late, forgotten) = (stage.call(), stage.call());
    tokio::time::sleep(LIMIT / 2).await;
    let punctual = stage.call();
    let rest = LIMIT - start.elapsed();
    assert!(timeout(rest, &mut late).await.is_err());
    let waited = start.elapsed();
    assert!(waited >= LIMIT && waited < LIMIT + Duration::from_millis(20));
    drop(forgotten);
    stage.reply(":1\r\n:-2\r\n:0\r\n").await;
    // Whoever goes on to wait for it is told.
    assert_eq!(outcome(late).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(
        outcome(punctual).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn time_limits_hold_after_an_idle_while() {
    let mut stage = Stage::new(4096);
    let first = stage.call();
    stage.reply(":1\r\n").await;
    outcome(first).await.unwrap();
    tokio::time::sleep(LIMIT * 10).await;
    let start = Instant::now();
    let call = stage.call();
    stage.reply("+PONG\r\n").await;
    assert!(timeout(LIMIT, call).await.is_err());
    let waited = start.elapsed();
    assert!(waited >= LIMIT && waited < LIMIT + Duration::from_millis(20));
    assert!(stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_before_it_was_sent_keeps_its_place() {
    let mut stage = Stage::new(64 * 1024);
    turns().await;
    let few = stage.a_few_calls();
    drop(stage.call());
    let next = stage.call();
    assert_eq!(stage.arrived(), FEW);
    turns().await;
    assert_eq!(stage.arrived(), 2);
    stage.reply(&":-2\r\n".repeat(FEW)).await;
    stage.reply(":1\r\n:0\r\n").await;
    for call in few {
        let expected = ReleaseOutcome::Absent(Absence::Expired);
        assert_eq!(outcome(call).await.unwrap(), expected);
    }
    assert_eq!(
        outcome(next).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    // Likewise behind a sign of life.
    tokio::time::sleep(last_heard::LONG * 2).await;
    drop(stage.call());
    let next = stage.call();
    stage.reply("+PONG\r\n").await;
    turns().await;
    assert_eq!(stage.arrived(), 2);
    stage.reply(":1\r\n:0\r\n").await;
    assert_eq!(
        outcome(next).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
}

#[tokio::test(start_paused = true)]
async fn a_script_that_the_server_does_not_know_was_not_run() {
    let mut stage = Stage::new(4096);
    let call = stage.call();
    stage.reply("-NOSCRIPT No matching script.\r\n").await;
    assert!(matches!(call.await, Ok(Answer::NoScript)));
    assert!(stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_without_secrets() {
    let mut stage = Stage::new(4096);
    let calls = [stage.call(), stage.call()];
    let words = format!("-WRONGTYPE {ID} is not what password said\r\n");
    stage.reply(&words.repeat(2)).await;
    let [refused, failed] = calls;
    let Ok(Answer::Refused(text)) = refused.await else {
        panic!("it was not refused");
    };
    assert!(text.starts_with("WRONGTYPE ") && !text.contains("password"));
    let error = outcome(failed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(!error.is_outcome_unknown());
    for secret in [ID, "password"] {
        assert!(!error.message().contains(secret), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_fails_what_is_under_way() {
    let mut stage = Stage::new(4096);
    let (few, kept) = (stage.a_few_calls(), stage.call());
    stage.hang_up();
    for call in few {
        let error = outcome(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(error.is_outcome_unknown());
    }
    assert!(is_not_sent(kept).await);
    assert!(!stage.pipeline.is_open());
    assert!(is_not_sent(stage.call()).await);
    stage.reason().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_asked_for_ends_it() {
    let mut stage = Stage::new(4096);
    stage.reply(":1\r\n").await;
    let reason = stage.reason().await;
    assert_eq!(reason.kind(), ErrorKind::Internal);
    assert!(!stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_has_no_answer() {
    let mut stage = Stage::new(4096);
    let (few, kept) = (stage.a_few_calls(), stage.call());
    stage.reply(&":1\r\n".repeat(FEW + 1)).await;
    for call in few {
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
    // Nothing of it has left, so that another stream may carry it.
    assert!(is_not_sent(kept).await);
    assert!(!stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_it_ends_the_reader() {
    let mut stage = Stage::new(4096);
    yield_now().await;
    stage.pipeline.end(&to_error(Cause::Closed, true));
    stage.reason().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_reads_although_the_reader_does_not_run() {
    let (server, client) = duplex(4096);
    let mut stage = Stage::unread(server, Box::new(client));
    let (mut first, mut second, kept) = {
        let [first, second, ..] = stage.a_few_calls();
        (first, second, stage.call())
    };
    assert_eq!(stage.arrived(), FEW);
    stage.reply(":1\r\n").await;
    turns().await;
    assert!((&mut first).now_or_never().is_none(), "nothing reads");
    stage.pipeline.look();
    let outcome_of_first = outcome(first).now_or_never().unwrap();
    assert_eq!(outcome_of_first.unwrap(), ReleaseOutcome::Released);
    assert!((&mut second).now_or_never().is_none());
    // It has the turn that the reader has not.
    assert_eq!(stage.arrived(), 1);
    stage.hang_up();
    stage.pipeline.look();
    for call in [second, kept] {
        let error = outcome(call).now_or_never().unwrap().unwrap_err();
        assert!(error.is_outcome_unknown());
    }
    assert!(!stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn what_the_stream_took_and_has_not_passed_on_is_flushed() {
    const CALLS: usize = 100;
    let (server, inner) = duplex(64);
    let taken = Vec::new();
    let mut stage = Stage::on(server, Box::new(Buffering { inner, taken }));
    let start = Instant::now();
    let calls = [(); CALLS].map(|()| stage.call());
    let mut sent = Vec::new();
    while String::from_utf8_lossy(&sent).matches(ID).count() < 2 * CALLS {
        stage.server.read_buf(&mut sent).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "nothing else has to come");
    for call in calls {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_silence_the_server_is_asked_before_it_is_sent_anything() {
    let mut stage = Stage::new(64 * 1024);
    tokio::time::sleep(last_heard::LONG * 2).await;
    let calls = [(); FEW * 2].map(|()| stage.call());
    turns().await;
    assert_eq!(stage.words(), PING);
    stage.reply("+PONG\r\n").await;
    turns().await;
    assert_eq!(stage.arrived(), calls.len());
    for call in calls {
        stage.reply(":1\r\n").await;
        assert_eq!(outcome(call).await.unwrap(), ReleaseOutcome::Released);
    }
    // It was heard just now.
    let call = stage.call();
    assert_eq!(stage.arrived(), 1);
    stage.reply(":1\r\n").await;
    outcome(call).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_sign_of_life_nothing_was_sent() {
    let mut stage = Stage::new(64 * 1024);
    tokio::time::sleep(last_heard::LONG * 2).await;
    let start = Instant::now();
    let calls = [stage.call(), stage.call()];
    for call in calls {
        assert!(is_not_sent(call).await);
    }
    let waited = start.elapsed();
    assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
    assert!(!stage.pipeline.is_open());
    turns().await;
    assert_eq!(stage.words(), PING);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_with_calls_under_way_may_be_busy() {
    let mut stage = Stage::new(64 * 1024);
    let mut first = stage.call();
    assert_eq!(stage.arrived(), 1);
    tokio::time::sleep(last_heard::LONG - Duration::from_millis(100)).await;
    let late = stage.call();
    tokio::time::sleep(PATIENCE * 4).await;
    assert_eq!(stage.arrived(), 1);
    let held = stage.call();
    tokio::time::sleep(PATIENCE * 4).await;
    assert_eq!(stage.words(), PING);
    assert!((&mut first).now_or_never().is_none());
    drop(first);
    stage.reply(":1\r\n:0\r\n+PONG\r\n").await;
    turns().await;
    assert_eq!(stage.arrived(), 1);
    stage.reply(":1\r\n").await;
    assert_eq!(
        outcome(late).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(outcome(held).await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_silence_is_suspect_in_time_for_what_is_needed_soon() {
    let mut stage = Stage::new(4096);
    let (start, suspicion) = (Instant::now(), PATIENCE * 10);
    let suspect_at = |stage: &Stage| stage.pipeline.suspect_at(suspicion).map(|at| at - start);
    assert_eq!(suspect_at(&stage), None);
    let late = stage.call();
    assert_eq!(suspect_at(&stage), Some(suspicion));
    for (needed_in, expected) in [(100, 10), (20, 5), (4, 1), (1, 1)] {
        let by = Some(start + PATIENCE * needed_in);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(PING.as_bytes());
        let mut call = Box::pin(stage.pipeline.call_by(by, write, is_pong));
        assert!((&mut call).now_or_never().is_none());
        assert_eq!(suspect_at(&stage), Some(PATIENCE * expected));
    }
    // Whatever waits for replicas may take longer.
    stage.pipeline.is_held_up(PATIENCE * 3);
    assert_eq!(suspect_at(&stage), Some(PATIENCE * 4));
    stage
        .reply(":1\r\n+PONG\r\n+PONG\r\n+PONG\r\n+PONG\r\n")
        .await;
    outcome(late).await.unwrap();
    turns().await;
    assert_eq!(suspect_at(&stage), None);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_fit_its_call_ends_it() {
    for reply in ["+OK\r\n", "*2\r\n:1\r\n:5\r\n", "$-1\r\n", ",1.5\r\n"] {
        let mut stage = Stage::new(4096);
        let ([first, others @ ..], kept) = (stage.a_few_calls(), stage.call());
        // The second answer may belong to anybody.
        stage.reply(&format!("{reply}:1\r\n")).await;
        let error = outcome(first).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{reply}");
        assert!(error.is_outcome_unknown());
        for other in others {
            let error = outcome(other).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{reply}");
            assert!(error.is_outcome_unknown());
        }
        assert!(is_not_sent(kept).await);
        assert!(!stage.pipeline.is_open());
        stage.reason().await;
    }
}
