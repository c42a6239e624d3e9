// Mutations of what all stores share: undoing, and waking who waits.

import { mutation } from "./mutation.mjs";

export const shared = [
  mutation(
    "undo-wrong-lock",
    "redis",
    "A cancelled acquisition undoes another lock than its own.",
    [
      [
        "operation/mod.rs",
        "let (lock_ids, ttl) = (request.lock_ids(), request.ttl);",
        `let (mut lock_ids, ttl) = (request.lock_ids(), request.ttl);
        lock_ids[0] = LockId::generate().unwrap_or_else(|_| lock_ids[0].clone());`,
      ],
    ],
  ),
  mutation("undo-granted-lock", "sqlite", "A lock is undone that its caller was given.", [
    ["operation/mod.rs", "State::Answered => return,", "State::Answered => Lock::Granted,"],
  ]),
  mutation(
    "undo-too-early",
    "postgres",
    "An undo ends when it finds nothing, though the acquisition is on its way.",
    [
      [
        "background/undo.rs",
        "if ended == Some(End::Granted) || ended.is_some() && all_released {",
        "if ended == Some(End::Granted) || ended.is_some() || ended.is_none() || all_released {",
      ],
    ],
  ),
  mutation(
    "wake-without-trying",
    "redis",
    "A waiter that is woken does not try to take the lock.",
    [
      [
        "waiting/waiter/pausing.rs",
        "times = told => match ticket.is_news(times) {",
        "times = told => match times == u64::MAX {",
      ],
    ],
  ),
  mutation(
    "wake-before-listening",
    "postgres",
    "What was released before the store tells of it is missed.",
    [
      [
        "waiting/listener.rs",
        "StoreMessage::Listening(name) => topics.listening(&name),",
        "StoreMessage::Listening(_) => {}",
      ],
    ],
  ),
];
