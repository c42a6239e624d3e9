// Mutations of Redis: on one server, and in a cluster.

import { mutation, tested } from "./mutation.mjs";

const FREE_AND_DELETE = "call('DEL', lock_key, KEYS[1])\nlocal";

// With the time in it, a fence that is not counted is repeated only within a millisecond.
const REDIS_WITHOUT_TIME = [
  "redis/operations/parts/acquirable.lua",
  "math.max(counter + 1, math.min(now, 90000000000000))",
  "counter + 1",
];

export const redis = [
  mutation("redis-tolerance", "redis", "A lock counts as free as soon as its TTL is over.", [
    ["redis/operations/parts/acquirable.lua", "expires - held_after or 0", "expires - now or 0"],
  ]),
  mutation("redis-lifetime", "redis", "Redis forgets a lock when its TTL is over.", [
    [
      "redis/operations/parts/grant.lua",
      "call('SET', KEYS[1], value, 'PX', ARGV[7])",
      "call('SET', KEYS[1], value, 'PX', ARGV[2])",
    ],
  ]),
  tested(
    "redis",
    "nothing_runs_without_the_lock",
    mutation("redis-eval-ownership", "redis", "A script does not check whose lock it runs under.", [
      ["redis/operations/eval.lua", "not stored or id ~= lock_id", "not stored"],
    ]),
  ),
  tested(
    "redis",
    "nothing_runs_without_the_lock",
    mutation("redis-eval-expiry", "redis", "A script runs under a lock whose time is over.", [
      ["redis/operations/eval.lua", "expires <= held_after", "false"],
    ]),
  ),
  tested(
    "redis",
    "all_of_several_locks_must_be_held",
    mutation("redis-eval-first", "redis", "A script asks for the first of several locks only.", [
      ["redis/operations/eval.lua", "for place = count - 1, 0, -1 do", "for place = 0, 0 do"],
    ]),
  ),
  tested(
    "redis",
    "an_index_that_leads_to_anothers_lock_frees_nothing",
    mutation("redis-release-ownership", "redis", "A release does not check whose lock it frees.", [
      [
        "redis/operations/parts/free.lua",
        "if id ~= ARGV[1] then\n  return 0",
        "if false then\n  return 0",
      ],
    ]),
  ),
  mutation(
    "redis-client-time",
    "redis",
    "An acquisition takes the client's time.",
    [
      [
        "redis/operations/parts/get.lua",
        "local lock_key = KEYS[1]",
        "if ARGV[8] then now = tonumber(ARGV[8]) end\nlocal lock_key = KEYS[1]",
      ],
      [
        "redis/operations/acquire.rs",
        ".number(lifetime_ms(",
        ".number_after(&crate::time::SystemClock, lifetime_ms(",
      ],
      [
        "redis/plan.rs",
        "    /// Adds `name` as an argument from which",
        `    pub(super) fn number_after(self, clock: &dyn crate::time::Clock, number: i64) -> Self {
        self.number(number).number(clock.now_ms())
    }

    /// Adds \`name\` as an argument from which`,
      ],
    ],
    ["shift"],
  ),
  mutation(
    "redis-fence-after-grant",
    "redis",
    "A fence is a number, counted when its lock is released.",
    [
      REDIS_WITHOUT_TIME,
      ["redis/operations/parts/spend.lua", "  call('SET', KEYS[3], counted)\n", ""],
      [
        "redis/operations/parts/free.lua",
        FREE_AND_DELETE,
        "call('INCR', 'syncguard:fence:' .. lock_key)\ncall('DEL', lock_key, KEYS[1])\nlocal",
      ],
    ],
  ),
  mutation(
    "redis-release-counter",
    "redis",
    "A fence is a number, and a release deletes its counter.",
    [
      REDIS_WITHOUT_TIME,
      [
        "redis/operations/parts/free.lua",
        FREE_AND_DELETE,
        "call('DEL', lock_key, KEYS[1], 'syncguard:fence:' .. lock_key)\nlocal",
      ],
    ],
  ),
  mutation(
    "redis-force-counter",
    "redis",
    "A fence is a number, and a forced release deletes its counter.",
    [
      REDIS_WITHOUT_TIME,
      [
        "redis/operations/parts/free_key.lua",
        "call('DEL', lock_key)\n",
        "call('DEL', lock_key, 'syncguard:fence:' .. lock_key)\n",
      ],
    ],
  ),
  mutation("redis-extend-lifetime", "redis", "Redis forgets an extended lock at its first end.", [
    [
      "redis/operations/parts/prolong.lua",
      "redis.pcall('SET', lock_key, stored, 'PX', ARGV[4])",
      "redis.pcall('SET', lock_key, stored, 'KEEPTTL')",
    ],
  ]),
  mutation("redis-is-locked-tolerance", "redis", "`isLocked` leaves out the tolerance.", [
    ["redis/operations/is_locked.lua", "if expires > held_after and", "if expires > now and"],
  ]),
  mutation("redis-release-tells-nobody", "redis", "A release wakes nobody.", [
    ["redis/operations/parts/wake.lua", "  redis.pcall('PUBLISH', channel, '')", "  local _ = ''"],
  ]),
];

export const cluster = [
  mutation("cluster-tolerance", "redis-cluster", "The same as `redis-tolerance`, in a cluster.", [
    ["redis/operations/parts/acquirable.lua", "expires - held_after or 0", "expires - now or 0"],
  ]),
  mutation("cluster-shard", "redis-cluster", "A lock id does not fit the slot of its key.", [
    [
      "redis/backend.rs",
      "claim.lock_id = claim.lock_id.clone().with_first_byte(shard);",
      "claim.lock_id = claim.lock_id.clone().with_first_byte(shard ^ 1);",
    ],
  ]),
  tested(
    "redis_cluster",
    "an_index_that_leads_elsewhere_frees_nothing",
    mutation(
      "cluster-ownership",
      "redis-cluster",
      "A release does not check whose lock it frees.",
      [
        [
          "redis/operations/parts/free.lua",
          "if id ~= ARGV[1] then\n  return 0",
          "if false then\n  return 0",
        ],
      ],
    ),
  ),
  mutation(
    "cluster-tells-elsewhere",
    "redis-cluster",
    "A release is told on the other kind of channel.",
    [
      [
        "redis/operations/parts/wake.lua",
        "type(redis.pcall('SPUBLISH', channel, '')) == 'table'",
        "type(redis.pcall('SPUBLISH', KEYS[1], '')) == 'table'",
      ],
    ],
  ),
];
