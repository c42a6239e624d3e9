local declared, real = {}, redis
for _, name in ipairs(KEYS) do
  declared[name] = true
end
local function undeclared(command, first, ...)
  local names = ({ GET = { first }, SET = { first }, INCR = { first }, DEL = { first, ... }, PEXPIRE = { first },
    ZADD = { first }, ZREM = { first },
    ZREMRANGEBYSCORE = { first }, ZREVRANGE = { first }, TIME = {}, INFO = {}, SCAN = {}, PUBLISH = {} })[command]
  for _, name in ipairs(names) do
    if not declared[name] then
      return { err = 'ERR script tried accessing undeclared key, key: ' .. name }
    end
  end
end
local redis = setmetatable({
  call = function(...)
    local refusal = undeclared(...)
    if refusal then
      error(refusal)
    end
    return real.call(...)
  end,
  pcall = function(...)
    return undeclared(...) or real.pcall(...)
  end,
}, { __index = real })
