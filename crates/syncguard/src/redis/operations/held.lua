-- The end of eval.lua, after read.lua.
  if not stored or id ~= lock_id then
    reply = { 'syncguard:lost', lock_id, place, -1 }
  elseif expires <= now - tolerance then
    reply = { 'syncguard:lost', lock_id, place, -2 }
  end
end
return reply
