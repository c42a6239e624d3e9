//! What is sent to which shards of a cluster, and what comes of their answers together.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::time::{Instant, sleep};

use super::*;
use crate::asking::outcome::{FromOutcome, Outcome};
use crate::asking::request::Operation;
use crate::asking::sending::Sending;
use crate::background::backend::Backend;
use crate::redis::RedisBackend;
use crate::redis::config::RedisLocks;
use crate::redis::names::ClientPrefix;
use crate::redis::plan::Plan;
use crate::redis::reply::Reply;
use crate::redis::transport::Transport;
use crate::text::error::ErrorKind;
use crate::values::claim::{Claim, Slots};
use crate::values::key::Key;
use crate::values::ttl::Ttl;

/// A cluster that answers scripts with what it was given, in the order in which they come.
#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<Result<Reply, Error>>>,
    /// Of each script the first key.
    asked: Mutex<Vec<String>>,
    /// Whether scripts that are not answered wait for a connection.
    is_down: bool,
    /// How long each script waits for a connection.
    pause: Duration,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let key = plan.keys().next().unwrap_or_default().to_owned();
        self.asked.lock().unwrap().push(key);
        let answer = self.answers.lock().unwrap().pop_front();
        if answer.is_none() && self.is_down {
            plan.sending().before(pending::<()>()).await;
        }
        let ready = async {
            if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
        };
        plan.sending().before(ready).await;
        answer.expect("nothing more is sent")
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

struct Scene {
    cluster: Arc<Scripted>,
    backend: RedisBackend,
}

fn scene(answers: impl IntoIterator<Item = Result<Reply, Error>>) -> Scene {
    scene_on(Scripted {
        answers: Mutex::new(answers.into_iter().collect()),
        ..Scripted::default()
    })
}

fn scene_on(cluster: Scripted) -> Scene {
    let cluster = Arc::new(cluster);
    let transport: Arc<dyn Transport> = Arc::clone(&cluster) as _;
    let backend = RedisBackend::over(transport, ClientPrefix::None, &RedisLocks::default());
    Scene {
        cluster,
        backend: backend.unwrap(),
    }
}

impl Scene {
    async fn ask<T: FromOutcome>(&self, operation: Operation) -> Result<T, Error> {
        let outcome: Outcome = self.backend.run(&operation).await?;
        T::of(outcome)
    }

    /// Asks for a key in shard `c6`, and for two slots of another in `87`, which comes first.
    async fn acquire(&self) -> (AcquireRequest, Result<AcquireOutcome, Error>) {
        self.acquire_noted_in(&Sending::default()).await
    }

    async fn acquire_noted_in(
        &self,
        sending: &Sending,
    ) -> (AcquireRequest, Result<AcquireOutcome, Error>) {
        let key = |name| Key::new(name).unwrap();
        let slots = Slots::new(5).unwrap();
        let claims = [
            Claim::new(key("k")).unwrap(),
            Claim::slot(key("p"), slots).unwrap(),
            Claim::slot(key("p"), slots).unwrap(),
        ];
        let mut request = AcquireRequest::of(claims, Ttl::from_millis(5000).unwrap()).unwrap();
        request.sending = sending.clone();
        self.backend.prepare(&mut request);
        let outcome = self.ask(Operation::Acquire(request.clone())).await;
        (request, outcome)
    }

    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.cluster.asked.lock().unwrap());
        assert!(self.cluster.answers.lock().unwrap().is_empty());
        asked
    }
}

fn ints(items: &[i64]) -> Result<Reply, Error> {
    Ok(Reply::Array(
        items.iter().copied().map(Reply::Int).collect(),
    ))
}

fn down() -> Result<Reply, Error> {
    Err(Error::new(ErrorKind::ServiceUnavailable, "down"))
}

/// The first keys of an acquisition's scripts.
const STEPS: [&str; 2] = ["{syncguard:87}:p\u{37e}", "{syncguard:c6}:k"];

/// Two slots are granted, and then the key.
const SLOTS: [i64; 8] = [1, 0, 4, 7, 99, 5, 8, 99];
const KEY: [i64; 5] = [1, 0, 0, 9, 98];

fn index(lock_id: &LockId) -> String {
    let shard = lock_id.first_byte();
    format!("{{syncguard:{shard:02x}}}:id:{}", lock_id.as_str())
}

