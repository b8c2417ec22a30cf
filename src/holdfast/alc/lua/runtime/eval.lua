-- `alc.eval(scenario, strategy, opts?)`: runs a strategy on every case of a scenario, grades the answers, and reports.
--
-- Everything about the scenario and the options is checked before the first case runs. Cases run one after the other.
-- What goes wrong inside a case fails that case and no other, except a budget that is used up: each further case would
-- fail the same way, so the evaluation ends there, reports on what ran, and lists the rest under `not_run`.

local host = ...
local kit, stats = host.load("evalkit"), host.load("evalstats")

local type, error, pcall, load, next, rawequal, tostring, getmetatable =
	type, error, pcall, load, next, rawequal, tostring, host.load("order").debug_getmetatable
local find, format, huge, max, min = string.find, string.format, math.huge, math.max, math.min
local error_text, plain = host.text_of, kit.plain

-- A weighted mean of ones can miss 1 by rounding.
local PASS = 1.0 - 1e-6

-- Where a strategy that returns a table may have put its text.
local TEXT_KEYS = { "answer", "summary", "output", "text" }

local function fail(...) error("alc.eval: " .. format(...), 0) end

local function absent(value) return value == nil or rawequal(value, host.null) end

-- --- the scenario ---------------------------------------------------------------------------------------------------

local function is_scenario(value)
	return type(value) == "table" and (value.cases ~= nil or value.graders ~= nil or value[1] ~= nil)
end

local function broken(name, why)
	why = error_text(why)
	fail("failed to load scenario '%s': %s", name, why)
end

-- A package of that name, or nil and what was found instead. One that is there but broken is an error.
local function required(task, name)
	local ok, value = pcall(task.require, name)
	if ok then
		if is_scenario(value) then return value end
		return nil, format("the package '%s' is not a scenario, it has no cases", name)
	end
	local why = error_text(value)
	if find(why, format("module '%s' not found", name), 1, true) then
		return nil, format("no package '%s' is installed", name)
	end
	broken(name, why)
end

local function stored(alc, task, name)
	local place = type(alc._dirs) == "table" and type(alc._dirs.scenarios) == "string" and alc._dirs.scenarios
	place = format("%s/%s.lua", place or "the scenarios directory", name)
	local source = host.scenario and host.scenario(name)
	if type(source) ~= "string" then return nil, place .. " does not exist" end
	local chunk, why = load(source, "@" .. place, "t", task.env)
	if not chunk then broken(name, why) end
	local ok, value = pcall(chunk)
	if not ok then broken(name, value) end
	return value, nil, true
end

-- A scenario in a file that is named by its path.
local function from_file(task, path)
	local source = host.scenario_file and host.scenario_file(path)
	if type(source) ~= "string" then
		fail("could not resolve scenario '%s': there is no such file, or none in the project that the sandbox may read", path)
	end
	local chunk, why = load(source, "@" .. path, "t", task.env)
	if not chunk then broken(path, why) end
	local ok, value = pcall(chunk)
	if not ok then broken(path, value) end
	if type(value) ~= "table" then fail("scenario '%s' resolved to %s, expected table", path, type(value)) end
	return value
end

local function resolve(alc, task, scenario)
	if absent(scenario) then fail("scenario is required") end
	if type(scenario) == "table" then
		return scenario, type(scenario.name) == "string" and scenario.name or nil
	end
	if type(scenario) ~= "string" then fail("scenario must be a string or table, got %s", type(scenario)) end
	if scenario == "" then fail("scenario is an empty name") end
	if find(scenario, "[/\\]") or find(scenario, "%.lua$") then return from_file(task, scenario), scenario end
	local found, not_package = required(task, scenario)
	if found then return found, scenario end
	local value, not_stored, loaded = stored(alc, task, scenario)
	if not loaded then fail("could not resolve scenario '%s': %s; %s", scenario, not_package, not_stored) end
	if type(value) ~= "table" then fail("scenario '%s' resolved to %s, expected table", scenario, type(value)) end
	return value, scenario
end

-- --- the strategy ---------------------------------------------------------------------------------------------------

-- The text of what a strategy returned; by convention that is its ctx, with the answer in `result`.
local function answer_text(value)
	if type(value) == "table" and value.result ~= nil then value = value.result end
	local kind = type(value)
	if kind == "string" then return value end
	if kind == "number" or kind == "boolean" then return tostring(value) end
	if kind ~= "table" then
		if absent(value) then error("the strategy returned nothing", 0) end
		error("the strategy returned a " .. kind .. " instead of an answer", 0)
	end
	for i = 1, #TEXT_KEYS do
		local text = value[TEXT_KEYS[i]]
		if type(text) == "string" then return text end
	end
	return (host.encode(value))
