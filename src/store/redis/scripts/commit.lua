-- Applies decisions, each for itself: everything is looked at before anything of one is written.

local NONE = {}

-- In front what every write has, at places that never move; behind it what only some have.
local function read_run_write()
  local head, front = take(), take()
  local w = { head = head, front = front, name = take(), kept = take(), lease = take(), own = take(), events = NONE }
  local kind, has_token, has_unrenewed, guard, has_end = byte(head, 1, 5)
  w.status, w.flags = byte(front, 1, 2)
  w.absent, w.token, w.unrenewed, w.guard, w.ends = kind == 0, has_token == 1, has_unrenewed == 1, guard == 1, has_end == 1
  w.spec_at, w.attempt = cut('>I2I4', head, 6)
  if has(w.flags, WITH_KEY) then w.key = take() end
  if has(w.flags, HAS_RESULT) then w.result = take() end
  if w.attempt > 0 then w.attempt_frame = take() end
  local events = byte(head, 12)
  if events > 0 then w.events = {} end
  for i = 1, events do w.events[i] = take() end
  return w
end
local function expected_version(w) return sub(w.head, 13, 20) end
local function expected_token(w) return sub(w.head, 21, 36) end
local function expected_expiry(w) return sub(w.head, 37, 44) end
local function digest_of(w) return sub(w.head, 45, 52) end
local function ended_at(w) return num(sub(w.head, 53, 60)) end

local function read_decision()
  local has_task, has_schedule, runs, lanes, occurrences, forget = cut('>BBI4I4I4I4', take())
  local d = { runs = {}, lanes = lanes == 0 and NONE or {}, occurrences = occurrences == 0 and NONE or {} }
  d.forget = forget == 0 and NONE or {}
  if has_task == 1 then
    local t = { id = take(), expects = take(), change = take(), record = take(), events = {} }
    t.idle = take()
    for i = 1, tonumber(take()) do t.events[i] = { at = take(), frame = take() } end
    d.task = t
  end
  if has_schedule == 1 then d.schedule = { id = take(), expects = take(), record = take() } end
  for i = 1, runs do d.runs[i] = read_run_write() end
  for i = 1, lanes do d.lanes[i] = { name = take(), version = take() } end
  for i = 1, occurrences do
    d.occurrences[i] = { task = take(), due = take(), recorded = take(), record = take() }
  end
  for i = 1, forget do d.forget[i] = take() end
  return d
end

local NUMBER = {}
local function number_of(kept)
  local rid = NUMBER[kept]
  if rid == nil then
    rid = call('HGET', IDS, kept)
    NUMBER[kept] = rid
  end
  return rid
end

-- How a run stands before a decision, or as the same decision has left it.
local function standing(d, n)
  for i = n - 1, 1, -1 do
    if d.runs[i].name == d.runs[n].name then return d.runs[i] end
  end
  return d.runs[n].stored
end

local function was_made(d)
  if #d.runs == 0 then return false end
  for _, w in ipairs(d.runs) do
    local s = w.stored
    if not s or version_and_stamp(s) ~= version_and_stamp(w) then return false end
  end
  return true
end

-- Whether a run that is to be forgotten will have ended; one that is not there has gone already.
local function is_over(d, i)
  local standing
  for _, w in ipairs(d.runs) do
    if w.kept == d.forget[i] then standing = w end
  end
  if not standing then
    local rid = number_of(d.forget[i])
    standing = rid and load_run(rid)
  end
  if standing and not TERMINAL[standing.status] then return { 'live', i, version_of(standing), standing.status } end
end

local function run_stands(d, n)
  local w, s = d.runs[n], standing(d, n)
  if not s then
    if not w.absent then return { 'gone', n } end
    if not has(w.flags, WITH_KEY) then return end
    local held = call('HGET', KEYED, w.key)
    if held then return { 'key', sub(held, 15), sub(held, 7, 14) } end
    for i = 1, n - 1 do
      local other = d.runs[i]
      if has(other.flags, WITH_KEY) and other.key == w.key then return { 'key', other.name, digest_of(other) } end
    end
    return
  end
  local fence, leased = fence_of(s), s.lease ~= ''
  if w.token and not w.absent and not (leased and expected_token(w) == fence .. nonce_of(s)) then
    return { 'fenced', n, fence, s.status }
  end
  local fits = not w.absent and expected_version(w) == version_of(s) and not TERMINAL[s.status]
    and not (w.unrenewed and not (leased and expected_expiry(w) == expires_of(s)))
  -- A grant needs besides that the run is still to be had.
  if fits and w.guard then fits = s.place == IS_READY and is_due(s, now) and not is_paused(s) and not full_lane(s) end
  if not fits then return { 'stale', n, version_of(s), s.status } end
end

