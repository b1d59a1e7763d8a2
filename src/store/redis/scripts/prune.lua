-- Retention: what has ended goes, in bounded batches, with all that was kept of it.

local function remove_run(rid)
  local record = call('HGET', RUNS, rid)
  local r = record and parse(rid, record)
  call('ZREM', ENDED, rid)
  REMOVED[rid] = true
  if not r then return end
  local kept_name, attempts, key = cut('>I2c0I4I4c0', r.own)
  call('HDEL', IDS, kept_name)
  if has(r.flags, HAS_RESULT) then call('HDEL', RESULTS, rid) end
  if has(r.flags, WITH_KEY) then call('HDEL', KEYED, key) end
  for n = 1, attempts do call('HDEL', ATTEMPTS, rid .. pack('>I4', n)) end
  local ids = {}
  for at = 1, #r.cursors, 6 do ids[#ids + 1] = digits(cut('>I6', r.cursors, at)) .. '-0' end
  with_many('XDEL', EVENTS, ids)
  count(r.spec.task, r.status, -1)
  USED[r.sid] = (USED[r.sid] or 0) - 1
  local high, low = cut('>I2I4', rid)
  local block = floor((high * 4294967296 + low) / BLOCK)
  local of_task = OF_TASK .. r.spec.task
  if tonumber(call('ZINCRBY', of_task, -1, block)) % (2 * BLOCK) == 0 then call('ZREM', of_task, block) end
  if call('HINCRBY', GONE, block, 1) == BLOCK then
    call('HDEL', GONE, block)
    call('ZREM', BLOCKS, block)
  end
end

local function forget_task_event(member)
  local id, task = sub(member, 1, 6), sub(member, 7)
  call('XDEL', EVENTS, digits(cut('>I6', id)) .. '-0')
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
  for _, rid in ipairs(rids) do remove_run(rid) end
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
