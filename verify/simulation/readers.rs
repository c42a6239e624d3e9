//! Readers whose times overlap for ever, and a writer: how long they keep each other waiting, on a network on which nothing goes wrong.

use super::plan::Plan;
use super::world::World;
use super::*;
use crate::asking::hold::AutoExtend;
use crate::holding::lock::LockOptions;
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::key::Key;
use crate::waiting::retry::RetryPolicy;

/// Each scene is played with these seeds.
const SCENES: Range<u64> = 0..8;
const SECOND: Duration = Duration::from_secs(1);
/// Longer than some messages and timers take, with clocks that differ.
const SOON: Duration = Duration::from_millis(350);
const MINUTE: Duration = Duration::from_secs(60);
const FOREVER: Duration = Duration::from_secs(3600);
/// The processes with readers, and the one with the writer.
const READING: usize = 3;
const WRITING: usize = READING;

/// What readers and the writer have seen so far.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    longest_read: Duration,
    reader_waited: Duration,
    writer_waited: Duration,
    writes: u32,
}

struct Scene {
    sim: Sim,
    processes: Vec<Arc<Process>>,
    seen: Arc<Mutex<Seen>>,
    ends: Instant,
    reading: Vec<JoinHandle<()>>,
}

fn key() -> Key {
    Key::new("catalogue").unwrap()
}

fn options(timeout: Duration) -> LockOptions {
    LockOptions {
        retry: RetryPolicy {
            // So short that it makes little difference whether the store tells.
            max_retry_delay_ms: 250.0,
            timeout_ms: timeout.as_secs_f64() * 1000.0,
            ..RetryPolicy::default()
        },
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    }
}

impl Scene {
    /// Two readers in each process read again and again, for times in this range, in milliseconds.
    fn new(seed: u64, reads: &Range<u64>, lasts: Duration) -> Self {
        let (plan, rng) = Plan::new(seed);
        let plan = Plan {
            processes: READING + 1,
            is_calm: true,
            readers: true,
            // Who has to ask may find each pause of the writer over.
            tells: true,
            ..plan
        };
        let sim = Sim::of(plan, rng, false);
        let processes = (0..=WRITING).map(|number| Process::new(&sim, number));
        let mut scene = Self {
            processes: processes.collect(),
            sim,
            seen: Arc::default(),
            ends: Instant::now() + lasts,
            reading: Vec::new(),
        };
        let readers = (0..2 * READING).map(|number| scene.reads(number % READING, reads.clone()));
        scene.reading = readers.map(tokio::spawn).collect();
        scene
    }

    fn client(&self, process: usize) -> Client {
        let process = Arc::clone(&self.processes[process]);
        Client {
            sim: self.sim.clone(),
            backend: Arc::clone(&process) as _,
            process,
        }
    }

    fn reads(&self, process: usize, reads: Range<u64>) -> impl Future<Output = ()> + use<> {
        let (client, seen, ends) = (self.client(process), Arc::clone(&self.seen), self.ends);
        async move {
            sleep(Duration::from_millis(client.sim.random(0..reads.end))).await;
            while Instant::now() < ends {
                let came = Instant::now();
                let claim = Claim::shared(key()).unwrap();
                let held = client.waits(vec![claim], &options(FOREVER)).await.unwrap();
                let read = Duration::from_millis(client.sim.random(reads.clone()));
                {
                    let mut seen = lock(&seen);
                    seen.reader_waited = seen.reader_waited.max(came.elapsed());
                    seen.longest_read = seen.longest_read.max(read);
                }
                sleep(read).await;
                client.releases(held).await.unwrap();
            }
        }
    }

    /// Writes once. Gives an error if it does not get the key in time.
    async fn writes(&self, patience: Duration) -> Result<(), Error> {
        let (client, came) = (self.client(WRITING), Instant::now());
        let claim = Claim::new(key()).unwrap();
        let held = client.waits(vec![claim], &options(patience)).await?;
        {
            let mut seen = lock(&self.seen);
            seen.writer_waited = seen.writer_waited.max(came.elapsed());
            seen.writes += 1;
        }
        sleep(Duration::from_millis(5)).await;
        client.releases(held).await?;
        Ok(())
    }

    /// Writes again and again, with pauses, as long as readers read.
    async fn writes_on(&self) {
        while Instant::now() < self.ends {
            sleep(Duration::from_millis(self.sim.random(20..200))).await;
            self.writes(FOREVER).await.unwrap();
        }
    }

    /// Waits until somebody keeps readers out, or nobody does, or the scene is over.
    async fn gate(&self, is_held: bool) -> Instant {
        let gate = key().gate();
        let held = |world: &mut World| world.store.is_locked(&gate, world.now_ms(WRITING));
        while self.sim.with(held) != is_held && Instant::now() < self.ends {
            sleep(Duration::from_millis(50)).await;
        }
        Instant::now()
    }

