-- The driver: builds the host's table, starts the program as a coroutine, and takes one step of it at a time. A step
-- ends when the program asks, returns or raises, and is told to Python in plain values: how it ended, the notes, and what
-- belongs to that. Nothing here is reachable from a program.

local read_chunk, read_module, read_scenario, popen, config_text, prompts_text, trusted, null_is_nil, read_file,
	take_over = ...

local create, resume, status, running = coroutine.create, coroutine.resume, coroutine.status, coroutine.running
local isyieldable, yield = coroutine.isyieldable, coroutine.yield
local sethook, traceback, getinfo = debug.sethook, debug.traceback, debug.getinfo
local load, error, type, tostring, pcall = load, error, type, tostring, pcall
local cpu, byte, sub, format, find, gmatch =
	os.clock, string.byte, string.sub, string.format, string.find, string.gmatch
local concat, unpack = table.concat, table.unpack

local HOOK_EVERY = 200000 -- instructions between two looks at the clock: about a millisecond
local MAX_NOTES = 2000 -- of one step: what a person can still read, and far from what a VM can hold
local MAX_NOTE_BYTES = 64 * 1024
local MAX_TRACE_LINES = 24
local MAX_ASKED = 100000 -- queries of one step: ten times what the engine takes, and what Lua's stack can still hand over

local host = {
	read_module = read_module, popen = popen, scenario = read_scenario, trusted = trusted, null_is_nil = null_is_nil,
	scenario_file = read_file,
}
local loaded = {}

-- A file of the runtime, run once per VM.
function host.load(name)
	if loaded[name] == nil then
		local chunk, why = load(read_chunk(name), "=holdfast/" .. name, "bt")
		if not chunk then error(why, 0) end
		loaded[name] = chunk(host)
	end
	return loaded[name]
end

-- JSON's null as a value, to write it where a nil would write nothing: a userdata that is nothing else, made of a closed file whose methods are taken away.
local null = io.open("/dev/null", "r")
null:close()
debug.setmetatable(null, {
	__name = "null",
	__metatable = false,
	__tostring = function() return "null" end,
	__index = function(_, key)
		error(format("attempt to index a null value (field '%s'); compare with alc.null first", tostring(key)), 2)
	end,
})
host.null = null

local json = host.load("json")
host.encode, host.decode, host.array, host.is_array = json.encode, json.decode, json.array, json.is_array
host.decode_whole, host.list_length, host.sorted_pairs = json.decode_whole, json.list_length, json.sorted_pairs
local config = json.decode(config_text)
host.config = config
host.prompts = json.decode(prompts_text)

-- --- what the program says beside its questions ---------------------------------------------------------------------

local notes, unsaid = {}, 0

