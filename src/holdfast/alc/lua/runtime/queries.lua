-- Queries that are not to a model: to a person, to a tool, to the clock, and to other strategies as child sessions.

local host = ...
local type, error, format, find, floor = type, error, string.format, string.find, math.floor
local next, ipairs = next, ipairs
local null = host.null

local OWN_TOOLS = "^holdfast%."

local function is_absent(value) return value == nil or value == null end

local function check_text(value, what)
	if type(value) == "number" then return host.load("order").tostring(value) end
	if type(value) ~= "string" then error(format("%s must be a string, got %s", what, type(value)), 3) end
	return value
end

local function one(query, what)
	local result = host.ask({ query }, what)[1]
	if result.ok then return result.value end
	error(result.message, 0)
end

local function choices_of(given)
	if is_absent(given) then return nil end
	if type(given) ~= "table" then error(format("alc.ask: choices must be an array, got %s", type(given)), 3) end
	local choices = host.array({})
	for i, choice in ipairs(given) do choices[i] = check_text(choice, "alc.ask: a choice") end
	return choices
end

local function timeout_of(given)
	if is_absent(given) then return nil end
	local whole = type(given) == "number" and given >= 0 and given < 2 ^ 53 and given == floor(given)
	if not whole then error("alc.ask: timeout_ms must be a number of milliseconds", 3) end
	return floor(given)
end

-- What is handed over, as JSON keeps it: what cannot be kept is an error of whoever hands it over, here.
local function handed(value, what)
	return host.decode_whole(host.encode(value == nil and null or value, host.warn_of(what)))
end

return function(alc)
	function alc.ask(prompt, opts)
		prompt = check_text(prompt, "alc.ask: prompt")
		if is_absent(opts) then opts = {} end
		if type(opts) ~= "table" then error(format("alc.ask: opts must be a table, got %s", type(opts)), 2) end
		local choices, timeout = choices_of(opts.choices), timeout_of(opts.timeout_ms)
		return one({ kind = "human", prompt = prompt, choices = choices, timeout_ms = timeout }, "alc.ask")
	end

	function alc.tool(name, args)
		name = check_text(name, "alc.tool: name")
		if find(name, OWN_TOOLS) then
			error(format("alc.tool: '%s' is a tool of the runtime itself; alc.state and alc.card are made of those", name), 2)
		end
		if is_absent(args) then args = {} end
		if type(args) ~= "table" then error(format("alc.tool: args must be a table, got %s", type(args)), 2) end
		for key in next, args do
			if type(key) ~= "string" then error("alc.tool: args must have names, as in {path = \"a.txt\"}", 2) end
		end
		local given = next(args) ~= nil and handed(args, "alc.tool: args") or nil
		return one({ kind = "tool", name = name, arguments = given }, "alc.tool")
	end

	function alc.sleep(seconds)
		if type(seconds) ~= "number" or not (seconds >= 0 and seconds < 2 ^ 53) then
			error("alc.sleep: seconds must be a number, and not negative", 2)
		end
		one({ kind = "timer", delay_ms = floor(seconds * 1000 + 0.5) }, "alc.sleep")
	end

	function alc.child(program, ctx)
		program = check_text(program, "alc.child: program")
		return one({ kind = "child", program = program, ctx = handed(ctx, "alc.child: ctx") }, "alc.child")
	end
end
