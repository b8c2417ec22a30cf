-- Birds that keep together: every one looks at every other one.
local random, sqrt = math.random, math.sqrt
local flock = {}
for i = 1, 60 do flock[i] = { x = random() * 100, y = random() * 100, vx = random() - 0.5, vy = random() - 0.5 } end

local function step()
	for i = 1, #flock do
		local bird = flock[i]
		local near, cx, cy, ax, ay, sx, sy = 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
		for j = 1, #flock do
			if i ~= j then
				local other = flock[j]
				local dx, dy = other.x - bird.x, other.y - bird.y
				local distance = sqrt(dx * dx + dy * dy)
				if distance < 25 then
					near = near + 1
					cx, cy, ax, ay = cx + other.x, cy + other.y, ax + other.vx, ay + other.vy
					if distance < 5 and distance > 0 then sx, sy = sx - dx / distance, sy - dy / distance end
				end
			end
		end
		if near > 0 then
			bird.vx = bird.vx + (cx / near - bird.x) * 0.005 + (ax / near - bird.vx) * 0.05 + sx * 0.05
			bird.vy = bird.vy + (cy / near - bird.y) * 0.005 + (ay / near - bird.vy) * 0.05 + sy * 0.05
		end
	end
	for _, bird in ipairs(flock) do
		bird.x, bird.y = (bird.x + bird.vx) % 100, (bird.y + bird.vy) % 100
	end
end

for _ = 1, 100 do step() end
local total = 0.0
for _, bird in pairs(flock) do total = total + bird.x + bird.y end
return math.floor(total)
