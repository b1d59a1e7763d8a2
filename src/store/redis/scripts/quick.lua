-- The usual, without taking runs apart: one without lanes is granted, begins or ends, alone in its decision and for
-- the first time in this call. That is most of what is ever written, and it costs a third this way. Whatever is
-- unlike that in any way is left alone and decided the long way (commit.lua), by the same rules.

-- What runs whose records begin alike have in common: where they wait, and how many events they have.
local FRONT = {}
local function front_of(record)
  local front = sub(record, 1, OWN_OF_SCRIPTS)
  local known = FRONT[front]
  if known == nil then
    local place, _, sid, events = cut('>BBc9I3', front)
    local spec = (place == NOWHERE or place == IS_READY) and spec_of(sid)
    known = spec and not spec.lanes[1] and { spec = spec, place = place, events = events, after = {} } or false
    FRONT[front] = known
  end
  return known
end
-- As the record begins that tells of so many more events and waits nowhere.
local function front_after(front, events)
  local text = front.after[events]
  if not text then
    text = pack('>BBc9I3', NOWHERE, 0, front.spec.sid, front.events + events)
    front.after[events] = text
  end
  return text
end

local function may_be_granted(front, record, frame, at, flags, leases)
  if front.place ~= IS_READY or flags % 2 == LEASED or not leases or num(record, 17) > now then return false end
  if not has(flags, OVERRIDES) then
    local task = task_of(front.spec.task)
    if task and not task.enabled then return false end
  end
  return not more(sub(record, 49, 56), sub(frame, at + 35, at + 42))
end

-- Whose token stands, and whose lease was not renewed since.
local function goes_on(front, record, frame, at, flags, leases)
  if front.place ~= NOWHERE or flags % 2 ~= LEASED then return false end
  if leases then return sub(frame, at + 35, at + 66) == sub(record, 49, 80) end
  return sub(frame, at + 35, at + 42) == sub(record, 49, 56)
end

function quick(frame, name)
  local kind, bits, expected = byte(frame, 1, 3)
  local rid, record = NUMBERS[name], RECORDS[name]
  if kind ~= ALONE or not IS_USUAL[bits] or not record or RUN[rid] ~= nil or MADE[rid] or NUMBER[kept_of(name)] ~= nil
    or #record < LEAST or sub(record, 41, 40 + expected) ~= sub(frame, 4, 3 + expected) then
    return false
  end
  local front, at = front_of(record), 7 + expected
  local before, flags = byte(record, 15, 16)
  local after, flags_after = byte(frame, at + 1, at + 2)
  -- It has no result, no alarm, and nobody wants it cancelled; so it stays, but for its result.
  if not front or #record - 6 * front.events < LEAST + 24 or flags >= HAS_RESULT or flags_after >= WITH_CANCEL
    or WAITING[after] then
    return false
  end
  local grants, leases = has(bits, GRANT), flags_after % 2 == LEASED
  if not (grants and may_be_granted or goes_on)(front, record, frame, at, flags, leases) then return false end

  local last, spec = at + cut('>I4', frame, at - 3), front.spec
  count(spec, before, -1)
  count(spec, after, 1)
  if grants then
    READY_IS[spec.first .. sub(record, 17, 24) .. rid] = false
    WAKE_AT[kept_of(name) .. rid] = num(frame, at + 51)
  elseif not leases then
    WAKE_AT[kept_of(name) .. rid] = false
  end
  if leases then hint_agenda = true end
  if before == CLAIMED_STATUS or after == CLAIMED_STATUS then CLAIMED_IS[rid] = after == CLAIMED_STATUS end
  local told, events = write_rest(rid, bits, frame, last + 1, false)
  local cursors = sub(record, #record - 6 * front.events + 1)
  local made = front_after(front, events) .. sub(frame, at + 1, last) .. cursors .. told
  local list, n = MADE.list, #MADE.list
  list[n + 1], list[n + 2], MADE[rid] = rid, made, made
  return true
end
