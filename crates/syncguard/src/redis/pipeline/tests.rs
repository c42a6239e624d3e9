//! On a clock that stands still unless all wait, and a stream in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::backend::{Absence, BoxFuture, Operation, Outcome, ReleaseOutcome, Sent};
use crate::error::ErrorKind;
use crate::lock_id::LockId;
use crate::redis::call::Call;
use crate::redis::config::RedisLocks;
use crate::redis::names::{ClientPrefix, Names};
use crate::redis::plan::Form;
use crate::redis::scripts::Scripts;
use crate::redis::stream::{Endpoint, Stream};

const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const LIMIT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_millis(100);

/// What somebody was told of a call.
enum Told {
    Answered(Result<Outcome, Error>),
    Late(BoxFuture<Result<Outcome, Error>>),
    NotSent,
}

/// A pipeline, and the server at its other end.
struct Stage {
    pipeline: Arc<Pipeline>,
    server: DuplexStream,
    reader: JoinHandle<Error>,
    scripts: Arc<Scripts>,
}

impl Stage {
    /// The stream takes `capacity` bytes before the server reads.
    fn new(capacity: usize) -> Self {
        let (server, client) = duplex(capacity);
        Self::on(server, Box::new(client))
    }

    fn on(server: DuplexStream, client: Box<dyn Stream>) -> Self {
        let stream = Limited::new(client, Endpoint::Unix("here".to_owned()));
        let login = vec!["password".to_owned()];
        let pipeline = Arc::new(Pipeline::new(stream, login, PATIENCE));
        let read = Arc::clone(&pipeline);
        let reader = tokio::spawn(async move {
            let reason = read.read().await;
            read.end(&reason);
            reason
        });
        let names = Names::new("s", ClientPrefix::None).unwrap();
        let scripts = Arc::new(Scripts::new(names, &RedisLocks::default()));
        Self {
            pipeline,
            server,
            reader,
            scripts,
        }
    }

    /// Calls a release; gives whether it is kept, and what will be told.
    fn call(&self) -> (bool, oneshot::Receiver<Told>) {
        let operation = Operation::Release(LockId::parse(ID).unwrap());
        let plan = self.scripts.plan(&operation).unwrap().unwrap();
        let (sender, told) = oneshot::channel();
        let on_sent = Box::new(move |sent| {
            let heard = match sent {
                Sent::Answered(answer) => Told::Answered(answer),
                Sent::Late(answer) => Told::Late(answer),
                Sent::NotSent(_) => Told::NotSent,
            };
            assert!(sender.send(heard).is_ok());
        });
        let deadline = Instant::now() + LIMIT;
        let call = Call::new(operation, Arc::clone(&self.scripts), deadline, on_sent);
        let write = |out: &mut Vec<u8>| plan.write(Form::Hash, out);
        match self.pipeline.call(write, plan.fits(), Waiting::Call(call)) {
            Ok(is_kept) => (is_kept, told),
            Err(waiting) => {
                let Waiting::Call(call) = *waiting else {
                    unreachable!()
                };
                call.not_sent();
                (false, told)
            }
        }
    }

    /// How many calls have come to the server since it looked last.
    async fn arrived(&mut self) -> usize {
        let mut buffer = vec![0; 64 * 1024];
        let read = tokio::time::timeout(Duration::from_millis(1), self.server.read(&mut buffer));
        let bytes = read.await.map_or(0, Result::unwrap);
        String::from_utf8_lossy(&buffer[..bytes])
            .matches("EVALSHA")
            .count()
    }

    async fn reply(&mut self, text: &str) {
        self.server.write_all(text.as_bytes()).await.unwrap();
    }
}

async fn answer(told: oneshot::Receiver<Told>) -> Result<ReleaseOutcome, Error> {
    match told.await.unwrap() {
        Told::Answered(answer) => answer.map(released),
        Told::Late(_) => panic!("late"),
        Told::NotSent => panic!("not sent"),
    }
}

