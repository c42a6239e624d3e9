//! Addresses of nodes, as they announce them and as they can be reached.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Where the nodes of a cluster are for this process, where that is not where they say: behind NAT, in containers,
/// through tunnels. An address that it does not know is used as it is.
#[derive(Clone)]
pub struct NatMap(Arc<TranslateAddress>);

type TranslateAddress = dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync;

impl NatMap {
    /// Asks `translate` for each host and port that a node announces. It is called whenever the layout of the cluster
    /// is read, and must not block.
    pub fn new(
        translate: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(translate))
    }

    pub(super) fn translate(&self, host: &str, port: u16) -> Option<(String, u16)> {
        (self.0)(host, port)
    }
}

/// From pairs of the announced host and port and those to connect to.
impl FromIterator<((String, u16), (String, u16))> for NatMap {
    fn from_iter<I: IntoIterator<Item = ((String, u16), (String, u16))>>(pairs: I) -> Self {
        let pairs: HashMap<_, _> = pairs.into_iter().collect();
        Self::new(move |host, port| pairs.get(&(host.to_owned(), port)).cloned())
    }
}

/// Whether both are clones of one.
impl PartialEq for NatMap {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for NatMap {}

impl fmt::Debug for NatMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatMap").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_and_nothing_else() {
        let at = |host: &str, port| (host.to_owned(), port);
        let map: NatMap = [(at("10.0.0.1", 1), at("here", 2))].into_iter().collect();
        assert_eq!(map.translate("10.0.0.1", 1), Some(at("here", 2)));
        assert_eq!(map.translate("10.0.0.1", 2), None);
        assert_eq!(map, map.clone());
    }
}
