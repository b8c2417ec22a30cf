-- The interface of the package evalframe (suites, cases, graders, scorers, bindings, providers, variants), for programs
-- that require it where it is not installed. Cases are run, graded and counted by `alc.eval`; here are only the words.

local host = ...
local graders, judges, scorers, stats, variants =
	host.load("graders"), host.load("judges"), host.load("scorers"), host.load("evalstats"), host.load("evalvariants")

local type, error, pcall, next, ipairs, setmetatable, tostring, load, rawlen =
	type, error, pcall, next, ipairs, setmetatable, tostring, load, rawlen
local find, format, concat, sort = string.find, string.format, table.concat, table.sort

local SCORERS = {
	"band_1_5", "bool", "inverse_linear", "linear_0_100", "linear_1_10", "linear_1_5", "pass_50", "pass_80",
}
local TEXT_KEYS = { "answer", "summary", "output", "text" }

local function fail(...) error("evalframe: " .. format(...), 0) end

-- A module that can be called like a function, and has functions of its own.
local function callable(own, call)
	return setmetatable(own, { __call = function(_, ...) return call(...) end })
end

-- `word "name" { ... }` and `word { ... }` for one constructor.
local function named(word, make)
	return function(first)
		if type(first) == "string" then return function(spec) return make(spec, first) end end
		if type(first) ~= "table" then fail("%s: expected table or string, got %s", word, type(first)) end
		return make(first)
	end
end

-- What was made here, without keeping it alive.
local function kind()
	local made = setmetatable({}, { __mode = "k" })
	return function(value)
		made[value] = true
		return value
	end, function(value) return type(value) == "table" and made[value] == true end
end

local function copy_list(list, field)
	local copy = {}
	for i = 1, rawlen(list) do
		if type(list[i]) ~= "string" then fail("case: %s[%d] must be string, got %s", field, i, type(list[i])) end
		copy[i] = list[i]
	end
	return copy
end

-- --- cases ----------------------------------------------------------------------------------------------------------

local CASE = {}

local function make_case(spec, name)
	if type(spec) ~= "table" then fail("case: expected table or string, got %s", type(spec)) end
	if spec.input == nil then fail("case: 'input' is required") end
	if type(spec.input) ~= "string" then fail("case: 'input' must be string, got %s", type(spec.input)) end
	local expected, context = spec.expected, {}
	if type(expected) == "string" then expected = { expected } end
	if expected ~= nil and type(expected) ~= "table" then
		fail("case: 'expected' must be string or list, got %s", type(expected))
	end
	for key, value in next, spec.context or {} do context[key] = value end
	local fields = {
		_tag = CASE,
		name = name or spec.name or "",
		input = spec.input,
		expected = expected and copy_list(expected, "expected"),
		context = context,
		tags = copy_list(spec.tags or {}, "tags"),
		rubric = spec.rubric,
	}
	return setmetatable({}, {
		__index = fields,
		__newindex = function() error("Case is immutable", 2) end,
		__pairs = function() return next, fields, nil end,
		__metatable = false,
	})
end

local case = callable({
	is_case = function(value) return type(value) == "table" and value._tag == CASE end,
	has_tag = function(value, tag)
		for _, own in ipairs(value.tags) do
			if own == tag then return true end
		end
		return false
	end,
}, named("case", make_case))

-- --- graders, scorers, bindings ---------------------------------------------------------------------------------------

local mark_grader, is_grader = kind()
local mark_scorer, is_scorer = kind()
local mark_binding, is_binding = kind()

local function make_grader(spec, name)
	if type(spec) ~= "table" or type(spec.check) ~= "function" then fail("grader '%s' requires 'check' function", name) end
	return mark_grader({ name = name, check = spec.check })
end

local function make_scorer(spec, name)
	local where = format("evalframe: scorer '%s'", name)
	if type(spec) ~= "table" then fail("scorer '%s': expected table, got %s", name, type(spec)) end
	if spec.score == nil and spec.steps == nil and spec.pass == nil and (spec.min == nil or spec.max == nil) then
		fail("scorer '%s' requires 'score', 'min' and 'max', 'pass' or 'steps'", name)
	end
	if spec.score == nil and spec.min ~= nil and spec.min == spec.max then
		fail("scorer '%s': min and max must differ", name)
	end
	if spec.score == nil and spec.steps ~= nil and (type(spec.steps) ~= "table" or rawlen(spec.steps) < 2) then
		fail("scorer '%s': steps must be table with >= 2 entries", name)
	end
	return mark_scorer({ name = name, score = scorers.make(spec, where) })
