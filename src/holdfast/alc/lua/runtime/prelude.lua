-- Layer 1 of `alc`: ways to ask that are made of `alc.llm` and `alc.llm_batch`, and alc.state.update. The functions of
-- `alc` are looked up at every call, because packages wrap them.

local host = ...

local order = host.load("order")
local null = host.null
local tostring = order.tostring
local find, format = string.find, string.format
local concat = table.concat
local error, ipairs, math_type, next, pcall, type = error, ipairs, math.type, next, pcall, type

local prompts = host.prompts
local MAX_CACHED = prompts.max_cached
local STATE_TOOL = "holdfast.state"

local function is_absent(value)
	return value == nil or value == null
end

local function options_of(value, what)
	if is_absent(value) then return {} end
	if type(value) ~= "table" then error(format("%s: opts must be a table, got %s", what, type(value)), 3) end
	return value
end

local function copy(from)
	local to = {}
	for key, value in next, from do to[key] = value end
	return to
end

local function deep_copy(value, copies)
	if type(value) ~= "table" then return value end
	if copies[value] then return copies[value] end
	local to = host.is_array(value) and host.array({}) or {}
	copies[value] = to
	for key, inner in next, value do to[key] = deep_copy(inner, copies) end
	return to
end

-- Cache -------------------------------------------------------------------------------------------------------------

