-- The globals that a program sees: a list of what is harmless. What is not on it does not exist. In a trusted program
-- files, processes and `debug` are there too; the clock and randomness are the session's in both.

local host = ...
local raw = _G
local order = host.load("order")
local running, isyieldable = coroutine.running, coroutine.isyieldable
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield
local getmetatable, setmetatable, rawget, type, error, load = getmetatable, setmetatable, rawget, type, error, load
local select, tonumber, pcall, floor = select, tonumber, pcall, math.floor
local concat, pack, unpack = table.concat, table.pack, table.unpack
local real_date, real_time, real_getenv = os.date, os.time, os.getenv
local char, gsub = string.char, string.gsub

local sandbox = {}

local function copy(from, without)
	local to = {}
	for name, value in next, from do
		if not (without and without[name]) then to[name] = value end
	end
	return to
end

-- --- texts: shared by all programs of the VM, because `("x"):upper()` finds its methods in one place -----------------

local texts = copy(string, not host.trusted and { dump = true } or nil)
texts.format = order.format
local text_metatable = getmetatable("")
text_metatable.__index = texts
if not host.trusted then text_metatable.__metatable = false end

-- --- random numbers, from the session's seed --------------------------------------------------------------------------

local real_random, real_seed = math.random, math.randomseed
local reseeds = 0
real_seed(host.config.seed)

local function randomseed(...)
	if select("#", ...) == 0 then
		reseeds = reseeds + 1
		return real_seed(host.config.seed, reseeds)
	end
	return real_seed(...)
end

-- A generator of its own for what would come from /dev/urandom, so that it does not disturb `math.random`.
local noise = host.config.seed | 1
local function random_byte()
	noise = noise ~ (noise << 13)
	noise = noise ~ (noise >> 7)
	noise = noise ~ (noise << 17)
	return (noise >> 24) & 0xff
end

local urandom = {}
urandom.__index = urandom
urandom.__name = "FILE*"
function urandom:read(...)
	local results = pack(...)
	if results.n == 0 then results = { 16, n = 1 } end
	for i = 1, results.n do
		local count = tonumber(results[i])
		if not count then error("only a number of bytes can be read from /dev/urandom", 2) end
		local bytes = {}
		for j = 1, floor(count) do bytes[j] = char(random_byte()) end
		results[i] = concat(bytes)
	end
	return unpack(results, 1, results.n)
end
function urandom:close() return true end
function urandom:seek() return 0 end
function urandom:setvbuf() return true end

local RANDOM_FILES = { ["/dev/urandom"] = true, ["/dev/random"] = true }

-- --- coroutines: a program's own may not pause the session, and are under the same deadline -----------------------------

local function in_own_coroutine() return running() ~= host.current end

local function create_watched(f)
	if type(f) ~= "function" then
		error("bad argument #1 to 'create' (function expected)", 2)
	end
	local co = create(f)
	host.watch(co)
	return co
end

local function finish(ok, ...)
	if ok then return ... end
	error((...), 0)
end

local function wrap(f)
	local co = create_watched(f)
	return function(...) return finish(resume(co, ...)) end
end

local function program_yield(...)
	if not in_own_coroutine() then error("attempt to yield from outside a coroutine", 2) end
	return yield(...)
end

-- --- metatables ---------------------------------------------------------------------------------------------------------

local function safe_setmetatable(t, mt)
	if type(mt) == "table" and rawget(mt, "__gc") ~= nil then
		error("setmetatable: __gc is not available: finalizers run at times that no replay could repeat", 2)
	end
	return setmetatable(t, mt)
end

-- --- print ----------------------------------------------------------------------------------------------------------------

local function line_of(...)
	local values = pack(...)
	for i = 1, values.n do
		local value = values[i]
		values[i] = type(value) == "string" and value or order.tostring(value)
	end
	return concat(values, "\t", 1, values.n)
end

local function say(...) host.log("info", line_of(...), "alc.lua.print") end

local function writer(level)
	local file = {}
	function file.write(self, ...)
		local parts = pack(...)
		for i = 1, parts.n do parts[i] = order.tostring(parts[i]) end
		local text = gsub(concat(parts, "", 1, parts.n), "\n$", "")
		if text ~= "" then host.log(level, text, "alc.lua.print") end
		return self
	end
	function file.flush(self) return self end
	function file.close() return true end
	function file.setvbuf() return true end
	function file.seek() return nil, "not a file" end
	function file.read() return nil end
	function file.lines() return function() return nil end end
	return setmetatable(file, { __name = "FILE*" })
end

-- --- the libraries --------------------------------------------------------------------------------------------------------

