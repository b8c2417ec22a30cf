-- Three people answer, each judges the others' answers, and the best answer becomes advice for the team.
-- Run it with `holdfast run examples/panel.lua --task "How do we make releases less scary?"`.

local ROLES = {
	{ name = "engineer", view = "You build software: what would you do first?" },
	{ name = "tester", view = "You look for what goes wrong: what must not be missed?" },
	{ name = "manager", view = "You plan with little time: what is worth it?" },
}

-- A caller may pass other roles: --ctx '{"roles": [...]}'.
local settings = alc.tuning({ roles = ROLES, max_tokens = 300 }, ctx)
local roles = settings.roles

-- Everyone answers at once: one pause. Unknown options such as `role` are passed on to whoever answers.
alc.progress(1, 3, "answering")
local answers = alc.parallel(roles, function(role)
	local system = role.view .. " Answer in three sentences."
	return { prompt = ctx.task, system = system, max_tokens = settings.max_tokens, role = role.name }
end)

-- Everyone judges all answers except their own, again in one pause.
alc.progress(2, 3, "judging")
local ballots, judged = {}, {}
for j, judge in ipairs(roles) do
	for a, answer in ipairs(answers) do
		if j ~= a then
			ballots[#ballots + 1] = {
				prompt = alc.fmt("Question: %s\n\nAnswer: %s\n\nHow good is it, from 1 to 10?", ctx.task, answer),
				system = judge.view .. " Answer with the number only.",
				max_tokens = 10,
			}
			judged[#ballots] = a
		end
	end
end
local scores = alc.map(roles, function() return {} end)
for i, verdict in ipairs(alc.llm_batch(ballots)) do
	table.insert(scores[judged[i]], alc.parse_score(verdict))
end

local best, best_mean
for i, role in ipairs(roles) do
	local mean = alc.math.mean(scores[i])
	alc.stats.record("score_" .. role.name, mean)
	if not best or mean > best_mean then best, best_mean = i, mean end
end
alc.log("info", alc.fmt("the best answer is that of the %s, with %.1f", roles[best].name, best_mean))

alc.progress(3, 3, "writing")
local advice = alc.llm("Put this into one paragraph for the whole team:\n\n" .. answers[best])

return { advice = advice, from = roles[best].name, score = best_mean }
