//! What clients do, and what becomes of them.

use super::state::{Client, Id, Message, POLL, Phase, State, TOLERANCE, TTL, Undo};

impl Undo {
    pub(crate) fn is_due(&self, now: u8) -> bool {
        self.try_at.is_some_and(|at| at <= now)
    }
}

impl State {
    pub(crate) fn client(&mut self, number: u8) -> &mut Client {
        &mut self.clients[usize::from(number)]
    }

    /// Messages for a paused process wait for it, and those for one that has crashed are never read.
    pub(crate) fn can_arrive(&self, message: &Message) -> bool {
        let reader = match message {
            Message::Acquire { .. } | Message::Release { .. } | Message::Extend { .. } => {
                return true;
            }
            Message::Granted { id, .. }
            | Message::Held { id, .. }
            | Message::Released { id, .. }
            | Message::Extended { id, .. } => id.client,
            Message::Freed { client } => *client,
        };
        let reader = &self.clients[usize::from(reader)];
        !reader.is_paused && reader.phase != Phase::Crashed
    }

    /// Whether a client has something to do that it does at once if it runs.
    fn has_to_act(&self, client: &Client) -> bool {
        let polls = matches!(client.phase, Phase::Waiting { poll_at } if poll_at <= self.now);
        let undoes = client.undoing.iter().any(|undo| undo.is_due(self.now));
        !client.is_paused && client.phase != Phase::Crashed && (polls || undoes)
    }

    /// Whether all that takes less than a tick has happened.
    pub(crate) fn is_settled(&self) -> bool {
        let some_come = self.messages.iter().any(|message| self.can_arrive(message));
        !some_come && !self.clients.iter().any(|client| self.has_to_act(client))
    }

    /// Asks the store for the lock.
    pub(crate) fn ask(&mut self, number: u8) {
        let sent = self.now;
        let client = self.client(number);
        let has_waited = matches!(client.phase, Phase::Waiting { .. });
        client.has_wanted = true;
        let id = Id {
            client: number,
            number: client.asked,
        };
        client.asked += 1;
        client.is_hinted = false;
        client.phase = Phase::Acquiring {
            id,
            sent,
            has_waited,
        };
        self.messages.insert(Message::Acquire { id });
    }

    /// Is told that the lock was freed: a waiter tries at once, or as soon as it knows what it asks at the moment.
    pub(crate) fn wake(&mut self, number: u8) {
        match self.client(number).phase {
            Phase::Waiting { .. } => self.ask(number),
            Phase::Acquiring { .. } => self.client(number).is_hinted = true,
            _ => {}
        }
    }

    /// Waits no longer for the answer: what may have been granted is released.
    pub(crate) fn give_up(&mut self, number: u8) {
        let until = self.now + TTL + TOLERANCE;
        let Phase::Acquiring { id, .. } = self.client(number).phase else {
            return;
        };
        let client = self.client(number);
        client.phase = Phase::Idle;
        client.undoing.insert(Undo {
            id,
            until,
            try_at: None,
        });
        self.seen.given_up.insert((id, until));
        self.messages.insert(Message::Release { id, is_undo: true });
    }

    /// Releases once more what was given up.
    pub(crate) fn undo(&mut self, number: u8, id: Id) {
        let undoing = &mut self.client(number).undoing;
        if let Some(undo) = undoing.iter().copied().find(|undo| undo.id == id) {
            undoing.remove(&undo);
            undoing.insert(Undo {
                try_at: None,
                ..undo
            });
            self.messages.insert(Message::Release { id, is_undo: true });
        }
    }

    pub(crate) fn granted(&mut self, id: Id, fence: u8) {
        let Phase::Acquiring {
            id: asked,
            sent,
            has_waited,
        } = self.client(id.client).phase
        else {
            return;
        };
        if asked == id {
            let ends = sent + TTL;
            self.seen.got_after_waiting |= has_waited;
            self.client(id.client).phase = Phase::Holding { id, fence, ends };
            self.look_at_the_clock();
        }
    }

    pub(crate) fn held(&mut self, id: Id, free_at: u8) {
        let now = self.now;
        let client = self.client(id.client);
        // What was not granted need not be undone.
        client.undoing.retain(|undo| undo.id != id);
        let is_answer = matches!(client.phase, Phase::Acquiring { id: asked, .. } if asked == id);
        if !is_answer {
            return;
        }
        let poll_at = free_at.min(now + POLL).max(now + 1);
        client.phase = Phase::Waiting { poll_at };
        if client.is_hinted {
            self.ask(id.client);
        }
    }

    pub(crate) fn extended(&mut self, id: Id, sent: u8, was_there: bool) {
        let Phase::Holding {
            id: held, fence, ..
        } = self.client(id.client).phase
        else {
            return;
        };
        if held == id {
            let ends = sent + TTL;
            self.client(id.client).phase = match was_there {
                true => Phase::Holding { id, fence, ends },
                false => Phase::Lost,
            };
            self.look_at_the_clock();
        }
    }

    /// Whoever runs notices at once that its lock has ended.
    pub(crate) fn look_at_the_clock(&mut self) {
        let now = self.now;
        for client in self.clients.iter_mut().filter(|client| !client.is_paused) {
            if matches!(client.phase, Phase::Holding { ends, .. } if ends <= now) {
                client.phase = Phase::Lost;
            }
        }
    }

    /// The store removes the lock, and tells those who wait for it.
    pub(crate) fn free(&mut self) {
        let Some(lock) = self.lock.take() else {
            return;
        };
        self.index.remove(&lock.id);
        self.seen.granted.retain(|(id, _)| *id != lock.id);
        for (client, waiter) in (0..).zip(&self.clients) {
            if matches!(
                waiter.phase,
                Phase::Waiting { .. } | Phase::Acquiring { .. }
            ) {
                self.messages.insert(Message::Freed { client });
            }
        }
    }

    /// The answer to a message will not come: whoever waits for it finds out in time.
    pub(crate) fn answer_is_lost(&mut self, message: Message) {
        match message {
            Message::Acquire { id } | Message::Granted { id, .. } | Message::Held { id, .. } => {
                let phase = self.client(id.client).phase;
                if matches!(phase, Phase::Acquiring { id: asked, .. } if asked == id) {
                    self.give_up(id.client);
                }
            }
            Message::Release { id, is_undo: true } | Message::Released { id, .. } => {
                let try_at = Some(self.now + 1);
                let undoing = &mut self.client(id.client).undoing;
                if let Some(undo) = undoing.iter().copied().find(|undo| undo.id == id) {
                    undoing.remove(&undo);
                    undoing.insert(Undo { try_at, ..undo });
                }
            }
            _ => {}
        }
    }
}
