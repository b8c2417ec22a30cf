-- Ants that follow scent from a nest to food; the scent lies in a sparse map of places, and fades in every round.
local random = math.random
local SIZE, NEST = 40, 820
local scent, ants = {}, {}
for i = 1, 50 do ants[i] = { at = NEST, has_food = false, trail = {} } end
local STEPS = { -1, 1, -SIZE, SIZE }

local found = 0
for _ = 1, 600 do
	for _, ant in ipairs(ants) do
		local best, most = nil, -1
		for _, step in ipairs(STEPS) do
			local place = ant.at + step
			if place > 0 and place <= SIZE * SIZE then
				local value = (scent[place] or 0) + random() * 2
				if value > most then best, most = place, value end
			end
		end
		ant.at = best
		ant.trail[#ant.trail + 1] = best
		if best % SIZE == 7 and not ant.has_food then
			found = found + 1
			for _, place in ipairs(ant.trail) do scent[place] = (scent[place] or 0) + 1 / #ant.trail end
			ant.at, ant.trail = NEST, {}
		end
		if #ant.trail > 60 then ant.at, ant.trail = NEST, {} end
	end
	for place, strength in pairs(scent) do
		if strength < 0.01 then scent[place] = nil else scent[place] = strength * 0.95 end
	end
end
return found
