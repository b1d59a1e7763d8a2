-- What every script shares: names of keys, records taken apart, the clock.
--
-- Numbers of 64 bits stay strings of eight bytes: a number of Lua holds 53. Instants have their sign turned, so
-- that they sort as bytes. Strings are only ever compared for equality: Lua would compare them by locale.
local call, sub, byte = redis.call, string.sub, string.byte
local cut, pack, floor = struct.unpack, struct.pack, math.floor

local P = KEYS[1]
local META, IDS, RUNS, SPECS, SPEC_USES = P .. ':meta', P .. ':ids', P .. ':runs', P .. ':specs', P .. ':uses'
local RESULTS, ATTEMPTS, KEYED, COUNTS = P .. ':results', P .. ':attempts', P .. ':keys', P .. ':counts'
local READY, FUTURE, PAUSED, WAKE = P .. ':ready', P .. ':future', P .. ':paused', P .. ':wake'
local ENDED, CLAIMED, BLOCKS, GONE = P .. ':ended', P .. ':claimed', P .. ':blocks', P .. ':gone'
local LANES, OF_LANE, SCHEDULED_OF, WAIT_OF = P .. ':lanes', P .. ':in:', P .. ':sched:', P .. ':wait:'
local TASKS, NAMES, SCHEDULES, FIRES = P .. ':tasks', P .. ':names', P .. ':schedules', P .. ':fires'
local EVENTS, FADED, TASK_EVENTS, TASK_CURSORS = P .. ':events', P .. ':faded', P .. ':task_events', P .. ':task_cursors'
local OCCURRENCES, OCC_DUE, OCC_RECORDED = P .. ':occurrences', P .. ':occ_due', P .. ':occ_recorded'
-- The lists that lead to the runs of each.
local OF = { task = P .. ':of:', agent = P .. ':of_agent:', session = P .. ':of_session:' }
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
local function num(s, at)
  local high, low = cut('>I4I4', s, at or 1)
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
  return flags % (2 * bit_of) >= bit_of
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
  local spec = { sid = sid, text = text, lanes = {}, moved = {}, used = 0, fronts = {} }
  local order, count, p
  spec.agent, spec.task, order, count, p = cut('>Bc0Bc0c4B', text)
  spec.first = spec.agent .. '\0' .. order
  for i = 1, count do
    local lane = {}
    lane.name, lane.limit, p = cut('>I4c0I4', text, p)
    spec.lanes[i] = lane
  end
  -- The parts of the name of its session, between which stands the name of the run.
  local parts
  parts, count, p = {}, cut('>I2', text, p)
  for i = 1, count do parts[i], p = cut('>I4c0', text, p) end
  spec.session, spec.after_session = parts, p
  SPEC[sid] = spec
  return spec
end
local function spec_of(sid)
  local spec = SPEC[sid]
  if spec then return spec end
  local text = call('HGET', SPECS, sid)
  return text and read_spec(sid, text)
end

-- A run has a text and a place in it: behind `at` begins what a write brings as it is, and at `last` that ends. In a
-- record 14 bytes of the scripts' own are before it (place, lane, specification, how many events), and the cursors
-- of the events behind it, six bytes each. A write has it at the end of what was sent. Its parts never move. They
-- are cut out when they are looked at: a string costs more than what is done with most of them.
local OWN_OF_SCRIPTS, LEAST, LEAST_LEASED, LEASE = 14, 56, 96, 40

local function version_of(x) return sub(x.text, x.at + 27, x.at + 34) end
local function stamp_and_version(x) return sub(x.text, x.at + 19, x.at + 34) end
local function fence_of(x) return sub(x.text, x.at + 35, x.at + 42) end
local function due_of(x) return sub(x.text, x.at + 3, x.at + 10) end
local function is_due(x, by) return num(x.text, x.at + 3) <= by end
-- Only of who has a lease.
local function nonce_of(x) return sub(x.text, x.at + 43, x.at + 50) end
local function expires_of(x) return sub(x.text, x.at + 51, x.at + 58) end
-- Where its own part begins.
local function own_at(x) return x.at + 43 + (x.leased and LEASE or 0) end