end

local function by_name(word, make)
	return function(name)
		if type(name) ~= "string" then fail("%s: name must be string, got %s", word, type(name)) end
		return function(spec) return make(spec, name) end
	end
end

local grader = callable({ is_grader = is_grader }, by_name("grader", make_grader))
local scorer = callable({ is_scorer = is_scorer }, by_name("scorer", make_scorer))

local function make_binding(spec)
	if type(spec) ~= "table" then fail("bind: expected table, got %s", type(spec)) end
	local chosen, score = nil, nil
	for i = 1, rawlen(spec) do
		local part = spec[i]
		if is_grader(part) then
			if chosen then fail("bind: multiple GraderDef: '%s' and '%s'", chosen.name, part.name) end
			chosen = part
		elseif is_scorer(part) then
			if score then fail("bind: multiple ScorerDef: '%s' and '%s'", score.name, part.name) end
			score = part
		else
			fail("bind: entry %d is neither a grader nor a scorer, but a %s", i, type(part))
		end
	end
	if not chosen then fail("bind: GraderDef required") end
	local weight = spec.weight
	if weight == nil then weight = 1.0 end
	if type(weight) ~= "number" or not (weight >= 0) then fail("bind: weight must be non-negative number") end
	return mark_binding({
		grader = chosen,
		scorer = score or mark_scorer({ name = "_bool", score = scorers.bool }),
		weight = weight,
	})
end

local bind = callable({
	is_binding = is_binding,
	key = function(binding) return binding.grader.name end,
}, named("bind", make_binding))

local function presets()
	local own_graders, own_scorers = {}, {}
	for _, name in ipairs(graders.names()) do
		own_graders[name] = mark_grader(graders.make(name, {}, "evalframe: " .. name))
	end
	for _, name in ipairs(SCORERS) do
		own_scorers[name] = mark_scorer({ name = name, score = scorers.make(name, "evalframe") })
	end
	return own_graders, own_scorers
end

-- --- judges -----------------------------------------------------------------------------------------------------------

-- A judge asks the provider that it was given, in the place of a model.
local function judge(name, options, given)
	local provider = type(given) == "table" and given.provider
	if type(provider) ~= "function" then fail("llm_graders.%s: 'provider' is required", name) end
	local asked = {
		llm = function(prompt)
			local reply = provider(prompt)
			if type(reply) ~= "table" then return reply end
			if reply.error ~= nil then error(host.text_of(reply.error), 0) end
			return reply.text
		end,
	}
	local made = judges.make(asked, "llm_" .. name, options, "evalframe: llm_graders." .. name)
	return mark_grader({ name = name, check = made.check })
end

local llm_graders = {
	rubric = function(rubric, given) return judge("rubric", { rubric = rubric }, given) end,
	yes_no = function(question, given) return judge("yes_no", { question = question }, given) end,
	factuality = function(given) return judge("factuality", {}, given) end,
}

-- --- figures and reports ------------------------------------------------------------------------------------------------

local own_stats = {}

function own_stats.describe(values)
	if #values == 0 then return { n = 0, mean = 0, std_dev = 0, min = 0, max = 0, median = 0 } end
	return stats.describe(values)
end

function own_stats.pass_at_k(n, c, k)
	if n <= 0 or c <= 0 then return 0.0 end
	return k > n and 1.0 or stats.pass_at(n, c, k)
end

function own_stats.ci_95(described)
	if described.n == 0 then return 0.0, 0.0 end
	local interval = stats.interval(described)
	return interval.lower, interval.upper
end

function own_stats.aggregate(results)
	if #results > 0 then return stats.aggregate(results) end
	return {
		total = 0, passed = 0, pass_rate = 0.0, pass_at_1 = 0.0,
		scores = own_stats.describe({}), ci_95 = { lower = 0.0, upper = 0.0 }, by_tag = {},
	}
