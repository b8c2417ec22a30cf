-- Stand-ins for specs: `with_alc`, `alc_mock` and `alc.spy` put functions of the test into `alc` for a while;
-- `test_doubles` makes spies and stubs of anything.

local error, ipairs, next, pack, pcall, rawequal = error, ipairs, next, table.pack, pcall, rawequal
local remove, setmetatable, type, unpack = table.remove, setmetatable, type, table.unpack

local alc, env, wrap = ...
wrap = wrap or function(_, value) return value end

-- `alc` for a while ---------------------------------------------------------------------------------------------------

local NOTHING = {}
local frames = {} -- what `install` and `spy` replaced, the newest last

-- The table in `_G.alc` at this moment: a spec may have put its own there.
local function current()
	local value = env.alc
	if type(value) ~= "table" then
		value = alc
		env.alc = value
	end
	return value
end

local function put(overrides)
	local target, before = current(), {}
	for name, value in next, overrides do
		local old = target[name]
		before[name] = old == nil and NOTHING or old
		target[name] = wrap(name, value)
	end
	return function()
		for name, old in next, before do
			if rawequal(old, NOTHING) then old = nil end
			target[name] = old
		end
	end
end

local function check_table(value, who)
	if type(value) == "table" then return end
	error(who .. ": overrides must be a table of functions by name, got " .. type(value), 3)
end

local function leave(restore, ok, ...)
	restore()
	if not ok then error((...), 0) end
	return ...
end

-- Run `body` with these functions in `alc`, and put back what was there, however it ends.
function env.with_alc(overrides, body)
	check_table(overrides, "with_alc")
	if type(body) ~= "function" then error("with_alc: the second argument must be a function, got " .. type(body), 2) end
	return leave(put(overrides), pcall(body))
end

env.alc_mock = {
	-- Until `restore`, which takes back the newest `install` or `alc.spy`.
	install = function(overrides)
		check_table(overrides, "alc_mock.install")
		frames[#frames + 1] = put(overrides)
	end,
	restore = function()
		local restore = remove(frames)
		if restore then restore() end
	end,
	restore_all = function()
		while #frames > 0 do env.alc_mock.restore() end
	end,
}

-- Watch `alc[name]`: counts calls and keeps their arguments. `stand_in` answers instead of what was there.
function alc.spy(name, stand_in)
	if type(name) ~= "string" then error("alc.spy: the name must be a string, got " .. type(name), 2) end
	local answer = stand_in
	if answer == nil then answer = current()[name] end
	local spy = { call_count = 0, calls = {} }
	function spy.reset(self)
		self.call_count, self.calls = 0, {}
	end
	frames[#frames + 1] = put({
		[name] = function(...)
			spy.call_count = spy.call_count + 1
			spy.calls[#spy.calls + 1] = { args = { ... } }
			if answer ~= nil then return answer(...) end
		end,
	})
	return spy
end

-- Doubles of anything -------------------------------------------------------------------------------------------------

local double = {}
double.__index = double

function double.__call(self, ...)
	self.received[#self.received + 1] = pack(...)
	if self.fixed then return unpack(self.fixed, 1, self.fixed.n) end
	if self.original then return self.original(...) end
end

function double.__len(self) return #self.received end
function double:call_count() return #self.received end

function double:call_args(number)
	local call = self.received[number]
	if not call then error("there was no call number " .. number .. "; calls so far: " .. #self.received, 2) end
	return { unpack(call, 1, call.n) }
end

function double:was_called_with(...)
	local wanted = pack(...)
	for _, call in ipairs(self.received) do
		local same = call.n == wanted.n
		for i = 1, wanted.n do same = same and call[i] == wanted[i] end
		if same then return true end
	end
	return false
end

function double:returns(...) self.fixed = pack(...) end
function double:reset() self.received = {} end

function double:revert()
	if self.target then self.target[self.name] = self.original end
end

local function new_double(fields)
	fields.received = {}
	return setmetatable(fields, double)
end

env.test_doubles = {
	spy = function(original) return new_double({ original = original }) end,
	stub = function() return new_double({}) end,
	spy_on = function(target, name)
		local made = new_double({ original = target[name], target = target, name = name })
		target[name] = made
		return made
	end,
}
