-- The describe/it/expect framework that package specs see as `lust`: groups, tests, hooks, expectations, spies and
-- the record of what passed. Finding spec files and running them is the runner's work.
--
-- It offers the API of the public `lust` 0.2 (also its `paths` table, by which specs add words of their own), with
-- three differences that specs written for it cannot feel: an error in a hook or in the body of a group is one
-- failure, not the end of the file; `it` without a function is a pending test; messages hold no addresses.
-- Two oddities are kept because specs have come to depend on them: hooks registered outside any group never run,
-- and `after` hooks run outermost first.

local host = ...

local abs, concat, error, format = math.abs, table.concat, error, string.format
local getinfo, getmetatable, ipairs, mathtype, next, pairs = debug and debug.getinfo, getmetatable, ipairs, math.type, next, pairs
local pcall, rawequal, rawget, rawlen, rawset = pcall, rawequal, rawget, rawlen, rawset
local setmetatable, sort, tostring, type, xpcall = setmetatable, table.sort, tostring, type, xpcall
local find, match, sub = string.find, string.match, string.sub

-- What the runner wants to hear while tests run: report(kind, name, message, position), where kind is "start",
-- "passed", "failed" or "pending". It is how a test that never comes back is named, so "start" comes before it runs.
local report = host.report or function() end

local SHOWN_DEPTH, SHOWN_ENTRIES, SHOWN_CHARS = 4, 20, 400
local PATH_SEPARATOR = " > "
local OUTSIDE = "(outside any test)"

local lust = { level = 0, passes = 0, errors = 0, pendings = 0, befores = {}, afters = {}, results = {} }

-- Showing values --------------------------------------------------------------------------------------------------

local show

local function key_order(a, b)
	local ta, tb = type(a), type(b)
	if ta ~= tb then return ta < tb end
	if ta == "number" or ta == "string" then return a < b end
	return false
end

