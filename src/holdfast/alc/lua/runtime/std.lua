-- The global `std` that packages such as evalframe look for: JSON, files and the clock, from the session's own parts.

local host = ...

local io_open, type, error, format = io.open, type, error, string.format

local function check_path(path, what)
	if type(path) ~= "string" or path == "" then
		error(format("std.fs.%s: the path must be a non-empty string, got %s", what, type(path)), 0)
	end
end

local function refuse(what)
	return function(path)
		check_path(path, what)
		error(format("std.fs.%s: '%s': files are not available in the sandbox; run the strategy trusted, or put the data "
			.. "into a package and require it", what, path), 0)
	end
end

local function read(path)
	check_path(path, "read")
	local file, why = io_open(path, "rb")
	if not file then error("std.fs.read: " .. why, 0) end
	local text, problem = file:read("a")
	file:close()
	if not text then error(format("std.fs.read: %s: %s", path, problem), 0) end
	return text
end

-- A directory can be opened too; only reading from it tells the difference.
local function is_file(path)
	check_path(path, "is_file")
	local file = io_open(path, "rb")
	if not file then return false end
	local _, problem = file:read(1)
	file:close()
	return problem == nil
end

local function decode(text)
	if type(text) ~= "string" then error("std.json.decode: text expected, got " .. type(text), 0) end
	return (host.decode(text))
end

return {
	json = { decode = decode, encode = function(value) return (host.encode(value, host.warn_of("std.json.encode: value"))) end },
	fs = host.trusted and { read = read, is_file = is_file }
		or { read = refuse("read"), is_file = refuse("is_file") },
	time = { now = function() return (host.now()) end },
}
