-- What the failures of a card's samples have in common, and one change that would help: asked of a model.

local MOST_SHOWN, MOST_CHARS = 8, 600

local FAILED = { fail = true, failed = true, error = true }

local function has_failed(sample)
	if type(sample) ~= "table" then return false end
	if sample.passed == false or FAILED[sample.status] or FAILED[sample.admission] then return true end
	return type(sample.score) == "number" and sample.score < 0.5
end

local samples = type(ctx.samples) == "table" and ctx.samples or {}
local failures = alc.filter(samples, has_failed)
local looked_at = #failures > 0 and failures or samples

local shown = {}
for i = 1, math.min(#looked_at, MOST_SHOWN) do
	shown[i] = ("%d. %s"):format(i, alc.json_encode(looked_at[i]):sub(1, MOST_CHARS))
end

if #shown == 0 then
	return {
		pattern = "the card has no samples", suggested_change = "write samples with alc.card.write_samples",
		confidence = 0.0, failure_count = 0, sample_count = 0,
	}
end

local card = alc.json_encode(ctx.card):sub(1, 4 * MOST_CHARS)
local found, raw = alc.llm_json(
	"A run of an LLM strategy left this card:\n" .. card .. "\n\n"
		.. (#failures > 0 and "These samples failed:\n" or "No sample is marked as failed. The first ones:\n")
		.. table.concat(shown, "\n")
		.. '\n\nWhat do they have in common, and which single change of the prompt or the code would help most?'
		.. ' Answer with JSON: {"pattern": one line, "suggested_change": one concrete change,'
		.. ' "confidence": a number from 0 to 1}'
)
found = found or { pattern = raw, suggested_change = "", confidence = 0.0 }
return {
	pattern = tostring(found.pattern or ""),
	suggested_change = tostring(found.suggested_change or ""),
	confidence = math.max(0.0, math.min(1.0, tonumber(found.confidence) or 0.0)),
	failure_count = #failures,
	sample_count = #samples,
}
