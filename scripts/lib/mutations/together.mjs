// Mutations of what several keys and slots do, on any store.

import { mutation, SQLITE_WITHOUT_TIME } from "./mutation.mjs";

export const together = [
  mutation("together-without-last", "sqlite", "Of several keys, the last one is not locked.", [
    [
      "sqlite/operations/acquire.rs",
      "for ((lock, grant), joins) in wanted.iter().zip(&grants).zip(joins) {",
      "for ((lock, grant), joins) in wanted.iter().zip(&grants).zip(joins).take(grants.len().max(2) - 1) {",
    ],
  ]),
  mutation(
    "together-in-part",
    "redis",
    "Several keys are granted though one of them is held: those that are free.",
    [
      [
        "redis/operations/acquire_all.lua",
        "    return is_held and { 0, place, outcome[2], outcome[3], first_id } or outcome\n",
        "    if not is_held then return outcome end\n    outcome = function() return { 1, 1, now + ttl } end\n",
      ],
    ],
  ),
  mutation("slot-too-many", "sqlite", "There is a slot more than was asked for.", [
    [
      "asking/granting.rs",
      "is_held: vec![false; usize::from(count)],",
      "is_held: vec![false; usize::from(count) + 1],",
    ],
  ]),
  mutation("slot-held", "sqlite", "A slot that is held counts as free.", [
    ["asking/granting.rs", "        *held = true;", "        *held = number != 1;"],
  ]),
  mutation(
    "slots-share-fence",
    "sqlite",
    "A fence is a number, and each slot counts from that of the first.",
    [
      SQLITE_WITHOUT_TIME,
      [
        "sqlite/operations/acquire.rs",
        "let names = [&wanted.lock_key, &wanted.fence_key];",
        'let names = [&wanted.lock_key, &match wanted.key.slot_number() { Some(_) => format!("{}1", wanted.fence_key.trim_end_matches(|digit: char| digit.is_ascii_digit())), None => wanted.fence_key.clone() }];',
      ],
    ],
  ),
  mutation("release-in-part", "sqlite", "Of several locks, a release frees all but the last.", [
    [
      "sqlite/operations/release.rs",
      "            Ok(owned) => {\n                free(store, &owned, lock_id, now_ms)?;",
      "            Ok(owned) => {\n                if lock_ids.len() == 1 || lock_ids.last() != Some(lock_id) { free(store, &owned, lock_id, now_ms)?; }",
    ],
  ]),
  mutation("extend-in-part", "sqlite", "Of several locks, an extension makes one end later.", [
    [
      "sqlite/operations/extend.rs",
      "for (lock, lock_id) in locks.iter().zip(&extension.lock_ids) {",
      "for (lock, lock_id) in locks.iter().zip(&extension.lock_ids).take(1) {",
    ],
  ]),
  mutation("undo-in-part", "redis", "Of several locks, one that was granted in vain is released.", [
    [
      "operation/mod.rs",
      "let release = Freeing::new(self.lock_ids.clone().into(), None);",
      "let release = Freeing::new([self.lock_ids[0].clone()].into(), None);",
    ],
  ]),
];