-- A text that two values share only if they are the same, down to the bytes; nil if a value has no such text (a
-- function, a table inside itself). Lengths stand before strings, so that no two values can run into each other.
local function signature(value, open)
	local kind = type(value)
	if kind == "string" then return "s" .. #value .. ":" .. value end
	if kind == "number" then return math_type(value) == "integer" and "i" .. value .. ";" or format("f%a;", value) end
	if kind == "boolean" then return value and "t" or "b" end
	if value == nil then return "n" end
	if value == null then return "z" end
	if kind ~= "table" or open[value] then return nil end
	open[value] = true
	local parts = {}
	for key, inner in host.sorted_pairs(value) do
		local key_text, inner_text = signature(key, open), signature(inner, open)
		if not key_text or not inner_text then return nil end
		parts[#parts + 1] = key_text .. inner_text
	end
	open[value] = nil
	return "{" .. concat(parts) .. "}"
end

local function without_cache_options(opts)
	local kept = {}
	for key, value in next, opts do
		if type(key) ~= "string" or not find(key, "^cache_") then kept[key] = value end
	end
	return kept
end

local function add_cache(alc)
	local answers, keys, oldest, newest, hits, misses

	local function clear()
		answers, keys, oldest, newest, hits, misses = {}, {}, 1, 0, 0, 0
	end
	clear()

	local function remember(key, answer)
		if answer == nil then return end
		if answers[key] == nil then
			newest = newest + 1
			keys[newest] = key
		end
		answers[key] = answer
		if newest - oldest + 1 > MAX_CACHED then
			answers[keys[oldest]], keys[oldest] = nil, nil
			oldest = oldest + 1
		end
	end

	-- alc.llm that gives the first answer again when asked exactly the same. opts.cache_key names the question
	-- instead, opts.cache_skip asks anew.
	function alc.cache(prompt, opts)
		opts = options_of(opts, "alc.cache")
		local name, skip = opts.cache_key, opts.cache_skip
		opts = without_cache_options(opts)
		if skip and skip ~= null then return alc.llm(prompt, opts) end
		local key, shown
		if not name or name == null then
			if type(prompt) == "number" then prompt = tostring(prompt) end
			key = signature({ prompt, opts }, {})
			shown = key and alc.fingerprint(prompt)
		else
			key = signature({ name }, {})
			shown = tostring(name)
		end
		-- Nothing to tell it apart by: not kept.
		if not key then return alc.llm(prompt, opts) end
		if answers[key] ~= nil then
			hits = hits + 1
			alc.log("debug", "alc.cache: hit " .. shown)
			return answers[key]
		end
		local answer = alc.llm(prompt, opts)
		misses = misses + 1
		remember(key, answer)
		alc.log("debug", "alc.cache: miss " .. shown)
		return answer
	end

	function alc.cache_info()
		return { entries = newest - oldest + 1, hits = hits, misses = misses, max_entries = MAX_CACHED }
	end

	alc.cache_clear = clear
end

-- Questions ---------------------------------------------------------------------------------------------------------

local function repair_prompt(request, answer)
	local before_request, before_answer = prompts.json_repair[1], prompts.json_repair[2]
	return before_request .. request .. before_answer .. answer
end

local function add_questions(alc)
	function alc.ground(claim, opts)
		local asked = copy(options_of(opts, "alc.ground"))
		asked.grounded = true
		return alc.llm(claim, asked)
	end

	function alc.specify(prompt, opts)
		local asked = copy(options_of(opts, "alc.specify"))
		asked.underspecified = true
		return alc.llm(prompt, asked)
	end

	-- The answer, or `default` when there is none: budget spent, or the host said that it failed.
	function alc.llm_safe(prompt, opts, default)
		local ok, answer = pcall(alc.llm, prompt, opts)
		if ok then return answer end
		-- Failures are texts. Anything else is not about this question and must go on.
		if type(answer) ~= "string" then error(answer, 0) end
		alc.log("warn", "alc.llm_safe: " .. answer)
		return default
	end

	-- The table in the answer and the answer; asked once more when there is none, then nil and the last answer.
	function alc.llm_json(prompt, opts)
		opts = options_of(opts, "alc.llm_json")
		local raw = alc.llm(prompt, opts)
		local value = alc.json_extract(raw)
		if value then return value, raw end
		alc.log("warn", "alc.llm_json: the answer is not JSON, asking once more")
		local again = copy(opts)
		again.system = prompts.json_only
		raw = alc.llm(repair_prompt(tostring(prompt), tostring(raw)), again)
		value = alc.json_extract(raw)
		if not value then alc.log("warn", "alc.llm_json: the second answer is not JSON either") end
		return value, raw
	end

	-- Whether anything is left of every limit that is set.
	function alc.budget_check()
		local left = alc.budget_remaining()
		if type(left) ~= "table" then return true end
		for _, limit in ipairs({ "llm_calls", "elapsed_ms", "tokens" }) do
			if type(left[limit]) == "number" and left[limit] <= 0 then return false end
		end
		return true
	end

	-- One question for every item, all in one pause. What prompt_fn returns as a text is asked with opts (but for
	-- post_fn); a table with a prompt is asked as it is.
	function alc.parallel(items, prompt_fn, opts)
		if type(items) ~= "table" or #items == 0 then error("alc.parallel: items must be a non-empty array", 2) end
		if type(prompt_fn) ~= "function" then error("alc.parallel: prompt_fn must be a function", 2) end
		local shared = copy(options_of(opts, "alc.parallel"))
		local post_fn = shared.post_fn
		shared.post_fn = nil
		local batch = {}
		for i, item in ipairs(items) do
			local question = prompt_fn(item, i)
			local kind = type(question)
			if kind == "string" then
				batch[i] = copy(shared)
				batch[i].prompt = question
			elseif kind ~= "table" then
				error(format("alc.parallel: prompt_fn must return string or table, got %s at index %d", kind, i), 2)
			elseif type(question.prompt) ~= "string" then
				error(format("alc.parallel: prompt_fn returned table without .prompt at index %d", i), 2)
			else
				batch[i] = question
			end
		end
		local answers = alc.llm_batch(batch)
		if is_absent(post_fn) then return answers end
		local results = {}
		for i, answer in ipairs(answers) do results[i] = post_fn(answer, items[i], i) end
		return results
	end
end

-- Pipe --------------------------------------------------------------------------------------------------------------

local UNFOUND = {}
local UNLOADED = "alc.pipe: failed to load strategy '%s': %s"

-- A stage that is a strategy in another language: a child session. Gives UNFOUND and the reason if there is none.
local function session_of(name)
	return function(ctx)
		local given = host.decode_whole(host.encode(ctx, host.warn_of("alc.pipe: ctx")))
		local result = host.ask({ { kind = "child", program = name, ctx = given } }, "alc.pipe")[1]
		if result.ok then return result.value end
		if result.code == "program_not_found" then return UNFOUND, result.message end
		error(result.message, 0)
	end
end

-- The name and the function of a stage. Raised at the caller of alc.pipe, two levels up.
local function stage_of(entry, i, task)
	if type(entry) == "function" then return format("(inline-%d)", i), entry end
	if type(entry) ~= "string" then error(format("alc.pipe: strategy[%d] must be a string or function", i), 3) end
	if not task.is_package(entry) then return entry, session_of(entry) end
	local ok, package = pcall(task.require, entry)
	if not ok then error(format(UNLOADED, entry, host.text_of(package)), 3) end
	if type(package) ~= "table" or type(package.run) ~= "function" then
		error(format("alc.pipe: strategy '%s' must export run(ctx)", entry), 3)
	end
	return entry, package.run
end

local function add_pipe(alc, task)
	-- Run strategies one after the other; what one leaves in ctx.result is the next one's ctx.task, as text.
	function alc.pipe(strategies, ctx, opts)
		if type(strategies) ~= "table" or #strategies == 0 then
			error("alc.pipe: strategies must be a non-empty array", 2)
		end
		if type(ctx) ~= "table" then error("alc.pipe: ctx must be a table", 2) end
		opts = options_of(opts, "alc.pipe")
		local aborts = is_absent(opts.on_error) or opts.on_error == "abort"
		local history = host.array({})
		ctx = copy(ctx)
		ctx.pipe_history = history

		local function record(entry)
			-- A stage may return a table of its own, without the history.
			if type(ctx.pipe_history) == "table" then
				history = ctx.pipe_history
			else
				ctx.pipe_history = history
			end
			history[#history + 1] = entry
		end

		for i, entry in ipairs(strategies) do
			local name, run = stage_of(entry, i, task)
			local ok, result, why = true, nil, nil
			if aborts then
				result, why = run(ctx)
			else
				local before = copy(ctx)
				ok, result, why = pcall(run, ctx)
				if not ok then ctx = before end
			end
			if result == UNFOUND then error(format(UNLOADED, name, why), 2) end
			if not ok then
				local problem = host.text_of(result)
				alc.log("warn", format("alc.pipe: stage '%s' failed: %s", name, problem))
				record({ strategy = name, error = problem })
			else
				if type(result) ~= "table" then
					error(format("alc.pipe: strategy '%s' must return a table (ctx)", name), 2)
				end
				ctx = result
				local value = ctx.result
				record({ strategy = name, result = value })
				if not is_absent(value) and i < #strategies then
					ctx.task = type(value) == "table" and alc.json_encode(value) or tostring(value)
				end
				if not is_absent(opts.on_stage) then opts.on_stage(i, name, ctx) end
			end
		end
		return ctx
	end
end

-- State -------------------------------------------------------------------------------------------------------------

local function add_state_update(alc, task)
	-- Change a value by what it is now, and return the new one. If someone else changes it meanwhile, fn is called
	-- again with the newer value: it must not count on being called once.
	function alc.state.update(key, fn, default)
		if type(key) == "number" then key = tostring(key) end
		if type(key) ~= "string" then error(format("alc.state.update: key must be a string, got %s", type(key)), 2) end
		if type(fn) ~= "function" then error(format("alc.state.update: fn must be a function, got %s", type(fn)), 2) end
		-- fn may change the table that it is given, so that every attempt needs its own.
		local untouched = deep_copy(default, {})
		local value = default
		while true do
			local now = host.call(STATE_TOOL, { op = "get", namespace = task.namespace, key = key }, "alc.state.update")
			if now.version ~= 0 then value = now.value end
			local updated = fn(value)
			-- Through JSON at once, so that what cannot be kept is an error of the program, here.
			local kept = host.decode_whole(host.encode(updated, host.warn_of("state")))
			local put = { op = "put", namespace = task.namespace, key = key, value = kept, expected = now.version }
			if host.call(STATE_TOOL, put, "alc.state.update") then return updated end
			value = deep_copy(untouched, {})
		end
	end
end

return function(alc, task)
	add_cache(alc)
	add_questions(alc)
	add_pipe(alc, task)
	add_state_update(alc, task)
end
