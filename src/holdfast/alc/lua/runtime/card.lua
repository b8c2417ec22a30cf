-- `alc.card`: immutable records of runs. Every operation is one question to the engine, which keeps the files. What
-- depends on the time goes along as `now`: an operation that is carried out again after a crash means the same.

local host = ...
local error, next, rawequal, rawget, rawlen, type = error, next, rawequal, rawget, rawlen, type
local tonumber, tostring = tonumber, tostring
local format, sort, concat, tointeger = string.format, table.sort, table.concat, math.tointeger
local null = host.null
local TOOL, SOURCE = "holdfast.card", "alc.card"

local function fail(what, why) error(format("alc.card.%s: %s", what, why), 0) end

local function absent(value) return value == nil or rawequal(value, null) end

-- Arguments, checked one by one: `what` is the function, `name` the argument.

local function text(what, name, value)
	if type(value) == "number" then return tostring(value) end
	if type(value) ~= "string" then fail(what, format("%s must be a string, got %s", name, type(value))) end
	return value
end

local function optional_text(what, name, value)
	if absent(value) then return nil end
	return text(what, name, value)
end

local function whole(what, name, value)
	if absent(value) then return nil end
	local number = tointeger(tonumber(value))
	if not number or number < 0 then fail(what, name .. " must be a whole number, 0 or more") end
	return number
end

local function object(what, name, value)
	if type(value) ~= "table" then fail(what, format("%s must be a table, got %s", name, type(value))) end
	return value
end

-- A list that stays one when it is empty; the program's own table is not marked. What else is in the table is left out,
-- as it is everywhere in JSON, but not silently.
local function list(what, name, value)
	object(what, name, value)
	local size, keys = rawlen(value), 0
	for _ in next, value do keys = keys + 1 end
	if size == 0 and keys > 0 then fail(what, name .. " must be an array, got a table with other keys") end
	if keys > size then
		local said = format("alc.card.%s: %s: %d entries outside 1..%d are left out", what, name, keys - size, size)
		host.log("warn", said, SOURCE)
	end
	local copy = {}
	for position = 1, size do copy[position] = rawget(value, position) end
	return host.array(copy)
end

-- The options of a call as a function from name to value. Names that the call does not have are logged and left out.
local function options(what, given, known)
	if absent(given) then return function() end end
	object(what, "options", given)
	local unknown = {}
	for key in next, given do
		if type(key) ~= "string" then
			unknown[#unknown + 1] = format("a %s key", type(key))
		elseif not known[key] then
			unknown[#unknown + 1] = format("'%s'", key)
		end
	end
	if #unknown > 0 then
		sort(unknown)
		host.log("warn", format("alc.card.%s: no such option: %s", what, concat(unknown, ", ")), SOURCE)
	end
	return function(name)
		local value = rawget(given, name)
		if absent(value) then return nil end
		return value
	end
end

local function ask(op, arguments)
	arguments.op = op
	arguments.now = host.now()
	local value = host.call(TOOL, arguments, SOURCE)
	if absent(value) then return nil end
	return value
end

local PKG = { pkg = true }
local ALIAS = { pkg = true, note = true }
local FIND = { pkg = true, where = true, order_by = true, limit = true, offset = true }
local READ = { offset = true, limit = true, where = true }
local LINEAGE = { card_id = true, direction = true, depth = true, include_stats = true, relation_filter = true }
local BACKFILL = { sink = true, dry_run = true }

local function where_of(what, value)
	if value == nil then return nil end
	return object(what, "where", value)
end

local card = {}

function card.create(fields) return ask("create", { card = object("create", "input", fields) }) end

function card.get(id) return ask("get", { card_id = text("get", "card_id", id) }) end

function card.list(given)
	local option = options("list", given, PKG)
	return ask("list", { pkg = optional_text("list", "pkg", option("pkg")) })
end

function card.append(id, fields)
	return ask("append", { card_id = text("append", "card_id", id), fields = object("append", "fields", fields) })
end

function card.alias_set(name, id, given)
	local option = options("alias_set", given, ALIAS)
	return ask("alias_set", {
		name = text("alias_set", "name", name),
		card_id = text("alias_set", "card_id", id),
		pkg = optional_text("alias_set", "pkg", option("pkg")),
		note = optional_text("alias_set", "note", option("note")),
	})
end

function card.alias_list(given)
	local option = options("alias_list", given, PKG)
	return ask("alias_list", { pkg = optional_text("alias_list", "pkg", option("pkg")) })
end

function card.get_by_alias(name) return ask("get_by_alias", { name = text("get_by_alias", "name", name) }) end

function card.find(given)
	local option = options("find", given, FIND)
	local order = option("order_by")
	if type(order) == "table" then
		order = list("find", "order_by", order)
	elseif order ~= nil then
		order = text("find", "order_by", order)
	end
	return ask("find", {
		pkg = optional_text("find", "pkg", option("pkg")),
		where = where_of("find", option("where")),
		order_by = order,
		limit = whole("find", "limit", option("limit")),
		offset = whole("find", "offset", option("offset")),
	})
end

function card.write_samples(id, rows)
	return ask("write_samples", {
		card_id = text("write_samples", "card_id", id),
		rows = list("write_samples", "samples", rows),
	})
end

function card.read_samples(id, given)
	local option = options("read_samples", given, READ)
	return ask("read_samples", {
		card_id = text("read_samples", "card_id", id),
		offset = whole("read_samples", "offset", option("offset")),
		limit = whole("read_samples", "limit", option("limit")),
		where = where_of("read_samples", option("where")),
	})
end

function card.lineage(given)
	local option = options("lineage", object("lineage", "query", given), LINEAGE)
	local relations, stats = option("relation_filter"), option("include_stats")
	return ask("lineage", {
		card_id = text("lineage", "card_id", option("card_id")),
		direction = optional_text("lineage", "direction", option("direction")),
		depth = whole("lineage", "depth", option("depth")),
		include_stats = stats ~= false,
		relation_filter = relations ~= nil and list("lineage", "relation_filter", relations) or nil,
	})
end

function card.sink_backfill(given)
	local option = options("sink_backfill", object("sink_backfill", "params", given), BACKFILL)
	local dry = option("dry_run")
	return ask("sink_backfill", {
		sink = text("sink_backfill", "sink", option("sink")),
		dry_run = dry ~= nil and dry ~= false,
	})
end

return function(alc)
	-- A table of its own for each program: one may put its own functions in place of these.
	local own = {}
	for name, call in next, card do own[name] = call end
	alc.card = own
end
