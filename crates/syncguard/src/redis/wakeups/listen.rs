//! How a server tells what was freed.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::feed::{Feed, read};
use crate::redis::answer::lost;
use crate::redis::connection::target::Target;
use crate::text::error::Error;
use crate::waiting::listener::{Listen, Listener, StoreMessage};

/// Opens what tells.
pub(in crate::redis) struct Subscriptions(pub(in crate::redis) Arc<Target>);

/// One that is open.
struct Subscriber {
    feed: Feed,
    messages: UnboundedReceiver<Result<Value, Error>>,
    heard: VecDeque<StoreMessage>,
}

#[async_trait]
impl Listen for Subscriptions {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let stream = self.0.open().await?;
        self.0.losses().made();
        let (sender, messages) = unbounded_channel();
        Ok(Box::new(Subscriber {
            feed: Feed::start(async { Ok(stream) }, false, move |value| {
                sender.send(value).is_ok()
            }),
            messages,
            heard: VecDeque::new(),
        }))
    }
}

#[async_trait]
impl Listener for Subscriber {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            self.feed.change(name, *is_wanted);
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        // The feed tests its connection.
        self.heard.push_back(StoreMessage::Alive);
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        match self.heard.pop_front() {
            Some(heard) => Ok(heard),
            None => read(self.messages.recv().await.unwrap_or_else(|| Err(lost()))?),
        }
    }
}