#[tokio::test]
async fn shards_are_taken_in_their_order_and_grants_come_in_that_of_the_claims() {
    let scene = scene([ints(&SLOTS), ints(&KEY)]);
    let (request, outcome) = scene.acquire().await;
    assert_eq!(scene.asked(), STEPS);
    let AcquireOutcome::Acquired(grants) = outcome.unwrap() else {
        panic!("locked");
    };
    let of = |grant: &Grant| (grant.lock_id.clone(), grant.slot, grant.fence.get());
    let id = |place: usize| request.claims[place].lock_id.clone();
    let expected = [(id(0), None, 9), (id(1), Some(4), 7), (id(2), Some(5), 8)];
    assert!(grants.iter().map(of).eq(expected));
}

#[tokio::test]
async fn what_was_taken_is_given_back_before_the_answer() {
    // Where the locks are is known to those who are granted them only at the end.
    let located = || ["{syncguard:87}:p\u{37e}4", "{syncguard:87}:p\u{37e}5"].map(bulk);
    let [four, five] = located();
    let scene = scene([ints(&SLOTS), ints(&[0, 0, 700]), four, five, ints(&[1, 1])]);
    let (request, outcome) = scene.acquire().await;
    let free_in = Some(Duration::from_millis(700));
    let locked = AcquireOutcome::Locked {
        claim: 0,
        free_in,
        labels: crate::values::labels::Labels::default(),
        is_shared: false,
    };
    assert_eq!(outcome.unwrap(), locked);
    let asked = scene.asked();
    assert_eq!(asked[..2], STEPS);
    let [first, second] = [1, 2].map(|place| index(&request.claims[place].lock_id));
    assert_eq!(asked[2..], [first.clone(), second, first]);
}

fn bulk(text: &str) -> Result<Reply, Error> {
    Ok(Reply::Bulk(text.as_bytes().to_vec()))
}

#[tokio::test]
async fn what_cannot_be_given_back_is_an_outcome_that_nobody_knows() {
    // That of the first is not known to anybody, and of the others the undoing fails.
    for second in [ints(&[0, 0, 700]), down(), Ok(Reply::Int(-3))] {
        let scene = scene([ints(&SLOTS), second, down()]);
        let (_, outcome) = scene.acquire().await;
        assert!(outcome.unwrap_err().is_outcome_unknown());
        scene.asked();
    }
    // The first of all: nothing was taken.
    let scene = scene([down()]);
    assert!(!scene.acquire().await.1.unwrap_err().is_outcome_unknown());
}

#[tokio::test]
async fn an_error_after_which_nothing_is_left_is_known() {
    let gone = || Ok(Reply::Nil);
    let scene = scene([ints(&SLOTS), Ok(Reply::Int(-3)), gone(), gone()]);
    let error = scene.acquire().await.1.unwrap_err();
    assert!(error.message().contains("limit") && !error.is_outcome_unknown());
    assert_eq!(scene.asked().len(), 4);
}

#[tokio::test]
async fn what_waits_for_a_later_shard_was_sent() {
    // The key's node cannot be reached, or the slots of the key cannot be given back.
    for answers in [vec![ints(&SLOTS)], vec![ints(&SLOTS), ints(&[0, 0, 700])]] {
        let count = answers.len();
        let scene = scene_on(Scripted {
            answers: Mutex::new(answers.into()),
            is_down: true,
            ..Scripted::default()
        });
        let sending = Sending::noted();
        let mut acquisition = Box::pin(scene.acquire_noted_in(&sending));
        assert!(acquisition.as_mut().now_or_never().is_none());
        assert!(scene.cluster.asked.lock().unwrap().len() > count);
        // So whoever gives it up undoes it.
        assert!(!sending.is_waiting());
    }
}

#[tokio::test(start_paused = true)]
async fn locks_last_from_the_first_sending_on() {
    let pause = Duration::from_secs(1);
    let scene = scene_on(Scripted {
        answers: Mutex::new([ints(&SLOTS), ints(&KEY)].into()),
        pause,
        ..Scripted::default()
    });
    let (sending, start) = (Sending::noted(), Instant::now());
    scene.acquire_noted_in(&sending).await.1.unwrap();
    assert_eq!(sending.sent(), Some(start + pause));
    assert_eq!(start.elapsed(), pause * 2);
}

