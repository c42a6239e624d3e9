//! What clients do, and what becomes of them.

use super::super::state::{Id, POLL, TOLERANCE, TTL};
use super::state::{Client, Message, Phase, Places, State};
use super::system::{Fault, System};

impl State {
    pub(super) fn client(&mut self, number: u8) -> &mut Client {
        &mut self.clients[usize::from(number)]
    }

    /// Messages for one that has crashed are never read.
    pub(super) fn can_arrive(&self, message: &Message) -> bool {
        let reader = match message {
            Message::Acquire { .. } | Message::Release { .. } | Message::Extend { .. } => {
                return true;
            }
            Message::Granted { id, .. }
            | Message::Held { id, .. }
            | Message::Released { id, .. }
            | Message::Extended { id, .. } => id.client,
            Message::Freed { client, .. } => *client,
        };
        self.clients[usize::from(reader)].phase != Phase::Crashed
    }

    /// Asks the store for all that it wants.
    pub(super) fn ask(&mut self, number: u8) {
        let sent = self.now;
        let client = self.client(number);
        let id = Id {
            client: number,
            number: client.asked,
        };
        client.asked += 1;
        client.has_wanted = true;
        client.hinted.clear();
        let has_waited = matches!(client.phase, Phase::Waiting { .. });
        client.phase = Phase::Acquiring { id, has_waited };
        self.messages.insert(Message::Acquire { id, sent });
    }

    /// Waits no longer for the answer: what may have been granted is released.
    pub(super) fn give_up(&mut self, number: u8) {
        let until = self.now + TTL + TOLERANCE;
        let Phase::Acquiring { id, .. } = self.client(number).phase else {
            return;
        };
        let client = self.client(number);
        client.phase = Phase::Idle;
        client.undoing.insert(id, (until, None));
        self.seen.over.insert(id);
        self.messages.insert(Message::Release { id, is_undo: true });
    }

    pub(super) fn undo(&mut self, id: Id) {
        if let Some((_, try_at)) = self.client(id.client).undoing.get_mut(&id) {
            *try_at = None;
            self.messages.insert(Message::Release { id, is_undo: true });
        }
    }

    pub(super) fn granted(&mut self, id: Id, places: Places, sent: u8) {
        let Phase::Acquiring {
            id: asked,
            has_waited,
        } = self.client(id.client).phase
        else {
            return;
        };
        if asked == id {
            let ends = sent + TTL;
            self.seen.got_after_waiting |= has_waited;
            self.client(id.client).phase = Phase::Holding { id, places, ends };
            self.look_at_the_clock();
        }
    }

    pub(super) fn held(&mut self, id: Id, place: usize, free_at: u8) {
        let now = self.now;
        let client = self.client(id.client);
        // What was not granted need not be undone.
        client.undoing.remove(&id);
        let is_answer = matches!(client.phase, Phase::Acquiring { id: asked, .. } if asked == id);
        if !is_answer {
            return;
        }
        let poll_at = free_at.min(now + POLL).max(now + 1);
        client.phase = Phase::Waiting { place, poll_at };
        if client.hinted.contains(&place) {
            self.ask(id.client);
        }
    }

    pub(super) fn extended(&mut self, id: Id, sent: u8, was_there: bool) {
        if let Phase::Holding { id: held, ends, .. } = &mut self.client(id.client).phase
            && *held == id
        {
            match was_there {
                true => *ends = sent + TTL,
                false => self.client(id.client).phase = Phase::Lost,
            }
            self.look_at_the_clock();
        }
    }

    /// Whoever runs notices at once that its locks have ended.
    pub(super) fn look_at_the_clock(&mut self) {
        let now = self.now;
        for client in &mut self.clients {
            if matches!(client.phase, Phase::Holding { ends, .. } if ends <= now) {
                client.phase = Phase::Lost;
            }
        }
    }

    /// The answer to a message will not come: whoever waits for it finds out in time.
    pub(super) fn answer_is_lost(&mut self, message: &Message) {
        match message {
            Message::Acquire { id, .. }
            | Message::Granted { id, .. }
            | Message::Held { id, .. } => {
                let phase = &self.client(id.client).phase;
                if matches!(phase, Phase::Acquiring { id: asked, .. } if asked == id) {
                    self.give_up(id.client);
                }
            }
            Message::Release { id, .. } | Message::Released { id, .. } => {
                // A release that has failed goes on as an undo.
                let (until, again) = (self.now + TTL + TOLERANCE, self.now + 1);
                let undoing = &mut self.client(id.client).undoing;
                undoing.entry(*id).or_insert((until, None)).1 = Some(again);
            }
            _ => {}
        }
    }
}

impl System {
    /// A client is told that a lock was freed: one that waits for it tries at once, or as soon as it knows what it asks at the
    /// moment. Who waits for a slot waits for any.
    pub(super) fn wake(&self, next: &mut State, number: u8, place: usize) {
        let is_any = self.is_slots() && self.fault != Some(Fault::WakeOfOneSlot);
        match next.client(number).phase {
            Phase::Waiting { place: wanted, .. } if wanted == place || is_any => next.ask(number),
            Phase::Acquiring { .. } => {
                let hinted = match is_any {
                    true => (0..next.locks.len()).collect(),
                    false => Places::from([place]),
                };
                next.client(number).hinted.extend(hinted);
            }
            _ => {}
        }
    }
}
