-- One program of the VM: its globals with `alc`, `ctx` and `std`. The main program is one, and every child of a fork.

local host = ...
local sandbox = host.load("sandbox")

local EAGER = { "bridge", "queries", "text", "prelude", "fork" }

-- What few programs use is loaded when it is first touched, which keeps a VM small.
local LAZY = {
	math = function()
		local own = {} -- a copy, so that what one program puts into it is not seen by the others
		for name, value in next, host.load("math") do own[name] = value end
		return own
	end,
	card = function(alc, task)
		host.load("card")(alc, task)
		return rawget(alc, "card")
	end,
	eval = function(alc, task)
		host.load("eval")(alc, task)
		return rawget(alc, "eval")
	end,
}

return function(task)
	local env = sandbox.globals(task)
	local alc = {}
	for _, name in ipairs(EAGER) do host.load(name)(alc, task) end
	setmetatable(alc, {
		__index = function(t, key)
			local make = LAZY[key]
			if not make then return nil end
			local value = make(alc, task)
			rawset(t, key, value)
			return value
		end,
	})
	env.alc = alc
	env.ctx = task.ctx
	env.std = host.load("std")
	task.env = env
	return env
end
