-- What is derived from the runs is made anew and compared; and put in the place of what was kept, if asked. It
-- looks at every run in one step, in which the server does nothing else.

local function same_set(what, key, fresh, found)
  local n = 0
  for _ in pairs(fresh) do n = n + 1 end
  local all = call('ZRANGE', key, 0, -1, 'WITHSCORES')
  local wrong = #all / 2 ~= n
  for i = 1, #all, 2 do
    if fresh[all[i]] == nil or fresh[all[i]] ~= tonumber(all[i + 1]) then wrong = true end
  end
  if wrong then found[#found + 1] = what .. ' are ' .. #all / 2 .. ' in the index, ' .. n .. ' by the runs' end
end

local function same_sums(what, key, fresh, found)
  local all, n = call('HGETALL', key), 0
  for i = 1, #all, 2 do
    n = n + 1
    if (fresh[all[i]] or 0) ~= tonumber(all[i + 1]) then
      local named = string.gsub(all[i], '%z', ' status ')
      found[#found + 1] = what .. ' "' .. named .. '": counted ' .. all[i + 1] .. ', by the runs '
        .. (fresh[all[i]] or 0)
    end
  end
  for _ in pairs(fresh) do n = n - 1 end
  if n < 0 then found[#found + 1] = what .. ': ' .. -n .. ' are not counted' end
end

local function fresh_index()
  local f = { counts = {}, uses = {}, wake = {}, ended = {}, ready = {}, future = {}, paused = {}, lanes = {},
    claimed = {}, runs = {} }
  local all = call('HGETALL', RUNS)
  for i = 1, #all, 2 do
    local rid = all[i]
    local r = parse(rid, all[i + 1])
    if r then
      f.runs[#f.runs + 1] = r
      local own = r.spec.task .. '\0' .. r.status
      f.counts[tostring(r.status)] = (f.counts[tostring(r.status)] or 0) + 1
      f.counts[own] = (f.counts[own] or 0) + 1
      f.uses[r.spec.sid] = (f.uses[r.spec.sid] or 0) + 1
      if r.status == CLAIMED_STATUS then f.claimed[rid] = true end
    end
  end
  table.sort(f.runs, function(a, b) return before(a.rid, b.rid) end)
  return f
end

local function lane_in(f, name)
  if not f.lanes[name] then f.lanes[name] = { taken = 0, total = 0, waiting = 0, runs = {}, waits = {} } end
  return f.lanes[name]
end

local function add_lanes(f)
  for _, r in ipairs(f.runs) do
    local is = stance(r.spec, r.status, r.flags)
    for _, own in ipairs(r.spec.lanes) do
      if is > 0 then
        local lane = lane_in(f, own.name)
        lane.total = lane.total + 1
        lane.taken = lane.taken + floor(is / 2) % 2
        lane.runs[r.rid] = is
      end
    end
    if r.place == IN_LANE then
      local lane = lane_in(f, r.spec.lanes[r.lane].name)
      lane.waiting = lane.waiting + 1
      lane.waits[in_order(r)] = 0
    end
  end
end

local function add_places(f, found)
  for _, r in ipairs(f.runs) do
    if WAITING[r.status] ~= (r.place ~= NOWHERE or nil) then
      found[#found + 1] = 'a run with status ' .. r.status .. ' is in place ' .. r.place
    end
    if r.place == IS_READY then f.ready[in_order(r)] = 0 end
    if r.place == IS_FUTURE then f.future[r.rid] = num(r.text, r.at + 3) end
    if r.place == IS_PAUSED then f.paused[r.spec.task .. '\0' .. r.rid] = 0 end
  end
end

local function compare_lanes(f, found)
  local kept_lanes = call('HGETALL', LANES)
  local n = 0
  for i = 1, #kept_lanes, 2 do
    local name, fresh = kept_lanes[i], f.lanes[kept_lanes[i]]
    local taken, total, waiting = cut('>I4I4I4I6', kept_lanes[i + 1])
    n = n + 1
    if not fresh then
      found[#found + 1] = 'lane "' .. name .. '" is kept and nothing is in it'
    else
      if taken ~= fresh.taken or total ~= fresh.total or waiting ~= fresh.waiting
        or call('ZCARD', OF_LANE .. name) ~= total then
        found[#found + 1] = 'lane "' .. name .. '": ' .. taken .. ' of ' .. total .. ' take room and ' .. waiting
          .. ' wait, by the runs ' .. fresh.taken .. ' of ' .. fresh.total .. ' and ' .. fresh.waiting
      end
      same_set('who waits in lane "' .. name .. '"', WAIT_OF .. name, fresh.waits, found)
    end
  end
  for _ in pairs(f.lanes) do n = n - 1 end
  if n < 0 then found[#found + 1] = -n .. ' lanes are not kept though runs are in them' end
end

-- Lanes with room in which runs wait, and none is ready to take it.
local function idle_lanes(f, found)
  for name, lane in pairs(f.lanes) do
    local waits, looked_at = {}, {}
    for rid in pairs(lane.runs) do
      local r = load_run(rid)
      local agent = r and r.spec.agent
      if r and (r.place == IS_READY or r.place == IS_FUTURE) then looked_at[agent] = true end
      if r and r.place == IN_LANE and r.spec.lanes[r.lane].name == name then
        local order = in_order(r)
        if not waits[agent] or before(order, waits[agent][1]) then waits[agent] = { order, limit_in(r, name) } end
      end
    end
    for agent, best in pairs(waits) do
      if lane.taken < best[2] and not looked_at[agent] then
        found[#found + 1] = 'lane "' .. name .. '" has room, and nobody looks at who waits in it'
      end
    end
  end
end

local function put_anew(key, fresh)
  call('DEL', key)
  scores(key, fresh)
end

local function repair(f)
  for _, name in ipairs(call('HKEYS', LANES)) do call('DEL', OF_LANE .. name, SCHEDULED_OF .. name, WAIT_OF .. name) end
  call('DEL', LANES, READY, FUTURE, PAUSED, CLAIMED, COUNTS, SPEC_USES)
  put_anew(WAKE, f.wake)
  put_anew(ENDED, f.ended)
  LANE, RUN = {}, {}
  for _, r in ipairs(f.runs) do RUN[r.rid] = r end
  for _, r in ipairs(f.runs) do
    account(r, 0, stance(r.spec, r.status, r.flags))
    count(r.spec, r.status, 1)
    r.spec.used = r.spec.used + 1
    if r.status == CLAIMED_STATUS then CLAIMED_IS[r.rid] = true end
  end
  for _, r in ipairs(f.runs) do
    r.place, r.lane = NOWHERE, 0
    put_in(r, place_for(r))
  end
  flush('')
end

function write.check()
  local f, found = fresh_index(), {}
  for _, r in ipairs(f.runs) do
    local kept_name = cut('>I2c0', r.text, own_at(r))
    local at = wakes_at(r)
    if at then f.wake[kept_name .. r.rid] = at end
    if TERMINAL[r.status] then f.ended[r.rid] = tonumber(call('ZSCORE', ENDED, r.rid) or num(r.text, r.at + 3)) end
  end
  add_lanes(f)
  add_places(f, found)
  same_sums('runs of', COUNTS, f.counts, found)
  same_sums('uses of a specification', SPEC_USES, f.uses, found)
  same_set('runs to look at', WAKE, f.wake, found)
  same_set('ended runs', ENDED, f.ended, found)
  same_set('ready runs', READY, f.ready, found)
  same_set('runs that are not due', FUTURE, f.future, found)
  same_set('runs of paused tasks', PAUSED, f.paused, found)
  compare_lanes(f, found)
  idle_lanes(f, found)
  if take() == '1' and #found > 0 then repair(f) end
  return found
end
