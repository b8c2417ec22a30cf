--- Specs of brief: the answers of the model are those of the spec.
local describe, it, expect = lust.describe, lust.it, lust.expect

local function answering(...)
	local answers, asked = { ... }, {}
	_G.alc = {
		llm = function(prompt)
			asked[#asked + 1] = prompt
			return answers[#asked]
		end,
	}
	return asked
end

describe("brief.run", function()
	lust.after(function() _G.alc = nil end)

	it("returns a summary that holds as it is", function()
		local asked = answering("Kelp is an alga.", "NONE")
		local ctx = require("brief").run({ task = "Kelp is a large brown alga." })
		expect(#asked).to.equal(2)
		expect(ctx.result).to.equal("Kelp is an alga.")
		expect(ctx.corrected).to.equal(false)
	end)

	it("takes out what the text does not say", function()
		local asked = answering("Kelp is an alga, and tasty.", "that it is tasty", "Kelp is an alga.")
		local ctx = require("brief").run({ task = "Kelp is a large brown alga." })
		expect(asked[3]:find("that it is tasty", 1, true)).to.exist()
		expect(ctx.corrected).to.equal(true)
	end)

	it("needs a task", function()
		expect(function() require("brief").run({}) end).to.fail.with("ctx.task is required")
	end)
end)
