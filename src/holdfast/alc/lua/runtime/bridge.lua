-- Layer 0 of `alc`: what needs the host. Questions to models, the durable state, logs, figures, time and the budget.

local host = ...
local type, error, tonumber, tostring, format, find = type, error, tonumber, tostring, string.format, string.find
local floor, mathtype, setmetatable, pcall = math.floor, math.type, setmetatable, pcall
local null = host.null

local DEFAULT_MAX_TOKENS = 1024
local MAX_U32 = 4294967295
local KNOWN = { prompt = true, system = true, max_tokens = true, grounded = true, underspecified = true }

local function text_of(value, what, level)
	if type(value) == "string" then return value end
	if type(value) == "number" then return host.load("order").tostring(value) end
	error(format("%s must be a string, got %s", what, value == nil and "nil" or type(value)), level or 3)
end

local function whole(value, default, least, most)
	if type(value) == "string" then value = tonumber(value) end
	if type(value) ~= "number" then return default end
	if mathtype(value) == "float" then
		if value ~= floor(value) or value < -2 ^ 53 or value > 2 ^ 53 then return default end
		value = floor(value)
	end
	if value < least or value > most then return default end
	return value
end

-- What JSON has no form for cannot be passed on; the rest is.
local function passed_on(options, what)
	local kept
	for key, value in host.sorted_pairs(options) do
		if type(key) == "string" and not KNOWN[key] then
			local ok, why = pcall(host.encode, value)
			if ok then
				kept = kept or {}
				kept[key] = value
			else
				host.log("warn", format("%s: option '%s' is not passed on: %s", what, key, host.text_of(why)), "holdfast")
			end
		end
	end
	return kept
end

local function query_of(prompt, options, what)
	local query = { kind = "llm", prompt = prompt, max_tokens = DEFAULT_MAX_TOKENS }
	if options == nil or options == null then return query end
	if type(options) ~= "table" then error(format("%s: options must be a table, got %s", what, type(options)), 3) end
	local system = options.system
	if type(system) == "string" then
		query.system = system
	elseif type(system) == "number" then
		query.system = tostring(system)
	end
	query.max_tokens = whole(options.max_tokens, DEFAULT_MAX_TOKENS, 1, MAX_U32)
	if options.grounded and options.grounded ~= null then query.grounded = true end
	if options.underspecified and options.underspecified ~= null then query.underspecified = true end
	query.options = passed_on(options, what)
	return query
end

-- The queries of several questions. Raised at the caller of the function named `what`, two levels up.
local function queries_of(items, what)
	if type(items) ~= "table" then error(format("%s: items must be an array, got %s", what, type(items)), 3) end
	local queries = {}
	for i = 1, #items do
		local item = items[i]
		if type(item) ~= "table" then
			error(format("%s: item %d must be a table with a prompt, got %s", what, i, type(item)), 3)
		end
		queries[i] = query_of(text_of(item.prompt, format("%s: prompt of item %d", what, i), 4), item, what)
	end
	return queries
end

local function answer_of(value)
	if type(value) == "string" then return value end
	return host.encode(value)
end

return function(alc, task)
	alc.null = null
	alc._dirs = host.config.dirs

	-- --- questions -----------------------------------------------------------------------------------------------

	function alc.llm(prompt, options)
		local query = query_of(text_of(prompt, "alc.llm: prompt"), options, "alc.llm")
		local result = host.ask({ query }, "alc.llm")[1]
		if result.ok then return answer_of(result.value) end
		error(result.message, 0)
	end

	function alc.llm_batch(items)
		local queries = queries_of(items, "alc.llm_batch")
		if #queries == 0 then error("alc.llm_batch: empty items array", 2) end
		local results = host.ask(queries, "alc.llm_batch")
		local answers = host.array({})
		for i = 1, #queries do
			local result = results[i]
			if not result.ok then
				if results.refused or #queries == 1 then error(result.message, 0) end
				error(format("alc.llm_batch: item %d failed: %s", i, result.message), 0)
			end
			answers[i] = answer_of(result.value)
		end
		return answers
	end

	-- The answers, false for a question that failed; if all did, the first failure is raised.
	function alc.llm_each(items)
		local queries = queries_of(items, "alc.llm_each")
		local answers, failed = host.array({}), {}
		local results = #queries > 0 and host.ask(queries, "alc.llm_each") or {}
		for i = 1, #queries do
			local result = results[i]
			answers[i] = result.ok and answer_of(result.value)
			if not result.ok then failed[#failed + 1] = format("alc.llm_each: item %d failed: %s", i, result.message) end
		end
		if #failed > 0 and #failed == #queries then error(results[1].message, 0) end
		for i = 1, #failed do alc.log("warn", failed[i]) end
		return answers
	end

	-- --- what it says --------------------------------------------------------------------------------------------

	function alc.log(level, message)
		level = text_of(level, "alc.log: level")
		host.log(level, task.prefix .. text_of(message, "alc.log: message"), "alc.log")
	end

	function alc.progress(step, total, message)
		step, total = whole(step, nil, 0, 2 ^ 53), whole(total, nil, 0, 2 ^ 53)
		if not step or not total then error("alc.progress: step and total must be non-negative integers", 2) end
		local note = { type = "progressed", step = step, total = total }
		if message ~= nil and message ~= null then note.message = task.prefix .. text_of(message, "alc.progress: message") end
		host.note(note)
	end

	local recorded = {}
	alc.stats = {}

	function alc.stats.record(key, value)
		key = text_of(key, "alc.stats.record: key")
		if value == nil then value = null end
		local text = host.encode(value, host.warn_of("stat '" .. key .. "'"))
		recorded[key] = text
		host.note({ type = "stat", key = task.prefix == "" and key or task.namespace .. "." .. key, value = host.decode_whole(text) })
	end

	function alc.stats.get(key)
		local text = recorded[text_of(key, "alc.stats.get: key")]
		if text then return host.decode(text) end
		return nil
	end

	function alc.stats.llm_calls() return host.llm_calls() end

	-- --- what it may know ----------------------------------------------------------------------------------------

	function alc.time() return host.now() end

	function alc.budget_remaining()
		local left = host.budget()
		if not left then
			if host.null_is_nil then return nil end
			return null
		end
		return { llm_calls = left.llm_calls, elapsed_ms = left.elapsed_ms, tokens = left.tokens }
	end

	local env = host.config.env or {}
	alc.env = setmetatable({}, {
		__index = function(_, key) return rawget(env, key) end,
		__newindex = function() error("alc.env is read-only", 2) end,
		__pairs = function() return host.sorted_pairs(env) end,
		__len = function() return 0 end,
		__metatable = false,
	})

	host.load("state")(alc, task)
end
