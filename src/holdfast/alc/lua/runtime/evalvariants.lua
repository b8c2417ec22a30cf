-- Variants of a configuration: the entries of some dimensions, all with all (`cross`) or side by side (`zip`).

local type, error, next, ipairs, setmetatable, tostring, rawlen = type, error, next, ipairs, setmetatable, tostring, rawlen
local format, concat = string.format, table.concat

local function fail(...) error("evalframe: " .. format(...), 0) end

local variants = {}
local made_here = setmetatable({}, { __mode = "k" })

function variants.vary(name)
	if type(name) ~= "string" then fail("vary: name must be string, got %s", type(name)) end
	return function(entries)
		if type(entries) ~= "table" or rawlen(entries) == 0 then fail("vary '%s' needs at least 1 entry", name) end
		local copies = {}
		for i, entry in ipairs(entries) do
			local copy = {}
			for key, value in next, entry do copy[key] = value end
			copy.name = copy.name or format("%s_%d", name, i)
			copies[i] = copy
		end
		local dimension = { dimension = name, entries = copies }
		made_here[dimension] = true
		return dimension
	end
end

local function merged(base, chosen)
	local variant, names = {}, {}
	for key, value in next, base do variant[key] = value end
	for i, entry in ipairs(chosen) do
		for key, value in next, entry do variant[key] = value end
		names[i] = entry.name
	end
	variant.name = concat(names, "_")
	return variant
end

local function crossed(dimensions)
	local rows = { {} }
	for _, dimension in ipairs(dimensions) do
		local longer = {}
		for _, row in ipairs(rows) do
			for _, entry in ipairs(dimension.entries) do
				local copy = {}
				for i, one in ipairs(row) do copy[i] = one end
				copy[#copy + 1] = entry
				longer[#longer + 1] = copy
			end
		end
		rows = longer
	end
	return rows
end

local function zipped(dimensions)
	local shortest = #dimensions[1].entries
	for _, dimension in ipairs(dimensions) do
		if #dimension.entries < shortest then shortest = #dimension.entries end
	end
	local rows = {}
	for i = 1, shortest do
		rows[i] = {}
		for d, dimension in ipairs(dimensions) do rows[i][d] = dimension.entries[i] end
	end
	return rows
end

function variants.generate(spec)
	if type(spec) ~= "table" then fail("variants: spec must be a table, got %s", type(spec)) end
	local dimensions, mode = {}, spec.mode or "cross"
	for i = 1, rawlen(spec) do
		if type(spec[i]) == "table" and made_here[spec[i]] then dimensions[#dimensions + 1] = spec[i] end
	end
	if #dimensions == 0 then fail("variants: at least one vary dimension is required") end
	if mode ~= "cross" and mode ~= "zip" then fail("variants: mode must be 'cross' or 'zip', got '%s'", tostring(mode)) end
	local made = {}
	for i, row in ipairs(mode == "cross" and crossed(dimensions) or zipped(dimensions)) do
		made[i] = merged(spec.base or {}, row)
	end
	return made
end

return variants
