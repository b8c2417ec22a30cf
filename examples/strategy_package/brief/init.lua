--- brief: a summary that is checked against its source before it is returned.
local M = {}

M.meta = {
	name = "brief",
	version = "0.1.0",
	category = "writing",
	description = "Summarise a text, and take out what the text does not say",
}

local function ask(prompt, system) return alc.llm(prompt, { system = system, max_tokens = 400 }) end

--- ctx.task: the text; ctx.sentences: how long the summary may be (3).
function M.run(ctx)
	if type(ctx.task) ~= "string" or ctx.task == "" then error("brief.run: ctx.task is required") end
	local sentences = ctx.sentences or 3
	local draft = ask("Summarise in at most " .. sentences .. " sentences:\n\n" .. ctx.task)
	local claims = ask("List what in this summary the text does not say, or say NONE.\n\nText:\n" .. ctx.task
		.. "\n\nSummary:\n" .. draft, "You check facts. You add nothing.")
	if claims:find("NONE", 1, true) then
		ctx.result = draft
	else
		ctx.result = ask("Rewrite the summary without this:\n" .. claims .. "\n\nSummary:\n" .. draft)
	end
	ctx.corrected = ctx.result ~= draft
	return ctx
end

return M