-- Runs by their number: six bytes, in the order they were queued. False: there is none, or it cannot be read.
local RUN = {}
-- Records of this script that are not written yet and that nobody has taken apart since (quick.lua).
local MADE = { list = {} }
local function parse(rid, record)
  local size = #record
  if size < LEAST then return false end
  local place, lane, sid, events, status, flags = cut('>BBc9I3BB', record)
  local leased, last, spec = flags % 2 == LEASED, size - 6 * events, spec_of(sid)
  if not spec or last < (leased and LEAST_LEASED or LEAST) + 24 or (place == IN_LANE and not spec.lanes[lane]) then
    return false
  end
  return { rid = rid, spec = spec, text = record, at = OWN_OF_SCRIPTS, last = last, status = status, flags = flags,
    leased = leased, place = place, lane = lane, events = events, record = record, last_before = last, told = false,
    changed = false }
end
local function load_run(rid)
  local r = RUN[rid]
  if r == nil then
    local record = MADE[rid] or call('HGET', RUNS, rid)
    r = record and parse(rid, record) or false
    RUN[rid] = r
  end
  return r
end
-- The cursors of its events: of those that were told before, and of those that this script has told.
local function cursors_of(r)
  local cursors = r.record and sub(r.record, r.last_before + 1) or ''
  return r.told and cursors .. r.told or cursors
end
local function encode(r)
  local front = r.place == NOWHERE and r.spec.fronts[r.events]
  if not front then
    front = pack('>BBc9I3', r.place, r.lane, r.spec.sid, r.events)
    if r.place == NOWHERE then r.spec.fronts[r.events] = front end
  end
  return front .. sub(r.text, r.at + 1, r.last) .. cursors_of(r)
end

-- Among runs of one agent: higher priority, earlier, queued before.
local function in_order(r)
  return r.spec.first .. due_of(r) .. r.rid
end

-- Loads many at once, in order: a call of the server for each would cost more than what is read.
local AT_ONCE = 4000
local function all_of(key, fields, first, last)
  first, last = first or 1, last or #fields
  local found = {}
  for from = first, last, AT_ONCE do
    local page = call('HMGET', key, unpack(fields, from, math.min(from + AT_ONCE - 1, last)))
    if last - first < AT_ONCE then return page end
    for i, value in ipairs(page) do found[from - first + i] = value end
  end
  return found
end
local function load_runs(rids)
  local missing = {}
  for _, rid in ipairs(rids) do
    if RUN[rid] == nil then missing[#missing + 1] = rid end
  end
  for i, record in ipairs(all_of(RUNS, missing)) do
    local rid = missing[i]
    RUN[rid] = record and parse(rid, record)
  end
end

-- A task as far as scripts look at it.
local function read_task(record)
  local t = {}
  t.revision, t.enabled, t.agent = cut('>c8BBc0', record)
  t.enabled = t.enabled == 1
  return t
end

-- Adds a run as it is answered: its number, record and result; what it has in common with others once.
local function add_run(answer, seen, rid, record, without_results)
  local records, sids, result = answer[1], answer[2], false
  if #record >= LEAST then
    local sid = sub(record, 3, 11)
    if not seen[sid] then
      seen[sid] = true
      sids[#sids + 1] = sid
      sids[#sids + 1] = call('HGET', SPECS, sid)
    end
    if has(byte(record, 16), HAS_RESULT) and not without_results then result = call('HGET', RESULTS, rid) end
  end
  local n = #records
  records[n + 1], records[n + 2], records[n + 3] = rid, record, result
end
local function answer_runs(rids, without_results)
  local answer, seen = { {}, {} }, {}
  for i, record in ipairs(all_of(RUNS, rids)) do
    if record then add_run(answer, seen, rids[i], record, without_results) end
  end
  return answer
end

-- The events of an entry of the stream are numbered from behind a cursor up to that of the entry.
local function cursors_in(entry)
  local last = tonumber(string.match(entry[1], '^%d+'))
  return last - #entry[2] / 2, last
end

-- Names of runs that are 32 digits of base 16 are kept as 16 bytes.
local function name_of(kept)
  if byte(kept) ~= 117 then return sub(kept, 2) end
  return (string.gsub(sub(kept, 2), '.', function(c) return string.format('%02x', byte(c)) end))
end

-- The lists that lead to a run: of its task, of its agent, of its session. One that is called after its run needs
-- none: who asks for it names the run.
local function lists_of(spec, kept)
  local lists, parts = { OF.task .. spec.task, OF.agent .. spec.agent }, spec.session
  if #parts == 1 then
    lists[3] = OF.session .. parts[1]
  elseif byte(kept) ~= 117 then
    lists[3] = OF.session .. table.concat(parts, name_of(kept))
  end
  return lists
end

local function block_of(rid)
  local high, low = cut('>I2I4', rid)
  return floor((high * 4294967296 + low) / BLOCK)
end