local function clock_library()
	local env = host.config.getenv or {}
	local ticks = 0
	local library = {
		time = function(when)
			if when == nil then return floor(host.now()) end
			return real_time(when)
		end,
		date = function(pattern, when) return real_date(pattern or "%c", when or floor(host.now())) end,
		-- It advances a little with every look, so that a loop which waits for it comes to an end.
		clock = function()
			ticks = ticks + 1
			return host.now() - host.started_at + ticks * 1e-6
		end,
		difftime = function(a, b) return a - (b or 0) + 0.0 end,
		getenv = function(name)
			local value = rawget(env, name)
			if value == nil and host.trusted then return real_getenv(name) end
			return value
		end,
	}
	if host.trusted then
		for _, name in ipairs({ "execute", "remove", "rename", "tmpname", "setlocale" }) do library[name] = os[name] end
		library.exit = function(code)
			error("os.exit(" .. order.tostring(code) .. "): a strategy ends by returning", 2)
		end
	end
	return library
end

local TRUSTED_BY = "who runs it can trust it: `holdfast run --trusted`, `holdfast mcp --trust DIRECTORY|PACKAGE`"

local function no_files(path)
	return nil, order.tostring(path) .. ": files are not available in the sandbox (" .. TRUSTED_BY .. ")", 13
end

local function file_library()
	local out, err = writer("info"), writer("warn")
	local library = {
		stdout = out,
		stderr = err,
		write = function(...) return out:write(...) end,
		read = function() return nil end,
		type = function(value)
			if value == out or value == err or getmetatable(value) == urandom then return "file" end
			if host.trusted then return io.type(value) end
			return nil
		end,
		open = function(path, mode)
			if RANDOM_FILES[path] then return setmetatable({}, urandom) end
			if host.trusted then return io.open(path, mode) end
			return no_files(path)
		end,
	}
	if host.trusted then
		for _, name in ipairs({ "lines", "tmpfile", "close", "input", "output" }) do library[name] = io[name] end
		library.stdin = io.stdin
		library.popen = host.popen
	else
		library.popen = no_files
		library.lines = function(path) error((select(2, no_files(path))), 2) end
	end
	return library
end

local COLLECTED = { collect = true, step = true }

local function collect(option)
	if option == nil or COLLECTED[option] then raw.collectgarbage() end
	return 0
end

-- `load`, with the program's globals as default and text only.
local function loader(env)
	return function(chunk, name, mode, ...)
		local scope = env
		if select("#", ...) > 0 then scope = ... end
		if host.trusted then return load(chunk, name, mode, scope) end
		if mode ~= nil and mode ~= "t" and mode ~= "bt" then
			return nil, "attempt to load a text chunk (mode is '" .. order.tostring(mode) .. "')"
		end
		return load(chunk, name, "t", scope)
	end
end

local PLAIN = {
	"assert", "error", "ipairs", "pcall", "xpcall", "select", "tonumber", "type", "rawequal", "rawget",
	"rawlen", "_VERSION",
}

-- The globals of one program. `task` gets its `require`.
function sandbox.globals(task)
	local env = {}
	for _, name in ipairs(PLAIN) do env[name] = raw[name] end
	env._G = env
	env.pairs, env.next, env.tostring = order.pairs, order.next, order.tostring
	env.getmetatable, env.rawset = order.getmetatable, order.rawset
	env.setmetatable = host.trusted and setmetatable or safe_setmetatable
	env.print = say
	env.warn = function(...) host.log("warn", line_of(...), "alc.lua.print") end
	env.collectgarbage = collect
	env.load = loader(env)
	env.string = texts
	env.table = copy(table)
	env.table.sort = order.sort
	env.utf8 = copy(utf8)
	env.math = copy(math)
	env.math.randomseed = randomseed
	env.coroutine = copy(coroutine)
	env.coroutine.create, env.coroutine.wrap, env.coroutine.yield = create_watched, wrap, program_yield
	env.coroutine.isyieldable = function() return in_own_coroutine() and isyieldable() end
	env.os = clock_library()
	env.io = file_library()
	if host.trusted then
		env.debug = copy(debug)
		env.debug.getmetatable = order.debug_getmetatable
		env.loadfile = function(path, mode, ...)
			local scope = env
			if select("#", ...) > 0 then scope = ... end
			return raw.loadfile(path, mode, scope)
		end
		env.dofile = function(path)
			local chunk, why = raw.loadfile(path, "bt", env)
			if not chunk then error(why, 0) end
			return chunk()
		end
	end
	host.load("modules")(env, task)
	return env
end

return sandbox
