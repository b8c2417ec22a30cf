-- Traders who exchange goods by what each is worth to them; goods are named, so tables are walked by name.
local random, floor = math.random, math.floor
local GOODS = { "bread", "cloth", "salt", "tea", "wine", "wood" }
local traders = {}
for i = 1, 60 do
	local stock, worth = {}, {}
	for _, good in ipairs(GOODS) do
		stock[good] = random(10)
		worth[good] = random() + 0.1
	end
	traders[i] = { stock = stock, worth = worth, money = 50 }
end

local function wealth(trader)
	local sum = trader.money
	for good, count in pairs(trader.stock) do sum = sum + count * trader.worth[good] end
	return sum
end

local prices = {}
for _, good in ipairs(GOODS) do prices[good] = 1.0 end
for _ = 1, 300 do
	local demand = {}
	for _ = 1, 120 do
		local buyer, seller = traders[random(#traders)], traders[random(#traders)]
		local good = GOODS[random(#GOODS)]
		local price = prices[good]
		if buyer ~= seller and seller.stock[good] > 0 and buyer.money > price and buyer.worth[good] > seller.worth[good] then
			buyer.stock[good], seller.stock[good] = buyer.stock[good] + 1, seller.stock[good] - 1
			buyer.money, seller.money = buyer.money - price, seller.money + price
			demand[good] = (demand[good] or 0) + 1
		end
	end
	for good, count in pairs(demand) do prices[good] = prices[good] * (1 + (count - 3) * 0.01) end
	local richest = 0
	for _, trader in ipairs(traders) do richest = math.max(richest, wealth(trader)) end
	traders[1].money = traders[1].money + richest * 0.001
end
local total = 0
for _, trader in ipairs(traders) do total = total + wealth(trader) end
return floor(total)