end

-- Own tables for every case: what a strategy does to its options must not reach the next case.
local function copy_options(value, copies)
	if type(value) ~= "table" or (getmetatable(value) ~= nil and not host.is_array(value)) then return value end
	if copies[value] then return copies[value] end
	local copy = {}
	copies[value] = copy
	for key, item in next, value do copy[key] = copy_options(item, copies) end
	return host.is_array(value) and host.array(copy) or copy
end

local function load_strategy(task, strategy)
	if type(strategy) == "function" then return strategy end
	local ok, package = pcall(task.require, strategy)
	if not ok then fail("strategy '%s' could not be loaded: %s", strategy, error_text(package)) end
	local run = type(package) == "table" and package.run
	if type(run) ~= "function" then
		fail("package '%s' has no run(ctx): it is a library, not a strategy", strategy)
	end
	return run
end

-- A strategy in another language runs as a child session, which asks, pauses and is continued with this one.
local function run_session(strategy, ctx)
	local result = host.ask({ { kind = "child", program = strategy, ctx = ctx } }, "alc.eval")[1]
	if result.ok then return result.value end
	if result.code == "program_not_found" then
		error({ fatal = format("strategy '%s' could not be loaded: %s", strategy, result.message) }, 0)
	end
	error(result.message, 0)
end

-- A provider answers an input with text, or with a table that holds `text`.
local function provider_of(task, scenario, strategy, options)
	local own = scenario.provider
	if not absent(own) then
		if type(own) ~= "function" then fail("the scenario's provider must be a function, got %s", type(own)) end
		return own
	end
	local run
	if type(strategy) == "string" and not task.is_package(strategy) then
		run = function(ctx) return run_session(strategy, ctx) end
	else
		run = load_strategy(task, strategy)
	end
	return function(input)
		local ctx = { task = input }
		for key, value in next, copy_options(options, {}) do ctx[key] = value end
		return answer_text(run(ctx))
	end
end

-- --- one case -------------------------------------------------------------------------------------------------------

-- Anywhere in the text: a strategy, a pipe or a fork may have put words of its own before it.
local function is_budget(text) return text ~= nil and find(text, "budget_exceeded:", 1, true) ~= nil end

-- What a provider gave, as graders see it: its own fields, and always `text` and `latency_ms`.
local function respond(provider, input)
	local started = host.now()
	local ok, value = pcall(provider, input)
	local elapsed = (host.now() - started) * 1000
	if not ok and type(value) == "table" and value.fatal then fail("%s", value.fatal) end
	if not ok then return { text = "", latency_ms = elapsed, error = error_text(value) } end
	if type(value) == "string" then return { text = value, latency_ms = elapsed } end
	if type(value) ~= "table" then
		local why = format("the provider returned %s, expected text or a table", type(value))
		return { text = "", latency_ms = elapsed, error = why }
	end
	local response = {}
	for key, item in next, value do response[key] = item end
	if not absent(response.error) then
		response.error = error_text(response.error)
	elseif type(response.text) ~= "string" then
		response.error = "the provider's table has no text in it"
	else
		response.error = nil
	end
	if type(response.text) ~= "string" then response.text = "" end
	if type(response.latency_ms) ~= "number" then response.latency_ms = elapsed end
	return response
end

-- Grades that the usual scorers count as 0 without a word.
local UNSCORED = { string = true, table = true, ["function"] = true }

local function is_score(value) return type(value) == "number" and value > -huge and value < huge end

local function grade(binding, response, case)
	local entry = { grader = binding.grader.name, weight = binding.weight, score = 0.0 }
	local ok, raw, why, warning = pcall(binding.grader.check, response, case.live)
	if not ok or why then
		entry.error = error_text(ok and why or raw)
		return entry
	end
	local scored, score = pcall(binding.score, raw)
	if not scored then
		entry.error = "the scorer failed: " .. error_text(score)
	elseif not is_score(score) then
		entry.error = format("the scorer returned %s instead of a finite number",
			type(score) == "number" and "a number that is not finite" or type(score))
	else
		entry.score = max(0.0, min(1.0, score))
	end
	local shown = plain(raw)
	if type(shown) ~= "number" or is_score(shown) then entry.grade = shown end
	entry.warning = type(warning) == "string" and warning or nil
	if not entry.error and entry.score ~= score then
		entry.warning = format("the scorer gave %.14g, outside of 0 to 1; taken as %.14g", score, entry.score)
	end
	if entry.score == 0.0 and not entry.error and UNSCORED[type(raw)] then
		entry.warning = format("the grader returned a %s, which its scorer counts as 0", type(raw))
	end
	return entry