end

local report = {}

function report.summary(aggregated, options)
	local lines = {}
	if options and options.name then lines[1] = "Suite: " .. options.name end
	lines[#lines + 1] = format(
		"Cases: %d  Pass: %d  Fail: %d", aggregated.total, aggregated.passed, aggregated.total - aggregated.passed
	)
	for _, k in ipairs({ 1, 5, 10 }) do
		local chance = aggregated["pass_at_" .. k]
		if chance then lines[#lines + 1] = format("pass@%d: %.2f", k, chance) end
	end
	lines[#lines + 1] = format(
		"Mean: %.3f  StdDev: %.3f  95%% CI: [%.3f, %.3f]", aggregated.scores.mean, aggregated.scores.std_dev,
		aggregated.ci_95.lower, aggregated.ci_95.upper
	)
	if next(aggregated.by_tag) ~= nil then
		lines[#lines + 1] = "\nBy tag:"
		for tag, entry in host.sorted_pairs(aggregated.by_tag) do
			lines[#lines + 1] = format("  %-20s %d/%d (%.2f)", tag, entry.pass, entry.pass + entry.fail, entry.rate)
		end
	end
	return concat(lines, "\n")
end

function report.failures(results)
	local failed = {}
	for _, result in ipairs(results) do
		if not result.passed then failed[#failed + 1] = result end
	end
	return failed
end

function report.format_result(result)
	local about = result.case
	local label = about.name ~= nil and about.name ~= "" and about.name or graders.excerpt(about.input, 60)
	local lines = { format("[%s] %s  score=%.3f", result.passed and "PASS" or "FAIL", label, result.score) }
	for _, grade in ipairs(result.grades) do
		local line = format("  %s: score=%.3f weight=%.2f", grade.grader, grade.score, grade.weight)
		if grade.error then line = line .. " err=" .. tostring(grade.error) end
		if grade.warning then line = line .. " WARN=" .. tostring(grade.warning) end
		lines[#lines + 1] = line
	end
	return concat(lines, "\n")
end

-- --- providers without a model --------------------------------------------------------------------------------------------

local function mocked(text) return { text = text, model = "mock", latency_ms = 0 } end

local mock = {}

function mock.static(text) return function() return mocked(text) end end

-- The answer under the input, else under the longest key that the input contains.
function mock.map(answers)
	local keys = {}
	for key in next, answers do keys[#keys + 1] = key end
	sort(keys, function(a, b) return #a ~= #b and #a > #b or #a == #b and a < b end)
	return function(input)
		if answers[input] ~= nil then return mocked(answers[input]) end
		for _, key in ipairs(keys) do
			if find(input, key, 1, true) then return mocked(answers[key]) end
		end
		return mocked("")
	end
end

function mock.fn(answer)
	return function(input)
		local value = answer(input)
		return type(value) == "table" and value or mocked(value)
	end
end

function mock.recording(answers)
	if type(answers) ~= "table" or rawlen(answers) == 0 then fail("mock.recording: responses must be a non-empty list") end
	local log = { calls = {} }
	return function(input)
		log.calls[#log.calls + 1] = input
		return mocked(answers[(#log.calls - 1) % #answers + 1])
	end, log
end

-- --- what needs the program ---------------------------------------------------------------------------------------------

local OPTION_TYPES = { model = "string", system = "string", max_tokens = "number", cwd = "string" }

local function check_options(word, options)
	for name, wanted in host.sorted_pairs(OPTION_TYPES) do
		local value = options[name]
		if value ~= nil and type(value) ~= wanted then
			fail("%s: '%s' must be %s, got %s", word, name, wanted, type(value))
		end
	end
end

local function answer_text(value)
	if type(value) == "table" and value.result ~= nil then value = value.result end
	if type(value) ~= "table" then return value ~= nil and tostring(value) or "" end
	for _, key in ipairs(TEXT_KEYS) do
		if type(value[key]) == "string" then return value[key] end
	end
	return (host.encode(value))
end

return function(env, task)
	-- `alc.eval` as it is, whatever a program has put in the place of its `alc`.
	local own = setmetatable({}, { __index = function(_, key) return env.alc and env.alc[key] end })
	host.load("eval")(own, task)

	local function suite(spec, name)
		if type(spec) ~= "table" then fail("suite '%s': expected table, got %s", name, type(spec)) end
		if type(spec.provider) ~= "function" then fail("suite '%s': 'provider' is required", name) end
		local scenario = { name = name, provider = spec.provider, cases = spec.cases }
		for i = 1, rawlen(spec) do scenario[i] = spec[i] end
		return {
			name = name,
			run = function()
				local made = own.eval(scenario, function() end)
				made.name, made.summary = name, nil
				-- Methods, and no fields: a report is data that a program may return.
				return setmetatable(made, { __index = {
					format_result = report.format_result,
					summary = function() return report.summary(made.aggregated, { name = name }) end,
				} })
			end,
		}
	end

	-- A model under test is the one that answers this session: there is no command line to call.
	local function model(options)
		options = options or {}
		check_options("claude_cli", options)
		return function(input)
			local asked = { system = options.system, max_tokens = options.max_tokens, model = options.model }
			local ok, text = pcall(env.alc.llm, input, asked)
			if not ok then return { text = "", error = host.text_of(text) } end
			return { text = text, model = options.model }
		end
	end

	local function strategy(options)
		if type(options) ~= "table" or options.strategy == nil then fail("providers.algocline: 'strategy' is required") end
		local run = options.strategy
		if type(run) == "string" then run = task.require(run) end
		if type(run) == "table" then run = run.run end
		if type(run) ~= "function" then fail("providers.algocline: '%s' has no run", tostring(options.strategy)) end
		return function(input)
			local ctx = { task = input }
			for key, value in next, options.opts or {} do ctx[key] = value end
			local ok, value = pcall(run, ctx)
			if not ok then return { text = "", error = host.text_of(value) } end
			return { text = answer_text(value) }
		end
	end

	local function load_file(path)
		local source = env.std.fs.read(path)
		local chunk, why = load(source, "@" .. path, "t", {})
		if not chunk then fail("load_cases: %s", why) end
		local ok, specs = pcall(chunk)
		if not ok then fail("load_cases: %s: %s", path, host.text_of(specs)) end
		if type(specs) ~= "table" then fail("load_cases: %s must return a table, got %s", path, type(specs)) end
		local cases = {}
		for i = 1, rawlen(specs) do cases[i] = case.is_case(specs[i]) and specs[i] or case(specs[i]) end
		return cases
	end

	local own_graders, own_scorers = presets()
	local modules = {
		["evalframe.eval"] = callable({}, by_name("suite", suite)),
		["evalframe.eval.report"] = report,
		["evalframe.eval.stats"] = own_stats,
		["evalframe.eval.loader"] = { load_file = load_file },
		["evalframe.model.case"] = case,
		["evalframe.model.grader"] = grader,
		["evalframe.model.scorer"] = scorer,
		["evalframe.model.binding"] = bind,
		["evalframe.presets.graders"] = own_graders,
		["evalframe.presets.scorers"] = own_scorers,
		["evalframe.presets.llm_graders"] = llm_graders,
		["evalframe.providers.mock"] = mock,
		["evalframe.providers.claude_cli"] = model,
		["evalframe.providers.algocline"] = strategy,
		["evalframe.variants"] = variants,
		["evalframe.std"] = env.std,
		["evalframe.swarm"] = host.load("evalswarm")(mark_grader),
	}
	modules["evalframe.swarm.graders"] = modules["evalframe.swarm"].graders
	modules["evalframe.swarm.analysis"] = modules["evalframe.swarm"].analysis
	modules.evalframe = {
		suite = modules["evalframe.eval"],
		report = report,
		stats = own_stats,
		load_cases = load_file,
		case = case,
		grader = grader,
		scorer = scorer,
		bind = bind,
		graders = own_graders,
		scorers = own_scorers,
		llm_graders = llm_graders,
		providers = { mock = mock, claude_cli = model, algocline = strategy },
		variants = variants.generate,
		vary = variants.vary,
		std = env.std,
	}
	return modules
end
