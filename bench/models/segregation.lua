-- Neighbours of two kinds on a grid: whoever has too few alike around moves to a free place.
local random = math.random
local SIZE = 24
local grid, free = {}, {}
for y = 1, SIZE do
	grid[y] = {}
	for x = 1, SIZE do
		local draw = random()
		if draw < 0.45 then grid[y][x] = "a" elseif draw < 0.9 then grid[y][x] = "b" else free[#free + 1] = { x = x, y = y } end
	end
end

local function is_content(x, y)
	local own, alike, all = grid[y][x], 0, 0
	for dy = -1, 1 do
		local row = grid[(y + dy - 1) % SIZE + 1]
		for dx = -1, 1 do
			if dx ~= 0 or dy ~= 0 then
				local other = row[(x + dx - 1) % SIZE + 1]
				if other then
					all = all + 1
					if other == own then alike = alike + 1 end
				end
			end
		end
	end
	return all == 0 or alike / all >= 0.4
end

local moved = 0
for _ = 1, 120 do
	local movers = {}
	for y = 1, SIZE do
		for x = 1, SIZE do
			if grid[y][x] and not is_content(x, y) then movers[#movers + 1] = { x = x, y = y } end
		end
	end
	for _, mover in ipairs(movers) do
		local at = random(#free)
		local place = free[at]
		grid[place.y][place.x], grid[mover.y][mover.x] = grid[mover.y][mover.x], nil
		free[at] = mover
		moved = moved + 1
	end
end
return moved
