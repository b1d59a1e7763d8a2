-- What every script shares: names of keys, records taken apart, the clock.
--
-- Numbers of 64 bits stay strings of eight bytes: a number of Lua holds 53. Instants have their sign turned, so
-- that they sort as bytes. Strings are only ever compared for equality: Lua would compare them by locale.
local call, sub, byte, char = redis.call, string.sub, string.byte, string.char
local cut, pack, band, floor = struct.unpack, struct.pack, bit.band, math.floor

local P = KEYS[1]
local META, IDS, RUNS, SPECS, SPEC_USES = P .. ':meta', P .. ':ids', P .. ':runs', P .. ':specs', P .. ':uses'
local RESULTS, ATTEMPTS, KEYED, COUNTS = P .. ':results', P .. ':attempts', P .. ':keys', P .. ':counts'
local READY, FUTURE, PAUSED, WAKE = P .. ':ready', P .. ':future', P .. ':paused', P .. ':wake'
local ENDED, CLAIMED, BLOCKS, GONE = P .. ':ended', P .. ':claimed', P .. ':blocks', P .. ':gone'
local LANES, OF_LANE, SCHEDULED_OF, WAIT_OF = P .. ':lanes', P .. ':in:', P .. ':sched:', P .. ':wait:'
local TASKS, NAMES, SCHEDULES, FIRES = P .. ':tasks', P .. ':names', P .. ':schedules', P .. ':fires'
local EVENTS, TASK_EVENTS, TASK_CURSORS = P .. ':events', P .. ':task_events', P .. ':task_cursors'
local OCCURRENCES, OCC_DUE, OCC_RECORDED = P .. ':occurrences', P .. ':occ_due', P .. ':occ_recorded'
local OF_TASK, OF_AGENT, OF_SESSION = P .. ':of:', P .. ':of_agent:', P .. ':of_session:'
local AGENTS = P .. ':agents'

-- How many runs share a block of the lists that lead to them.
local BLOCK = 256

-- By the numbers of RunStatus and the bits of a record's flags.
local QUEUED, CLAIMED_STATUS = 0, 1
local WAITING = { [0] = true, [3] = true }
local HELD = { [1] = true, [2] = true }
local ACTIVE = { [0] = true, [1] = true, [2] = true, [3] = true, [10] = true }
local TAKES = { [1] = true, [2] = true, [3] = true, [10] = true }
local TERMINAL = { [5] = true, [6] = true, [7] = true, [8] = true, [9] = true }
local LEASED, BY_SCHEDULE, OVERRIDES, HAS_RESULT, WITH_CANCEL, WITH_KEY, HAS_ALARM = 1, 2, 4, 8, 16, 32, 64
local NOWHERE, IS_READY, IS_FUTURE, IN_LANE, IS_PAUSED = 0, 1, 2, 3, 4

local arg_at = 1
local function take()
  arg_at = arg_at + 1
  return ARGV[arg_at]
end

-- An instant of eight bytes as a number, exact up to 2^53; and back.
local function num(s)
  local high, low = cut('>I4I4', s)
  return (high - 2147483648) * 4294967296 + low
end
local function bytes(n)
  local high = floor(n / 4294967296)
  return pack('>I4I4', high + 2147483648, n - high * 4294967296)
end
local function digits(n)
  return string.format('%.0f', n)
end
local function has(flags, bit_of)
  return band(flags, bit_of) ~= 0
end

-- Unsigned numbers of eight bytes.
local function more(one, other)
  local high, low = cut('>I4I4', one)
  local high2, low2 = cut('>I4I4', other)
  return high > high2 or (high == high2 and low > low2)
end
-- Whether a comes before b, byte by byte, as sorted sets order what has one score.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The server's clock, unless the caller names another.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000)
end
local now = clock(take())

-- What never changes about runs, once for all that have it in common.
local SPEC = {}
local function read_spec(sid, text)
  local spec = { sid = sid, text = text, lanes = {} }
  local count, p
  spec.agent, spec.task, spec.order, count, p = cut('>Bc0Bc0c4B', text)
  for i = 1, count do
    local lane = {}
    lane.name, lane.limit, p = cut('>I4c0I4', text, p)
    spec.lanes[i] = lane
  end
  spec.rest = p
  SPEC[sid] = spec
  return spec
end
local function spec_of(sid)
  local spec = SPEC[sid]
  if spec then return spec end
  local text = call('HGET', SPECS, sid)
  return text and read_spec(sid, text)
end

