//! What clients do, and what becomes of them.

use super::state::{Client, Fences, Id, Message, POLL, Phase, Places, State, TOLERANCE};
use super::state::{TTL, Undo};
use super::worlds::{Fault, System};

impl Undo {
    pub(crate) fn is_due(&self, now: u8) -> bool {
        self.try_at.is_some_and(|at| at <= now)
    }
}

impl State {
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
            Message::Freed { client, .. } => *client,
        };
        let reader = &self.clients[usize::from(reader)];
        !reader.is_paused && reader.phase != Phase::Crashed
    }

    /// Whether a client has something to do that it does at once if it runs.
    fn has_to_act(&self, client: &Client) -> bool {
        let polls = matches!(client.phase, Phase::Waiting { poll_at, .. } if poll_at <= self.now);
        let undoes = client.undoing.values().any(|undo| undo.is_due(self.now));
        !client.is_paused && client.phase != Phase::Crashed && (polls || undoes)
    }

    /// Whether all that takes less than a tick has happened.
    pub(crate) fn is_settled(&self) -> bool {
        let some_come = self.messages.iter().any(|message| self.can_arrive(message));
        !some_come && !self.clients.iter().any(|client| self.has_to_act(client))
    }

    /// Asks the store for all that it wants.
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
        client.hinted.clear();
        client.phase = Phase::Acquiring {
            id,
            sent,
            has_waited,
        };
        let is_gate = client.wants_gate;
        self.messages.insert(Message::Acquire { id, is_gate });
    }

    /// Waits no longer for the answer: what may have been granted is released.
    pub(crate) fn give_up(&mut self, number: u8) {
        let until = self.now + TTL + TOLERANCE;
        let Phase::Acquiring { id, .. } = self.client(number).phase else {
            return;
        };
        let client = self.client(number);
        client.phase = Phase::Idle;
        let try_at = None;
        client.undoing.insert(id, Undo { until, try_at });
        self.leaves_gate(number);
        self.seen.given_up.insert(id, until);
        self.messages.insert(Message::Release { id, is_undo: true });
    }

    /// Releases once more what was given up.
    pub(crate) fn undo(&mut self, id: Id) {
        if let Some(undo) = self.client(id.client).undoing.get_mut(&id) {
            undo.try_at = None;
            self.messages.insert(Message::Release { id, is_undo: true });
        }
    }

    pub(crate) fn held(&mut self, id: Id, place: usize, free_at: u8, by_readers: bool) {
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
        let takes_gate = by_readers && client.gate.is_none();
        client.wants_gate |= takes_gate;
        if client.hinted.contains(&place) || takes_gate {
            self.ask(id.client);
        }
    }

    pub(crate) fn extended(&mut self, id: Id, sent: u8, was_there: bool) {
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
    pub(crate) fn look_at_the_clock(&mut self) {
        let now = self.now;
        for client in self.clients.iter_mut().filter(|client| !client.is_paused) {
            if matches!(client.phase, Phase::Holding { ends, .. } if ends <= now) {
                client.phase = Phase::Lost;
            }
        }
        let is_over =
            |client: &Client| !client.is_paused && client.gate.is_some_and(|(_, ends)| ends <= now);
        let clients = (0..).zip(&self.clients);
        let over: Vec<u8> = clients
            .filter(|(_, client)| is_over(client))
            .map(|(number, _)| number)
            .collect();
        over.into_iter().for_each(|number| self.leaves_gate(number));
    }
}

impl System {
    pub(crate) fn granted(&self, next: &mut State, id: Id, fences: Fences) {
        let client = next.client(id.client);
        let Phase::Acquiring {
            id: asked,
            sent,
            has_waited,
        } = client.phase
        else {
            return;
        };
        if asked != id {
            return;
        }
        let ends = sent + TTL;
        if client.wants_gate {
            return next.has_gate(id, ends);
        }
        client.phase = Phase::Holding { id, fences, ends };
        let had_gate = match self.fault {
            Some(Fault::GateStays) => client.gate.take().is_some(),
            _ => client.gate.is_some(),
        };
        next.seen.got_past_readers |= had_gate;
        next.seen.got_after_waiting |= has_waited;
        next.leaves_gate(id.client);
        next.look_at_the_clock();
    }

    /// A client is told that a lock was freed: one that waits for it tries at once, or as soon as it knows what it asks at the
    /// moment. Who waits for a slot waits for any.
    pub(crate) fn wake(&self, next: &mut State, number: u8, place: usize) {
        if self.fault == Some(Fault::WakeWithoutTry) {
            return;
        }
        let is_any = match self.is_slots() {
            true => self.fault != Some(Fault::WakeOfOneSlot),
            false => self.is_shared(),
        };
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

    pub(crate) fn released(&self, next: &mut State, id: Id, was_there: bool) {
        let now = next.now;
        let undoing = &mut next.client(id.client).undoing;
        let Some(undo) = undoing.get_mut(&id) else {
            return;
        };
        if was_there || now >= undo.until || self.fault == Some(Fault::UndoOnce) {
            undoing.remove(&id);
        } else {
            undo.try_at = Some(now + 1);
        }
    }

    /// The answer to a message will not come: whoever waits for it finds out in time.
    pub(crate) fn answer_is_lost(&self, next: &mut State, message: &Message) {
        match message {
            Message::Acquire { id, .. }
            | Message::Granted { id, .. }
            | Message::Held { id, .. } => {
                let phase = &next.client(id.client).phase;
                if matches!(phase, Phase::Acquiring { id: asked, .. } if asked == id) {
                    next.give_up(id.client);
                }
            }
            Message::Release { id, is_undo } | Message::Released { id, is_undo, .. } => {
                self.release_has_failed(next, *id, *is_undo);
            }
            _ => {}
        }
    }

    /// A release that has failed goes on as an undo.
    fn release_has_failed(&self, next: &mut State, id: Id, is_undo: bool) {
        let (until, try_at) = (next.now + TTL + TOLERANCE, Some(next.now + 1));
        let client = next.client(id.client);
        if let Some(undo) = client.undoing.get_mut(&id) {
            undo.try_at = try_at;
        } else if !is_undo
            && client.phase != Phase::Crashed
            && self.fault != Some(Fault::ReleaseOnce)
        {
            client.undoing.insert(id, Undo { until, try_at });
        }
    }
}
