-- What scripts that write share. Most of what is written is put together and written at the end: a script that
-- fails before has changed no record.
local kept = call('HMGET', META, 'seq', 'cursor', 'lane')
local seq, cursor, lane_version = tonumber(kept[1] or 255), tonumber(kept[2] or 0), tonumber(kept[3] or 0)
local BEGAN = { seq = seq, cursor = cursor, lane_version = lane_version }

local CHANGED, REMOVED = {}, {}
local FUTURE_AT, WAKE_AT, ENDED_AT, CLAIMED_IS = {}, {}, {}, {}
local NEW_SPECS, TOLD, UNTOLD = {}, {}, {}
local READY_IS, NEW_IDS, RESULT_IS, ATTEMPT_IS, IN_BLOCK = {}, {}, {}, {}, {}
local LANE, IN_LANE_IS, SCHEDULED_IS, TASK = {}, {}, {}, {}
local hint_ready, hint_agenda, hint_agents, hint_cancels = false, false, false, {}

local function count(spec, status, by)
  spec.moved[status] = (spec.moved[status] or 0) + by
end

-- Lanes.

local function lane_of(name)
  local lane = LANE[name]
  if lane then return lane end
  lane = { taken = 0, total = 0, waiting = 0, version = 0 }
  local record = call('HGET', LANES, name)
  if record then lane.taken, lane.total, lane.waiting, lane.version = cut('>I4I4I4I6', record) end
  LANE[name] = lane
  return lane
end

-- What a run is to its lanes: 1 it is in them, 2 it takes room, 4 it is queued for a schedule.
local function stance(spec, status, flags)
  if not spec.lanes[1] or not ACTIVE[status] then return 0 end
  return 1 + (TAKES[status] and 2 or 0) + (status == QUEUED and has(flags, BY_SCHEDULE) and 4 or 0)
end

local account
do

local function set_member(of, name, rid, is)
  local members = of[name]
  if not members then
    members = {}
    of[name] = members
  end
  members[rid] = is
end

function account(r, was, is)
  if was == is then return end
  for _, own in ipairs(r.spec.lanes) do
    local lane = lane_of(own.name)
    lane_version = lane_version + 1
    lane.version, lane.changed = lane_version, true
    lane.total = lane.total + is % 2 - was % 2
    lane.taken = math.max(0, lane.taken + floor(is / 2) % 2 - floor(was / 2) % 2)
    if is % 2 ~= was % 2 then set_member(IN_LANE_IS, own.name, r.rid, is % 2 == 1) end
    if floor(is / 4) ~= floor(was / 4) then set_member(SCHEDULED_IS, own.name, r.rid, is >= 4) end
  end
end

end

-- Places: where runs wait to be claimed.