-- The parts of the front of a record (44 bytes) and of a lease (40), which a write has as well as a run that is kept.
-- They are cut out when they are looked at: a string costs more than what is done with most of them.
local function version_of(r) return sub(r.front, 5, 12) end
local function version_and_stamp(r) return sub(r.front, 5, 20) end
local function fence_of(r) return sub(r.front, 21, 28) end
local function due_of(r) return sub(r.front, 29, 36) end
local function is_due(r, at) return num(due_of(r)) <= at end
local function nonce_of(r) return sub(r.lease, 1, 8) end
local function expires_of(r) return sub(r.lease, 9, 16) end
local function heard_of(r) return sub(r.lease, 17, 24) end

-- Runs by their number: six bytes, in the order they were queued. False: there is none, or it cannot be read.
local RUN = {}
local function parse(rid, record)
  if #record < 56 then return false end
  local r = { rid = rid, front = sub(record, 1, 44), sid = sub(record, 45, 53), lease = '' }
  r.status, r.flags, r.place, r.lane = byte(record, 1, 4)
  local high, middle, low = byte(record, 54, 56)
  local p = 57
  if has(r.flags, LEASED) then
    if #record < 96 then return false end
    r.lease, p = sub(record, 57, 96), 97
  end
  local events = 6 * ((high * 256 + middle) * 256 + low)
  r.cursors = sub(record, p, p + events - 1)
  r.own = sub(record, p + events)
  r.spec = spec_of(r.sid)
  if not r.spec or #r.own < 20 or (r.place == IN_LANE and not r.spec.lanes[r.lane]) then return false end
  return r
end
local function load_run(rid)
  local r = RUN[rid]
  if r == nil then
    local record = call('HGET', RUNS, rid)
    r = record and parse(rid, record) or false
    RUN[rid] = r
  end
  return r
end
-- Loads many at once: a call of the server for each would cost more than what is read.
local AT_ONCE = 1000
local function all_of(key, fields, each)
  for i = 1, #fields, AT_ONCE do
    local last = math.min(i + AT_ONCE - 1, #fields)
    for n, value in ipairs(call('HMGET', key, unpack(fields, i, last))) do each(fields[i + n - 1], value) end
  end
end
local function load_runs(rids)
  local missing = {}
  for _, rid in ipairs(rids) do
    if RUN[rid] == nil then missing[#missing + 1] = rid end
  end
  all_of(RUNS, missing, function(rid, record) RUN[rid] = record and parse(rid, record) or false end)
end
local function encode(r)
  return char(r.status, r.flags, r.place, r.lane) .. sub(r.front, 5) .. r.sid .. pack('>I3', #r.cursors / 6) .. r.lease
    .. r.cursors .. r.own
end

-- Among runs of one agent: higher priority, earlier, queued before.
local function in_order(r)
  return r.spec.agent .. '\0' .. r.spec.order .. due_of(r) .. r.rid
end

-- A task as far as scripts look at it.
local function read_task(record)
  local t = {}
  t.revision, t.enabled, t.agent = cut('>c8BBc0', record)
  t.enabled = t.enabled == 1
  return t
end

-- Runs as they are answered: each as number, record and result; what they have in common once.
local function answer_runs(rids, without_results)
  local records, sids, seen = {}, {}, {}
  all_of(RUNS, rids, function(rid, record)
    if not record then return end
    local result = false
    if #record >= 56 then
      local sid = sub(record, 45, 53)
      if not seen[sid] then
        seen[sid] = true
        sids[#sids + 1] = sid
        sids[#sids + 1] = call('HGET', SPECS, sid)
      end
      if has(byte(record, 2), HAS_RESULT) and not without_results then result = call('HGET', RESULTS, rid) end
    end
    local n = #records
    records[n + 1], records[n + 2], records[n + 3] = rid, record, result
  end)
  return { records, sids }
end

-- Names of runs that are 32 digits of base 16 are kept as 16 bytes.
local function name_of(kept)
  if byte(kept) ~= 117 then return sub(kept, 2) end
  return (string.gsub(sub(kept, 2), '.', function(c) return string.format('%02x', byte(c)) end))
end

-- The parts of the name of a session, between which stands the name of the run; and where they end.
local function session_parts(spec)
  if not spec.session then
    local parts, count, p = {}, cut('>I2', spec.text, spec.rest)
    for i = 1, count do parts[i], p = cut('>I4c0', spec.text, p) end
    spec.session, spec.after_session = parts, p
  end
  return spec.session, spec.after_session
end

-- The lists that lead to a run: of its task, of its agent, of its session. One that is called after its run needs
-- none: who asks for it names the run.
local function lists_of(spec, kept)
  local lists, parts = { OF_TASK .. spec.task, OF_AGENT .. spec.agent }, session_parts(spec)
  if #parts == 1 or byte(kept) ~= 117 then lists[3] = OF_SESSION .. table.concat(parts, name_of(kept)) end
  return lists
end

local function block_of(rid)
  local high, low = cut('>I2I4', rid)
  return floor((high * 4294967296 + low) / BLOCK)
end