fn released(outcome: Outcome) -> ReleaseOutcome {
    match outcome {
        Outcome::Release(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_come_to_calls_in_their_order() {
    let mut stage = Stage::new(4096);
    let told = [(); 3].map(|()| stage.call().1);
    stage.pipeline.flush();
    stage.reply(":1\r\n:0\r\n:-2\r\n").await;
    let [first, second, third] = told;
    assert_eq!(answer(first).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(
        answer(second).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        answer(third).await.unwrap(),
        ReleaseOutcome::Absent(Absence::Expired)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lone_call_is_written_at_once_and_the_next_go_together() {
    let mut stage = Stage::new(64 * 1024);
    // Nothing runs in between that could write it.
    assert!(!stage.call().0);
    let kept = [(); FEW - 1].map(|()| stage.call().0);
    assert_eq!(kept, [true; FEW - 1]);
    assert_eq!(stage.arrived().await, 1);
    assert!(!stage.call().0);
    assert_eq!(stage.arrived().await, FEW);
    // As many as are on their way.
    let kept = [(); FEW].map(|()| stage.call().0);
    assert_eq!(kept, [true; FEW]);
    assert!(!stage.call().0);
    assert_eq!(stage.arrived().await, FEW + 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_goes_when_it_is_flushed() {
    let mut stage = Stage::new(4096);
    let (_lone, kept) = (stage.call(), stage.call());
    assert!(kept.0);
    assert_eq!(stage.arrived().await, 1);
    stage.pipeline.flush();
    assert_eq!(stage.arrived().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_need_not_flush() {
    let mut stage = Stage::new(4096);
    let _lone = stage.call();
    let (sender, _answer) = oneshot::channel();
    let ping = |out: &mut Vec<u8>| out.extend(b"*1\r\n$7\r\nEVALSHA\r\n");
    let is_kept = stage.pipeline.call(ping, is_pong, Waiting::Task(sender));
    assert!(matches!(is_kept, Ok(true)));
    assert_eq!([stage.arrived().await, stage.arrived().await], [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_full_socket_does_not_take_is_written_later() {
    const CALLS: usize = 100;
    let mut stage = Stage::new(64);
    let told: Vec<_> = (0..CALLS).map(|_| stage.call().1).collect();
    stage.pipeline.flush();
    let mut sent = Vec::new();
    while String::from_utf8_lossy(&sent).matches(ID).count() < 2 * CALLS {
        stage.server.read_buf(&mut sent).await.unwrap();
    }
    for told in told {
        stage.reply(":1\r\n").await;
        assert_eq!(answer(told).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_keeps_its_place() {
    let mut stage = Stage::new(4096);
    let start = Instant::now();
    let (_, late) = stage.call();
    tokio::time::sleep(LIMIT / 2).await;
    let (_, punctual) = stage.call();
    stage.pipeline.flush();
    let Told::Late(to_come) = late.await.unwrap() else {
        panic!("it was answered");
    };
    let waited = start.elapsed();
    assert!(waited >= LIMIT && waited < LIMIT + Duration::from_millis(20));
    stage.reply(":1\r\n:0\r\n").await;
    assert_eq!(
        to_come.await.map(released).unwrap(),
        ReleaseOutcome::Released
    );
    assert_eq!(
        answer(punctual).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
}

#[tokio::test(start_paused = true)]
async fn time_limits_hold_after_an_idle_while() {
    let mut stage = Stage::new(4096);
    let (_, first) = stage.call();
    stage.reply(":1\r\n").await;
    answer(first).await.unwrap();
    tokio::time::sleep(LIMIT * 10).await;
    let start = Instant::now();
    let (_, told) = stage.call();
    stage.reply("+PONG\r\n").await;
    assert!(matches!(told.await.unwrap(), Told::Late(_)));
    let waited = start.elapsed();
    assert!(waited >= LIMIT && waited < LIMIT + Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn a_script_that_the_server_does_not_know_was_not_run() {
    let mut stage = Stage::new(4096);
    let (_, told) = stage.call();
    stage.reply("-NOSCRIPT No matching script.\r\n").await;
    assert!(matches!(told.await.unwrap(), Told::NotSent));
    assert!(stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_without_secrets() {
    let mut stage = Stage::new(4096);
    let (_, told) = stage.call();
    let words = format!("-WRONGTYPE {ID} is not what password said\r\n");
    stage.reply(&words).await;
    let error = answer(told).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(!error.is_outcome_unknown());
    for secret in [ID, "password"] {
        assert!(!error.message().contains(secret), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_new_goes_to_a_server_that_has_become_another() {
    for reply in ["-READONLY You can't write.\r\n", "-NOAUTH Who are you?\r\n"] {
        let mut stage = Stage::new(4096);
        let ((_, first), (_, second)) = (stage.call(), stage.call());
        stage.pipeline.flush();
        stage.reply(reply).await;
        assert!(answer(first).await.is_err());
        assert!(!stage.pipeline.is_open());
        assert!(matches!(stage.call().1.await.unwrap(), Told::NotSent));
        // What it was asked before is still answered.
        stage.reply(":1\r\n").await;
        assert_eq!(answer(second).await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_fails_what_is_under_way() {
    let Stage {
        pipeline,
        server,
        reader,
        scripts,
    } = Stage::new(4096);
    let stage = Stage {
        pipeline,
        server: duplex(1).0,
        reader,
        scripts,
    };
    let told = [stage.call().1, stage.call().1];
    stage.pipeline.flush();
    let (is_kept, kept) = stage.call();
    assert!(is_kept);
    drop(server);
    for told in told {
        let error = answer(told).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(error.is_outcome_unknown());
    }
    assert!(matches!(kept.await.unwrap(), Told::NotSent));
    assert!(!stage.pipeline.is_open());
    assert!(matches!(stage.call().1.await.unwrap(), Told::NotSent));
    stage.reader.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_asked_for_ends_it() {
    let mut stage = Stage::new(4096);
    stage.reply(":1\r\n").await;
    let reason = stage.reader.await.unwrap();
    assert_eq!(reason.kind(), ErrorKind::Internal);
    assert!(!stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_has_no_answer() {
    let mut stage = Stage::new(4096);
    let ((_, lone), (is_kept, kept)) = (stage.call(), stage.call());
    assert!(is_kept);
    stage.reply(":1\r\n:1\r\n").await;
    assert_eq!(answer(lone).await.unwrap(), ReleaseOutcome::Released);
    // Nothing of it has left, so that another stream may carry it.
    assert!(matches!(kept.await.unwrap(), Told::NotSent));
    assert!(!stage.pipeline.is_open());
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_it_ends_the_reader() {
    let stage = Stage::new(4096);
    yield_now().await;
    stage.pipeline.end(&to_error(Cause::Closed, true));
    stage.reader.await.unwrap();
}

/// A client that takes all it is given, and passes it on only when it is flushed: as TLS does.
struct Buffering {
    inner: DuplexStream,
    taken: Vec<u8>,
}

impl AsyncRead for Buffering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Buffering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.taken.extend_from_slice(buf);
        let _ = self.poll_flush(cx);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.taken.is_empty() {
            let count = std::task::ready!(Pin::new(&mut this.inner).poll_write(cx, &this.taken))?;
            this.taken.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_stream_took_and_has_not_passed_on_is_flushed() {
    const CALLS: usize = 100;
    let (server, inner) = duplex(64);
    let taken = Vec::new();
    let mut stage = Stage::on(server, Box::new(Buffering { inner, taken }));
    let start = Instant::now();
    let told: Vec<_> = (0..CALLS).map(|_| stage.call().1).collect();
    stage.pipeline.flush();
    let mut sent = Vec::new();
    while String::from_utf8_lossy(&sent).matches(ID).count() < 2 * CALLS {
        stage.server.read_buf(&mut sent).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "nothing else has to come");
    for told in told {
        stage.reply(":1\r\n").await;
        assert_eq!(answer(told).await.unwrap(), ReleaseOutcome::Released);
    }
}

/// What has come to the server since it looked last.
async fn words(stage: &mut Stage) -> String {
    let mut buffer = vec![0; 64 * 1024];
    let read = tokio::time::timeout(Duration::from_millis(1), stage.server.read(&mut buffer));
    let bytes = read.await.map_or(0, Result::unwrap);
    String::from_utf8(buffer[..bytes].to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_a_long_silence_the_server_is_asked_before_it_is_sent_anything() {
    let mut stage = Stage::new(64 * 1024);
    tokio::time::sleep(silence::LONG * 2).await;
    let told = [(); FEW * 2].map(|()| stage.call());
    assert!(told.iter().all(|(is_kept, _)| !is_kept));
    stage.pipeline.flush();
    assert_eq!(words(&mut stage).await, "*1\r\n$4\r\nPING\r\n");
    stage.reply("+PONG\r\n").await;
    assert_eq!(stage.arrived().await, told.len());
    for (_, told) in told {
        stage.reply(":1\r\n").await;
        assert_eq!(answer(told).await.unwrap(), ReleaseOutcome::Released);
    }
    // It was heard just now.
    let (_, told) = stage.call();
    assert_eq!(stage.arrived().await, 1);
    stage.reply(":1\r\n").await;
    answer(told).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_sign_of_life_nothing_was_sent() {
    let mut stage = Stage::new(64 * 1024);
    tokio::time::sleep(silence::LONG * 2).await;
    let start = Instant::now();
    let (_, told) = stage.call();
    let (sender, task) = oneshot::channel();
    let write = |out: &mut Vec<u8>| out.extend(b"*1\r\n$7\r\nEVALSHA\r\n");
    assert!(
        stage
            .pipeline
            .call(write, |_| true, Waiting::Task(sender))
            .is_ok()
    );
    assert!(matches!(told.await.unwrap(), Told::NotSent));
    assert!(matches!(task.await.unwrap(), Ok(Answer::NotSent)));
    let waited = start.elapsed();
    assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
    assert!(!stage.pipeline.is_open());
    assert_eq!(words(&mut stage).await, "*1\r\n$4\r\nPING\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_with_calls_under_way_may_be_busy() {
    let mut stage = Stage::new(64 * 1024);
    let (_, first) = stage.call();
    assert_eq!(stage.arrived().await, 1);
    tokio::time::sleep(silence::LONG - Duration::from_millis(100)).await;
    let (_, late) = stage.call();
    stage.pipeline.flush();
    tokio::time::sleep(PATIENCE * 4).await;
    assert_eq!(stage.arrived().await, 1);
    let (_, held) = stage.call();
    tokio::time::sleep(PATIENCE * 4).await;
    assert_eq!(words(&mut stage).await, "*1\r\n$4\r\nPING\r\n");
    assert!(matches!(first.await.unwrap(), Told::Late(_)));
    stage.reply(":1\r\n:0\r\n+PONG\r\n").await;
    assert_eq!(stage.arrived().await, 1);
    stage.reply(":1\r\n").await;
    assert_eq!(
        answer(late).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(answer(held).await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_us_any_more_is_sent_nothing() {
    let mut stage = Stage::new(4096);
    tokio::time::sleep(silence::LONG * 2).await;
    let (_, told) = stage.call();
    stage.reply("-NOAUTH Authentication required.\r\n").await;
    assert!(matches!(told.await.unwrap(), Told::NotSent));
    // A user without the right to PING may still call.
    let mut stage = Stage::new(4096);
    tokio::time::sleep(silence::LONG * 2).await;
    let (_, told) = stage.call();
    assert_eq!(stage.arrived().await, 0);
    stage.reply("-NOPERM no permissions\r\n").await;
    assert_eq!(stage.arrived().await, 1);
    stage.reply(":1\r\n").await;
    answer(told).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_fit_its_call_ends_it() {
    for reply in ["+OK\r\n", "*2\r\n:1\r\n:5\r\n", "$-1\r\n", ",1.5\r\n"] {
        let mut stage = Stage::new(4096);
        let ((_, first), (_, second)) = (stage.call(), stage.call());
        stage.pipeline.flush();
        let (_, kept) = stage.call();
        // The second answer may belong to anybody.
        stage.reply(&format!("{reply}:1\r\n")).await;
        let error = answer(first).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{reply}");
        assert!(error.is_outcome_unknown());
        let error = answer(second).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{reply}");
        assert!(error.is_outcome_unknown());
        assert!(matches!(kept.await.unwrap(), Told::NotSent));
        assert!(!stage.pipeline.is_open());
        stage.reader.await.unwrap();
    }
}
