//! Who waits for an answer, in the order of the calls.

use std::collections::VecDeque;
use std::mem;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Answer;
use crate::error::Error;
use crate::redis::call::Call;
use crate::redis::reply::Reply;

/// For as many who wait, room is kept.
const ROOM: usize = 1024;

/// Whether a reply is one that the server can give to the call.
pub(in crate::redis) type Fits = fn(&Reply) -> bool;

/// Whoever waits for an answer.
pub(in crate::redis) enum Waiting {
    /// A task, which has a time limit of its own.
    Task(oneshot::Sender<Result<Answer, Error>>),
    Call(Call),
    /// The pipeline itself, for a sign of life.
    Probe,
}

impl Waiting {
    pub(super) fn end(self, answer: Result<Answer, Error>) {
        match self {
            // It may have given up.
            Self::Task(task) => drop(task.send(answer)),
            Self::Call(call) => call.answered(answer),
            Self::Probe => {}
        }
    }

    /// Ends it because the stream has ended before anything of the call was given to it.
    pub(super) fn not_sent(self) {
        match self {
            Self::Call(call) => call.not_sent(),
            other => other.end(Ok(Answer::NotSent)),
        }
    }
}

/// All who wait.
#[derive(Default)]
pub(super) struct Queue(VecDeque<(Fits, Waiting)>);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, fits: Fits, waiting: Waiting) {
        self.0.push_back((fits, waiting));
    }

    /// Whoever has waited longest.
    pub(super) fn pop(&mut self) -> Option<(Fits, Waiting)> {
        let next = self.0.pop_front();
        // After a stall there were many.
        if self.0.capacity() > ROOM && self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(ROOM.max(self.0.len() * 2));
        }
        next
    }

    /// Takes the last ones, all but the first `count`.
    pub(super) fn take_behind(&mut self, count: usize) -> Vec<Waiting> {
        let last = self.0.drain(count.min(self.0.len())..);
        last.map(|(_, waiting)| waiting).collect()
    }

    /// The calls whose time is over, each with what will be its answer: it keeps its place. And when the time of the
    /// next one is over.
    pub(super) fn take_late(&mut self) -> (Vec<Late>, Option<Instant>) {
        let now = Instant::now();
        let (mut late, mut next) = (Vec::new(), None);
        for (_, waiting) in &mut self.0 {
            let Waiting::Call(call) = waiting else {
                continue;
            };
            let deadline = call.deadline();
            if deadline > now {
                next = Some(next.map_or(deadline, |other: Instant| other.min(deadline)));
                continue;
            }
            let (sender, answer) = oneshot::channel();
            if let Waiting::Call(call) = mem::replace(waiting, Waiting::Task(sender)) {
                late.push((call, answer));
            }
        }
        (late, next)
    }
}

/// A call whose time is over, and what may still come.
pub(super) type Late = (Call, oneshot::Receiver<Result<Answer, Error>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_many_goes_with_them() {
        const MANY: usize = 100_000;
        let mut queue = Queue::default();
        for _ in 0..MANY {
            queue.push(|_| true, Waiting::Probe);
        }
        for left in (0..MANY).rev() {
            assert!(queue.pop().is_some());
            assert!(queue.0.capacity() <= ROOM.max(left * 16 + 16));
        }
        assert!(queue.pop().is_none());
        assert!(queue.0.capacity() <= 2 * ROOM);
    }
}