#[tokio::test]
async fn what_is_left_of_an_acquisition_does_not_stand_for_the_whole() {
    // Of what was granted once, the slots are there and the key is not.
    let repeated = [1, 2, 4, 7, 99, 5, 8, 99];
    let scene = scene([ints(&repeated), ints(&KEY), bulk("{syncguard:c6}:k"), ok(1)]);
    let (_, outcome) = scene.acquire().await;
    let (claim, free_in) = (1, None);
    let locked = AcquireOutcome::Locked {
        claim,
        free_in,
        labels: crate::values::labels::Labels::default(),
        is_shared: false,
    };
    assert_eq!(outcome.unwrap(), locked);
    scene.asked();
}

fn ok(code: i64) -> Result<Reply, Error> {
    Ok(Reply::Int(code))
}

#[tokio::test]
async fn a_lock_id_of_another_shard_is_refused_before_anything_is_taken() {
    let scene = scene([]);
    let key = |name| Claim::new(Key::new(name).unwrap()).unwrap();
    let mut request = AcquireRequest::of([key("k"), key("a")], Ttl::DEFAULT).unwrap();
    scene.backend.prepare(&mut request);
    request.claims[1].lock_id = request.claims[0].lock_id.clone();
    let error = scene
        .ask::<AcquireOutcome>(Operation::Acquire(request))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(scene.asked().is_empty());
}

/// Three lock ids: two of one shard, around that of another.
async fn granted(scene: &Scene) -> Batch<LockId> {
    let (request, outcome) = scene.acquire().await;
    outcome.unwrap();
    scene.cluster.asked.lock().unwrap().clear();
    let ids = [1, 0, 2].map(|place| request.claims[place].lock_id.clone());
    ids.into_iter().collect()
}

#[tokio::test]
async fn each_shard_is_released_for_itself() {
    let answers = [ints(&SLOTS), ints(&KEY), ints(&[1, -2]), ints(&[-1])];
    let scene = scene(answers);
    let ids = granted(&scene).await;
    let outcomes: Batch<ReleaseOutcome> = scene
        .ask(Operation::Release(ids.clone().into()))
        .await
        .unwrap();
    let absent = ReleaseOutcome::Absent;
    let expected = [
        ReleaseOutcome::Released,
        absent(Absence::NotFound),
        absent(Absence::Expired),
    ];
    assert_eq!(outcomes[..], expected);
    assert_eq!(scene.asked(), [index(&ids[0]), index(&ids[1])]);
}

#[tokio::test]
async fn of_a_release_that_fails_in_one_shard_the_outcome_is_unknown() {
    let scene = scene([ints(&SLOTS), ints(&KEY), ints(&[1, 1]), down()]);
    let ids = granted(&scene).await;
    let release = Operation::Release(ids.into());
    let error = scene.ask::<Batch<ReleaseOutcome>>(release).await;
    assert!(error.unwrap_err().is_outcome_unknown());
}

#[tokio::test]
async fn a_lock_that_is_elsewhere_is_looked_for_again() {
    let found = bulk("{syncguard:87}:p\u{37e}2");
    let scene = scene([
        ints(&SLOTS),
        ints(&KEY),
        ints(&[1, -4]),
        found,
        ints(&[1]),
        ints(&[1]),
    ]);
    let ids = granted(&scene).await;
    let release = Operation::Release(ids.clone().into());
    let outcomes: Batch<ReleaseOutcome> = scene.ask(release).await.unwrap();
    assert_eq!(outcomes[..], [ReleaseOutcome::Released; 3]);
}

#[tokio::test]
async fn an_extension_ends_when_the_first_of_its_shards_does() {
    let scene = scene([ints(&SLOTS), ints(&KEY), ints(&[1, 500]), ints(&[1, 400])]);
    let ids = granted(&scene).await;
    let extend = |ids| Operation::Extend(Extension::new(ids, Ttl::DEFAULT));
    let outcome: ExtendOutcome = scene.ask(extend(ids)).await.unwrap();
    let expires_at_ms = 400;
    assert_eq!(outcome, ExtendOutcome::Extended { expires_at_ms });
}

#[tokio::test]
async fn an_extension_names_the_first_that_is_gone() {
    let (absence, lock) = (Absence::Expired, 1);
    for slots in [ints(&[1, 500]), ints(&[0, 1, -1])] {
        let scene = scene([ints(&SLOTS), ints(&KEY), slots, ints(&[0, 0, -2])]);
        let ids = granted(&scene).await;
        let extend = Operation::Extend(Extension::new(ids, Ttl::DEFAULT));
        let outcome: ExtendOutcome = scene.ask(extend).await.unwrap();
        assert_eq!(outcome, ExtendOutcome::Absent { lock, absence });
    }
}
