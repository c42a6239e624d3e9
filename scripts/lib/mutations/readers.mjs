// Mutations of readers, of the groups that they share, and of the gates that keep them out.

import { mutation } from "./mutation.mjs";

export const readers = [
  mutation(
    "readers-group-stays",
    "redis",
    "The last reader that leaves does not take its group with it.",
    [
      [
        "redis/operations/parts/leave.lua",
        "    group.set(last)\n  else\n    call('DEL', lock_key)\n",
        "    group.set(last)\n",
      ],
    ],
  ),
  mutation(
    "readers-revived",
    "redis",
    "A heartbeat takes whatever is on the key for the group of its reader, which was freed by force.",
    [
      [
        "redis/operations/parts/group.lua",
        `group.fence == string.match(stored, '"fence":"(%d+)"') and group`,
        "group",
      ],
    ],
  ),
  mutation(
    "readers-group-end",
    "redis-cluster",
    "A group ends with its first reader, however long others stay.",
    [["redis/operations/parts/raise.lua", "if ends > group.ends then", "if false then"]],
  ),
];
