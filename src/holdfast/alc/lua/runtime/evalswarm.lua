-- `evalframe.swarm`: what several workers did in ticks, as a trace that graders look at; environments, actions and the
-- configuration that a runner is handed; and figures over traces.

local host = ...
local stats = host.load("evalstats")

local type, error, pcall, next, ipairs, setmetatable, rawlen, math_type =
	type, error, pcall, next, ipairs, setmetatable, rawlen, math.type
local format, concat, sqrt = string.format, table.concat, math.sqrt

local ENDINGS = { success = true, failure = true, timeout = true }

local function fail(...) error("evalframe.swarm: " .. format(...), 0) end

local function kind()
	local made = setmetatable({}, { __mode = "k" })
	return function(value)
		made[value] = true
		return value
	end, function(value) return type(value) == "table" and made[value] == true end
end

local function copy(value)
	if type(value) ~= "table" then return value end
	local made = {}
	for key, item in next, value do made[key] = item end
	return made
end

local mark_env, is_env = kind()
local mark_action, is_action = kind()
local mark_space, is_space = kind()
local mark_config, is_config = kind()
local mark_trace, is_trace = kind()

-- --- what a runner is handed ----------------------------------------------------------------------------------------

local function env(name)
	if type(name) ~= "string" then fail("env: name must be string, got %s", type(name)) end
	return function(spec)
		if type(spec) ~= "table" then fail("env '%s': spec must be a table, got %s", name, type(spec)) end
		return mark_env({ name = name, context = copy(spec) })
	end
end

local function action(name)
	if type(name) ~= "string" then fail("action: name must be string, got %s", type(name)) end
	return function(spec)
		if type(spec) ~= "table" then fail("action '%s': spec must be a table, got %s", name, type(spec)) end
		if spec.description == nil then fail("action '%s': description is required", name) end
		if type(spec.description) ~= "string" then fail("action '%s': description must be string", name) end
		local made = copy(spec)
		made.name = name
		return mark_action(made)
	end
end

local function actions(list)
	if type(list) ~= "table" or rawlen(list) == 0 then fail("actions: at least 1 action is needed") end
	local space = { actions = {}, by_name = {} }
	for i, one in ipairs(list) do
		if not is_action(one) then fail("actions[%d] must be an action", i) end
		if space.by_name[one.name] then fail("actions: duplicate action name '%s'", one.name) end
		space.actions[i], space.by_name[one.name] = one, one
	end
	return mark_space(space)
end

local function positive(spec, field)
	local value = spec[field]
	if value == nil then fail("swarm: %s is required", field) end
	if math_type(value) ~= "integer" and not (type(value) == "number" and value % 1 == 0) or value < 1 then
		fail("swarm: %s must be a positive integer", field)
	end
end

local function config(spec)
	if type(spec) ~= "table" then fail("swarm: spec must be a table, got %s", type(spec)) end
	positive(spec, "workers")
	positive(spec, "max_ticks")
	local made = copy(spec)
	if made.managers == nil then made.managers = 1 end
	return mark_config(made)
end

-- --- what became of it ------------------------------------------------------------------------------------------------

local FIELDS = { { "tick", "number" }, { "worker", "string" }, { "action", "string" } }

local function trace(raw)
	if type(raw) ~= "table" then fail("trace must be a table, got %s", type(raw)) end
	if raw.actions == nil then fail("trace: actions is required") end
	if raw.termination == nil then fail("trace: termination is required") end
	if not ENDINGS[raw.termination] then fail("trace: termination must be 'success', 'failure' or 'timeout'") end
	local done = {}
	for i, one in ipairs(raw.actions) do
		if type(one) ~= "table" then fail("trace: actions[%d] must be a table, got %s", i, type(one)) end
		for _, field in ipairs(FIELDS) do
			if type(one[field[1]]) ~= field[2] then fail("trace: actions[%d].%s must be %s", i, field[1], field[2]) end
		end
		done[i] = copy(one)
	end
	local made = copy(raw)
	made.actions, made.metrics = done, copy(raw.metrics or {})
	made.text, made.success, made.ticks = raw.text or "", raw.success == true, raw.ticks or 0
	return mark_trace(made)
