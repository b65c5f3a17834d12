package jsonx

import "strconv"

// Numbers reads a checked array that holds nothing but finite numbers: ints when
// all of them are integers of 64 bits, floats when one is not an integer. It
// reports false for everything else, an empty array included. Lists of token
// ids and probabilities are long, and a value of its own for each element is
// what reading them would cost most.
func Numbers(src Raw) (ints []int64, floats []float64, ok bool) {
	i := skipSpace(src, 0)
	if i >= len(src) || src[i] != '[' {
		return nil, nil, false
	}
	ints = make([]int64, 0, 1+len(src)/6)
	for i = skipSpace(src, i+1); ; i = skipSpace(src, i+1) {
		if i >= len(src) || src[i] != '-' && (src[i] < '0' || src[i] > '9') {
			return nil, nil, false
		}
		end, err := skipNumber(src, i)
		if err != nil {
			return nil, nil, false
		}
		text := src[i:end]
		if text[len(text)-1] == 'y' { // -Infinity
			return nil, nil, false
		}
		if floats == nil && !IsFloat(text) {
			n, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				return nil, nil, false
			}
			ints = append(ints, n)
		} else {
			if floats == nil {
				floats = make([]float64, len(ints), 1+len(src)/8+len(ints))
				for at, n := range ints {
					floats[at] = float64(n)
				}
			}
			f, err := strconv.ParseFloat(string(text), 64)
			if err != nil { // beyond the range
				return nil, nil, false
			}
			floats = append(floats, f)
		}
		if i = skipSpace(src, end); i >= len(src) {
			return nil, nil, false
		}
		if src[i] == ']' {
			return ints, floats, endOfText(src, i+1) == nil
		}
		if src[i] != ',' {
			return nil, nil, false
		}
	}
}
