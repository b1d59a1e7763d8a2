-- Retention: what has ended goes, in bounded batches, with all that was kept of it.

local function forget_task_event(member)
  local id, task = sub(member, 1, 6), sub(member, 7)
  untell(id)
  call('ZREM', TASK_EVENTS, member)
  local left = {}
  local cursors = call('HGET', TASK_CURSORS, task) or ''
  for at = 1, #cursors, 6 do
    local other = sub(cursors, at, at + 5)
    if other ~= id then left[#left + 1] = other end
  end
  if #left > 0 then
    call('HSET', TASK_CURSORS, task, table.concat(left))
  else
    call('HDEL', TASK_CURSORS, task)
  end
end

-- Answers the runs as they were, how many occurrences went, and whether there is more.
function write.prune(sender)
  local before_at, keep, limit = take(), tonumber(take()), tonumber(take())
  local surplus = call('ZCARD', ENDED) - keep
  local oldest = call('ZRANGE', ENDED, 0, limit, 'WITHSCORES')
  local rids, again = {}, 0
  for i = 1, #oldest, 2 do
    local goes = tonumber(oldest[i + 1]) < tonumber(before_at) or (i + 1) / 2 <= surplus
    if not goes then break end
    if #rids == limit then
      again = 1
    else
      rids[#rids + 1] = oldest[i]
    end
  end
  local removed = answer_runs(rids, true)
  load_runs(rids)
  for _, rid in ipairs(rids) do
    local r = load_run(rid)
    if r then
      remove_run(r)
    else
      -- It cannot be read: what it leaves behind is in nobody's way.
      call('ZREM', ENDED, rid)
      REMOVED[rid] = true
    end
  end
  local old = call('ZRANGEBYSCORE', OCC_RECORDED, '-inf', '(' .. before_at, 'LIMIT', 0, limit)
  for _, member in ipairs(old) do
    call('HDEL', OCCURRENCES, member)
    call('ZREM', OCC_DUE, member)
    call('ZREM', OCC_RECORDED, member)
  end
  local events = call('ZRANGEBYSCORE', TASK_EVENTS, '-inf', '(' .. before_at, 'LIMIT', 0, limit)
  for _, member in ipairs(events) do forget_task_event(member) end
  for _, key in ipairs({ OCC_RECORDED, TASK_EVENTS }) do
    if #call('ZRANGEBYSCORE', key, '-inf', '(' .. before_at, 'LIMIT', 0, 1) > 0 then again = 1 end
  end
  flush(sender)
  return { removed, #old, again }
end
