-- The outcome of a step as one msgpack message: arrays that begin with their kind, as `outcomes.py` declares them. Nested
-- values are JSON inside a text, because they are rare; prompts are not, because escaping them would cost more than the rest.

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

local function boolean(value) return value and "\xc3" or "\xc2" end

-- A value as JSON in a text; `what` names it for the warning.
local function json(value, what) return value == nil and NIL or text(host.encode(value, host.warn_of(what))) end

-- The head of all messages of a kind: an array of the kind and so many fields, of which there are at most 14.
local function head(kind, fields) return string.char(0x91 + fields) .. text(kind) end

local LLM, TOOL, HUMAN, TIMER, CHILD =
	head("llm", 7), head("tool", 3), head("human", 4), head("timer", 2), head("child", 3)
local LOGGED, PROGRESSED, STAT = head("logged", 3), head("progressed", 3), head("stat", 2)
local ASKED, RETURNED, RAISED = head("asked", 3), head("returned", 2), head("raised", 3)

local NONE = pack(">BI4", 0xdd, 0)

local function array(items) return pack(">BI4", 0xdd, #items) .. concat(items) end

local function all(items, encode, first)
	local encoded = {}
	for i = 1, #items do encoded[i] = encode(items[i], first and first + i - 1) end
	return array(encoded)
end

-- How a query of each kind is written.
local QUERIES = {}

function QUERIES.llm(query, id)
	return LLM .. id .. text(query.prompt, "a prompt") .. optional(query.system, "a system prompt")
		.. number(query.max_tokens) .. boolean(query.grounded) .. boolean(query.underspecified)
		.. json(query.options, "options")
end

function QUERIES.tool(query, id)
	return TOOL .. id .. text(query.name, "a tool's name") .. json(query.arguments, query.name)
end

function QUERIES.human(query, id)
	local timeout = query.timeout_ms and number(query.timeout_ms) or NIL
	return HUMAN .. id .. text(query.prompt, "a prompt") .. json(query.choices, "choices") .. timeout
end

function QUERIES.timer(query, id) return TIMER .. id .. number(query.delay_ms) end

function QUERIES.child(query, id)
	return CHILD .. id .. text(query.program, "a program's name") .. json(query.ctx, query.program)
end

local function query_message(query, number_of) return QUERIES[query.kind](query, text("q-" .. number_of)) end

-- How a note of each type is written.
local NOTES = {}

function NOTES.logged(note) return LOGGED .. text(note.message) .. text(note.level) .. text(note.source) end

function NOTES.progressed(note)
	return PROGRESSED .. number(note.step) .. number(note.total) .. optional(note.message)
end

function NOTES.stat(note) return STAT .. text(note.key) .. text(host.encode(note.value)) end

local function note_message(note) return NOTES[note.type](note) end

local function notes_message(notes) return #notes == 0 and NONE or all(notes, note_message) end

local messages = {}

function messages.queries(queries, first) return all(queries, query_message, first) end

function messages.asked(queries, where, notes) return ASKED .. queries .. text(where) .. notes_message(notes) end

function messages.returned(result, notes) return RETURNED .. text(result) .. notes_message(notes) end

function messages.raised(problem, kind, notes)
	return RAISED .. text(problem) .. text(kind) .. notes_message(notes)
end

return messages
