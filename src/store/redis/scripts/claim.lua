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
  local found, rids = {}, {}
  flush_ready()
  for agent in pairs(agents) do
    local page = call('ZRANGEBYLEX', READY, '[' .. agent .. '\0', '(' .. agent .. '\1', 'LIMIT', 0, most)
    for _, member in ipairs(page) do
      found[#found + 1] = { member, sub(member, #agent + 2) }
      rids[#rids + 1] = sub(member, -6)
    end
  end
  load_runs(rids)
  if next(agents, next(agents)) then table.sort(found, function(a, b) return before(a[2], b[2]) end) end
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

-- Names those that can be granted, in order, without granting them. Who cannot be had is put where it
-- waits. Says besides whether it has to be asked again when these are granted: they take the room of the next, or
-- others wait behind them.
function write.pick(sender)
  local limit, agents, named = tonumber(take()), {}, take()
  for _ = 1, tonumber(named) do agents[take()] = true end
  promote()
  local picked, taken, besides, in_vain, again, leaves_others = {}, {}, {}, 0, true, false
  while again and #picked < limit and in_vain < PAGE do
    again = false
    for _, candidate in ipairs(first_ready(agents, math.max(64, limit))) do
      if #picked == limit or in_vain == PAGE then break end
      local rid = sub(candidate[1], -6)
      local r = not taken[rid] and load_run(rid)
      local place, lane
      if r then place, lane = obstacle(r) end
      if taken[rid] then
        -- It is named already.
      elseif not r then
        READY_IS[candidate[1]] = false
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
        picked[#picked + 1], taken[rid] = rid, true
        for _, own in ipairs(r.spec.lanes) do leaves_others = leaves_others or lane_of(own.name).waiting > 0 end
        if not TAKES[r.status] then
          for _, own in ipairs(r.spec.lanes) do besides[own.name] = (besides[own.name] or 0) + 1 end
        end
      end
    end
  end
  return { flush(sender), answer_runs(picked), (again == nil or leaves_others) and 1 or 0, digits(now) }
end

-- What a request was granted and is still merely claimed.
function write.granted()
  local owner, nonce, rids = take(), take(), {}
  for _, rid in ipairs(call('SMEMBERS', CLAIMED)) do
    local r = load_run(rid)
    if r and r.status == CLAIMED_STATUS and sub(r.lease, 25) == owner and nonce_of(r) == nonce then
      rids[#rids + 1] = rid
    end
  end
  return answer_runs(rids)
end

-- Renews leases: 0 it stands, 1 it is fenced, 2 there is no such run. No version rises, nothing is told, and of a
-- record only the lease is looked at and changed.
function write.renew()
  local until_then, heard, answers, leases, names, rids = now + tonumber(take()), bytes(now), {}, {}, {}, {}
  local rid_of = {}
  for i = 1, tonumber(take()) do
    local lease = {}
    lease.fence, lease.nonce, lease.name, lease.kept = cut('>c8c8I2c0I2c0', take())
    leases[i], names[i] = lease, lease.kept
  end
  all_of(IDS, names, function(name, rid)
    rid_of[name] = rid
    if rid then rids[#rids + 1] = rid end
  end)
  local record_of, changed = {}, {}
  all_of(RUNS, rids, function(rid, record) record_of[rid] = record end)
  for i, lease in ipairs(leases) do
    local rid = rid_of[lease.kept]
    local record = rid and record_of[rid]
    if not record or #record < 56 then
      answers[i] = { 2 }
    else
      local status, flags, _, _, _, _, fence, _, alarm, _, _, nonce, expires = cut('>BBBBc8c8c8c8c8c9I3c8c8',
        has(byte(record, 2), LEASED) and record or record .. record)
      if not HELD[status] or not has(flags, LEASED) or nonce ~= lease.nonce or fence ~= lease.fence then
        answers[i] = { 1, fence, status }
      else
        local at = num(expires)
        if until_then > at then at, expires = until_then, bytes(until_then) end
        record = sub(record, 1, 64) .. expires .. heard .. sub(record, 81)
        record_of[rid], changed[rid] = record, record
        if has(flags, HAS_ALARM) then at = math.min(at, num(alarm)) end
        WAKE_AT[lease.name .. '\0' .. rid] = at
        local r = has(flags, WITH_CANCEL) and parse(rid, record)
        answers[i] = { 0, expires, r and r.own or false }
      end
    end
  end
  fields(RUNS, changed)
  scores(WAKE, WAKE_AT)
  return answers
end
