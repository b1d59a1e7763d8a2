-- Applies decisions, each for itself: everything is looked at before anything of one is written.

local NONE = {}

-- The names of all runs that decisions are about, as arguments one behind the other, and the runs of these names as
-- they were found. What this script has made or removed since is known besides.
local names_at, NUMBERS, RECORDS, NUMBER = 0, {}, {}, {}
local function kept_of(name)
  return ARGV[names_at + name]
end
local function stored_of(name)
  local rid = NUMBER[ARGV[names_at + name]]
  if rid == nil then rid = NUMBERS[name] end
  if not rid then return false end
  local r = RUN[rid]
  if r == nil then
    local record = MADE[rid] or RECORDS[name]
    r = record and parse(rid, record)
    RUN[rid] = r
  end
  return r, not r
end
local function load_named(count)
  names_at = arg_at
  arg_at = arg_at + count
  NUMBERS = all_of(IDS, ARGV, names_at + 1, names_at + count)
  local rids = {}
  for i = 1, count do rids[i] = NUMBERS[i] or '' end
  RECORDS = all_of(RUNS, rids)
end
local next_name = 0
local function take_name()
  next_name = next_name + 1
  return next_name
end

-- A write of a run is one argument: what is expected, the run as it is to be, what only some have, and what is told.
-- The run has the parts of a record, so that one is looked at like the other.
local ABSENT, TOKEN, GRANT, ENDS, WITH_RESULT, WITH_ATTEMPT, UNRENEWED, KEYED_RUN = 1, 2, 4, 8, 16, 32, 64, 128
local function read_run_write(frame, from)
  local bits, expects, size, p = cut('>BBc0I4', frame, from)
  return { text = frame, at = p - 1, last = p - 1 + size, bits = bits, expects = expects, name = take_name(),
    stored = false }
end
-- Those of a grant, and of what a holder writes (quick.lua).
local IS_USUAL = {}
for bits = 0, UNRENEWED - 1 do IS_USUAL[bits] = bits % 2 == 0 and has(bits, TOKEN) ~= has(bits, GRANT) end
local function read_new(w, p)
  w.spec_at, p = cut('>I2', w.text, p)
  if has(w.bits, KEYED_RUN) then w.digest, w.key, p = cut('>c8I4c0', w.text, p) end
  return p
end
-- As a run is looked at that is kept.
local function as_run(w)
  w.status, w.flags = byte(w.text, w.at + 1, w.at + 2)
  w.leased = has(w.flags, LEASED)
  return w
end

-- A decision about a run alone is the write of it; another has a head that says so by its first byte.
local ALONE, OF_ONE = 1, { runs = {}, lanes = NONE, occurrences = NONE, forget = NONE }
local function read_decision()
  local first = take()
  if byte(first) == ALONE then
    OF_ONE.runs[1] = read_run_write(first, 2)
    return OF_ONE
  end
  local _, has_task, has_schedule, runs, lanes, occurrences, forget = cut('>BBBI4I4I4I4', first)
  local d = { runs = {}, lanes = {}, occurrences = {}, forget = {} }
  if has_task == 1 then
    local t = { id = take(), expects = take(), change = take(), record = take(), events = {} }
    t.idle = take()
    for i = 1, tonumber(take()) do t.events[i] = { at = take(), frame = take() } end
    d.task = t
  end
  if has_schedule == 1 then d.schedule = { id = take(), expects = take(), record = take() } end
  for i = 1, runs do d.runs[i] = read_run_write(take(), 1) end
  for i = 1, lanes do d.lanes[i] = { name = take(), version = take() } end
  for i = 1, occurrences do
    d.occurrences[i] = { task = take(), due = take(), recorded = take(), record = take() }
  end
  for i = 1, forget do d.forget[i] = take_name() end
  return d
end