    /// How long a gate lasts at most, and how long readers are let in at least after one that was in vain.
    async fn gates(&self) -> (Duration, Duration) {
        let (mut longest, mut shortest) = (Duration::ZERO, Duration::MAX);
        let mut left = None;
        while Instant::now() < self.ends {
            let writes = lock(&self.seen).writes;
            let taken = self.gate(true).await;
            if let Some(left) = left.filter(|_| taken < self.ends) {
                shortest = shortest.min(taken - left);
            }
            let end = self.gate(false).await;
            longest = longest.max(end - taken);
            left = (lock(&self.seen).writes == writes).then_some(end);
        }
        (longest, shortest)
    }

    /// How long a reader waits who comes now.
    async fn a_reader_waits(&self) -> Duration {
        let (client, came) = (self.client(0), Instant::now());
        let claim = Claim::shared(key()).unwrap();
        let held = client.waits(vec![claim], &options(FOREVER)).await.unwrap();
        let waited = came.elapsed();
        client.releases(held).await.unwrap();
        waited
    }

    /// Lets all come to an end, and gives what was seen.
    async fn over(mut self) -> Seen {
        finish(&self.sim, std::mem::take(&mut self.reading), "readers").await;
        sleep(ALL_OVER).await;
        check_end(&self.sim, &self.processes);
        let problems = self.sim.with(|world| world.witness.problems.clone());
        assert_eq!(problems, Vec::<String>::new());
        *lock(&self.seen)
    }
}

/// Plays a scene with each seed.
fn play(scene: impl AsyncFn(u64)) {
    for seed in SCENES {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        seeded::seed(Some(!seed));
        runtime.block_on(scene(seed));
        seeded::seed(None);
    }
}

#[test]
fn a_writer_waits_for_the_longest_read_and_no_reader_for_longer() {
    for reads in [15..35, 1_000..5_000, 10_000..40_000] {
        play(async |seed| {
            let lasts = Duration::from_millis(20 * reads.end);
            let scene = Scene::new(seed, &reads, lasts);
            scene.writes_on().await;
            let seen = scene.over().await;
            let longest = seen.longest_read + SECOND;
            assert!(seen.writer_waited <= longest, "{seed}: {seen:?}");
            assert!(seen.reader_waited <= longest, "{seed}: {seen:?}");
        });
    }
}

#[test]
fn among_longer_reads_a_writer_and_readers_have_a_minute_each() {
    play(async |seed| {
        let scene = Scene::new(seed, &(60_000..120_000), FOREVER / 4);
        let (gates, ()) = tokio::join!(scene.gates(), scene.writes_on());
        let seen = scene.over().await;
        assert!(seen.reader_waited <= MINUTE + SECOND, "{seed}: {seen:?}");
        let (longest, shortest) = gates;
        assert!(longest <= MINUTE + SECOND, "{seed}: {gates:?}");
        assert!(shortest >= MINUTE - SECOND, "{seed}: {gates:?}");
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let patience = 3 * SECOND;
    play(async |seed| {
        let scene = Scene::new(seed, &(30_000..40_000), 2 * MINUTE);
        for is_dropped in [false, true] {
            sleep(MINUTE * 2 / 3).await;
            let reader = async {
                scene.gate(true).await;
                scene.a_reader_waits().await
            };
            let writer = async {
                match is_dropped {
                    true => timeout(patience, scene.writes(FOREVER)).await.is_err(),
                    false => scene.writes(patience).await.is_err(),
                }
            };
            let (waited, gave_up) = tokio::join!(reader, writer);
            assert!(gave_up, "{seed}");
            assert!(waited <= patience + SOON, "{seed}: {waited:?}");
        }
        scene.over().await;
    });
}

#[test]
fn a_writer_that_dies_keeps_readers_out_for_four_seconds() {
    play(async |seed| {
        let scene = Scene::new(seed, &(30_000..40_000), 2 * MINUTE);
        sleep(MINUTE * 2 / 3).await;
        let dies = async {
            scene.gate(true).await;
            sleep(Duration::from_millis(scene.sim.random(0..5_000))).await;
            scene.sim.with(|world| {
                world.links[WRITING].is_dead = true;
                world.witness.over.insert(WRITING);
            });
        };
        tokio::select! {
            biased;
            () = dies => {}
            _ = scene.writes(FOREVER) => panic!("{seed}: readers did not keep the writer out"),
        }
        let waited = scene.a_reader_waits().await;
        assert!(waited <= 4 * SECOND + SOON, "{seed}: {waited:?}");
        scene.over().await;
    });
}
