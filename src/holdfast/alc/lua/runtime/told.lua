-- What a step came to, as one msgpack message: arrays of texts and numbers, as `outcomes.py` reads them. Nested values are
-- JSON inside a text, because they are rare; prompts are not, because escaping them would cost more than all the rest.

local host = ...
local pack, utf8_len, concat = string.pack, utf8.len, table.concat

local NIL = "\xc0"

-- A text. What is not valid UTF-8 is repaired as JSON's encoder does it; `what` names it for the warning, where there is one.
local function text(value, what)
	if not utf8_len(value) then
		value = host.decode(host.encode(value, what and host.warn_of(what)))
	end
	return pack(">Bs4", 0xdb, value)
end

local function optional(value, what) return value == nil and NIL or text(value, what) end

local function number(value) return pack(">Bi8", 0xd3, value) end

local function array(items) return pack(">BI4", 0xdd, #items) .. concat(items) end

-- A query that is no question to a model: kind, id, prompt or name, a number or nothing, a value as JSON.
local function other(asked, id)
	local value = NIL
	if asked.value ~= nil then value = text(host.encode(asked.value, host.warn_of(asked.name))) end
	local amount = asked.amount and number(asked.amount) or NIL
	return "\x98" .. text(asked.kind) .. text(id) .. text(asked.name, "a prompt") .. NIL .. amount .. NIL .. NIL .. value
end

-- One query: kind, id, prompt, system, max_tokens, grounded, underspecified, options as JSON.
local function query(asked, number_of)
	local id = "q-" .. number_of
	if asked.kind ~= "llm" then return other(asked, id) end
	local options = asked.options and host.encode(asked.options, host.warn_of("options"))
	return "\x98" .. text("llm") .. text(id) .. text(asked.prompt, "a prompt") .. optional(asked.system, "a system prompt")
		.. number(asked.max_tokens) .. (asked.grounded and "\xc3" or "\xc2") .. (asked.underspecified and "\xc3" or "\xc2")
		.. optional(options)
end

-- One note: type, then what it holds: message, level, source; step, total, message; or key and value as JSON.
local function note(given)
	if given.type == "logged" then
		return "\x94" .. text("logged") .. text(given.message) .. text(given.level) .. text(given.source)
	elseif given.type == "progressed" then
		return "\x94" .. text("progressed") .. optional(given.message) .. number(given.step) .. number(given.total)
	end
	return "\x94" .. text("stat") .. text(given.key) .. text(host.encode(given.value)) .. NIL
end

local function all(items, each, first)
	local told = {}
	for i = 1, #items do told[i] = each(items[i], first and first + i - 1) end
	return array(told)
end

local told = {}

function told.queries(asked, first) return all(asked, query, first) end

function told.asked(queries, where, notes) return "\x94" .. text("asked") .. all(notes, note) .. queries .. text(where) end

function told.returned(result, notes) return "\x94" .. text("returned") .. all(notes, note) .. text(result) .. NIL end

function told.raised(problem, kind, notes)
	return "\x94" .. text("raised") .. all(notes, note) .. text(problem) .. text(kind)
end

return told
