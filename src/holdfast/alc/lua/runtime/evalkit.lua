-- What a scenario says, read and checked before anything runs: its cases, and its bindings (grader, scorer and weight).
--
-- Scenarios are plain tables, or were made with the package evalframe: its cases and bindings are read by their fields,
-- so that both are run and counted by the same code.

local host = ...
local graders, judges, scorers = host.load("graders"), host.load("judges"), host.load("scorers")

local next, type, error, rawget, rawlen, rawequal = next, type, error, rawget, rawlen, rawequal
local tostring, getmetatable = tostring, host.load("order").debug_getmetatable
local format, concat, math_type, huge = string.format, table.concat, math.type, math.huge

local kit = {}

local function fail(...) error("alc.eval: " .. format(...), 0) end

local function absent(value) return value == nil or rawequal(value, host.null) end

-- Levels of tables that a report keeps of a context or a grade: JSON has a limit, and the report has levels of its own.
local MAX_DEPTH = 64

-- A copy that can be written as JSON: without functions, threads and cycles, and with text keys unless it is a list.
local function plain(value, open, depth)
	local kind = type(value)
	if kind ~= "table" then
		if rawequal(value, host.null) then return value end
		if kind == "function" or kind == "thread" or kind == "userdata" then return nil end
		return value
	end
	if open[value] or depth > MAX_DEPTH then return nil end
	open[value] = true
	local length, copy = host.list_length(value), {}
	local is_list = length > 0 or host.is_array(value)
	for key in next, value do
		if math_type(key) ~= "integer" or key < 1 or key > length then is_list = is_list and host.is_array(value) end
	end
	if is_list then
		host.array(copy)
		for i = 1, length do
			local item = plain(rawget(value, i), open, depth + 1)
			if item == nil then item = host.null end
			copy[i] = item
		end
	else
		for key, item in host.sorted_pairs(value) do
			kind = type(key)
			if kind == "number" or kind == "boolean" then key, kind = tostring(key), "string" end
			if kind == "string" and copy[key] == nil then copy[key] = plain(item, open, depth + 1) end
		end
	end
	open[value] = nil
	return copy
end

function kit.plain(value) return plain(value, {}, 1) end

-- How many items a list has, or nil and what is wrong: a hole would silently hide all that stand after it.
local function list_length(t)
	local length, highest = 0, 0
	for key in next, t do
		if math_type(key) == "integer" and key >= 1 then
			length = length + 1
			if key > highest then highest = key end
		end
	end
	if length == highest then return length end
	local hole = 1
	while rawget(t, hole) ~= nil do hole = hole + 1 end
	return nil, hole
end

local function text_field(raw, field, where)
	local value = raw[field]
	if absent(value) then return nil end
	if type(value) == "number" then return tostring(value) end
	if type(value) ~= "string" then fail("%s: '%s' must be text, got %s", where, field, type(value)) end
	return value
end

