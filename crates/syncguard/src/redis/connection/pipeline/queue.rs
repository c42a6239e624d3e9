//! The queue of those who wait for an answer, in the order of their calls.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::redis::answer::{Answer, lost};
use crate::redis::reply::Reply;
use crate::text::error::Error;

/// The room for so many waiting calls is kept.
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
    /// Makes the two ends for one call: the recipient of the answer, and where its caller gets it.
    pub(super) fn call() -> (Self, Answered) {
        let (sender, answer) = oneshot::channel();
        (Self::Call(sender), Answered(answer))
    }

    pub(super) fn end(self, answer: Result<Answer, Error>) {
        if let Self::Call(call) = self {
            // The caller may have given up.
            drop(call.send(answer));
        }
    }
}

/// One entry of the queue.
pub(super) struct Waiting {
    pub(super) fits: Fits,
    pub(super) recipient: Recipient,
    /// When the call was made.
    pub(super) since: Instant,
    /// After this time, if there is one, the answer comes too late to be of use.
    pub(super) needed_by: Option<Instant>,
}

/// All who wait, the oldest call first.
#[derive(Default)]
pub(super) struct AnswerQueue(VecDeque<Waiting>);

impl AnswerQueue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.0.iter()
    }

    /// Takes out whoever has waited longest.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let next = self.0.pop_front();
        // After a stall, the queue may have grown far beyond what it needs now.
        if self.0.capacity() > ROOM && self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(ROOM.max(self.0.len() * 2));
        }
        next
    }

    /// Takes out all but the first `count`.
    pub(super) fn take_behind(&mut self, count: usize) -> impl Iterator<Item = Recipient> {
        let last = self.0.drain(count.min(self.0.len())..);
        last.map(|waiting| waiting.recipient)
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
            queue.push(Waiting {
                fits: |_| true,
                recipient: Recipient::Probe,
                since: Instant::now(),
                needed_by: None,
            });
        }
        for left in (0..MANY).rev() {
            assert!(queue.pop().is_some());
            assert!(queue.0.capacity() <= ROOM.max(left * 16 + 16));
        }
        assert!(queue.pop().is_none());
        assert!(queue.0.capacity() <= 2 * ROOM);
    }
}