-- How a run stands before a decision, or as the same decision has left it.
local function standing(d, n)
  for i = n - 1, 1, -1 do
    if kept_of(d.runs[i].name) == kept_of(d.runs[n].name) then return as_run(d.runs[i]) end
  end
  return d.runs[n].stored
end

local function was_made(d)
  if #d.runs == 0 then return false end
  for i = 1, #d.runs do
    local w = d.runs[i]
    local s = w.stored
    if not s or stamp_and_version(s) ~= stamp_and_version(w) then return false end
  end
  return true
end

-- Whether a run that is to be forgotten will have ended; one that is not there has gone already.
local function is_over(d, i)
  local standing
  for _, w in ipairs(d.runs) do
    if kept_of(w.name) == kept_of(d.forget[i]) then standing = as_run(w) end
  end
  standing = standing or stored_of(d.forget[i])
  if standing and not TERMINAL[standing.status] then return { 'live', i, version_of(standing), standing.status } end
end

-- Why there is to be no new run.
local function key_is_free(d, n)
  local w = d.runs[n]
  if not has(w.bits, KEYED_RUN) then return end
  read_new(w, w.last + 1)
  local held = call('HGET', KEYED, w.key)
  if held then return { 'key', name_of(sub(held, 15)), sub(held, 7, 14) } end
  for i = 1, n - 1 do
    local other = d.runs[i]
    if other.key == w.key then return { 'key', name_of(kept_of(other.name)), other.digest } end
  end
end

