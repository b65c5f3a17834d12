package chart

import "strings"

// Glyph sizes in cells. A cell is [Chart.Draw]'s scale in pixels.
const (
	GlyphWidth  = 3
	GlyphHeight = 5
)

// font has what charts write: digits, and the letters of the months.
var font = map[rune]string{
	'0': "### #.# #.# #.# ###", '1': ".#. ##. .#. .#. ###", '2': "### ..# ### #.. ###", '3': "### ..# ### ..# ###", '4': "#.# #.# ### ..# ..#",
	'5': "### #.. ### ..# ###", '6': "### #.. ### #.# ###", '7': "### ..# ..# .#. .#.", '8': "### #.# ### #.# ###", '9': "### #.# ### ..# ###",
	'A': ".#. #.# ### #.# #.#", 'B': "##. #.# ##. #.# ##.", 'C': ".## #.. #.. #.. .##", 'D': "##. #.# #.# #.# ##.", 'E': "### #.. ##. #.. ###",
	'F': "### #.. ##. #.. #..", 'G': ".## #.. #.# #.# .##", 'J': "..# ..# ..# #.# .#.", 'L': "#.. #.. #.. #.. ###", 'M': "#.# ### ### #.# #.#",
	'N': "##. #.# #.# #.# #.#", 'O': ".#. #.# #.# #.# .#.", 'P': "##. #.# ##. #.. #..", 'R': "##. #.# ##. #.# #.#", 'S': ".## #.. .#. ..# ##.",
	'T': "### .#. .#. .#. .#.", 'U': "#.# #.# #.# #.# ###", 'V': "#.# #.# #.# #.# .#.", 'Y': "#.# #.# .#. .#. .#.",
}

// Glyph returns which cells of a character are black, row by row; false when the
// font does not have it.
func Glyph(r rune) (rows [GlyphHeight][GlyphWidth]bool, ok bool) {
	text, ok := font[r]
	for y, row := range strings.Fields(text) {
		for x, c := range row {
			rows[y][x] = c == '#'
		}
	}
	return rows, ok
}

// Known returns the character with these cells; false when there is none.
func Known(rows [GlyphHeight][GlyphWidth]bool) (rune, bool) {
	for r := range font {
		if got, _ := Glyph(r); got == rows {
			return r, true
		}
	}
	return 0, false
}
