-- Who may be claimed, and keeping grants. A grant itself is a decision like any other (commit.lua): the rule that
-- writes it is not repeated here.

-- The most runs that one claim makes ready because they became due, and the most that it looks at in vain.
local PAGE = 1000

-- What became due waits for nothing but its lanes.
local function promote()
  local due = call('ZRANGEBYSCORE', FUTURE, '-inf', digits(now), 'LIMIT', 0, PAGE)
  load_runs(due)
  for _, rid in ipairs(due) do
    local r = load_run(rid)
    if r then
      take_out(r)
      put_in(r, place_for(r))
    else
      FUTURE_AT[rid] = false
    end
  end
end

-- The ready runs of these agents that come first.
local function first_ready(agents, most)
  local several, found, rids, behind_agent = next(agents, next(agents)), {}, {}, {}
  flush_ready()
  for agent in pairs(agents) do
    local page = call('ZRANGEBYLEX', READY, '[' .. agent .. '\0', '(' .. agent .. '\1', 'LIMIT', 0, most)
    for _, member in ipairs(page) do
      found[#found + 1], rids[#rids + 1] = member, sub(member, -6)
      if several then behind_agent[member] = #agent + 2 end
    end
  end
  load_runs(rids)
  if several then
    table.sort(found, function(a, b) return before(sub(a, behind_agent[a]), sub(b, behind_agent[b])) end)
  end
  return found
end

-- Where a ready run has to wait after all.
local function obstacle(r)
  -- The clock may have been set back.
  if not is_due(r, now) then return IS_FUTURE, 0 end
  if is_paused(r) then return IS_PAUSED, 0 end
  local lane = full_lane(r)
  if lane then return IN_LANE, lane end
end

-- Names those that can be granted, in order, without granting them, but for those that the caller passes over: it
-- cannot read them, and others may. Who cannot be had is put where it waits. Says besides whether it has to be asked again when these are granted: they take the room of the next, or
-- others wait behind them.
function write.pick(sender)
  local limit, agents, named = tonumber(take()), {}, take()
  for _ = 1, tonumber(named) do agents[take()] = true end
  promote()
  local picked, taken, besides, in_vain, again, leaves_others = {}, {}, {}, 0, true, false
  local passed_over = #ARGV - arg_at
  for _ = 1, passed_over do
    local rid = take()
    local r = load_run(rid)
    taken[rid] = true
    -- Nor does it hold up who waits in its lanes.
    if r and r.place == IS_READY then wake_lanes_of(r) end
  end
  while again and #picked < limit and in_vain < PAGE do
    again = false
    for _, candidate in ipairs(first_ready(agents, math.max(64, limit) + passed_over)) do
      if #picked == limit or in_vain == PAGE then break end
      local rid = sub(candidate, -6)
      local r = not taken[rid] and load_run(rid)
      local place, lane
      if r then place, lane = obstacle(r) end
      if taken[rid] then
        -- It is named already.
      elseif not r then
        READY_IS[candidate] = false
        in_vain, again = in_vain + 1, true
      elseif place then
        move_to(r, place, lane)
        in_vain, again = in_vain + 1, true
        -- Others became ready, which may come before the rest of these.
        if wake_lanes_of(r) then break end
      elseif full_lane(r, besides) then
        again = nil
        break
      else
        picked[#picked + 1], taken[rid] = r, true
        for _, own in ipairs(r.spec.lanes) do
          leaves_others = leaves_others or lane_of(own.name).waiting > 0
          if not TAKES[r.status] then besides[own.name] = (besides[own.name] or 0) + 1 end
        end
      end
    end
  end
  local answer, seen = { {}, {} }, {}
  for _, r in ipairs(picked) do add_run(answer, seen, r.rid, r.changed and encode(r) or r.record) end
  return { flush(sender), answer, (again == nil or leaves_others) and 1 or 0, digits(now) }
end

-- What a request was granted and is still merely claimed.
function write.granted()
  local owner, nonce, rids = take(), take(), {}
  for _, rid in ipairs(call('SMEMBERS', CLAIMED)) do
    local r = load_run(rid)
    if r and r.status == CLAIMED_STATUS and r.leased and nonce_of(r) == nonce and sub(r.text, r.at + 67, r.at + 82) == owner then
      rids[#rids + 1] = rid
    end
  end
  return answer_runs(rids)
end

-- Renews leases: 0 it stands, 1 it is fenced, 2 there is no such run. No version rises, nothing is told, and of a
-- record only the lease is looked at and changed.
function write.renew()
  local until_then, heard, answers = now + tonumber(take()), bytes(now), {}
  local count, tokens = tonumber(take()), take()
  local names_at, record_of, changed = arg_at, {}, {}
  local rids = all_of(IDS, ARGV, names_at + 1, names_at + count)
  for i = 1, count do rids[i] = rids[i] or '' end
  for i, record in ipairs(all_of(RUNS, rids)) do record_of[rids[i]] = record end
  for i = 1, count do
    local rid = rids[i]
    local record = record_of[rid]
    if not record or #record < LEAST then
      answers[i] = { 2 }
    else
      local status, flags = byte(record, 15, 16)
      if not HELD[status] or not has(flags, LEASED) or sub(record, 49, 64) ~= sub(tokens, 16 * i - 15, 16 * i) then
        answers[i] = { 1, sub(record, 49, 56), status }
      else
        local at, expires = num(record, 65), sub(record, 65, 72)
        if until_then > at then at, expires = until_then, bytes(until_then) end
        record = sub(record, 1, 64) .. expires .. heard .. sub(record, 81)
        record_of[rid], changed[rid] = record, record
        if has(flags, HAS_ALARM) then at = math.min(at, num(record, 25)) end
        WAKE_AT[ARGV[names_at + i] .. rid] = at
        local r = has(flags, WITH_CANCEL) and parse(rid, record)
        answers[i] = { 0, expires, r and sub(r.text, own_at(r), r.last) or false }
      end
    end
  end
  fields(RUNS, changed)
  scores(WAKE, WAKE_AT)
  return answers
end
