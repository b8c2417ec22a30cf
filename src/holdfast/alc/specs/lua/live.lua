-- Live tests: a package's `alc.llm`, `alc.llm_batch` and `alc.llm_each` ask the spec's mock for the answer, and then
-- really pause the session until that answer has come back through the engine. Everything else is as in a plain run.
--
-- Modules get globals of their own, in which `alc` is a view of whatever `_G.alc` is at that moment. Through it a mock
-- reads as its wrapper, always the same one, and a wrapper that is written back arrives as the mock: the spec, whose
-- globals are the real ones, only ever sees its own functions.

local alc, env, root = ...
local error, find, getmetatable, load, next, open = error, string.find, getmetatable, load, next, io.open
local pack, pairs, pcall, rawequal, rawget, rawset = table.pack, pairs, pcall, rawequal, rawget, rawset
local searchpath, setmetatable, tostring, type, unpack = package.searchpath, setmetatable, tostring, type, table.unpack
local package, sub, utf8_len = package, string.sub, utf8.len
-- The real ones, before the spec or the runner puts something in their place.
local ask_one, ask_many, ask_each = alc.llm, alc.llm_batch, alc.llm_each

local pauses = 0

local function callable(value)
	if type(value) == "function" then return true end
	local meta = getmetatable(value)
	return type(meta) == "table" and rawget(meta, "__call") ~= nil
end

-- What can travel through the engine and come back as it was.
local function is_text(value) return type(value) == "string" and utf8_len(value) ~= nil end

local function error_text(raised)
	if is_text(raised) then return raised end
	local ok, text = pcall(tostring, raised)
	return ok and is_text(text) and text or "the mock raised a " .. type(raised)
end

-- The options of a question, with what the host is to answer.
local function options_with(options, answer, failure)
	local all = {}
	if type(options) == "table" then
		for key, value in next, options do all[key] = value end
	end
	all.mock_answer, all.mock_error = answer, failure
	return all
end

local CANNOT = "^alc%.llm[_%a]*: cannot pause"

-- Ask for real. False where Lua cannot wait: there the mock's own answer has to do.
local function asked(ask, ...)
	local ok, answer = pcall(ask, ...)
	if not ok and type(answer) == "string" and find(answer, CANNOT) then return false end
	pauses = pauses + 1
	return true, ok, answer
end

-- The mock's answer, or its error, by way of the engine. `ask(answer, failure)` asks; `fits(answer)` says whether the
-- answer can travel.
local function through_engine(mock, ask, fits, ...)
	local before = pauses
	local own = pack(pcall(mock, ...))
	-- A mock that called another wrapper has been through the engine already.
	if pauses == before then
		if not own[1] then
			ask(nil, error_text(own[2]))
		elseif fits(own[2]) then
			local went, ok, answer = ask(own[2], nil)
			if went and not ok then error(answer, 0) end
			if went then own[2] = answer end
		end
	end
	if not own[1] then error(own[2], 0) end
	return unpack(own, 2, own.n)
end

local function call_one(mock, prompt, options, ...)
	if not is_text(prompt) then return mock(prompt, options, ...) end
	return through_engine(mock, function(answer, failure)
		return asked(ask_one, prompt, options_with(options, answer, failure))
	end, is_text, prompt, options, ...)
end

local function are_questions(items)
	if type(items) ~= "table" or #items == 0 then return false end
	for i = 1, #items do
		if type(items[i]) ~= "table" or not is_text(items[i].prompt) then return false end
	end
	return true
end

-- Questions that `ask` asks together; `fits(answer)` says whether an answer to one of them can travel.
local function caller_of_many(ask, fits)
	return function(mock, items, ...)
		if not are_questions(items) then return mock(items, ...) end
		local count = #items
		return through_engine(mock, function(answers, failure)
			local questions = {}
			for i = 1, count do
				local answer = answers and answers[i]
				local lacking = answer == false and "the mock has no answer" or nil
				questions[i] = options_with(items[i], answer or nil, failure or lacking)
			end
			return asked(ask, questions)
		end, function(answers)
			if type(answers) ~= "table" or #answers ~= count then return false end
			for i = 1, count do
				if not fits(answers[i]) then return false end
			end
			return true
		end, items, ...)
	end