local function texts(value, field, where)
	local list, seen = host.array({}), {}
	local length, hole = list_length(value)
	if not length then fail("%s: '%s' has a hole at %d", where, field, hole) end
	if length == 0 and next(value) ~= nil then fail("%s: '%s' must be a list of texts, not a map", where, field) end
	for i = 1, length do
		local item = rawget(value, i)
		if type(item) == "number" then item = tostring(item) end
		if type(item) ~= "string" then fail("%s: %s[%d] must be text, got %s", where, field, i, type(item)) end
		if not seen[item] then
			seen[item] = true
			list[#list + 1] = item
		end
	end
	return list
end

local function expected_of(raw, where)
	local value = raw.expected
	if absent(value) then return nil end
	if type(value) == "table" then return texts(value, "expected", where) end
	if type(value) == "number" or type(value) == "boolean" then value = tostring(value) end
	if type(value) ~= "string" then fail("%s: 'expected' must be text or a list of texts, got %s", where, type(value)) end
	return host.array({ value })
end

local function table_field(raw, field, where)
	local value = raw[field]
	if absent(value) then return {} end
	if type(value) ~= "table" then fail("%s: '%s' must be a table, got %s", where, field, type(value)) end
	return value
end

-- One case twice: `record` is what the report shows, `live` what graders get, with the scenario's own context in it.
local function read_case(raw, index)
	local where = format("case #%d", index)
	if type(raw) ~= "table" then fail("%s must have an 'input' field; it is a %s, not a table", where, type(raw)) end
	if absent(raw.input) then fail("%s must have an 'input' field", where) end
	local input, name = text_field(raw, "input", where), text_field(raw, "name", where) or ""
	if name ~= "" then where = format("case #%d (%s)", index, name) end
	local expected, rubric = expected_of(raw, where), text_field(raw, "rubric", where)
	local context, tags = table_field(raw, "context", where), texts(table_field(raw, "tags", where), "tags", where)
	local record = {
		input = input, name = name, expected = expected, context = kit.plain(context), tags = tags, rubric = rubric,
	}
	local live = raw
	-- evalframe's graders are handed evalframe's own case, which is frozen; any other could be changed by a grader.
	if not (getmetatable(raw) ~= nil and type(raw._tag) == "table") then
		live = { input = input, name = name, context = context, rubric = rubric }
		live.expected, live.tags = kit.plain(expected), kit.plain(tags)
	end
	return { record = record, live = live }
end

function kit.cases(scenario, label)
	local raw = scenario.cases
	if absent(raw) then
		fail("scenario '%s' has no cases: give it cases = {{input = ..., expected = ...}, ...}", label)
	end
	if type(raw) ~= "table" then fail("scenario '%s': cases must be a list of tables, got %s", label, type(raw)) end
	local length, hole = list_length(raw)
	if not length then fail("scenario '%s': cases has a hole at %d, what stands after it would be lost", label, hole) end
	if length == 0 then
		if next(raw) ~= nil then fail("scenario '%s': cases must be a list, not a map", label) end
		fail("scenario '%s' has no cases: its list of cases is empty", label)
	end
	local cases = {}
	for i = 1, length do cases[i] = read_case(rawget(raw, i), i) end
	return cases
end

local function known_graders()
	local names = graders.names()
	local more = judges.names()
	for i = 1, #more do names[#names + 1] = more[i] end
	return concat(names, ", ")
end

-- `options` is the binding's own table, in which a grader finds its tolerance, rubric and the like.
local function to_grader(alc, value, options, where, index)
	local kind = type(value)
	if kind == "string" then
		local grader = judges.make(alc, value, options, where) or graders.make(value, options, where)
		if not grader then fail("unknown grader '%s' (there are %s)", value, known_graders()) end
		return grader
	end
	local name = type(options.name) == "string" and options.name or format("custom_%d", index)
	if kind == "function" then return { name = name, check = value } end
	if kind == "table" and type(value.check) == "function" then
		return { name = type(value.name) == "string" and value.name or name, check = value.check }
	end
	fail("grader must be a string name or function, got %s", kind)
end

-- A name, a function, {grader, scorer?, weight=, name=}, {grader=, scorer=, weight=} as evalframe's bindings are, or a
-- grader of evalframe's.
local function to_binding(alc, entry, what, index)
	local where = format("%s #%d", what, index)
	if type(entry) ~= "table" then
		local grader = to_grader(alc, entry, {}, "alc.eval: " .. where, index)
		return { grader = grader, score = grader.scorer or scorers.bool, weight = 1.0 }
	end
	local chosen, scorer, weight = entry.grader, entry.scorer, entry.weight
	if chosen == nil then chosen = entry[1] end
	if scorer == nil then scorer = entry[2] end
	if chosen == nil and type(entry.check) == "function" then chosen = entry end
	if chosen == nil then
		fail("%s is a table without a grader: write {'contains', weight = 0.5}, or use evalframe's bind", where)
	end
	local grader = to_grader(alc, chosen, entry, "alc.eval: " .. where, index)
	if absent(weight) then weight = 1.0 end
	if type(weight) ~= "number" or not (weight >= 0 and weight < huge) then
		fail("%s (%s): weight must be a number from 0 up, got %s", where, grader.name,
			type(weight) == "number" and tostring(weight) or type(weight))
	end
	local score = grader.scorer or scorers.bool
	if not absent(scorer) then score = scorers.make(scorer, format("alc.eval: %s (%s)", where, grader.name)) end
	return { grader = grader, score = score, weight = weight }
end

-- The full form lists its bindings in the scenario itself; the simple form names graders, by default exact_match.
function kit.bindings(alc, scenario, label)
	local source, what = scenario, "entry"
	local length, hole = list_length(scenario)
	if length == 0 then
		source, what = scenario.graders, "grader"
		if absent(source) then source = { "exact_match" } end
		if type(source) ~= "table" then
			fail("scenario '%s': graders must be a list such as {'exact_match'}, got %s", label, type(source))
		end
		length, hole = list_length(source)
	elseif not absent(scenario.graders) then
		host.log("warn", format("scenario '%s' lists bindings and graders: the graders are not used", label), "alc.eval")
	end
	if not length then fail("scenario '%s': the list in which each %s stands has a hole at %d", label, what, hole) end
	if length == 0 then fail("scenario '%s': graders is an empty list; leave it out to use exact_match", label) end
	local bindings = {}
	for i = 1, length do bindings[i] = to_binding(alc, rawget(source, i), what, i) end
	return bindings
end

return kit
