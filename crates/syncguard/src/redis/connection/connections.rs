//! The connections to one server.

use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::script_connection::Dialer;
use super::target::Target;
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::event_loop::Lane;
use crate::redis::plan::Plan;

/// How long calls wait, at most, while the server refuses connections, because it may be restarting.
pub(in crate::redis) const PATIENCE: Duration = Duration::from_secs(1);

/// Each is made when it is needed.
pub(in crate::redis) struct Connections {
    /// On the caller's event loop, for what is called there.
    here: Option<(Arc<dyn EventLoop>, Link<Dialer>)>,
    /// On tokio, for all others: heartbeats and releases must not wait for a thread that is busy with something else.
    link: Link<Dialer>,
    /// For plans that wait for replicas: the server runs nothing else of a connection that waits.
    waiting: Link<Dialer>,
}

impl Connections {
    /// Calls wait for `patience` while the server refuses connections.
    pub(in crate::redis) fn new(
        target: &Arc<Target>,
        event_loop: Option<&Arc<dyn EventLoop>>,
        patience: Duration,
    ) -> Self {
        let link = |event_loop: Option<&Arc<dyn EventLoop>>| {
            let dialer = Dialer {
                target: Arc::clone(target),
                event_loop: event_loop.cloned(),
            };
            Link::new(dialer, patience)
        };
        Self {
            here: event_loop.map(|here| (Arc::clone(here), link(Some(here)))),
            link: link(None),
            waiting: link(None),
        }
    }

    /// The one for a plan that is called from where this is asked.
    pub(in crate::redis) fn for_plan(&self, plan: &Plan) -> &Link<Dialer> {
        match &self.here {
            _ if plan.replication().is_some() => &self.waiting,
            Some((event_loop, here)) if event_loop.is_current() => here,
            _ => &self.link,
        }
    }

    /// The lane of plans that are called from where this is asked, and wait for no replicas.
    pub(in crate::redis) fn lane(&self) -> Lane {
        lane_of(self.here.as_ref().map(|(event_loop, _)| event_loop))
    }

    /// Why the server cannot be reached at this moment, if that is known.
    pub(in crate::redis) fn trouble(&self) -> Option<Error> {
        self.all().find_map(Link::trouble)
    }

    /// Ends them for good.
    pub(super) fn close(&self) {
        self.all().for_each(Link::close);
    }

    fn all(&self) -> impl Iterator<Item = &Link<Dialer>> {
        let here = self.here.as_ref().map(|(_, here)| here);
        here.into_iter().chain([&self.link, &self.waiting])
    }
}

/// The lane of what is called from where this is asked, where that event loop has connections.
pub(super) fn lane_of(event_loop: Option<&Arc<dyn EventLoop>>) -> Lane {
    match event_loop.is_some_and(|event_loop| event_loop.is_current()) {
        true => Lane::EventLoop,
        false => Lane::Runtime,
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.close();
    }
}
