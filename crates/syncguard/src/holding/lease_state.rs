//! Where a lock is on its way from its grant to its end.

/// The states of a held lock.
///
/// The table gives the next state after each event. If the state stays the same, nothing happens, and nobody is told.
///
/// | state     | lose      | end       | freed    | gone     |
/// | --------- | --------- | --------- | -------- | -------- |
/// | held      | lost      | releasing | released | gone     |
/// | lost      | lost      | lost      | released | lost     |
/// | releasing | releasing | releasing | released | gone     |
/// | released  | released  | released  | released | released |
/// | gone      | gone      | gone      | released | gone     |
///
/// - lose: somebody noticed the loss: the clock, a heartbeat, an extension, or a script or transaction under the lock.
/// - end: the release begins. From then on, only the release can notice a loss.
/// - freed: a release has freed the lock, or may have done so and goes on in the background, or the guard was given up with
///   [`keep`](crate::LockGuard::keep). Nothing is left to release.
/// - gone: a release did not find the lock in the store. The work under it had gone on without it.
///
/// The second table says what the guard does. A lock that was lost once stays lost for its holder, whatever its state is later.
///
/// | state     | heartbeats | when the guard is dropped |
/// | --------- | ---------- | ------------------------- |
/// | held      | go on      | it is released            |
/// | lost      | end        | it is released            |
/// | releasing | end        | it is released            |
/// | released  | end        | nothing happens           |
/// | gone      | end        | nothing happens           |
///
/// A lost lock is released all the same, so that nothing is left in the store. A guard in the state releasing is dropped when
/// somebody drops the future of its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Held,
    Lost,
    Releasing,
    Released,
    Gone,
}

/// What happens to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    Lose,
    End,
    Freed,
    Gone,
}

impl LeaseState {
    /// The state after something has happened.
    pub(crate) fn after(self, event: LeaseEvent) -> Self {
        match (self, event) {
            (Self::Held, LeaseEvent::Lose) => Self::Lost,
            (Self::Held, LeaseEvent::End) => Self::Releasing,
            (state, LeaseEvent::Lose | LeaseEvent::End) => state,
            (state @ (Self::Lost | Self::Released), LeaseEvent::Gone) => state,
            (_, LeaseEvent::Freed) => Self::Released,
            (_, LeaseEvent::Gone) => Self::Gone,
        }
    }

    /// Whether something is left to release.
    pub(crate) fn is_to_be_released(self) -> bool {
        matches!(self, Self::Held | Self::Lost | Self::Releasing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [LeaseState; 5] = [
        LeaseState::Held,
        LeaseState::Lost,
        LeaseState::Releasing,
        LeaseState::Released,
        LeaseState::Gone,
    ];
    const EVENTS: [LeaseEvent; 4] = [
        LeaseEvent::Lose,
        LeaseEvent::End,
        LeaseEvent::Freed,
        LeaseEvent::Gone,
    ];

    fn name(of: impl std::fmt::Debug) -> String {
        format!("{of:?}").to_lowercase()
    }

    /// The cells of the tables in the comments of a source file, row by row.
    fn tables(source: &str) -> Vec<Vec<&str>> {
        let rows = source.lines().filter_map(|line| {
            let line = line.trim_start_matches([' ', '/', '*']);
            line.strip_prefix('|')?.trim_end().strip_suffix('|')
        });
        let cells = rows.map(|row| row.split('|').map(str::trim).collect());
        cells
            .filter(|row: &Vec<&str>| row.iter().any(|cell| !cell.starts_with("---")))
            .collect()
    }

    /// The first table: the states, and the events in its head.
    fn transitions(source: &str) -> Vec<Vec<&str>> {
        let mut rows = tables(source).into_iter();
        let head = rows.next().into_iter();
        head.chain(rows.take_while(|row| row[0] != "state"))
            .collect()
    }

    #[test]
    fn the_table_says_what_happens() {
        let table = transitions(include_str!("lease_state.rs"));
        let events: Vec<_> = EVENTS.map(name).into();
        assert_eq!(table[0][1..], events);
        assert_eq!(table.len(), 1 + STATES.len());
        for (state, row) in STATES.into_iter().zip(&table[1..]) {
            assert_eq!(row[0], name(state));
            for (event, cell) in EVENTS.into_iter().zip(&row[1..]) {
                assert_eq!(*cell, name(state.after(event)), "{state:?} {event:?}");
            }
        }
    }
}
