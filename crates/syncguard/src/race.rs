//! Attempts that run concurrently.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A set of attempts. They make progress while somebody awaits [`next`](Self::next), and are dropped with it.
pub(crate) struct Race<'a, T>(Vec<Pin<Box<dyn Future<Output = T> + Send + 'a>>>);

impl<'a, T> Race<'a, T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn start(&mut self, attempt: impl Future<Output = T> + Send + 'a) {
        self.0.push(Box::pin(attempt));
    }

    /// The result of the attempt that ends next; `None` when none is left.
    pub(crate) async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| {
            for (index, attempt) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(result) = attempt.as_mut().poll(cx) {
                    drop(self.0.swap_remove(index));
                    return Poll::Ready(Some(result));
                }
            }
            if self.0.is_empty() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}
