-- `group`: the lock in `value` on `key`, if it is live and has the form of a group, in which its end can be set; else false.
do
  local id, from, ends, to = string.match(value, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
  ends = tonumber(ends)
  group = ends and ends > held_after and {
    key = key,
    id = id,
    fence = string.match(value, '"fence":"(%d+)"'),
    -- The sorted set of its readers: their lock ids, with the end of each.
    readers = key .. '\205\190readers',
    ends = ends,
    set = function(at)
      value = string.sub(value, 1, from - 1) .. string.format('%.0f', at) .. string.sub(value, to)
      call('SET', key, value, 'PX', string.format('%.0f', at - held_after))
    end,
  } or false
end
