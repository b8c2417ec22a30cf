-- `io.popen` for trusted programs: the command is run to its end, and what it printed can be read like a file.

local run = ...
local find, gsub, sub, type, error, tonumber = string.find, string.gsub, string.sub, type, error, tonumber

local Output = {}
Output.__index = Output
Output.__name = "FILE*"

local function read_one(self, how)
	if type(how) == "number" then
		if self.at > #self.text then return nil end
		local piece = sub(self.text, self.at, self.at + how - 1)
		self.at = self.at + how
		return piece
	end
	how = gsub(how or "l", "^%*", "")
	local kind = sub(how, 1, 1)
	if kind == "a" then
		local rest = sub(self.text, self.at)
		self.at = #self.text + 1
		return rest
	end
	if self.at > #self.text then return nil end
	local stop = find(self.text, "\n", self.at, true)
	local line = sub(self.text, self.at, (stop or #self.text + 1) - (kind == "L" and stop and 0 or 1))
	self.at = (stop or #self.text) + 1
	if kind == "n" then return tonumber(line) end
	return line
end

function Output:read(...)
	local wanted, results = table.pack(...), {}
	if wanted.n == 0 then wanted = { "l", n = 1 } end
	for i = 1, wanted.n do results[i] = read_one(self, wanted[i]) end
	return table.unpack(results, 1, wanted.n)
end

function Output:lines(how)
	return function() return read_one(self, how) end
end

function Output:close() return true, "exit", 0 end

return function(command, mode)
	if mode ~= nil and mode ~= "r" then error("io.popen: only reading is available", 2) end
	local text, why = run(command)
	if not text then return nil, why end
	return setmetatable({ text = text, at = 1 }, Output)
end
