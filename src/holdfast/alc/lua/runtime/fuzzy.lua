-- Texts as people see them: characters, lower case, words, and how alike two words are. Loaded by the few functions of
-- `alc` that need it.

local byte, find, gmatch, gsub, lower, sub =
	string.byte, string.find, string.gmatch, string.gsub, string.lower, string.sub
local max, min, table_move = math.max, math.min, table.move
local utf8_char, utf8_codepoint, utf8_len = utf8.char, utf8.codepoint, utf8.len

-- Characters --------------------------------------------------------------------------------------------------------

-- The code points of a text as an array of strings. A byte that belongs to none stands for itself, so that nothing of
-- the text is lost.
local function characters(text)
	local chars, n, i = {}, 0, 1
	if utf8_len(text) then
		for char in gmatch(text, "[\0-\127\194-\244][\128-\191]*") do
			n = n + 1
			chars[n] = char
		end
		return chars, n
	end
	while i <= #text do
		local first = byte(text, i)
		local length = first < 0xC2 and 1 or first < 0xE0 and 2 or first < 0xF0 and 3 or 4
		if not utf8_len(sub(text, i, i + length - 1)) then length = 1 end
		n = n + 1
		chars[n] = sub(text, i, i + length - 1)
		i = i + length
	end
	return chars, n
end

local LOWER = {}
do
	local function range(first, last, distance)
		for code = first, last do LOWER[utf8_char(code)] = utf8_char(code + distance) end
	end
	local function pairs_of(first, last)
		for code = first, last, 2 do LOWER[utf8_char(code)] = utf8_char(code + 1) end
	end
	range(0xC0, 0xD6, 32)
	range(0xD8, 0xDE, 32)
	pairs_of(0x100, 0x12E)
	pairs_of(0x132, 0x136)
	pairs_of(0x139, 0x147)
	pairs_of(0x14A, 0x176)
	pairs_of(0x179, 0x17D)
	range(0x178, 0x178, -121)
	range(0x386, 0x386, 38)
	range(0x388, 0x38A, 37)
	range(0x38C, 0x38C, 64)
	range(0x38E, 0x38F, 63)
	range(0x391, 0x3A1, 32)
	range(0x3A3, 0x3AB, 32)
	range(0x400, 0x40F, 80)
	range(0x410, 0x42F, 32)
	pairs_of(0x460, 0x480)
	pairs_of(0x48A, 0x4BE)
	pairs_of(0x4D0, 0x52E)
	pairs_of(0x1E00, 0x1E94)
	pairs_of(0x1EA0, 0x1EFE)
	range(0xFF21, 0xFF3A, 32)
end

-- Lower case for ASCII, Latin, Greek, Cyrillic and full-width letters.
local function lower_case(text)
	text = lower(text)
	if find(text, "[\195-\239]") then text = gsub(text, "[\195-\239][\128-\191]+", LOWER) end
	return text
end

-- Code points from 128 on that are neither letters nor digits: punctuation, symbols, pictures. Pairs of first and last.
local SIGNS = {
	0x80, 0xA9, 0xAB, 0xB1, 0xB4, 0xB4, 0xB6, 0xB8, 0xBB, 0xBB, 0xBF, 0xBF, 0xD7, 0xD7, 0xF7, 0xF7, 0x2000, 0x206F,
	0x20A0, 0x20CF, 0x2190, 0x245F, 0x2500, 0x2775, 0x2794, 0x2BFF, 0x2E00, 0x2E7F, 0x3000, 0x3004, 0x3008, 0x3020,
	0x3030, 0x3030, 0x303D, 0x303F, 0x30FB, 0x30FB, 0xE000, 0xF8FF, 0xFD3E, 0xFD3F, 0xFE00, 0xFE6F, 0xFF00, 0xFF0F,
	0xFF1A, 0xFF20, 0xFF3B, 0xFF40, 0xFF5B, 0xFF65, 0xFFE0, 0xFFFF, 0x1F000, 0x1F0FF, 0x1F10D, 0x1F12F, 0x1F200,
	0x1FAFF,
}
local BLANKS = {
	["\t"] = true, ["\n"] = true, ["\v"] = true, ["\f"] = true, ["\r"] = true, [" "] = true, ["\u{85}"] = true,
	["\u{A0}"] = true, ["\u{1680}"] = true, ["\u{2028}"] = true, ["\u{2029}"] = true, ["\u{202F}"] = true,
	["\u{205F}"] = true, ["\u{3000}"] = true,
}
for code = 0x2000, 0x200A do BLANKS[utf8_char(code)] = true end

local function is_alphanumeric(char)
	if #char == 1 then return find(char, "^[0-9A-Za-z]$") ~= nil end
	local code = utf8_codepoint(char)
	for i = 1, #SIGNS, 2 do
		if code < SIGNS[i] then return true end
		if code <= SIGNS[i + 1] then return false end
	end
	return true
end

-- The words of a text, each an array of characters without what is not alphanumeric at its ends.
local function words(text)
	local found, chars, count = {}, characters(text)
	local i = 1
	while i <= count do
		local from = i
		while i <= count and not BLANKS[chars[i]] do i = i + 1 end
		local last = i - 1
		while from <= last and not is_alphanumeric(chars[from]) do from = from + 1 end
		while from <= last and not is_alphanumeric(chars[last]) do last = last - 1 end
		if from <= last then found[#found + 1] = table_move(chars, from, last, 1, {}) end
		i = i + 1
	end
	return found
end

-- Similarity --------------------------------------------------------------------------------------------------------

local function jaro(a, b)
	local a_count, b_count = #a, #b
	if a_count == 0 or b_count == 0 then return a_count == b_count and 1.0 or 0.0 end
	local reach = max(max(a_count, b_count) // 2 - 1, 0)
	local a_matched, b_taken, matches = {}, {}, 0
	for i = 1, a_count do
		for j = max(1, i - reach), min(b_count, i + reach) do
			if not b_taken[j] and a[i] == b[j] then
				matches = matches + 1
				a_matched[matches], b_taken[j] = a[i], true
				break
			end
		end
	end
	if matches == 0 then return 0.0 end
	local out_of_place, k = 0, 0
	for j = 1, b_count do
		if b_taken[j] then
			k = k + 1
			if a_matched[k] ~= b[j] then out_of_place = out_of_place + 1 end
		end
	end
	return (matches / a_count + matches / b_count + (matches - out_of_place // 2) / matches) / 3.0
end

-- Jaro with a bonus for a common beginning of up to four characters, given only above 0.7.
local function jaro_winkler(a, b)
	local similarity = jaro(a, b)
	if similarity <= 0.7 then return similarity end
	local common = 0
	while common < 4 and a[common + 1] ~= nil and a[common + 1] == b[common + 1] do common = common + 1 end
	return similarity + 0.1 * common * (1.0 - similarity)
end

return { characters = characters, lower_case = lower_case, words = words, jaro_winkler = jaro_winkler }