end

-- The result of one case, and the reason to stop if the budget ran out in it.
local function run_case(provider, bindings, case)
	local response = respond(provider, case.record.input)
	local stop = is_budget(response.error) and response.error or nil
	local why = response.error and "not graded: there is no answer"
	local grades, total, weights = host.array({}), 0.0, 0.0
	for i = 1, #bindings do
		local binding = bindings[i]
		local entry
		if why then
			entry = { grader = binding.grader.name, weight = binding.weight, score = 0.0, error = why }
		else
			entry = grade(binding, response, case)
			if is_budget(entry.error) then stop, why = entry.error, "not graded: the budget is used up" end
		end
		grades[i] = entry
		total, weights = total + entry.score * entry.weight, weights + entry.weight
	end
	local score = weights > 0 and weights < huge and total / weights or 0.0
	return {
		case = case.record,
		response = {
			text = response.text,
			latency_ms = response.latency_ms,
			error = response.error,
			model = type(response.model) == "string" and response.model or nil,
		},
		grades = grades,
		score = score,
		passed = score >= PASS and not response.error,
	}, stop
end

-- --- the report -----------------------------------------------------------------------------------------------------

local function evaluate(name, provider, bindings, cases)
	local report = { name = name, results = host.array({}), failures = host.array({}) }
	for i = 1, #cases do
		local result, stop = run_case(provider, bindings, cases[i])
		report.results[i] = result
		if not result.passed then report.failures[#report.failures + 1] = result end
		if stop then
			report.stopped, report.not_run = stop, host.array({})
			for j = i + 1, #cases do report.not_run[j - i] = cases[j].record end
			break
		end
	end
	report.aggregated = stats.aggregate(report.results)
	report.summary = stats.summary(name, report.aggregated, report.stopped, report.not_run and #report.not_run)
	return report
end

-- The answers are paid for: a card that cannot be written is named in the report and does not take it away.
local function emit_card(alc, report, package, scenario_name)
	if report.stopped then
		report.card_error = "no card: the evaluation stopped before its last case"
		host.log("warn", "alc.eval: " .. report.card_error, "alc.eval")
		return
	end
	local aggregated = report.aggregated
	local ok, why = pcall(function()
		local card = alc.card.create({
			pkg = { name = package },
			scenario = { name = scenario_name },
			stats = {
				pass_rate = aggregated.pass_rate,
				mean_score = aggregated.scores.mean,
				n = aggregated.total,
				passed = aggregated.passed,
			},
		})
		report.card_id = card.card_id
		alc.card.write_samples(card.card_id, report.results)
	end)
	if ok then
		host.log("info", format("alc.eval: card %s written", report.card_id), "alc.eval")
	else
		report.card_error = error_text(why)
		host.log("warn", "alc.eval: the card could not be written: " .. report.card_error, "alc.eval")
	end
end

local function option(options, name, kind)
	local value = options[name]
	if absent(value) then return nil end
	if type(value) ~= kind then fail("opts.%s must be a %s, got %s", name, kind, type(value)) end
	return value
end

return function(alc, task)
	function alc.eval(scenario, strategy, opts)
		local spec, scenario_name = resolve(alc, task, scenario)
		local kind = type(strategy)
		if (kind ~= "string" or strategy == "") and kind ~= "function" then
			fail("strategy must be a package name or a function, got %s", strategy == "" and "an empty name" or kind)
		end
		if absent(opts) then opts = {} end
		if type(opts) ~= "table" then fail("opts must be a table, got %s", type(opts)) end
		local strategy_opts, card_pkg = option(opts, "strategy_opts", "table") or {}, option(opts, "card_pkg", "string")
		local with_card = not absent(opts.auto_card) and opts.auto_card
		local card_name = card_pkg or (kind == "string" and strategy) or nil
		if with_card then
			if not card_name then fail("auto_card needs opts.card_pkg when the strategy is a function") end
			if type(alc.card) ~= "table" then fail("auto_card needs alc.card, which is not there") end
		end

		local label = scenario_name or option(opts, "scenario_name", "string") or "inline"
		local cases = kit.cases(spec, label)
		local bindings = kit.bindings(alc, spec, label)
		local provider = provider_of(task, spec, strategy, strategy_opts)
		local name = (kind == "string" and strategy or "(inline)") .. ":" .. label

		local report = evaluate(name, provider, bindings, cases)
		if with_card then emit_card(alc, report, card_name, label) end
		return report
	end
end
