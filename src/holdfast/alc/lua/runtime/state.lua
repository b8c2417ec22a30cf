-- `alc.state`: durable values, kept in the session store and shared by all sessions that use the namespace. Every
-- operation is one question to the engine, answered in the transaction that records the answer, so it happens once.

local host = ...
local type, error, format, find = type, error, string.format, string.find
local null, TOOL = host.null, "holdfast.state"

local function check_namespace(namespace)
	local bad = type(namespace) ~= "string" or namespace == "" or find(namespace, "[/\\%z]") or find(namespace, "..", 1, true)
	if bad then error(format("Invalid namespace: '%s'", host.load("order").tostring(namespace)), 0) end
	return namespace
end

local function check_key(key, what)
	if type(key) == "number" then return host.load("order").tostring(key) end
	if type(key) ~= "string" then error(format("alc.state.%s: key must be a string, got %s", what, type(key)), 3) end
	return key
end

local function items_without(list, removed)
	local gone, kept = {}, host.array({})
	for _, name in ipairs(removed or {}) do gone[name] = true end
	for _, item in ipairs(list) do
		if not gone[item] then kept[#kept + 1] = item end
	end
	return kept, #list - #kept
end

return function(alc, task)
	local state = {}
	alc.state = state

	local function ask(op, arguments, namespace)
		arguments.op = op
		arguments.namespace = check_namespace(namespace or task.namespace)
		return host.call(TOOL, arguments, "alc.state")
	end

	local function stored(value)
		if value == nil then return null end
		return host.decode_whole(host.encode(value, host.warn_of("state")))
	end

	function state.get(key, default)
		local item = ask("get", { key = check_key(key, "get") })
		if item.version == 0 then return default end
		return item.value
	end

	function state.set(key, value)
		ask("put", { key = check_key(key, "set"), value = stored(value) })
	end

	function state.keys() return ask("list", {}) end

	function state.delete(key) return ask("delete", { key = check_key(key, "delete") }) end

	function state.has(key) return ask("get", { key = check_key(key, "has") }).version ~= 0 end

	function state.set_nx(key, value)
		return ask("put", { key = check_key(key, "set_nx"), value = stored(value), expected = 0 })
	end

	function state.incr(key, delta, default)
		return ask("incr", { key = check_key(key, "incr"), delta = delta or 1, default = default or 0 })
	end

	-- Other namespaces, for looking after what long runs have left.

	function state.list(namespace) return ask("list", {}, namespace) end

	function state.show(namespace, key)
		local item = ask("get", { key = check_key(key, "show") }, namespace)
		if item.version == 0 then error(format("state: '%s' not found in namespace '%s'", key, namespace), 0) end
		return item.value
	end

	function state.reset(namespace, key, options)
		key, options = check_key(key, "reset"), options or {}
		while true do
			local item = ask("get", { key = key }, namespace)
			if item.version == 0 then error(format("state: '%s' not found in namespace '%s'", key, namespace), 0) end
			local value = item.value
			local data = type(value) == "table" and value.data
			if type(data) ~= "table" or (data.completed_steps ~= nil and type(data.completed_steps) ~= "table") then
				error(format("state: shape invalid: '%s' has no data.completed_steps", key), 0)
			end
			local backup = host.decode(host.encode(value))
			local steps_removed, fields_removed = 0, 0
			if data.completed_steps then
				data.completed_steps, steps_removed = items_without(data.completed_steps, options.steps)
			end
			for _, field in ipairs(options.fields or {}) do
				if data[field] ~= nil then
					data[field] = nil
					fields_removed = fields_removed + 1
				end
			end
			if ask("put", { key = key, value = value, expected = item.version }, namespace) then
				ask("put", { key = key .. ".bak", value = backup }, namespace)
				return {
					ok = true, backup_path = namespace .. "/" .. key .. ".bak",
					steps_removed = steps_removed, fields_removed = fields_removed,
				}
			end
		end
	end
end
