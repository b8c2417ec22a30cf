-- `alc.fork`: several strategies at once, each with globals of its own. All of them run until they ask; what they ask
-- together is one pause of the session. So a generation of children is one pause, whatever the timing. A name that is no
-- package here is a strategy in another language, and run as a child session: a question of the pause, until it ends.

local host = ...
local type, error, format, find, ipairs = type, error, string.format, string.find, ipairs

local INLINE = { ["holdfast.state"] = true }

-- Whether the engine answers a child's questions at once, so that nobody else has to wait for them.
local function is_inline(queries)
	for _, query in ipairs(queries) do
		if query.kind ~= "tool" or not INLINE[query.name] then return false end
	end
	return true
end

local function calls_in(queries)
	local count = 0
	for _, query in ipairs(queries) do
		if query.kind == "llm" then count = count + 1 end
	end
	return count
end

local function advance(child, results)
	child.queries = nil
	local how, what = host.advance(child.thread, results)
	if how == "asked" then
		child.queries = what
	elseif how == "returned" then
		child.entry = { strategy = child.name, ok = true, result = what }
	else
		child.entry = { strategy = child.name, ok = false, error = host.text_of(what) }
	end
end

-- Children whose questions do not fit into what is left of the budget are told so; the others go on.
local function within_budget(children)
	local left = host.budget()
	local calls = left and left.llm_calls
	if type(calls) ~= "number" then return children end
	local fitting = {}
	for _, child in ipairs(children) do
		local needs = calls_in(child.queries)
		if needs <= calls then
			calls = calls - needs
			fitting[#fitting + 1] = child
		else
			local most = host.config.max_llm_calls
			local used = most and most - calls or 0
			local message = format("budget_exceeded: max_llm_calls (%s) reached (%d used)", most or "?", used)
			advance(child, { refusal = { message = message, code = "budget_exceeded" } })
		end
	end
	return fitting
end

-- The children that ask now: those that are answered at once, else all.
local function asking(children)
	local waiting, inline = {}, {}
	for _, child in ipairs(children) do
		if child.queries then
			waiting[#waiting + 1] = child
			if is_inline(child.queries) then inline[#inline + 1] = child end
		end
	end
	if #inline > 0 then return inline end
	return waiting
end

local function ask_together(children)
	local queries = {}
	for _, child in ipairs(children) do
		for _, query in ipairs(child.queries) do queries[#queries + 1] = query end
	end
	local results = host.ask(queries, "alc.fork")
	local at = 0
	for _, child in ipairs(children) do
		local own = {}
		for i = 1, #child.queries do own[i] = results[at + i] end
		at = at + #child.queries
		if results.refused then own = { refusal = { message = own[1].message, code = own[1].code } } end
		advance(child, own)
	end
end

local function check_names(strategies)
	if type(strategies) ~= "table" or #strategies == 0 then
		error("alc.fork: strategies must be a non-empty array", 3)
	end
	for _, name in ipairs(strategies) do
		if type(name) ~= "string" or not find(name, "^[A-Za-z0-9_]+$") then
			local told = host.text_of(name)
			error(format("alc.fork: invalid strategy name '%s' (only alphanumeric and underscore allowed)", told), 3)
		end
	end
end

local function run_package(name, task)
	local found = task.require(name)
	if type(found) ~= "table" or type(found.run) ~= "function" then
		error(format("package '%s' has no run(ctx)", name), 0)
	end
	local result = found.run(task.ctx)
	-- As in a VM of its own: what comes back is a copy.
	return host.decode(host.encode(result == nil and host.null or result, host.warn_of("alc.fork: result")))
end

local function run_session(name, ctx)
	local result = host.ask({ { kind = "child", program = name, ctx = ctx } }, "alc.fork")[1]
	if result.ok then return result.value end
	error(result.message, 0)
end

return function(alc, parent)
	function alc.fork(strategies, ctx, options)
		check_names(strategies)
		local given = host.encode(ctx == nil and host.null or ctx, host.warn_of("alc.fork: ctx"))
		local children = {}
		for i, name in ipairs(strategies) do
			local namespace = format("fork-%d", i - 1)
			local task = {
				ctx = host.decode(given), namespace = namespace, prefix = parent.prefix .. format("[%s %s] ", namespace, name),
			}
			host.load("task")(task)
			local child = { name = name }
			child.thread = host.thread(function()
				if task.is_package(name) then return run_package(name, task) end
				return run_session(name, task.ctx)
			end)
			children[i] = child
			advance(child)
		end
		local together = asking(children)
		while #together > 0 do
			if not is_inline(together[1].queries) then together = within_budget(together) end
			if #together > 0 then ask_together(together) end
			together = asking(children)
		end
		local entries = host.array({})
		for i, child in ipairs(children) do
			entries[i] = child.entry
			if not child.entry.ok and type(options) == "table" and (options.on_error == "abort" or options.on_error == "fail") then
				error(format("alc.fork: strategy '%s' failed: %s", child.name, child.entry.error), 0)
			end
		end
		return entries
	end
end