local function stands(d)
  local t, s = d.task, d.schedule
  if t then
    local known = task_of(t.id)
    local revision = known and known.revision or ''
    if revision ~= t.expects then return { 'task', revision } end
  end
  if s then
    local record = task_of(s.id) and call('HGET', SCHEDULES, s.id)
    local version = record and sub(record, 1, 8) or ''
    if version ~= s.expects then return { 'schedule', version } end
  end
  for n = 1, #d.runs do
    local refusal = run_stands(d, n)
    if refusal then return refusal end
  end
  for i, expected in ipairs(d.lanes) do
    local lane = lane_of(expected.name)
    local version = digits(lane.total > 0 and lane.version or 0)
    if version ~= expected.version then return { 'lane', i, version } end
  end
  for i = 1, #d.forget do
    local refusal = is_over(d, i)
    if refusal then return refusal end
  end
  local exist, seen = { 'occurrences' }, {}
  for i, o in ipairs(d.occurrences) do
    o.member = o.task .. '\0' .. o.due
    if seen[o.member] or call('HEXISTS', OCCURRENCES, o.member) == 1 then exist[#exist + 1] = i end
    seen[o.member] = true
  end
  if #exist > 1 then return exist end
end

-- Tasks and schedules.

local function fires_at(id)
  local t = task_of(id)
  local record = t and t.enabled and call('HGET', SCHEDULES, id)
  return record and byte(record, 9) == 1 and num(sub(record, 10, 17)) or nil
end

local function fires_again(id, was)
  local is = fires_at(id)
  if is == was then return end
  hint_agenda = true
  if is then call('ZADD', FIRES, is, id) else call('ZREM', FIRES, id) end
end

local function unpause(id)
  for _, member in ipairs(call('ZRANGEBYLEX', PAUSED, '[' .. id .. '\0', '(' .. id .. '\1')) do
    local r = load_run(sub(member, -6))
    if r then
      take_out(r)
      put_in(r, place_for(r))
    else
      call('ZREM', PAUSED, member)
    end
  end
end

local function tell_of_task(id, agent, events)
  local cursors = ''
  for _, event in ipairs(events) do
    local told = tell('t' .. pack('>Bc0Bc0', #id, id, #agent, agent) .. event.frame)
    call('ZADD', TASK_EVENTS, event.at, told .. id)
    cursors = cursors .. told
  end
  if cursors ~= '' then call('HSET', TASK_CURSORS, id, (call('HGET', TASK_CURSORS, id) or '') .. cursors) end
end

local function write_task(t)
  local known, was = task_of(t.id), fires_at(t.id)
  -- One that is made again begins to count anew: the events of its former self stay among all.
  if t.expects == '' then call('HDEL', TASK_CURSORS, t.id) end
  local made = t.change == 'P' and read_task(t.record)
  local whose = made or known
  if whose then tell_of_task(t.id, whose.agent, t.events) end
  local released = false
  if made then
    call('HSET', TASKS, t.id, t.record)
    call('ZADD', NAMES, 0, t.id)
    if not known then call('HSET', SCHEDULES, t.id, t.idle) end
    TASK[t.id] = made
    released = made.enabled
  elseif t.change == 'D' then
    call('HDEL', TASKS, t.id)
    call('HDEL', SCHEDULES, t.id)
    call('ZREM', NAMES, t.id)
    TASK[t.id] = false
    -- Whose task is gone does not wait for it to go on.
    released = known and true
  end
  fires_again(t.id, was)
  if released then unpause(t.id) end
end

local function write_schedule(s)
  if not task_of(s.id) then return end
  local was = fires_at(s.id)
  call('HSET', SCHEDULES, s.id, s.record)
  fires_again(s.id, was)
end

-- Runs.

-- The common part is kept once; two that have one digest are told apart by a number behind it.
local function intern(spec)
  for n = 0, 255 do
    local sid = spec.digest .. char(n)
    local known = spec_of(sid)
    if not known then
      known = read_spec(sid, spec.text)
      NEW_SPECS[sid] = spec.text
    end
    if known.text == spec.text then
      USED[sid] = (USED[sid] or 0) + 1
      return known
    end
  end
  error({ err = 'TENURE 256 specifications have one digest' })
end

local function new_run(w, specs)
  seq = seq + 1
  local rid, spec = pack('>I6', seq), intern(specs[w.spec_at])
  local r = { rid = rid, sid = spec.sid, spec = spec, place = NOWHERE, lane = 0, cursors = '' }
  RUN[rid], NUMBER[w.kept] = r, rid
  NEW_IDS[w.kept] = rid
  if has(w.flags, WITH_KEY) then call('HSET', KEYED, w.key, rid .. digest_of(w) .. w.name) end
  local block = floor(seq / BLOCK)
  if seq % BLOCK == 0 then call('ZADD', BLOCKS, block, block) end
  for _, list in ipairs(lists_of(spec, w.kept)) do lead_to(list, block) end
  return r
end

-- No fence is lowered, and the expiry of a lease does not move back while its token stands.
local function take_over(r, w)
  local front, lease = w.front, w.lease
  if r.front then
    local fence = fence_of(r)
    local same = fence == fence_of(w)
    if not same and more(fence, fence_of(w)) then front = sub(front, 1, 20) .. fence .. sub(front, 29) end
    if same and r.lease ~= '' and lease ~= '' and r.lease ~= lease and nonce_of(r) == nonce_of(w) then
      local expires, heard = expires_of(w), heard_of(w)
      if more(expires_of(r), expires) then expires = expires_of(r) end
      if more(heard_of(r), heard) then heard = heard_of(r) end
      lease = sub(lease, 1, 8) .. expires .. heard .. sub(lease, 25)
    end
  end
  r.status, r.flags, r.front, r.lease, r.own = w.status, w.flags, front, lease, w.own
end

-- Whether the holder of a run has to hear of a write that somebody else made.
local function revokes(r, w)
  if not HELD[r.status] or w.absent or w.token then return false end
  local same = nonce_of(r) == nonce_of(w) and (fence_of(r) == fence_of(w) or more(fence_of(r), fence_of(w)))
  return not same or has(r.flags, WITH_CANCEL) ~= has(w.flags, WITH_CANCEL)
end

local function index(r, w, before_status, woke)
  if r.status ~= before_status then
    if before_status then count(r.spec.task, before_status, -1) end
    count(r.spec.task, r.status, 1)
    if r.status == CLAIMED_STATUS or before_status == CLAIMED_STATUS then
      CLAIMED_IS[r.rid] = r.status == CLAIMED_STATUS
    end
  end
  if w.ends then ENDED_AT[r.rid] = ended_at(w) end
  local at = wakes_at(r)
  if at then hint_agenda = true end
  if at ~= woke then WAKE_AT[w.name .. '\0' .. r.rid] = at or false end
end

local function write_told(r, w)
  local had = r.had_result
  if has(w.flags, HAS_RESULT) then
    RESULT_IS[r.rid] = w.result
  elseif had then
    RESULT_IS[r.rid] = false
  end
  if w.attempt > 0 then ATTEMPT_IS[r.rid .. pack('>I4', w.attempt)] = w.attempt_frame end
  for _, frame in ipairs(w.events) do r.cursors = r.cursors .. tell('r' .. r.rid .. frame) end
end

local function write_run(w, specs)
  local rid = number_of(w.kept)
  local known = rid and load_run(rid)
  local r = known or new_run(w, specs)
  local status, was, woke = r.status, 0, nil
  r.had_result = known and has(r.flags, HAS_RESULT)
  if known then
    if revokes(r, w) and #hint_cancels < 1000 then hint_cancels[#hint_cancels + 1] = w.name end
    take_out(r)
    was, woke = stance(status, r.flags), wakes_at(r)
  end
  take_over(r, w)
  CHANGED[r.rid] = r
  index(r, w, status, woke)
  account(r, was, stance(r.status, r.flags))
  if known then wake_lanes_of(r) end
  put_in(r, place_for(r))
  write_told(r, w)
end

local function forget(kept)
  local rid = number_of(kept)
  local r = rid and load_run(rid)
  if r then remove_run(r) end
  NUMBER[kept] = false
end

local function apply(d, specs)
  for _, w in ipairs(d.runs) do
    local rid = number_of(w.kept)
    w.stored = rid and load_run(rid)
    if rid and not w.stored then return { 'corrupt', w.name } end
  end
  for _, kept in ipairs(d.forget) do
    local rid = number_of(kept)
    if rid and not load_run(rid) then return { 'corrupt', name_of(kept) } end
  end
  if was_made(d) then return 0 end
  local refusal = stands(d)
  if refusal then return refusal end
  if d.task then write_task(d.task) end
  if d.schedule then write_schedule(d.schedule) end
  for _, w in ipairs(d.runs) do write_run(w, specs) end
  for _, o in ipairs(d.occurrences) do
    call('HSET', OCCURRENCES, o.member, o.record)
    call('ZADD', OCC_DUE, 0, o.member)
    call('ZADD', OCC_RECORDED, o.recorded, o.member)
  end
  for _, kept in ipairs(d.forget) do forget(kept) end
  return 0
end

-- Numbers and records of all runs that are to be written.
local function load_all(decisions)
  local names, rids = {}, {}
  for _, d in ipairs(decisions) do
    for _, w in ipairs(d.runs) do names[#names + 1] = w.kept end
    for _, kept in ipairs(d.forget) do names[#names + 1] = kept end
  end
  all_of(IDS, names, function(name, rid)
    NUMBER[name] = rid
    if rid then rids[#rids + 1] = rid end
  end)
  load_runs(rids)
end

function write.commit(sender)
  local specs, decisions, answers = {}, {}, {}
  for i = 1, tonumber(take()) do specs[i] = { digest = take(), text = take() } end
  for i = 1, tonumber(take()) do decisions[i] = read_decision() end
  load_all(decisions)
  for i, decision in ipairs(decisions) do answers[i] = apply(decision, specs) end
  return { flush(sender), answers }
end