local function show_table(value, depth, seen)
	if seen[value] then return "{ itself }" end
	if depth >= SHOWN_DEPTH then return "{ … }" end
	seen[value] = true
	local parts, length, keys = {}, rawlen(value), {}
	for i = 1, length do
		if #parts == SHOWN_ENTRIES then break end
		parts[#parts + 1] = show(rawget(value, i), depth + 1, seen)
	end
	local count = length
	for key in next, value do
		if not (mathtype(key) == "integer" and key >= 1 and key <= length) then
			keys[#keys + 1] = key
			count = count + 1
		end
	end
	sort(keys, key_order)
	for _, key in ipairs(keys) do
		if #parts >= SHOWN_ENTRIES then break end
		local name = type(key) == "string" and match(key, "^[%a_][%w_]*$") or "[" .. show(key, depth + 1, seen) .. "]"
		parts[#parts + 1] = name .. " = " .. show(rawget(value, key), depth + 1, seen)
	end
	if count > #parts then parts[#parts + 1] = format("… %d more", count - #parts) end
	seen[value] = nil
	return #parts == 0 and "{}" or "{ " .. concat(parts, ", ") .. " }"
end

function show(value, depth, seen)
	local kind = type(value)
	if kind == "string" then return '"' .. value .. '"' end
	if kind == "nil" or kind == "boolean" or kind == "number" then return tostring(value) end
	if kind ~= "table" then return "a " .. kind end
	local meta = getmetatable(value)
	if type(meta) == "table" and rawget(meta, "__tostring") then
		local ok, text = pcall(tostring, value)
		if ok then return text end
	end
	return show_table(value, depth, seen)
end

local function shown(value)
	local text = show(value, 0, {})
	if #text > SHOWN_CHARS then text = sub(text, 1, SHOWN_CHARS) .. "…" end
	return text
end

local function error_text(raised)
	if type(raised) == "string" then return raised end
	if raised == nil then return "error raised with nil" end
	local meta = getmetatable(raised)
	if type(meta) == "table" and rawget(meta, "__tostring") then
		local ok, text = pcall(tostring, raised)
		if ok and type(text) == "string" then return text end
	end
	if type(raised) == "number" then return tostring(raised) end
	return "error value " .. shown(raised)
end

-- Groups and tests ------------------------------------------------------------------------------------------------

local groups = {} -- names of the groups we are in, outermost first
local skip = {} -- raised by `pending` to leave a running test
local running = 0 -- tests entered and not left; `pending` means another thing inside one

local function record(kind, name, message, position)
	local suite = concat(groups, PATH_SEPARATOR)
	local full = suite == "" and name or suite .. PATH_SEPARATOR .. name
	if kind == "passed" then
		lust.passes = lust.passes + 1
	elseif kind == "failed" then
		lust.errors = lust.errors + 1
	else
		lust.pendings = lust.pendings + 1
	end
	local entry = {
		suite = suite,
		name = name,
		passed = kind == "passed",
		pending = kind == "pending",
		error = kind == "failed" and message or nil,
		position = position,
	}
	lust.results[#lust.results + 1] = entry
	report(kind, full, message, position)
end

-- Where the spec itself was when something was raised: the innermost active function of the spec file. The message
-- names the line that raised, which is often deep inside a package. Not known in the sandbox.
local function spec_position()
	local spec = host.spec_source
	if not spec or not getinfo then return nil end
	local level = 3
	while true do
		local info = getinfo(level, "Sl")
		if not info then return nil end
		if info.source == spec and info.currentline > 0 then return sub(spec, 2) .. ":" .. info.currentline end
		level = level + 1
	end
end

local function caught(raised)
	if type(raised) == "table" and rawequal(rawget(raised, "pending"), skip) then return raised end
	return { message = error_text(raised), position = spec_position() }
end

local function hooks(list, name)
	for level = 1, lust.level do
		for _, hook in ipairs(list[level] or {}) do
			hook(name)
		end
	end
end

local function forget_hooks(list, level)
	for inner in pairs(list) do
		if inner > level then list[inner] = nil end
	end
end

function lust.describe(name, body)
	name = tostring(name)
	local level = lust.level
	lust.level = level + 1
	groups[#groups + 1] = name
	local depth = #groups
	if body == nil then
		record("pending", "(empty group)")
	else
		local ok, raised = xpcall(body, caught)
		-- An error may have left inner groups open.
		for i = #groups, depth + 1, -1 do groups[i] = nil end
		if not ok then
			if raised.pending then
				record("pending", OUTSIDE, raised.reason)
			else
				record("failed", OUTSIDE, raised.message, raised.position)
			end
		end
	end
	groups[depth] = nil
	lust.level = level
	forget_hooks(lust.befores, level)
	forget_hooks(lust.afters, level)
end

function lust.it(name, body)
	name = tostring(name)
	if body == nil then return record("pending", name) end
	local full = concat(groups, PATH_SEPARATOR)
	report("start", full == "" and name or full .. PATH_SEPARATOR .. name)
	running = running + 1
	local ok, raised = xpcall(function()
		hooks(lust.befores, name)
		body()
	end, caught)
	-- They run after a failure too: most of them undo what the test set up for the next one.
	local tidy, untidy = xpcall(hooks, caught, lust.afters, name)
	running = running - 1
	if ok and not tidy then
		ok, raised = false, untidy
		if not raised.pending then raised.message = "in an after hook: " .. raised.message end
	end
	if ok then
		record("passed", name)
	elseif raised.pending then
		record("pending", name, raised.reason)
	else
		record("failed", name, raised.message, raised.position)
	end
end

-- For the runner: run a body as a group would, but without being one. An error is one failure of that name.
function host.attempt(name, body)
	local ok, raised = xpcall(body, caught)
	groups, lust.level = {}, 0
	if not ok then record("failed", name, raised.message or "pending outside any test", raised.position) end
end

-- Inside a test: leave it, it is pending. Elsewhere: a test that is still to be written.
function lust.pending(reason)
	if running > 0 then error({ pending = skip, reason = reason and tostring(reason) }, 0) end
	record("pending", tostring(reason or "(no name)"))
end

function lust.before(hook)
	local level = lust.level
	lust.befores[level] = lust.befores[level] or {}
	local list = lust.befores[level]
	list[#list + 1] = hook
end

function lust.after(hook)
	local level = lust.level
	lust.afters[level] = lust.afters[level] or {}
	local list = lust.afters[level]
	list[#list + 1] = hook
end

-- Expectations ----------------------------------------------------------------------------------------------------

local function holds(list, wanted)
	for _, value in pairs(list) do
		if value == wanted then return true end
	end
	return false
end

-- Deep equality. Keys are read as a program reads them (`__index`, `__pairs`), metatables are not compared. `seen`
-- maps a left table to the right tables it is already being compared with, so tables that hold themselves end.
local function equal(left, right, epsilon, seen)
	if type(left) ~= type(right) then return false end
	if type(left) == "number" then
		return left == right or epsilon ~= nil and abs((left + 0.0) - (right + 0.0)) <= epsilon
	end
	if type(left) ~= "table" or rawequal(left, right) then return left == right end
	local with = seen[left]
	if not with then
		with = {}
		seen[left] = with
	end
	if with[right] then return true end
	with[right] = true
	for key in pairs(left) do
		if not equal(left[key], right[key], epsilon, seen) then return false end
	end
	for key in pairs(right) do
		if not equal(left[key], right[key], epsilon, seen) then return false end
	end
	return true
end

local function descends(value, class)
	local seen = {}
	while type(value) == "table" and not seen[value] do
		if rawequal(value, class) then return true end
		seen[value] = true
		local meta = getmetatable(value)
		value = type(meta) == "table" and meta.__index or nil
	end
	return false
end

local function is_a(value, class)
	if type(class) == "string" then
		return type(value) == class,
			format("expected %s to be a %s, it is a %s", shown(value), class, type(value)),
			format("expected %s not to be a %s", shown(value), class)
	end
	if type(class) ~= "table" then
		error("to.be.a takes the name of a type or a class table, not " .. shown(class), 0)
	end
	return type(value) == "table" and descends(value, class),
		format("expected %s to be of the class %s", shown(value), shown(class)),
		format("expected %s not to be of the class %s", shown(value), shown(class))
end

local function callable(value)
	if type(value) == "function" then return true end
	local meta = getmetatable(value)
	return type(meta) == "table" and meta.__call ~= nil
end

local function needs_callable(value, word)
	if not callable(value) then
		error(format("to.%s needs a function to call, got %s", word, shown(value)), 0)
	end
end

-- The words of an expectation. A word's entry lists the words that may follow it; `test(value, …)` decides and
-- gives the message for a failure, then the one for a failure of the negation; `chain` runs when the word is read.
local paths = {
	[""] = { "to", "to_not" },
	to = { "have", "equal", "be", "exist", "fail", "match" },
	to_not = {
		"have", "equal", "be", "exist", "fail", "match",
		chain = function(expectation) expectation.negate = not expectation.negate end,
	},
	a = { test = is_a },
	an = { test = is_a },
	be = {
		"a", "an", "truthy", "falsy",
		test = function(value, other)
			return value == other,
				format("expected %s to be %s", shown(value), shown(other)),
				format("expected %s not to be %s", shown(value), shown(other))
		end,
	},
	exist = {
		test = function(value)
			return value ~= nil, "expected a value, got nil", format("expected nil, got %s", shown(value))
		end,
	},
	truthy = {
		test = function(value)
			return value,
				format("expected %s to be truthy", shown(value)),
				format("expected %s not to be truthy", shown(value))
		end,
	},
	falsy = {
		test = function(value)
			return not value,
				format("expected %s to be falsy", shown(value)),
				format("expected %s not to be falsy", shown(value))
		end,
	},
	equal = {
		test = function(value, other, epsilon)
			local near = epsilon and format(" within %s", tostring(epsilon)) or ""
			local ok = equal(value, other, epsilon, {})
			if not ok and type(value) ~= type(other) then
				near = format(" (a %s and a %s)%s", type(value), type(other), near)
			end
			return ok,
				format("expected %s to equal %s%s", shown(value), shown(other), near),
				format("expected %s not to equal %s%s", shown(value), shown(other), near)
		end,
	},
	have = {
		test = function(value, item)
			if type(value) ~= "table" then error(format("expected a table to look in, got %s", shown(value)), 0) end
			return holds(value, item),
				format("expected %s to have %s", shown(value), shown(item)),
				format("expected %s not to have %s", shown(value), shown(item))
		end,
	},
	fail = {
		"with",
		test = function(value)
			needs_callable(value, "fail")
			local ok, raised = pcall(value)
			return not ok,
				"expected the function to fail, it returned",
				ok or "expected the function not to fail, it raised: " .. error_text(raised)
		end,
	},
	with = {
		test = function(value, pattern)
			needs_callable(value, "fail.with")
			local ok, raised = pcall(value)
			local text = ok and "" or error_text(raised)
			return not ok and find(text, pattern) ~= nil,
				ok and format("expected the function to fail with %s, it returned", shown(pattern))
					or format("expected the function to fail with %s, it raised: %s", shown(pattern), text),
				format("expected the function not to fail with %s, it raised: %s", shown(pattern), text)
		end,
	},
	match = {
		test = function(value, pattern)
			local text = type(value) == "string" and value or tostring(value)
			return find(text, pattern) ~= nil,
				format("expected %s to match the pattern %s", shown(text), shown(pattern)),
				format("expected %s not to match the pattern %s", shown(text), shown(pattern))
		end,
	},
}

local function offered(word)
	local list = {}
	for _, name in ipairs(paths[word] or {}) do
		list[#list + 1] = name
	end
	return #list == 0 and "nothing" or concat(list, ", ")
end

local expectation = {}

function expectation.__index(self, key)
	local word = rawget(self, "action")
	if not holds(paths[word] or {}, key) then
		local after = word == "" and "expect(…)" or "'" .. word .. "'"
		error(format("%s cannot follow %s; what can: %s", shown(key), after, offered(word)), 2)
	end
	rawset(self, "action", key)
	local chain = (paths[key] or {}).chain
	if chain then chain(self) end
	return self
end

function expectation.__call(self, ...)
	local word = rawget(self, "action")
	local test = (paths[word] or {}).test
	if not test then error(format("'%s' alone expects nothing; what can follow: %s", word, offered(word)), 2) end
	local ok, message, negated = test(rawget(self, "val"), ...)
	if rawget(self, "negate") then
		ok, message = not ok, negated or message
	end
	if not ok then error(message or "expectation failed: " .. word, 2) end
end

function lust.expect(value)
	return setmetatable({ val = value, action = "", negate = false }, expectation)
end

-- Spies -----------------------------------------------------------------------------------------------------------

-- spy(fn, run?) or spy(table, name, run?): a callable list of the argument lists it was called with.
function lust.spy(target, name, run)
	local spy, subject = {}, nil
	local function capture(...)
		spy[#spy + 1] = { ... }
		if subject then return subject(...) end
	end
	if type(target) == "table" and not callable(target) then
		subject = target[name]
		target[name] = capture
	else
		subject, run = target, name
	end
	setmetatable(spy, { __call = function(_, ...) return capture(...) end })
	if run then run() end
	return spy
end

-- Results ---------------------------------------------------------------------------------------------------------

function lust.get_results()
	return {
		passed = lust.passes,
		failed = lust.errors,
		pending = lust.pendings,
		total = lust.passes + lust.errors + lust.pendings,
		tests = lust.results,
	}
end

function lust.reset()
	groups, running = {}, 0
	lust.level, lust.passes, lust.errors, lust.pendings = 0, 0, 0, 0
	lust.befores, lust.afters, lust.results = {}, {}, {}
end

-- Colours are the business of whoever prints the results.
function lust.nocolor()
	return lust
end

lust.test = lust.it
lust.paths = paths

return lust