local function change(r)
  if not r.changed then
    r.changed = true
    CHANGED[#CHANGED + 1] = r
  end
end

local function take_out(r)
  if r.place == IS_READY then
    READY_IS[in_order(r)] = false
  elseif r.place == IS_FUTURE then
    FUTURE_AT[r.rid] = false
  elseif r.place == IN_LANE then
    local name = r.spec.lanes[r.lane].name
    local lane = lane_of(name)
    lane.waiting, lane.changed = lane.waiting - call('ZREM', WAIT_OF .. name, in_order(r)), true
  elseif r.place == IS_PAUSED then
    call('ZREM', PAUSED, r.spec.task .. '\0' .. r.rid)
  end
  r.place, r.lane = NOWHERE, 0
end

local function put_in(r, place, lane)
  r.place, r.lane = place, lane
  change(r)
  if place == IS_READY then
    READY_IS[in_order(r)] = 0
    hint_ready = true
  elseif place == IS_FUTURE then
    FUTURE_AT[r.rid] = num(r.text, r.at + 3)
    hint_agenda = true
  elseif place == IN_LANE then
    local name = r.spec.lanes[lane].name
    local state = lane_of(name)
    state.waiting, state.changed = state.waiting + call('ZADD', WAIT_OF .. name, 0, in_order(r)), true
  elseif place == IS_PAUSED then
    call('ZADD', PAUSED, 0, r.spec.task .. '\0' .. r.rid)
  end
end

local function move_to(r, place, lane)
  take_out(r)
  put_in(r, place, lane)
end

local place_for
do

-- Whether others of an agent wait in a lane.
local function others_wait(name, lane, agent)
  return lane.waiting > 0
    and #call('ZRANGEBYLEX', WAIT_OF .. name, '[' .. agent .. '\0', '(' .. agent .. '\1', 'LIMIT', 0, 1) > 0
end

-- Where a waiting run belongs now. Whether its task is paused is looked at when it is claimed.
function place_for(r)
  if not WAITING[r.status] then return NOWHERE, 0 end
  if not is_due(r, now) then return IS_FUTURE, 0 end
  if not TAKES[r.status] then
    for i, own in ipairs(r.spec.lanes) do
      local lane = lane_of(own.name)
      if lane.taken >= own.limit or others_wait(own.name, lane, r.spec.agent) then return IN_LANE, i end
    end
  end
  return IS_READY, 0
end

end

-- The first lane of a run that has no room for it; `besides` counts who is to take some.
local function full_lane(r, besides)
  if TAKES[r.status] then return nil end
  for i, own in ipairs(r.spec.lanes) do
    if lane_of(own.name).taken + (besides and besides[own.name] or 0) >= own.limit then return i end
  end
end

local function limit_in(r, name)
  for _, own in ipairs(r.spec.lanes) do
    if own.name == name then return own.limit end
  end
  return 1
end

local wake_lanes_of
do

-- The best waiting run of each agent for which there is room in a lane.
local function to_wake(name)
  local lane, best, from = lane_of(name), {}, '-'
  while lane.waiting > 0 do
    local first = call('ZRANGEBYLEX', WAIT_OF .. name, from, '+', 'LIMIT', 0, 1)[1]
    if not first then break end
    local r = load_run(sub(first, -6))
    if r then
      if lane.taken < limit_in(r, name) then best[#best + 1] = r end
      from = '(' .. r.spec.agent .. '\1'
    else
      -- It cannot be read: it is in nobody's way.
      lane.waiting, lane.changed = lane.waiting - call('ZREM', WAIT_OF .. name, first), true
    end
  end
  return best
end

-- Looks at the lanes of a run that left the ready ones or gave back its room: who waits there and now has some is
-- ready. Another lane of it that is full is found when it is claimed.
function wake_lanes_of(r)
  local any = false
  for _, own in ipairs(r.spec.lanes) do
    if lane_of(own.name).waiting > 0 then
      for _, waiting in ipairs(to_wake(own.name)) do
        move_to(waiting, is_due(waiting, now) and IS_READY or IS_FUTURE, 0)
        any = true
      end
    end
  end
  return any
end

end

-- Tasks.

local function task_of(id)
  local t = TASK[id]
  if t == nil then
    local record = call('HGET', TASKS, id)
    t = record and read_task(record) or false
    TASK[id] = t
  end
  return t
end

local function is_paused(r)
  if has(r.flags, OVERRIDES) then return false end
  local t = task_of(r.spec.task)
  return t and not t.enabled
end

-- Events.

-- What is told by whom: the number of a run, or a task.
local function tell(who, what)
  cursor = cursor + 1
  local n = #TOLD
  TOLD[n + 1], TOLD[n + 2] = who, what
  return pack('>I6', cursor)
end
local function untell(cursors)
  for at = 1, #cursors, 6 do UNTOLD[#UNTOLD + 1] = cut('>I6', cursors, at) end
end

-- Removes a run that has ended, as it is kept or as this script has left it.
local function remove_run(r)
  local rid = r.rid
  local kept_name, attempts, key = cut('>I2c0I4I4c0', r.text, own_at(r))
  REMOVED[rid], RUN[rid], ENDED_AT[rid] = true, false, nil
  call('ZREM', ENDED, rid)
  NEW_IDS[kept_name], RESULT_IS[rid] = false, false
  if has(r.flags, WITH_KEY) then call('HDEL', KEYED, key) end
  for n = 1, attempts do ATTEMPT_IS[rid .. pack('>I4', n)] = false end
  untell(cursors_of(r))
  count(r.spec, r.status, -1)
  r.spec.used = r.spec.used - 1
  local block = block_of(rid)
  for _, list in ipairs(lists_of(r.spec, kept_name)) do
    local begun = IN_BLOCK[list]
    if begun and (begun[block] or 0) > 0 then
      -- One that this script has added, or another in its place.
      begun[block] = begun[block] - 1
    elseif tonumber(call('ZINCRBY', list, -1, block)) % (2 * BLOCK) == 0 then
      call('ZREM', list, block)
    end
  end
  if call('HINCRBY', GONE, block, 1) == BLOCK then
    call('HDEL', GONE, block)
    call('ZREM', BLOCKS, block)
  end
end

-- When somebody has to look at a run.
local function wakes_at(r)
  local at = r.leased and num(r.text, r.at + 51)
  local alarm = has(r.flags, HAS_ALARM) and num(r.text, r.at + 11)
  if at and alarm then return math.min(at, alarm) end
  return at or alarm
end

-- Writes what was put together.

local MOST = 4000
local function with_many(command, key, list)
  for i = 1, #list, MOST do call(command, key, unpack(list, i, math.min(i + MOST - 1, #list))) end
end

local function scores(key, by_member)
  local add, remove = {}, {}
  for member, score in pairs(by_member) do
    if score then
      add[#add + 1] = score
      add[#add + 1] = member
    else
      remove[#remove + 1] = member
    end
  end
  with_many('ZADD', key, add)
  with_many('ZREM', key, remove)
end

local function fields(key, by_field)
  local put, remove = {}, {}
  for field, value in pairs(by_field) do
    if value then
      put[#put + 1] = field
      put[#put + 1] = value
    else
      remove[#remove + 1] = field
    end
  end
  with_many('HSET', key, put)
  with_many('HDEL', key, remove)
end

local function flush_ready()
  scores(READY, READY_IS)
  READY_IS = {}
end

-- One more run of a list in a block.
local function lead_to(list, block)
  local blocks = IN_BLOCK[list]
  if not blocks then
    blocks = {}
    IN_BLOCK[list] = blocks
  end
  blocks[block] = (blocks[block] or 0) + 1
end

-- In a scope of its own, as are other parts that nobody else calls: a script may have 200 local names.
local flush
do

local function members(prefix, by_name)
  for name, of_lane in pairs(by_name) do
    local by_member = {}
    for rid, is in pairs(of_lane) do
      by_member[rid] = is and select(2, cut('>I2I4', rid)) + cut('>I2', rid) * 4294967296
    end
    scores(prefix .. name, by_member)
  end
end

local function sums(key, by)
  local gone = {}
  for field, n in pairs(by) do
    if n ~= 0 and call('HINCRBY', key, field, n) <= 0 then gone[#gone + 1] = field end
  end
  with_many('HDEL', key, gone)
  return gone
end

local function flush_records()
  local records, removed, ended = MADE.list, {}, {}
  -- Behind what was made quickly: who was looked at again has changed since.
  for i = 1, #CHANGED do
    local r = CHANGED[i]
    if not REMOVED[r.rid] then
      local n = #records
      records[n + 1], records[n + 2] = r.rid, encode(r)
    end
  end
  for rid in pairs(REMOVED) do removed[#removed + 1] = rid end
  with_many('HSET', RUNS, records)
  with_many('HDEL', RUNS, removed)
  for rid, at in pairs(ENDED_AT) do
    ended[#ended + 1] = at
    ended[#ended + 1] = rid
  end
  with_many('ZADD', ENDED, ended)
end

-- How many runs have what in common, and how many there are by status.
local function flush_counts()
  local counted, used = {}, {}
  for sid, spec in pairs(SPEC) do
    used[sid] = spec.used
    -- Of a run that was added and removed.
    if spec.used == 0 then NEW_SPECS[sid] = nil end
    for status, n in pairs(spec.moved) do
      local all, own = tostring(status), spec.task .. '\0' .. status
      counted[all], counted[own] = (counted[all] or 0) + n, (counted[own] or 0) + n
    end
  end
  fields(SPECS, NEW_SPECS)
  with_many('HDEL', SPECS, sums(SPEC_USES, used))
  sums(COUNTS, counted)
end

-- Events that are told at once are one entry of the stream, under the cursor of the last: an entry for each would
-- cost more than what is in it. An entry goes when all its events are gone, so that it is no larger than this.
local AT_MOST, BYTES_AT_MOST = 32, 4096
local function flush_told()
  local first, all = 1, #TOLD / 2
  while first <= all do
    local last, size = first, #TOLD[2 * first]
    local of_run = #TOLD[2 * first - 1] == 6
    while of_run and last < all and last - first + 1 < AT_MOST and size < BYTES_AT_MOST
      and #TOLD[2 * last + 1] == 6 do
      last = last + 1
      size = size + #TOLD[2 * last]
    end
    call('XADD', EVENTS, digits(BEGAN.cursor + last) .. '-0', unpack(TOLD, 2 * first - 1, 2 * last))
    first = last + 1
  end
end

-- Of an entry whose events are not all gone it is kept how many are.
local function flush_untold()
  table.sort(UNTOLD)
  local i = 1
  while i <= #UNTOLD do
    local entry = call('XRANGE', EVENTS, digits(UNTOLD[i]), '+', 'COUNT', 1)[1]
    if not entry then return end
    local behind, last = cursors_in(entry)
    local id, all, gone = entry[1], last - behind, 0
    while i <= #UNTOLD and UNTOLD[i] <= last do
      if UNTOLD[i] > behind then gone = gone + 1 end
      i = i + 1
    end
    if gone > 0 and gone < all then
      gone = call('HINCRBY', FADED, id, gone)
      if gone >= all then call('HDEL', FADED, id) end
    end
    if gone >= all then call('XDEL', EVENTS, id) end
  end
end

-- How many runs of a list are in a block, behind the number of the block.
local function flush_blocks()
  for list, blocks in pairs(IN_BLOCK) do
    for block, n in pairs(blocks) do
      if n > 0 and tonumber(call('ZINCRBY', list, n, block)) == n then
        call('ZINCRBY', list, block * 2 * BLOCK, block)
      end
    end
  end
end

local function flush_lanes()
  for name, lane in pairs(LANE) do
    if lane.changed then
      if lane.total > 0 then
        call('HSET', LANES, name, pack('>I4I4I4I6', lane.taken, lane.total, lane.waiting, lane.version))
      else
        call('HDEL', LANES, name)
      end
    end
  end
  members(OF_LANE, IN_LANE_IS)
  members(SCHEDULED_OF, SCHEDULED_IS)
end

local function flush_claimed()
  local add, remove = {}, {}
  for rid, is in pairs(CLAIMED_IS) do
    local list = is and add or remove
    list[#list + 1] = rid
  end
  with_many('SADD', CLAIMED, add)
  with_many('SREM', CLAIMED, remove)
end

-- Tells watchers elsewhere, and answers what is told: nothing if nothing changed.
local function tell_watchers(sender)
  local silent = not (hint_ready or hint_agenda or hint_agents) and #hint_cancels == 0 and cursor == BEGAN.cursor
  if silent then return false end
  local function bit_of(is) return is and 1 or 0 end
  local told = { bit_of(hint_ready), bit_of(hint_agenda), bit_of(hint_agents), digits(cursor),
    table.concat(hint_cancels, ',') }
  call('PUBLISH', P .. ':hints', sender .. ' ' .. table.concat(told, ' '))
  return told
end

function flush(sender)
  flush_records()
  flush_ready()
  flush_blocks()
  fields(IDS, NEW_IDS)
  fields(RESULTS, RESULT_IS)
  fields(ATTEMPTS, ATTEMPT_IS)
  flush_lanes()
  flush_claimed()
  scores(FUTURE, FUTURE_AT)
  scores(WAKE, WAKE_AT)
  flush_counts()
  flush_told()
  flush_untold()
  if seq ~= BEGAN.seq or cursor ~= BEGAN.cursor or lane_version ~= BEGAN.lane_version then
    call('HSET', META, 'seq', digits(seq), 'cursor', digits(cursor), 'lane', digits(lane_version))
  end
  return tell_watchers(sender)
end

end

local write = {}

-- Makes the keys of a namespace, or tells which version made them.
function write.open()
  if call('HSETNX', META, 'schema', take()) == 1 then return false end
  return call('HGET', META, 'schema')
end

function write.put_agent(sender)
  local id, said = take(), take()
  if said == '1' then call('HSET', AGENTS, id, take()) else call('HDEL', AGENTS, id) end
  hint_agents = true
  return { flush(sender) }
end