function host.note(note)
	if #notes >= MAX_NOTES then
		unsaid = unsaid + 1
		return
	end
	notes[#notes + 1] = note
end

function host.log(level, message, source)
	if #message > MAX_NOTE_BYTES then
		message = sub(message, 1, MAX_NOTE_BYTES) .. format(" … (%d bytes in all)", #message)
	end
	host.note({ type = "logged", level = level, message = message, source = source or "alc.log" })
end

local function warn_of(what)
	return function(issue, path, keys)
		if issue == "utf8" then
			host.log("warn", format("%s%s was not valid UTF-8 and was repaired", what, path or ""), "holdfast")
		elseif issue == "mixed" then
			local text = "%s%s is a list with other keys, which JSON has no place for: %s dropped"
			host.log("warn", format(text, what, path or "", keys), "holdfast")
		end
	end
end
host.warn_of = warn_of
local query_fields = host.load("query_fields")

-- The notes as JSON; nil if there are none.
local function take_notes()
	local taken = notes
	if unsaid > 0 then
		taken[#taken + 1] = {
			type = "logged", level = "warn", source = "holdfast",
			message = format("%d more lines in one step were dropped", unsaid),
		}
	end
	if #taken == 0 then return nil end
	notes, unsaid = {}, 0
	return json.encode(json.array(taken))
end

-- --- the clock, the budget, the deadline -------------------------------------------------------------------------------

local now, budget_left, llm_calls = 0.0, nil, 0
host.started_at = config.at / 1000

function host.now() return now end
function host.budget() return budget_left end
function host.llm_calls() return llm_calls end

local deadline, began, is_over = config.deadline_s, 0, false

local function stop() error(config.over, 0) end

local function check_clock()
	if is_over or cpu() - began > deadline then
		is_over = true
		-- Again at once, wherever it goes on: a pcall must not swallow this.
		sethook(stop, "", 1)
		stop()
	end
end

-- Put a coroutine under the deadline.
function host.watch(co) sethook(co, check_clock, "", HOOK_EVERY) end

-- --- pausing -------------------------------------------------------------------------------------------------------------

local PAUSE = {}

-- The coroutine that may pause now: the program, or the child of a fork that is being advanced.
host.current = nil
-- The coroutines that are loading a module.
host.requiring = setmetatable({}, { __mode = "k" })

local function why_not(what)
	if running() ~= host.current then
		return what .. ": cannot pause inside a coroutine that the strategy made itself; call it outside of"
			.. " coroutine.wrap and coroutine.create"
	end
	if host.requiring[running()] then
		return what .. ": cannot pause while a module is being loaded by require; call it from a function of the module"
	end
	if not isyieldable() then
		return what .. ": cannot pause here: Lua cannot wait inside table.sort's comparison, string.gsub's replacement,"
			.. " __tostring, __gc or another function called from C; ask before, and use the answer there"
	end
end

-- Ask, and wait. `what` names the function for errors. Gives a list of results, each {ok=true, value=} or
-- {ok=false, message=, code=}.
function host.ask(queries, what)
	local problem = why_not(what or "alc")
	if problem then error(problem, 0) end
	if #queries > MAX_ASKED then
		error(format("%s: %d questions at once; at most %d can be asked", what or "alc", #queries, MAX_ASKED), 0)
	end
	local results = yield(PAUSE, queries)
	if results.refusal then
		local failed = {}
		for i = 1, #queries do failed[i] = { ok = false, message = results.refusal.message, code = results.refusal.code } end
		failed.refused = true
		return failed
	end
	return results
end

function host.call(tool, arguments, what)
	local result = host.ask({ { kind = "tool", name = tool, arguments = arguments } }, what or tool)[1]
	if result.ok then return result.value end
	error(result.message, 0)
end

-- Advance a coroutine that may pause: "asked" and its queries, "returned" and its value, or "raised" and the error.
function host.advance(co, ...)
	local before = host.current
	host.current = co
	local ok, first, second = resume(co, ...)
	host.current = before
	if not ok then return "raised", first end
	if status(co) ~= "suspended" then return "returned", first end
	if first == PAUSE then return "asked", second end
	return "raised", "attempt to yield from outside a coroutine"
end

function host.thread(f)
	local co = create(f)
	host.watch(co)
	return co
end

-- An error of any kind as text.
function host.text_of(problem)
	if type(problem) == "string" then return problem end
	if type(problem) == "table" then
		local mt = debug.getmetatable(problem)
		if mt and rawget(mt, "__tostring") then
			-- It is the program's own function, so it is under the deadline too.
			local ok, text = resume(host.thread(tostring), problem)
			if ok and type(text) == "string" then return text end
		end
		local ok, text = pcall(json.encode, problem)
		if ok then return text end
	end
	if problem == nil then return "nil" end
	local ok, text = pcall(host.load("order").tostring, problem)
	return ok and text or type(problem)
end

-- --- the program -----------------------------------------------------------------------------------------------------------

local function main(env, task)
	local ctx = task.ctx
	if config.package then
		local found = task.require(config.package)
		if type(found) ~= "table" or type(found.run) ~= "function" then
			error(format("package '%s' has no run(ctx): it is a library, for other strategies to require", config.package), 0)
		end
		return (found.run(ctx))
	end
	local chunk, why = load(config.code, "=" .. config.name, trusted and "bt" or "t", env)
	if not chunk then error(why, 0) end
	local value = chunk()
	if type(value) == "table" and type(rawget(value, "run")) == "function" then return (value.run(ctx)) end
	return value
end

local program

local function begin()
	local task = { ctx = config.ctx, namespace = "default", prefix = "" }
	if type(task.ctx) == "table" and type(rawget(task.ctx, "_ns")) == "string" then task.namespace = task.ctx._ns end
	local env = host.load("task")(task)
	host.current = nil
	program = host.thread(function() return main(env, task) end)
	-- Somebody else may look at the clock for it: a hook takes half of its speed.
	if take_over then take_over(format("%p", program), config.deadline_s + 0.0, (config.replay_slack or 1) + 0.0) end
	-- What loading has left would stay for as long as the VM waits.
	collectgarbage()
end

local TEXT, JSON = byte("s"), byte("j")

-- What became of a query: `form` says whether the answer is a text, JSON, or a failure in JSON.
local function result_of(form, answer)
	if form == TEXT then return { ok = true, value = answer } end
	if form == JSON then
		local ok, value = pcall(json.decode, answer)
		if ok then return { ok = true, value = value } end
		return { ok = false, message = "the answer cannot be used: " .. host.text_of(value), code = "invalid_value" }
	end
	local failure = json.decode(answer)
	return { ok = false, message = failure.message, code = failure.code or "failed" }
end

local function where_is(co)
	for level = 0, 40 do
		local info = getinfo(co, level, "l")
		if not info then return "" end
		if info.currentline > 0 then -- our own files are stripped of theirs
			return getinfo(co, level, "S").short_src .. ":" .. info.currentline
		end
	end
	return ""
end

local function trace_of(co)
	local lines = {}
	for line in gmatch(traceback(co), "[^\n]+") do
		if not find(line, "^%s*%?:") and not find(line, "[C]: in ?", 1, true) then
			if #lines < MAX_TRACE_LINES then lines[#lines + 1] = line end
		end
	end
	return #lines > 1 and concat(lines, "\n") or nil
end

local function raised(problem, kind)
	local text = host.text_of(problem)
	if is_over then kind, text = "deadline", config.over end -- perhaps only while the error was put into words
	if text == "not enough memory" then
		kind, text = "memory", config.full
	end
	local budget = find(text, "budget_exceeded:", 1, true)
	local trace = kind == nil and trace_of(program)
	if trace then host.log("error", text .. "\n" .. trace, "alc.lua.traceback") end
	return "raised", take_notes(), text, kind or (budget and "budget_exceeded") or "error"
end

local function finished(value)
	local ok, text = pcall(json.encode, value, warn_of("result"))
	if not ok then return raised("the result cannot be kept as JSON: " .. host.text_of(text), "invalid_result") end
	return "returned", take_notes(), text
end

-- One step: go on at `at` (unix ms) with the answers to the queries of the last step, or after they were refused. `forms`
-- has a letter for each answer. Only a replay wants to know where the program asks, in case that it asks something else
-- than before.
return function(is_replay, at, calls, left, refusal, forms, ...)
	now, llm_calls = at / 1000, calls
	budget_left = left and json.decode(left)
	if is_over then return raised(config.over, "deadline") end
	began, deadline = cpu(), is_replay and config.deadline_s * config.replay_slack or config.deadline_s
	local results
	if refusal then
		results = { refusal = json.decode(refusal) }
	else
		results = { ... }
		for i = 1, #forms do results[i] = result_of(byte(forms, i), results[i]) end
	end
	local how, what
	if not program then
		local ok, why = pcall(begin)
		if not ok then how, what = "raised", why end
	end
	if not how then how, what = host.advance(program, results) end
	if is_over then return raised(config.over, "deadline") end
	if how == "returned" then return finished(what) end
	if how == "raised" then return raised(what) end
	-- Notes last: what is asked may not be valid UTF-8, which is noted.
	local fields, count = query_fields(what)
	return "asked", take_notes(), is_replay and where_is(program) or "", unpack(fields, 1, count)
end
