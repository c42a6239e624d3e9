//! Knows whether a connection still leads to the primary.

use tokio::sync::watch;

/// A host and a port.
pub(super) type Address = (String, u16);

/// Which server is the primary, as a Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: Address,
    /// Grows with each failover. 0 if the Sentinel does not tell it.
    pub(super) epoch: u64,
}

/// The time for which one server is the primary.
#[derive(Clone)]
pub(in crate::redis) struct Term {
    address: Address,
    primary: watch::Receiver<Option<Named>>,
}

impl Term {
    /// The term of the server at that address. `primary` says at each moment which server is the primary.
    pub(super) fn new(address: Address, primary: watch::Receiver<Option<Named>>) -> Self {
        Self { address, primary }
    }

    /// Whether no other server is known to be the primary.
    pub(super) fn is_current(&self) -> bool {
        self.is_of(&self.primary.borrow())
    }

    /// Completes once another server is the primary.
    pub(super) async fn over(mut self) {
        let address = self.address;
        let is_other =
            |named: &Option<Named>| named.as_ref().is_some_and(|named| named.address != address);
        if self.primary.wait_for(is_other).await.is_err() {
            // Nobody will tell any more.
            std::future::pending().await
        }
    }

    fn is_of(&self, named: &Option<Named>) -> bool {
        named
            .as_ref()
            .is_none_or(|named| named.address == self.address)
    }
}

/// Completes once the term is over. Never completes without a term, because nobody says then which server is the primary.
pub(in crate::redis) async fn over(term: Option<Term>) {
    match term {
        Some(term) => term.over().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_term_ends_when_another_server_is_named() {
        let at = |port, epoch| {
            Some(Named {
                address: ("h".to_owned(), port),
                epoch,
            })
        };
        let named = watch::Sender::new(at(1, 1));
        let term = Term::new(("h".to_owned(), 1), named.subscribe());
        named.send_replace(at(1, 2));
        assert!(term.is_current());
        assert!(term.clone().over().now_or_never().is_none());
        named.send_replace(at(2, 3));
        assert!(!term.is_current());
        over(Some(term)).await;
        assert!(over(None).now_or_never().is_none());
    }
}