end

local function snapshot(of, tick)
	local found = { tick = tick, actions = {}, action_counts = {} }
	for _, one in ipairs(of.actions) do
		if one.tick <= tick then
			found.actions[#found.actions + 1] = one
			found.action_counts[one.action] = (found.action_counts[one.action] or 0) + 1
		end
	end
	found.action_count = #found.actions
	return found
end

local function count(of, name)
	local found = 0
	for _, one in ipairs(of.actions) do
		if one.action == name then found = found + 1 end
	end
	return found
end

local function first_tick(of, name)
	for _, one in ipairs(of.actions) do
		if one.action == name then return one.tick end
	end
	return nil
end

local function by_worker(of, worker)
	local found = {}
	for _, one in ipairs(of.actions) do
		if one.worker == worker then found[#found + 1] = one end
	end
	return found
end

local function provider(runner, options)
	if type(runner) ~= "function" then fail("provider: runner must be a function, got %s", type(runner)) end
	options = options or {}
	if not is_env(options.env) then fail("provider: env is required") end
	if not is_space(options.actions) then fail("provider: actions is required") end
	if not is_config(options.swarm) then fail("provider: swarm is required") end
	return function(input)
		local began = host.now()
		local given = { input = input, env = options.env, actions = options.actions, swarm = options.swarm }
		local ok, made = pcall(function() return trace(runner(given)) end)
		local took = (host.now() - began) * 1000
		if not ok then return { text = "", error = host.text_of(made), latency_ms = took } end
		if made.latency_ms == nil then made.latency_ms = took end
		return made
	end
end

-- --- graders ----------------------------------------------------------------------------------------------------------

local function within(value, limits)
	return value ~= nil and (limits.min == nil or value >= limits.min) and (limits.max == nil or value <= limits.max)
end

local function check_limits(word, limits)
	if type(limits) ~= "table" or (limits.min == nil and limits.max == nil) then fail("%s: min or max is required", word) end
end

local function graders(mark)
	local function grader(name, check) return mark({ name = "sw." .. name, check = check }) end
	local own = { completed = grader("completed", function(of) return of.success == true end) }

	function own.efficiency(options)
		local most, best = options.max_ticks, options.optimal_ticks or 0
		if most == nil then fail("efficiency: max_ticks is required") end
		if best >= most then fail("efficiency: optimal_ticks must be less than max_ticks") end
		return grader("efficiency", function(of)
			if of.ticks <= best then return 1.0 end
			return of.ticks >= most and 0.0 or (most - of.ticks) / (most - best)
		end)
	end

	function own.action_taken(name)
		return grader("action_taken:" .. name, function(of) return count(of, name) > 0 end)
	end

	function own.action_sequence(names)
		if type(names) ~= "table" or rawlen(names) == 0 then fail("action_sequence: at least 1 action is needed") end
		local wanted = copy(names)
		return grader("action_sequence:" .. concat(wanted, ","), function(of)
			local at = 1
			for _, one in ipairs(of.actions) do
				if one.action == wanted[at] then at = at + 1 end
			end
			return at > #wanted
		end)
	end

	function own.metric(name, limits)
		check_limits("metric", limits)
		return grader("metric:" .. name, function(of) return within(of.metrics[name], limits) end)
	end

	function own.action_count(name, limits)
		check_limits("action_count", limits)
		return grader("action_count:" .. name, function(of) return within(count(of, name), limits) end)
	end

	function own.all_workers_active(options)
		local least = options and options.workers or 1
		return grader("all_workers_active", function(of)
			local seen, workers = {}, 0
			for _, one in ipairs(of.actions) do
				if not seen[one.worker] then seen[one.worker], workers = true, workers + 1 end
			end
			return workers >= least
		end)
	end

	function own.at_tick(tick, check)
		return grader("at_tick:" .. tick, function(of) return check(snapshot(of, tick)) end)
	end

	function own.after_action(name, check)
		return grader("after_action:" .. name, function(of)
			local tick = first_tick(of, name)
			return tick ~= nil and check(snapshot(of, tick))
		end)
	end
	return own
end

-- --- figures over traces ----------------------------------------------------------------------------------------------

local analysis = {}

-- Runs of so many actions: in how many traces each is found, and how many of those ended well.
function analysis.action_sequences(traces, size)
	size = size or 3
	if size < 1 then fail("action_sequences: ngram_size must be >= 1") end
	local found = {}
	for _, of in ipairs(traces) do
		local seen = {}
		for from = 1, #of.actions - size + 1 do
			local names = {}
			for i = 1, size do names[i] = of.actions[from + i - 1].action end
			seen[concat(names, ",")] = true
		end
		for key in next, seen do
			local entry = found[key] or { count = 0, success = 0 }
			entry.count, entry.success = entry.count + 1, entry.success + (of.success and 1 or 0)
			found[key] = entry
		end
	end
	for _, entry in next, found do entry.rate = entry.success / entry.count end
	return found
end

-- How many ticks traces took, or when an action first came.
function analysis.convergence(traces, name)
	local ticks = {}
	for _, of in ipairs(traces) do
		if name == nil then ticks[#ticks + 1] = of.ticks else ticks[#ticks + 1] = first_tick(of, name) end
	end
	if #ticks == 0 then return { n = 0, mean = 0, std_dev = 0, min = 0, max = 0, median = 0, ci_lower = 0, ci_upper = 0 } end
	local described = stats.describe(ticks)
	-- Ticks are no scores: their interval is not cut to 0 and 1.
	local margin = described.n > 1 and 1.96 * described.std_dev / sqrt(described.n) or 0.0
	described.ci_lower, described.ci_upper = described.mean - margin, described.mean + margin
	return described
end

function analysis.exploration_efficiency(of)
	local total, unique, seen = #of.actions, 0, {}
	for _, one in ipairs(of.actions) do
		if not seen[one.action] then seen[one.action], unique = true, unique + 1 end
	end
	local ratio = total > 0 and unique / total or 0
	return { total = total, unique = unique, unique_ratio = ratio, duplicate_rate = total > 0 and 1 - ratio or 0 }
end

-- How many of the kinds of actions were done by more than one worker.
function analysis.worker_coordination(of)
	local workers, number, doers, kinds, shared = {}, 0, {}, 0, 0
	for _, one in ipairs(of.actions) do
		local entry = workers[one.worker]
		if not entry then
			entry, number = { count = 0, actions = {} }, number + 1
			workers[one.worker] = entry
		end
		entry.count, entry.actions[one.action] = entry.count + 1, (entry.actions[one.action] or 0) + 1
		if doers[one.action] == nil then
			doers[one.action], kinds = one.worker, kinds + 1
		elseif doers[one.action] ~= one.worker and doers[one.action] ~= true then
			doers[one.action], shared = true, shared + 1
		end
	end
	return { worker_count = number, overlap_rate = kinds > 0 and shared / kinds or 0, workers = workers }
end

function analysis.action_validity(of, is_valid)
	local total, valid = #of.actions, 0
	for _, one in ipairs(of.actions) do
		if is_valid(one) then valid = valid + 1 end
	end
	return { total = total, valid = valid, rate = total > 0 and valid / total or 0 }
end

return function(mark)
	return {
		env = env, is_env = is_env,
		action = action, is_action = is_action,
		actions = actions, is_action_space = is_space,
		swarm = config, is_swarm_config = is_config,
		trace = trace, is_trace = is_trace,
		trace_succeeded = function(of) return of.success end,
		trace_tick_count = function(of) return of.ticks end,
		trace_metric = function(of, name) return of.metrics[name] end,
		trace_at_tick = snapshot,
		trace_actions_by_worker = by_worker,
		trace_action_count = count,
		trace_has_action = function(of, name) return count(of, name) > 0 end,
		provider = provider,
		graders = graders(mark),
		analysis = analysis,
	}
end