end

-- Wrappers ------------------------------------------------------------------------------------------------------------

local CALLS = {
	llm = call_one,
	llm_batch = caller_of_many(ask_many, is_text),
	llm_each = caller_of_many(ask_each, function(answer) return answer == false or is_text(answer) end),
}
local wrappers = {}
for name in next, CALLS do wrappers[name] = setmetatable({}, { __mode = "k" }) end
local mocks = setmetatable({}, { __mode = "k" })

local function wrap(name, value)
	local call = CALLS[name]
	if not call or not callable(value) or mocks[value] then return value end
	local wrapper = wrappers[name][value]
	if not wrapper then
		wrapper = function(...) return call(value, ...) end
		wrappers[name][value] = wrapper
		mocks[wrapper] = value
	end
	return wrapper
end

local function unwrap(value)
	if value == nil then return nil end
	local mock = mocks[value]
	if mock ~= nil then return mock end
	return value
end

-- The view of `alc`, and the globals of modules -----------------------------------------------------------------------

local views = setmetatable({}, { __mode = "k" })
local seen_as = setmetatable({}, { __mode = "k" }) -- the table behind a view

local function iterate_view(target)
	local step, state, key = pairs(target)
	return function(_, last)
		local value
		last, value = step(state, last)
		if last ~= nil then return last, wrap(last, value) end
	end, nil, key
end

local function view_of(target)
	if type(target) ~= "table" then return target end
	local view = views[target]
	if not view then
		view = setmetatable({}, {
			__index = function(_, key) return wrap(key, target[key]) end,
			__newindex = function(_, key, value) target[key] = unwrap(value) end,
			__pairs = function() return iterate_view(target) end,
			__len = function() return #target end,
		})
		views[target] = view
		seen_as[view] = target
	end
	return view
end

local function behind(value)
	if type(value) ~= "table" then return value end
	return seen_as[value] or value
end

local globals = {}
seen_as[globals] = env

setmetatable(globals, {
	__index = function(_, key)
		local value = env[key]
		if key == "alc" then return view_of(value) end
		return value
	end,
	__newindex = function(_, key, value)
		env[key] = key == "alc" and behind(value) or value
	end,
	__pairs = function() return pairs(env) end,
})

-- A module that looks past metatables has to find what is there too.
rawset(globals, "_G", globals)
rawset(globals, "rawget", function(t, key)
	local value = rawget(behind(t), key)
	if rawequal(t, globals) and key == "alc" then return view_of(value) end
	if not rawequal(t, behind(t)) then return wrap(key, value) end
	return value
end)
rawset(globals, "rawset", function(t, key, value)
	rawset(behind(t), key, behind(unwrap(value)))
	return t
end)
rawset(globals, "next", function(t, key) return env.next(behind(t), key) end)

-- The same chunk names as in a plain run, because they are in error messages.
local function shown(path)
	if sub(path, 1, #root + 1) == root .. "/" then return sub(path, #root + 2) end
	return path
end

local live = { wrap = wrap }

-- Not a mock: calling it asks nobody.
function live.leave_alone(value) mocks[value] = value end

-- From here on modules are loaded with those globals. `preload` is asked before the search path, which leaves `require`
-- itself as it is.
function live.install()
	setmetatable(package.preload, {
		__index = function(_, name)
			if type(name) ~= "string" or type(package.path) ~= "string" then return nil end
			local path = searchpath(name, package.path)
			local file = path and open(path, "rb")
			if not file then return nil end
			local text = file:read("a")
			file:close()
			local place = shown(path)
			local chunk, why = load(text, "@" .. place, "bt", globals)
			if not chunk then error("error loading module '" .. name .. "' from " .. place .. ":\n\t" .. why, 0) end
			return function(given) return chunk(given, place) end
		end,
	})
end

return live
