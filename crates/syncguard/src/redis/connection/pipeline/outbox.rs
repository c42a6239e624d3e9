//! Bytes on their way to a socket.

/// This much room is kept for the next calls. The buffer is larger only while the socket does not take what it is given.
const ROOM: usize = 64 * 1024;

/// Bytes that the socket has not taken yet.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// How many bytes at the start the socket has taken already.
    taken: usize,
    /// How many of the next bytes it was given in a write that is not complete. A write that was refused must be repeated with
    /// the same bytes, so those behind them wait.
    begun: usize,
}

impl Outbox {
    /// All bytes that the socket has not taken.
    pub(super) fn left(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// The buffer, to append more.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Begins a write of all that is left, unless an earlier one is not complete. Gives whether it is a new one.
    pub(super) fn begin(&mut self) -> bool {
        let is_new = self.begun == 0;
        if is_new {
            self.begun = self.left().len();
        }
        is_new
    }

    /// What the write under way has left.
    pub(super) fn begun(&self) -> &[u8] {
        self.left().get(..self.begun).unwrap_or_default()
    }

    /// Forgets what the socket was not given.
    pub(super) fn take_back(&mut self) {
        self.bytes.truncate(self.taken + self.begun);
    }

    /// Forgets the next `count` bytes, because the socket has taken them.
    pub(super) fn took(&mut self, count: usize) {
        self.taken += count;
        self.begun = self.begun.saturating_sub(count);
        if self.taken >= self.bytes.len() {
            self.clear();
        } else if self.taken > self.bytes.len() / 2 {
            // Not after each write: a socket takes a long backlog in small pieces, and each time all the rest would be moved.
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.bytes.shrink_to(ROOM);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.taken = 0;
        self.begun = 0;
        self.bytes.clear();
        self.bytes.shrink_to(ROOM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_goes_and_its_room_too() {
        let mut outbox = Outbox::default();
        let all: Vec<u8> = (0..100 * ROOM).map(|index| (index % 251) as u8).collect();
        outbox.end().extend_from_slice(&all);
        let mut rest = &all[..];
        while !rest.is_empty() {
            assert_eq!(outbox.left(), rest);
            let count = rest.len().min(7 * ROOM + 1);
            outbox.took(count);
            rest = &rest[count..];
            assert!(outbox.bytes.capacity() <= (2 * rest.len()).max(ROOM) + 7 * ROOM);
        }
        assert!(outbox.left().is_empty());
        assert!(outbox.bytes.capacity() <= ROOM);
        outbox.end().extend_from_slice(b"next");
        assert_eq!(outbox.left(), b"next");
    }

    #[test]
    fn what_was_not_begun_can_be_taken_back() {
        let mut outbox = Outbox::default();
        outbox.end().extend_from_slice(b"first");
        assert!(outbox.begin());
        outbox.took(2);
        outbox.end().extend_from_slice(b"second");
        assert!(!outbox.begin());
        assert_eq!(outbox.begun(), b"rst");
        outbox.take_back();
        assert_eq!(outbox.left(), b"rst");
        outbox.took(3);
        outbox.end().extend_from_slice(b"third");
        assert!(outbox.begin());
        assert_eq!(outbox.begun(), b"third");
        outbox.clear();
        assert!(outbox.begun().is_empty());
    }
}