local function run_stands(d, n)
  local w, s = d.runs[n], standing(d, n)
  if not s then
    if has(w.bits, ABSENT) then return key_is_free(d, n) end
    return { 'gone', n }
  end
  -- What is expected is the version, or the version with the token behind it: as they are in a record.
  local bits, size = w.bits, #w.expects
  local token = has(bits, TOKEN)
  local fits = size > 0 and (s.leased or not token) and sub(s.text, s.at + 27, s.at + 26 + size) == w.expects
  if token and not fits and not (s.leased and sub(w.expects, 9) == fence_of(s) .. nonce_of(s)) then
    return { 'fenced', n, fence_of(s), s.status }
  end
  fits = fits and not TERMINAL[s.status]
  if fits and has(bits, UNRENEWED) then fits = s.leased and sub(w.text, w.last + 1, w.last + 8) == expires_of(s) end
  -- A grant needs besides that the run is still to be had.
  if fits and has(bits, GRANT) then
    fits = s.place == IS_READY and is_due(s, now) and not is_paused(s) and not full_lane(s)
  end
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
  for i = 1, #d.lanes do
    local expected = d.lanes[i]
    local lane = lane_of(expected.name)
    local version = digits(lane.total > 0 and lane.version or 0)
    if version ~= expected.version then return { 'lane', i, version } end
  end
  for i = 1, #d.forget do
    local refusal = is_over(d, i)
    if refusal then return refusal end
  end
  if not d.occurrences[1] then return end
  local exist, seen = { 'occurrences' }, {}
  for i, o in ipairs(d.occurrences) do
    o.member = o.task .. '\0' .. o.due
    if seen[o.member] or call('HEXISTS', OCCURRENCES, o.member) == 1 then exist[#exist + 1] = i end
    seen[o.member] = true
  end
  if #exist > 1 then return exist end
end

-- Tasks and schedules.

local write_task, write_schedule
do

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
    local told = tell('t', pack('>Bc0Bc0', #id, id, #agent, agent) .. event.frame)
    call('ZADD', TASK_EVENTS, event.at, told .. id)
    cursors = cursors .. told
  end
  if cursors ~= '' then call('HSET', TASK_CURSORS, id, (call('HGET', TASK_CURSORS, id) or '') .. cursors) end
end

function write_task(t)
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

function write_schedule(s)
  if not task_of(s.id) then return end
  local was = fires_at(s.id)
  call('HSET', SCHEDULES, s.id, s.record)
  fires_again(s.id, was)
end

end

-- Runs.

local write_run, write_rest
do

-- The common part is kept once; two that have one digest are told apart by a number behind it.
local function intern(spec)
  for n = 0, 255 do
    local sid = spec.digest .. string.char(n)
    local known = spec_of(sid)
    if not known then
      known = read_spec(sid, spec.text)
      NEW_SPECS[sid] = spec.text
    end
    if known.text == spec.text then return known end
  end
  error({ err = 'TENURE 256 specifications have one digest' })
end

local function new_run(w, specs)
  seq = seq + 1
  local rid, of = pack('>I6', seq), specs[w.spec_at]
  local spec = of.known or intern(of)
  of.known, spec.used = spec, spec.used + 1
  local r = { rid = rid, spec = spec, text = w.text, at = w.at, last = w.last, status = 0, flags = 0, leased = false,
    place = NOWHERE, lane = 0, events = 0, record = false, last_before = 0, told = false, changed = false }
  local kept = kept_of(w.name)
  RUN[rid], NUMBER[kept], NEW_IDS[kept] = r, rid, rid
  if w.key then call('HSET', KEYED, w.key, rid .. w.digest .. kept) end
  local block = floor(seq / BLOCK)
  if seq % BLOCK == 0 then call('ZADD', BLOCKS, block, block) end
  for _, list in ipairs(lists_of(spec, kept)) do lead_to(list, block) end
  return r
end

local function put(r, at, part)
  r.text = sub(r.text, r.at + 1, r.at + at - 1) .. part .. sub(r.text, r.at + at + #part, r.last)
  r.at, r.last = 0, #r.text
end

-- A run becomes what a write says. No fence is lowered, and the expiry of a lease does not move back while its token
-- stands. Numbers are compared, as strings would have to be made.
local function take_over(r, w, known)
  local fence, expires, heard = false, false, false
  local is = has(byte(w.text, w.at + 2), LEASED)
  if known then
    local high, low, nonce, nonce2, until1, until2, heard1, heard2 = cut('>I4I4I4I4I4I4I4I4', r.text, r.at + 35)
    local w_high, w_low, w_nonce, w_nonce2, w_until1, w_until2, w_heard1, w_heard2 =
      cut('>I4I4I4I4I4I4I4I4', w.text, w.at + 35)
    if high ~= w_high or low ~= w_low then
      fence = (high > w_high or (high == w_high and low > w_low)) and fence_of(r)
    elseif r.leased and is and nonce == w_nonce and nonce2 == w_nonce2 then
      expires = (until1 > w_until1 or (until1 == w_until1 and until2 > w_until2)) and expires_of(r)
      heard = (heard1 > w_heard1 or (heard1 == w_heard1 and heard2 > w_heard2)) and sub(r.text, r.at + 59, r.at + 66)
    end
  end
  r.text, r.at, r.last, r.leased = w.text, w.at, w.last, is
  r.status, r.flags = byte(w.text, w.at + 1, w.at + 2)
  if fence then put(r, 35, fence) end
  if expires then put(r, 51, expires) end
  if heard then put(r, 59, heard) end
end

-- Whether the holder of a run has to hear of a write that somebody else made.
local function revokes(r, w)
  if not HELD[r.status] or has(w.bits, TOKEN) then return false end
  local same = r.leased and as_run(w).leased and nonce_of(r) == nonce_of(w)
    and (fence_of(r) == fence_of(w) or more(fence_of(r), fence_of(w)))
  return not same or has(r.flags, WITH_CANCEL) ~= has(byte(w.text, w.at + 2), WITH_CANCEL)
end

local function index(r, w, before_status, woke)
  if r.status ~= before_status then
    if before_status then count(r.spec, before_status, -1) end
    count(r.spec, r.status, 1)
    if r.status == CLAIMED_STATUS or before_status == CLAIMED_STATUS then
      CLAIMED_IS[r.rid] = r.status == CLAIMED_STATUS
    end
  end
  local at = wakes_at(r)
  if at then hint_agenda = true end
  if at ~= woke then WAKE_AT[kept_of(w.name) .. r.rid] = at end
end

-- What stands behind a run: what only some writes have, and what is told of it. Answers the cursors of that, and
-- how many they are.
function write_rest(rid, bits, text, p, had_result)
  local part, number, event
  if has(bits, ENDS) then ENDED_AT[rid], p = num(text, p), p + 8 end
  if has(bits, WITH_RESULT) then
    part, p = cut('>I4c0', text, p)
    RESULT_IS[rid] = part
  elseif had_result then
    RESULT_IS[rid] = false
  end
  if has(bits, WITH_ATTEMPT) then
    number, part, p = cut('>c4I4c0', text, p)
    ATTEMPT_IS[rid .. number] = part
  end
  local told, events, size = '', 0, #text
  while p <= size do
    event, p = cut('>I4c0', text, p)
    told, events = told .. tell(rid, event), events + 1
  end
  return told, events
end

function write_run(w, specs)
  local known, p = stored_of(w.name), w.last + 1
  local r, status, was, woke, had_result = known, false, 0, false, false
  if has(w.bits, ABSENT) then p = read_new(w, p) elseif has(w.bits, UNRENEWED) then p = p + 8 end
  if known then
    if revokes(r, w) and #hint_cancels < 1000 then hint_cancels[#hint_cancels + 1] = name_of(kept_of(w.name)) end
    take_out(r)
    status, was, woke = r.status, stance(r.spec, r.status, r.flags), wakes_at(r)
    had_result = has(r.flags, HAS_RESULT)
  else
    r = new_run(w, specs)
  end
  take_over(r, w, known)
  change(r)
  index(r, w, status, woke)
  account(r, was, stance(r.spec, r.status, r.flags))
  if known and r.spec.lanes[1] then wake_lanes_of(r) end
  put_in(r, place_for(r))
  local told, events = write_rest(r.rid, w.bits, w.text, p, had_result)
  r.told, r.events = (r.told or '') .. told, r.events + events
end

end

-- What is usual is made without taking runs apart (quick.lua).
local quick

local function forget(name)
  local r = stored_of(name)
  if r then remove_run(r) end
  NUMBER[kept_of(name)] = false
end

local function apply(d, specs)
  local missing
  for i = 1, #d.runs do
    local w = d.runs[i]
    w.stored, missing = stored_of(w.name)
    if missing then return { 'corrupt', name_of(kept_of(w.name)) } end
  end
  for i = 1, #d.forget do
    local _, missing = stored_of(d.forget[i])
    if missing then return { 'corrupt', name_of(kept_of(d.forget[i])) } end
  end
  -- Of what was made the versions do not stand any more.
  local refusal = stands(d)
  if refusal then return was_made(d) and 0 or refusal end
  if d.task then write_task(d.task) end
  if d.schedule then write_schedule(d.schedule) end
  for i = 1, #d.runs do write_run(d.runs[i], specs) end
  for i = 1, #d.occurrences do
    local o = d.occurrences[i]
    call('HSET', OCCURRENCES, o.member, o.record)
    call('ZADD', OCC_DUE, 0, o.member)
    call('ZADD', OCC_RECORDED, o.recorded, o.member)
  end
  for i = 1, #d.forget do forget(d.forget[i]) end
  return 0
end

function write.commit(sender)
  local specs, answers = {}, {}
  for i = 1, tonumber(take()) do specs[i] = { digest = take(), text = take(), known = false } end
  local decisions, names = tonumber(take()), tonumber(take())
  load_named(names)
  for i = 1, decisions do
    if quick(ARGV[arg_at + 1], next_name + 1) then
      arg_at, next_name, answers[i] = arg_at + 1, next_name + 1, 0
    else
      answers[i] = apply(read_decision(), specs)
    end
  end
  return { flush(sender), answers }
end
