-- What a program asks as plain values, which `outcomes.py` makes a message of: each query as its kind and its fields, one
-- after the other. Nested values are JSON, because they are rare; prompts are not, because escaping them would cost more
-- than the rest. Texts may be no UTF-8: Python finds that out far sooner.

local host = ...

local WIDTH = 7 -- values of each query, nil where its kind has fewer

-- A value as JSON; `what` names it for warnings.
local function json(value, what)
	if value == nil then return nil end
	return host.encode(value, host.warn_of(what))
end

-- The fields of a query of each kind.
local FIELDS = {}

function FIELDS.llm(query)
	return query.prompt, query.system, query.max_tokens, query.grounded, query.underspecified, json(query.options, "options")
end

function FIELDS.tool(query) return query.name, json(query.arguments, query.name) end

function FIELDS.human(query) return query.prompt, json(query.choices, "choices"), query.timeout_ms end

function FIELDS.timer(query) return query.delay_ms end

function FIELDS.child(query) return query.program, json(query.ctx, query.program) end

return function(queries)
	local all, n = {}, 0
	for i = 1, #queries do
		local query = queries[i]
		local kind = query.kind
		local a, b, c, d, e, f = FIELDS[kind](query)
		all[n + 1], all[n + 2], all[n + 3], all[n + 4], all[n + 5], all[n + 6], all[n + 7] = kind, a, b, c, d, e, f
		n = n + WIDTH
	end
	return all, n
end
