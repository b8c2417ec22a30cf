-- `require` and `package`: where a program's modules come from. The host finds them on the search path; a trusted
-- program may also use `package.path`.

local host = ...
local load, pcall, type, error, format, gsub, find_text = load, pcall, type, error, string.format, string.gsub, string.find
local concat, tostring, searchpath = table.concat, tostring, package.searchpath
local running, requiring = coroutine.running, host.requiring

local absent = {}
for _, name in ipairs(host.config.absent or {}) do absent[name] = true end

local LIBRARIES = { "string", "table", "math", "utf8", "coroutine", "os", "io", "debug" }

-- The source of a module and its chunk name, or nil and where was looked.
local function find(name, package)
	local source, place, looked = host.read_module(name)
	if source then return source, place end
	if host.trusted and type(package.path) == "string" and package.path ~= "" then
		local path, tried = searchpath(name, package.path)
		if path then
			local file = io.open(path, "rb")
			local text = file:read("a")
			file:close()
			return text, "@" .. path
		end
		looked = (looked or "") .. (tried or "")
	end
	return nil, nil, looked
end

return function(env, task)
	local package = { loaded = {}, preload = {}, path = "", cpath = "", config = "/\n;\n?\n!\n-\n" }
	if host.trusted then package.searchpath = searchpath end
	for _, name in ipairs(LIBRARIES) do package.loaded[name] = env[name] end
	package.loaded._G = env
	package.loaded.package = package
	env.package = package

	local loading = {}
	local built_in

	-- The interface of evalframe, which scenarios are written with, where the package is not installed.
	local function find_built_in(name)
		if name ~= "evalframe" and not find_text(name, "^evalframe%.") then return nil end
		built_in = built_in or host.load("evalframe")(env, task)
		package.loaded[name] = built_in[name]
		return built_in[name]
	end

	local function run(name, chunk, place)
		if loading[name] then
			error(format("module '%s' requires itself: %s", name, concat(loading, " -> ") .. " -> " .. name), 0)
		end
		loading[name] = true
		loading[#loading + 1] = name
		local co, before = running(), requiring[running()]
		requiring[co] = true
		local ok, value = pcall(chunk, name, place)
		requiring[co] = before
		loading[#loading] = nil
		loading[name] = nil
		if not ok then error(value, 0) end
		if value ~= nil then package.loaded[name] = value end
		if package.loaded[name] == nil then package.loaded[name] = true end
		return package.loaded[name], place
	end

	local function require(name)
		if type(name) ~= "string" then
			error(format("bad argument #1 to 'require' (string expected, got %s)", type(name)), 2)
		end
		local loaded = package.loaded[name]
		if loaded then return loaded end
		local preloaded = package.preload[name]
		if preloaded ~= nil then return run(name, preloaded, ":preload:") end
		local source, place, looked = find(name, package)
		if not source then
			local found = find_built_in(name)
			if found ~= nil then return found, ":built-in:" end
			error(format("module '%s' not found:%s", name, looked or " there are no packages here"), 2)
		end
		local chunk, why = load(source, place, host.trusted and "bt" or "t", env)
		if not chunk then
			error(format("error loading module '%s' from %s:\n\t%s", name, gsub(place, "^[@=]", ""), why), 0)
		end
		return run(name, chunk, (gsub(place, "^[@=]", "")))
	end

	env.require = require
	task.require = require

	-- Whether a fork or a pipe means a package by a name; else it means a strategy in another language. A name that was no
	-- package when the session began stays none, whatever is installed meanwhile: a replay must do the same. In sessions
	-- that began before there were other languages, every name is that of a package.
	function task.is_package(name)
		if not host.config.absent or package.loaded[name] or package.preload[name] ~= nil then return true end
		return not absent[name] and find(name, package) ~= nil
	end
end
