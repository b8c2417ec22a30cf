-- The program that runs one spec file: it gives the file what specs expect to find (`lust`, `with_alc`, doubles), runs
-- it, and returns what passed and what failed. It is an ordinary program, trusted or not; `ctx` says which file and how,
-- and holds the text of the file if that cannot be opened here.

local job = ctx
local alc, env = alc, _G
local error, ipairs, load, open = error, ipairs, load, io.open

-- Specs are written for a VM without it.
ctx = nil

local function source(name)
	local chunk, why = load(job.sources[name], "=holdfast/" .. name, "t", env)
	if not chunk then error(why, 0) end
	return chunk
end

-- A line for each test that begins: how many passed before it, and its name. If the process has to be killed, this is
-- all that is left of the run. In the sandbox nothing is.
local trail = job.trail and open(job.trail, "w")
if trail then trail:setvbuf("line") end

local passed, failures = 0, {}

local function report(kind, name, message, position)
	if kind == "start" then
		if trail then trail:write(passed, "\t", (name:gsub("%c", " ")), "\n") end
	elseif kind == "passed" then
		passed = passed + 1
	elseif kind == "failed" then
		failures[#failures + 1] = { name = name, message = message, position = position }
	end
end

local kit = { report = report, spec_source = "@" .. job.name }
local lust = source("lust")(kit)
local live = job.live and source("live")(alc, env, job.root) or nil

-- A test brings its own answers. Without them a call has nobody to ask.
for _, name in ipairs({ "llm", "llm_batch", "llm_each", "fork" }) do
	alc[name] = function()
		error("mock required: alc." .. name .. " was called in a test that has no answer for it; give one with"
			.. " with_alc({ " .. name .. " = … }, function() … end), or assign a table to _G.alc", 2)
	end
	if live then live.leave_alone(alc[name]) end
end

env.package.path = job.package_path
env.lust = lust
env.package.loaded.lust = lust
source("doubles")(alc, env, live and live.wrap)
if live then live.install() end

local function file_text()
	if job.text then return job.text end
	local file, why = open(job.path, "rb")
	if not file then error(why, 0) end
	local text = file:read("a")
	file:close()
	return text
end

kit.attempt("(the file itself)", function()
	local chunk, problem = load((file_text():gsub("^#[^\n]*", "")), "@" .. job.name, "t", env)
	if not chunk then error(problem, 0) end
	chunk()
end)

if trail then trail:close() end
local results = lust.get_results()
return { passed = results.passed, failed = results.failed, pending = results.pending, failures = failures }
