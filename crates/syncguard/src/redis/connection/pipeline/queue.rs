//! Who waits for an answer, in the order of the calls.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::error::Error;
use crate::redis::answer::{Answer, lost};
use crate::redis::reply::Reply;

/// For as many who wait, room is kept.
const ROOM: usize = 1024;

/// Whether a reply is one that the server can give to the call.
pub(in crate::redis) type Fits = fn(&Reply) -> bool;

/// Whoever waits for an answer.
pub(super) enum Recipient {
    Call(oneshot::Sender<Result<Answer, Error>>),
    /// The pipeline itself, for a sign of life.
    Probe,
}

/// Where the answer to a call arrives.
pub(in crate::redis) struct Answered(oneshot::Receiver<Result<Answer, Error>>);

impl Answered {
    pub(in crate::redis) async fn wait(self) -> Result<Answer, Error> {
        self.0.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Recipient {
    /// Whoever waits for the answer to a call, and where it will arrive.
    pub(super) fn call() -> (Self, Answered) {
        let (sender, answer) = oneshot::channel();
        (Self::Call(sender), Answered(answer))
    }

    pub(super) fn end(self, answer: Result<Answer, Error>) {
        if let Self::Call(call) = self {
            // It may have given up.
            drop(call.send(answer));
        }
    }
}

/// All who wait.
#[derive(Default)]
pub(super) struct AnswerQueue(VecDeque<(Fits, Recipient)>);

impl AnswerQueue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, fits: Fits, waiting: Recipient) {
        self.0.push_back((fits, waiting));
    }

    /// Whoever has waited longest.
    pub(super) fn pop(&mut self) -> Option<(Fits, Recipient)> {
        let next = self.0.pop_front();
        // After a stall there were many.
        if self.0.capacity() > ROOM && self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(ROOM.max(self.0.len() * 2));
        }
        next
    }

    /// Takes the last ones, all but the first `count`.
    pub(super) fn take_behind(&mut self, count: usize) -> impl Iterator<Item = Recipient> {
        let last = self.0.drain(count.min(self.0.len())..);
        last.map(|(_, waiting)| waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_many_goes_with_them() {
        const MANY: usize = 100_000;
        let mut queue = AnswerQueue::default();
        for _ in 0..MANY {
            queue.push(|_| true, Recipient::Probe);
        }
        for left in (0..MANY).rev() {
            assert!(queue.pop().is_some());
            assert!(queue.0.capacity() <= ROOM.max(left * 16 + 16));
        }
        assert!(queue.pop().is_none());
        assert!(queue.0.capacity() <= 2 * ROOM);
    }
}
