-- Reads: each call is one snapshot.
local read = {}

function read.now()
  return digits(now)
end

function read.run()
  local rid = call('HGET', IDS, take())
  return answer_runs({ rid or nil })
end

function read.run_by_key()
  local found = call('HGET', KEYED, take())
  return answer_runs({ found and sub(found, 1, 6) or nil })
end

local function first_score(key)
  return call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or false
end

function read.agenda()
  return { digits(now), first_score(FIRES), first_score(FUTURE), first_score(WAKE), call('ZCARD', READY) }
end

local function answer_tasks(ids)
  local found = {}
  for i, id in ipairs(ids) do
    found[i] = { id, call('HGET', TASKS, id), call('HGET', SCHEDULES, id) }
  end
  return found
end

function read.task()
  local id = take()
  return answer_tasks(call('HEXISTS', TASKS, id) == 1 and { id } or {})
end

function read.tasks()
  local after, limit = take(), take()
  return answer_tasks(call('ZRANGEBYLEX', NAMES, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, limit))
end

-- What is due of a sorted set, after an instant and a name, of which so many bytes behind are none of it. Many may have
-- the same instant: they are in the order of names. Answers besides where the last one is, if there may be more.
local function due_in(key, behind)
  local from, after, limit = take(), take(), tonumber(take())
  local found, skip, score = {}, 0, false
  while #found < limit do
    local page = call('ZRANGEBYSCORE', key, from, digits(now), 'WITHSCORES', 'LIMIT', skip, 512)
    if #page == 0 then return found, false end
    for i = 1, #page, 2 do
      local member = page[i]
      local passed = after ~= '' and tonumber(page[i + 1]) == tonumber(from)
        and not before(after, sub(member, 1, -1 - behind))
      if not passed and #found < limit then found[#found + 1], score = member, page[i + 1] end
    end
    skip = skip + 512
  end
  return found, score and { score, sub(found[#found], 1, -1 - behind) }
end

function read.due_schedules()
  local ids, last = due_in(FIRES, 0)
  return { answer_tasks(ids), last }
end

-- Runs to look at.
function read.due_runs()
  local rids, last = due_in(WAKE, 6)
  for i = 1, #rids do rids[i] = sub(rids[i], -6) end
  return { answer_runs(rids), last }
end

-- The conditions of a filter that are the same for all runs with a common part.
local function spec_passes(spec, f)
  if spec.passes == nil then
    local query = cut('>I4c0', spec.text, spec.after_session)
    spec.passes = (f.task == '' or f.task == spec.task) and (f.agent == '' or f.agent == spec.agent)
      and (f.owned == '' or (f.owned == '1') == (f.host == spec.agent))
      and (f.text == '' or string.find(string.lower(query), f.text, 1, true) ~= nil)
  end
  return spec.passes
end

local function passes(record, f)
  -- Nothing is known of what cannot be read: it is shown as such.
  if #record < LEAST then return true end
  local status, flags = byte(record, 15, 16)
  if f.statuses ~= '' and not string.find(f.statuses, string.char(status), 1, true) then return false end
  local spec = spec_of(sub(record, 3, 11))
  if not spec then return true end
  if not spec_passes(spec, f) then return false end
  if f.plain then return true end
  local own = OWN_OF_SCRIPTS + 43 + (has(flags, LEASED) and LEASE or 0)
  local run_id, _, _, queued, trigger = cut('>I2c0I4I4c0c8B', record, own)
  if f.trigger ~= '' and f.trigger ~= string.char(trigger) then return false end
  if f.session then
    local text = table.concat(spec.session, f.run_id_of(run_id))
    if text ~= f.session then return false end
  end
  local at = num(queued)
  return (f.from == '' or at >= tonumber(f.from)) and (f.to == '' or at < tonumber(f.to))
end

local function read_filter()
  local f = { task = take(), agent = take(), owned = take(), host = take(), statuses = take(), trigger = take() }
  local has_session = take() == '1'
  local session = take()
  f.session = has_session and session
  f.from, f.to, f.text = take(), take(), take()
  f.named = {}
  for i = 1, tonumber(take()) do f.named[i] = take() end
  f.plain = not has_session and f.trigger == '' and f.from == '' and f.to == ''
  f.run_id_of = name_of
  return f
end

-- The list that leads to what a filter lets through, and blocks besides.
local function way_to(f)
  if f.session then
    local besides = {}
    for _, kept in ipairs(f.named) do
      local rid = call('HGET', IDS, kept)
      if rid then besides[#besides + 1] = block_of(rid) end
    end
    return OF.session .. f.session, besides
  end
  if f.task ~= '' then return OF.task .. f.task, {} end
  if f.agent ~= '' then return OF.agent .. f.agent, {} end
  if f.owned == '1' then return OF.agent .. f.host, {} end
  return BLOCKS, {}
end

-- The last block of a way up to the one with this run.
local function block_on(list, besides, rid)
  local last, width = floor(rid / BLOCK), list == BLOCKS and 1 or 2 * BLOCK
  local block = tonumber(call('ZREVRANGEBYSCORE', list, last * width + width - 1, '-inf', 'LIMIT', 0, 1)[1])
  for _, other in ipairs(besides) do
    if other <= last and other > (block or -1) then block = other end
  end
  return block
end

-- Runs below a number, the newest first: those that pass, how far was looked, whether that was all, how many.
-- Blocks in which there is none (of the task, the agent, the session) are passed over.
function read.runs()
  local below, want, budget, only_count = tonumber(take()), tonumber(take()), tonumber(take()), take() == '1'
  local f = read_filter()
  local list, besides = way_to(f)
  below = math.min(below, tonumber(call('HGET', META, 'seq') or 0) + 1)
  local found, looked, count = {}, 0, 0
  local function answer(at, done)
    return { answer_runs(found), digits(at), done, count }
  end
  while true do
    local block = block_on(list, besides, below - 1)
    if not block then return answer(0, 1) end
    local low = block * BLOCK
    local high = math.min(below, low + BLOCK) - 1
    while high >= low do
      local fields = {}
      for n = high, math.max(low, high - 63), -1 do fields[#fields + 1] = pack('>I6', n) end
      for i, record in ipairs(call('HMGET', RUNS, unpack(fields))) do
        if record and passes(record, f) then
          count = count + 1
          if not only_count then found[#found + 1] = fields[i] end
          if count == want then return answer(high - i + 1, 0) end
        end
      end
      high, looked = high - #fields, looked + #fields
      if looked >= budget then return answer(high + 1, 0) end
    end
    below = low
  end
end

function read.attempts()
  local rid = call('HGET', IDS, take())
  local frames = {}
  local record = rid and call('HGET', RUNS, rid)
  local r = record and parse(rid, record)
  if r then
    local _, attempts = cut('>I2c0I4', r.text, own_at(r))
    for n = 1, attempts do frames[n] = call('HGET', ATTEMPTS, rid .. pack('>I4', n)) end
  end
  return frames
end

-- Events: each as cursor, who and what; with what is known of the runs they tell of. Those of runs that are gone are
-- gone, too, although others are kept in their entry.
local function answer_events(found, at, done)
  local told, rids, record_of = {}, {}, {}
  for _, event in ipairs(found) do
    local who = event[2]
    if #who == 6 and record_of[who] == nil then
      record_of[who] = false
      rids[#rids + 1] = who
    end
  end
  local answer, seen = { {}, {} }, {}
  for i, record in ipairs(all_of(RUNS, rids)) do
    record_of[rids[i]] = record
    if record then add_run(answer, seen, rids[i], record, true) end
  end
  for _, event in ipairs(found) do
    if record_of[event[2]] ~= false then
      local n = #told
      told[n + 1], told[n + 2], told[n + 3] = event[1], event[2], event[3]
    end
  end
  return { told, answer, digits(at), done and 1 or 0 }
end

local function event_in(entry, behind, cursor)
  local n = 2 * (cursor - behind)
  return { digits(cursor), entry[2][n - 1], entry[2][n] }
end

local function events_at(cursors, first, limit)
  local found, all = {}, floor(#cursors / 6)
  local up_to, entry, behind, last = math.min(first + limit - 1, all), nil, 0, -1
  for i = first, up_to do
    local cursor = cut('>I6', cursors, 6 * i - 5)
    if cursor > last then
      entry = call('XRANGE', EVENTS, digits(cursor), '+', 'COUNT', 1)[1]
      if not entry then break end
      behind, last = cursors_in(entry)
    end
    if cursor > behind then found[#found + 1] = event_in(entry, behind, cursor) end
  end
  return answer_events(found, math.max(up_to, 0), up_to >= all)
end

-- No more entries are read at once than are needed if each has as many events as one may have.
function read.events_of_all()
  local after, limit, found, entries, count = tonumber(take()), tonumber(take()), {}, nil, nil
  repeat
    count = math.ceil((limit - #found) / 32)
    entries = call('XRANGE', EVENTS, digits(after + 1), '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      local behind, last = cursors_in(entry)
      local up_to = math.min(last, math.max(after, behind) + limit - #found)
      for cursor = math.max(after, behind) + 1, up_to do found[#found + 1] = event_in(entry, behind, cursor) end
      after = up_to
    end
  until #entries < count or #found == limit
  return answer_events(found, after, #found < limit)
end

-- The events of a run are numbered from 1 without gaps, so that a number is a place among its cursors.
function read.events_of_run()
  local rid = call('HGET', IDS, take())
  local after, limit = tonumber(take()), tonumber(take())
  local r = rid and load_run(rid)
  return events_at(r and cursors_of(r) or '', after + 1, limit)
end

function read.events_of_task()
  return events_at(call('HGET', TASK_CURSORS, take()) or '', 1, tonumber(take()))
end

function read.occurrences()
  local task, below, limit = take(), take(), take()
  local members = call('ZREVRANGEBYLEX', OCC_DUE, '(' .. task .. (below == '' and '\1' or '\0' .. below),
    '[' .. task .. '\0', 'LIMIT', 0, limit)
  local found = {}
  for i, member in ipairs(members) do found[i] = { sub(member, -8), call('HGET', OCCURRENCES, member) } end
  return found
end

function read.lane()
  local name = take()
  local lane = call('HGET', LANES, name)
  if not lane then return false end
  local shown = {}
  local rids = call('ZRANGE', OF_LANE .. name, 0, 99)
  rids[#rids + 1] = call('ZRANGE', SCHEDULED_OF .. name, 0, 0)[1]
  for i, rid in ipairs(rids) do shown[i] = { rid, call('HGET', RUNS, rid) } end
  local _, total, _, version = cut('>I4I4I4I6', lane)
  return { digits(version), total, call('ZCARD', SCHEDULED_OF .. name) > 0 and 1 or 0, shown }
end

function read.agents()
  return call('HGETALL', AGENTS)
end

function read.counts()
  local task = take()
  local fields = {}
  for status = 0, 10 do fields[status + 1] = task == '' and tostring(status) or task .. '\0' .. status end
  return call('HMGET', COUNTS, unpack(fields))
end

return read[ARGV[1]]()
