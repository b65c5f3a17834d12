package cli

// diffContext is how many unchanged lines are shown around a change.
const diffContext = 3

// diffCells bounds the work of a comparison.
const diffCells = 1 << 24

// diffLines compares two texts line by line and returns the lines that differ,
// marked with - and +, with some unchanged ones around them; nil when there is
// no difference. It keeps the longest common sequence of lines, unless finding it
// would take more than diffCells of memory.
func diffLines(a, b []string) []string {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	ma, mb := a[start:len(a)-end], b[start:len(b)-end]
	if len(ma) == 0 && len(mb) == 0 {
		return nil
	}
	var out []string
	for _, line := range a[max(0, start-diffContext):start] {
		out = append(out, "  "+line)
	}
	out = append(out, diffMiddle(ma, mb)...)
	for _, line := range a[len(a)-end : min(len(a), len(a)-end+diffContext)] {
		out = append(out, "  "+line)
	}
	return out
}

// diffMiddle compares what is left of two texts without what they begin and end
// with in common.
func diffMiddle(ma, mb []string) []string {
	// common[i][j] is the length of the longest common sequence of ma[i:] and mb[j:].
	common := make([][]int32, len(ma)+1)
	width := len(mb) + 1
	if (len(ma)+1)*width > diffCells {
		width = 0
	}
	for i := range common {
		common[i] = make([]int32, width)
	}
	for i := len(ma) - 1; i >= 0 && width > 0; i-- {
		for j := len(mb) - 1; j >= 0; j-- {
			if ma[i] == mb[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(ma) || j < len(mb) {
		switch {
		case width > 0 && i < len(ma) && j < len(mb) && ma[i] == mb[j]:
			out = append(out, "  "+ma[i])
			i, j = i+1, j+1
		case j == len(mb) || i < len(ma) && (width == 0 || common[i+1][j] >= common[i][j+1]):
			out = append(out, "- "+ma[i])
			i++
		default:
			out = append(out, "+ "+mb[j])
			j++
		}
	}
	return out
}
