-- An epidemic among people who meet at random: susceptible, infected, recovered; counted by state in every round.
local random = math.random
local people = {}
for i = 1, 400 do people[i] = { id = i, state = "S", days = 0, contacts = 2 + i % 5 } end
for i = 1, 5 do people[i].state = "I" end

local function counts()
	local by_state = { S = 0, I = 0, R = 0 }
	for _, person in ipairs(people) do by_state[person.state] = by_state[person.state] + 1 end
	return by_state
end

local history = {}
for day = 1, 300 do
	local newly = {}
	for i = 1, #people do
		local person = people[i]
		if person.state == "I" then
			for _ = 1, person.contacts do
				local other = people[random(#people)]
				if other.state == "S" and random() < 0.2 then newly[#newly + 1] = other end
			end
			person.days = person.days + 1
			if person.days > 9 then person.state = "R" end
		end
	end
	for _, person in ipairs(newly) do person.state = "I" end
	local total = 0
	for state, count in pairs(counts()) do total = total + count * #state end
	history[day] = total + counts().I
end
local sum = 0
for _, value in ipairs(history) do sum = sum + value end
return sum
